//! [`Topology`]: where the draws of a hop come from.

use girih_graph_format::Csr;

use crate::draw;
use crate::key::Scheme;
use crate::{DrawKey, Draws, Neighbors, NodeId, Patch, SampleError};

/// Where a [`NeighborSampler`](crate::NeighborSampler) finds the neighbours of nodes: a graph that is here, or patches
/// of one that others hold, who then make the draws. Whoever makes them, they are the same.
pub trait Topology {
    /// Why draws could not be had.
    type Error: From<SampleError>;

    /// Number of nodes of the whole graph.
    fn n_nodes(&self) -> usize;

    /// The draws of a hop, or the rows to make them from. A sampler asks once for every hop, also where no node draws.
    ///
    /// # Errors
    /// When they cannot be had.
    fn hop<'a>(&'a mut self, hop: &Hop<'a>) -> Result<HopSource<'a>, Self::Error>;
}

/// What a hop draws, and for which nodes.
#[derive(Clone, Copy, Debug)]
pub struct Hop<'a> {
    /// The nodes that draw, each of them once.
    pub frontier: &'a [NodeId],
    /// How many neighbours: of each node, or of all together.
    pub neighbors: Neighbors,
    /// What nodes share when they draw.
    pub draws: Draws,
    /// Draw with replacement.
    pub replace: bool,
    /// The positions of edges in the whole graph are wanted.
    pub edge_ids: bool,
    /// Which batch draws.
    pub key: DrawKey,
    /// Hops before this one.
    pub number: u32,
}

impl Hop<'_> {
    /// How many of the draws [per layer](Draws::PerLayer) each node makes, from the weights of the rows of all of them.
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

    /// Whether nodes divide draws, so that the weights of all their rows have to be known before one draws.
    #[must_use]
    pub fn has_shares(&self) -> bool {
        self.draws == Draws::PerLayer && self.neighbors != Neighbors::All
    }
}

/// Where the draws of a hop come from.
#[derive(Clone, Copy, Debug)]
pub enum HopSource<'a> {
    /// They are to be made from these rows, which have all nodes of the frontier.
    Rows(Patch<'a>),
    /// They were made.
    Drawn(&'a DrawnHop),
}

/// What the nodes of a hop drew, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct DrawnHop {
    /// Offsets of the edges of each node, and their number.
    pub indptr: Vec<u64>,
    /// The source of each edge, in the order of the draws.
    pub sources: Vec<NodeId>,
    /// The position of each edge in the whole graph, if wanted.
    pub edge_ids: Vec<u64>,
    /// What an edge of each node counts; empty where all count alike.
    pub node_weights: Vec<f32>,
}

impl Default for DrawnHop {
    fn default() -> Self {
        Self { indptr: vec![0], sources: Vec::new(), edge_ids: Vec::new(), node_weights: Vec::new() }
    }
}

impl DrawnHop {
    /// Forgets the draws and keeps the memory.
    pub fn clear(&mut self) {
        self.indptr.truncate(1);
        self.sources.clear();
        self.edge_ids.clear();
        self.node_weights.clear();
    }
}

/// A graph that is here.
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
