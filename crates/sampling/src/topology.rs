//! [`Topology`]: the source of a hop's draws.

use girih_graph_format::Csr;

use crate::draw;
use crate::key::Scheme;
use crate::{DrawKey, Draws, Neighbors, NodeId, Patch, SampleError};

/// Source of the neighbours for a [`NeighborSampler`](crate::NeighborSampler): a local graph, or patches of one that
/// other ranks hold. The owner of a patch makes its draws; they do not depend on the owner.
pub trait Topology {
    /// Error of a failed hop.
    type Error: From<SampleError>;

    /// Number of nodes of the whole graph.
    fn n_nodes(&self) -> usize;

    /// Draws of a hop, or the rows to draw from. A sampler calls this once for every hop, also where no node draws.
    ///
    /// # Errors
    /// When the draws are not available.
    fn hop<'a>(&'a mut self, hop: &Hop<'a>) -> Result<HopSource<'a>, Self::Error>;
}

/// Request of a hop: its frontier and the rule of its draws.
#[derive(Clone, Copy, Debug)]
pub struct Hop<'a> {
    /// Nodes that draw, each listed once.
    pub frontier: &'a [NodeId],
    /// Number of neighbours: of each node, or of all nodes together.
    pub neighbors: Neighbors,
    /// Scope of the draws of the hop.
    pub draws: Draws,
    /// Draw with replacement.
    pub replace: bool,
    /// Return the positions of edges in the whole graph.
    pub edge_ids: bool,
    /// Key of the batch.
    pub key: DrawKey,
    /// Number of hops before this one.
    pub number: u32,
}

impl Hop<'_> {
    /// Number of draws [per layer](Draws::PerLayer) that each node makes, from the row weights of all nodes of the
    /// hop.
    ///
    /// `None` where nodes do not divide draws.
    #[must_use]
    pub fn shares(&self, weights: &[f64]) -> Option<Vec<u32>> {
        match (self.draws, self.neighbors) {
            (Draws::PerLayer, Neighbors::Count(count)) => {
                Some(draw::shares(weights, count, self.key.hop(Scheme::Neighbors, self.number)))
            }
            _ => None,
        }
    }

    /// Whether nodes divide draws. If so, the weights of all their rows have to be known before any node draws.
    #[must_use]
    pub fn has_shares(&self) -> bool {
        self.draws == Draws::PerLayer && self.neighbors != Neighbors::All
    }
}

/// Source of the draws of a hop.
#[derive(Clone, Copy, Debug)]
pub enum HopSource<'a> {
    /// The caller draws from these rows, which have all nodes of the frontier.
    Rows(Patch<'a>),
    /// Draws made elsewhere.
    Drawn(&'a DrawnHop),
}

/// Draws of the nodes of a hop, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct DrawnHop {
    /// Offsets of the edges of each node; the last is their number.
    pub indptr: Vec<u64>,
    /// Source of each edge, in the order of the draws.
    pub sources: Vec<NodeId>,
    /// Position of each edge in the whole graph, if wanted.
    pub edge_ids: Vec<u64>,
    /// Edge weight of each node; empty where all edges count alike.
    pub node_weights: Vec<f32>,
}

impl Default for DrawnHop {
    fn default() -> Self {
        Self { indptr: vec![0], sources: Vec::new(), edge_ids: Vec::new(), node_weights: Vec::new() }
    }
}

impl DrawnHop {
    /// Clears the draws and keeps the memory.
    pub fn clear(&mut self) {
        self.indptr.truncate(1);
        self.sources.clear();
        self.edge_ids.clear();
        self.node_weights.clear();
    }
}

/// Topology of a local graph.
pub(crate) struct Here<'g>(pub(crate) &'g Csr);

impl Topology for Here<'_> {
    type Error = SampleError;

    fn n_nodes(&self) -> usize {
        self.0.n_rows()
    }

    fn hop<'a>(&'a mut self, _: &Hop<'a>) -> Result<HopSource<'a>, SampleError> {
        Ok(HopSource::Rows(Patch::whole(self.0)))
    }
}
