//! [`Patch`]: consecutive nodes of a graph, with all their edges.

use std::ops::Range;

use girih_graph_format::Csr;

use crate::draw::{self, Drawn, HopRule, Rule};
use crate::key::Scheme;
use crate::{Bias, DrawScratch, DrawnHop, Draws, ExcludedEdges, Hop, NodeId, SampleError};

/// Consecutive nodes of a graph with all edges that end in them; a whole graph is a patch as well. Node and edge ids
/// are those of the whole graph. Draws are equal too: a node draws from a patch as it draws from the whole graph (Cai
/// et al., DSP, PPoPP 2023, section 4).
#[derive(Clone, Copy, Debug)]
pub struct Patch<'g> {
    rows: &'g Csr,
    first_node: NodeId,
    first_edge: u64,
}

impl<'g> Patch<'g> {
    /// Makes the patch of a whole graph.
    pub(crate) fn whole(graph: &'g Csr) -> Self {
        Self { rows: graph, first_node: 0, first_edge: 0 }
    }

    /// Makes a patch of some rows of a graph. `first_node` is the node of the first row; `first_edge` is the number
    /// of edges of all earlier rows. Columns are nodes of the whole graph.
    ///
    /// # Errors
    /// When the rows end beyond the nodes of the whole graph.
    pub fn new(rows: &'g Csr, first_node: NodeId, first_edge: u64) -> Result<Self, SampleError> {
        let (end, n_nodes) = (first_node as usize + rows.n_rows(), rows.n_cols());
        if end > n_nodes {
            return Err(SampleError::invalid(format!(
                "a patch of the nodes {first_node} to {end} of a graph of {n_nodes} nodes; give as many columns as there are nodes"
            )));
        }
        Ok(Self { rows, first_node, first_edge })
    }

    /// Nodes whose edges the patch holds.
    #[must_use]
    pub fn nodes(self) -> Range<NodeId> {
        self.first_node..self.first_node + self.rows.n_rows() as NodeId
    }

    /// Number of nodes of the whole graph.
    #[must_use]
    pub fn n_nodes(self) -> usize {
        self.rows.n_cols()
    }

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
        crate::sampler::check_bias(bias, self.rows)?;
        let own = self.nodes();
        match nodes.iter().find(|node| !own.contains(node)) {
            None => Ok(()),
            Some(node) => Err(SampleError::invalid(format!(
                "node {node} is asked of the patch of the nodes {} to {}; ask its owner",
                own.start, own.end
            ))),
        }
    }

    /// Rows of the patch.
    pub(crate) fn rows(self) -> &'g Csr {
        self.rows
    }

    /// Whether the patch holds the edges of a node.
    pub(crate) fn contains(self, node: NodeId) -> bool {
        node >= self.first_node && self.row(node) < self.rows.n_rows()
    }

    /// Local row of a node of this patch.
    #[inline(always)]
    pub(crate) fn row(self, node: NodeId) -> usize {
        (node - self.first_node) as usize
    }

    /// Range of the edges of a node of this patch in `rows`.
    #[inline(always)]
    pub(crate) fn row_range(self, node: NodeId) -> Range<usize> {
        self.rows.row_range(self.row(node))
    }

    /// Global id of the edge at position `place` of `rows`.
    #[inline(always)]
    pub(crate) fn edge(self, place: usize) -> u64 {
        self.first_edge + place as u64
    }

    /// Global ids of the edges at some positions of `rows`.
    #[inline(always)]
    pub(crate) fn edges(self, range: &Range<usize>) -> Range<u64> {
        self.edge(range.start)..self.edge(range.end)
    }
}

impl<'a> Hop<'a> {
    fn rule<'b>(&self, bias: Option<&'b Bias>, excluded: &'b ExcludedEdges) -> Rule<'b> {
        Rule { neighbors: self.neighbors, draws: self.draws, replace: self.replace, bias, excluded }
    }
}

/// Error of LABOR with weighted edges.
pub(crate) fn labor_with_weights() -> SampleError {
    SampleError::invalid("LABOR draws edges without weights; leave weights out, or draw per node or layer")
}
