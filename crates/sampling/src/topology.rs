//! [`Topology`]: the source of a hop's draws, and the draws of a patch.

use girih_graph_format::Csr;

use crate::draw::{self, Drawn, HopRule, Rule};
use crate::key::Scheme;
use crate::sampler::check_bias;
use crate::{Bias, DrawKey, DrawScratch, Draws, ExcludedEdges, Neighbors, NodeId, Patch, SampleError};

/// Source of the neighbors for a [`NeighborSampler`](crate::NeighborSampler): a local graph, or patches of one that
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
    /// Number of neighbors: of each node, or of all nodes together.
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

    /// Rule of the draws of this hop.
    fn rule<'b>(&self, bias: Option<&'b Bias>, excluded: &'b ExcludedEdges) -> Rule<'b> {
        Rule { neighbors: self.neighbors, draws: self.draws, replace: self.replace, bias, excluded }
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

impl Patch<'_> {
    /// Draws for the nodes of a hop's frontier, in their order; all of them are nodes of this patch. Draws [per
    /// layer] need the shares of the nodes. [`Hop::shares`] computes them from the [weights](Self::row_weights) of
    /// all nodes of the hop.
    ///
    /// [per layer]: Draws::PerLayer
    ///
    /// # Errors
    /// When a node is outside this patch, or the number of shares is wrong. When the weights are not those of the
    /// patch's edges, or LABOR is to draw by weights.
    pub fn draw(
        self,
        hop: &Hop<'_>,
        shares: Option<&[u32]>,
        bias: Option<&Bias>,
        scratch: &mut DrawScratch,
        drawn: &mut DrawnHop,
    ) -> Result<(), SampleError> {
        self.check(hop.frontier, bias)?;
        if hop.draws == Draws::Labor && bias.is_some() {
            return Err(labor_with_weights());
        }
        let found = shares.map(<[u32]>::len);
        if found != hop.has_shares().then_some(hop.frontier.len()) {
            return Err(SampleError::invalid(format!(
                "{} nodes of a hop have {} shares of its draws; give one a node to draws per layer, and none to others",
                hop.frontier.len(),
                found.unwrap_or(0)
            )));
        }
        let excluded = ExcludedEdges::default();
        let rule = hop.rule(bias, &excluded);
        let DrawnHop { indptr, sources, edge_ids, node_weights } = drawn;
        let edge_ids = hop.edge_ids.then_some(edge_ids);
        let draws = hop.key.hop(Scheme::Neighbors, hop.number);
        draw::hop_of_shares(
            self,
            hop.frontier,
            HopRule { rule, shares },
            draws,
            scratch,
            Drawn { indptr, edge_ids },
            sources,
        );
        node_weights.extend(draw::edge_weights(self, hop.frontier, rule));
        Ok(())
    }

    /// Sum of the weights of each frontier node's edges, or their number without weights. [`Hop::shares`] divides
    /// draws in proportion to it.
    ///
    /// # Errors
    /// As [`draw`](Self::draw).
    pub fn row_weights(self, hop: &Hop<'_>, bias: Option<&Bias>) -> Result<Vec<f64>, SampleError> {
        self.check(hop.frontier, bias)?;
        let excluded = ExcludedEdges::default();
        Ok(draw::row_weights(self, hop.frontier, hop.rule(bias, &excluded)))
    }

    /// Checks that nodes belong to this patch, and weights to its edges.
    fn check(self, nodes: &[NodeId], bias: Option<&Bias>) -> Result<(), SampleError> {
        check_bias(bias, self.rows())?;
        let own = self.nodes();
        match nodes.iter().find(|node| !own.contains(node)) {
            None => Ok(()),
            Some(node) => Err(SampleError::invalid(format!(
                "node {node} is asked of the patch of the nodes {} to {}; ask its owner",
                own.start, own.end
            ))),
        }
    }
}

/// Error of LABOR with weighted edges.
pub(crate) fn labor_with_weights() -> SampleError {
    SampleError::invalid("LABOR draws edges without weights; leave weights out, or draw per node or layer")
}
