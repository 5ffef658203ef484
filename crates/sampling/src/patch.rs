//! [`Patch`]: consecutive nodes of a graph, with all their edges.

use std::ops::Range;

use girih_graph_format::Csr;

use crate::draw::{self, Drawn, Rule};
use crate::key::Scheme;
use crate::{Bias, DrawScratch, DrawnHop, Draws, ExcludedEdges, Hop, NodeId, SampleError};

/// Consecutive nodes of a graph with all edges that end in them; a whole graph is one, too. Ids of nodes and edges are
/// those of the whole graph, and so is everything that is drawn: a node draws the same from a patch as from the whole
/// (Cai et al., DSP, PPoPP 2023, section 4).
#[derive(Clone, Copy, Debug)]
pub struct Patch<'g> {
    rows: &'g Csr,
    first_node: NodeId,
    first_edge: u64,
}

impl<'g> Patch<'g> {
    /// All of a graph.
    pub(crate) fn whole(graph: &'g Csr) -> Self {
        Self { rows: graph, first_node: 0, first_edge: 0 }
    }

    /// Some rows of a graph: `first_node` is the node of the first of them, `first_edge` how many edges the rows before
    /// have. Columns are nodes of the whole graph.
    ///
    /// # Errors
    /// When the graph has fewer nodes than that.
    pub fn new(rows: &'g Csr, first_node: NodeId, first_edge: u64) -> Result<Self, SampleError> {
        let (end, n_nodes) = (first_node as usize + rows.n_rows(), rows.n_cols());
        if end > n_nodes {
            return Err(SampleError::invalid(format!(
                "a patch of the nodes {first_node} to {end} of a graph of {n_nodes} nodes; give as many columns as there are nodes"
            )));
        }
        Ok(Self { rows, first_node, first_edge })
    }

    /// The nodes whose edges are here.
    #[must_use]
    pub fn nodes(self) -> Range<NodeId> {
        self.first_node..self.first_node + self.rows.n_rows() as NodeId
    }

    /// Number of nodes of the whole graph.
    #[must_use]
    pub fn n_nodes(self) -> usize {
        self.rows.n_cols()
    }

    /// What a hop draws for the nodes of its frontier, all of them nodes of this patch, in their order. Draws [per
    /// layer] take the shares of the nodes, which [`Hop::shares`] finds from the [weights](Self::row_weights) of all
    /// nodes of the hop.
    ///
    /// [per layer]: Draws::PerLayer
    ///
    /// # Errors
    /// When a node is none of this patch, shares are not as many as nodes where there have to be some, the weights are
    /// not those of its edges, or LABOR is to draw by weights.
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
        draw::hop_of_shares(self, hop.frontier, (rule, shares), draws, scratch, Drawn { indptr, edge_ids }, sources);
        node_weights.extend(draw::edge_weights(self, hop.frontier, rule));
        Ok(())
    }

    /// The weights of the edges of each node of a hop's frontier, or how many they are: what [`Hop::shares`] divides
    /// draws by.
    ///
    /// # Errors
    /// As [`draw`](Self::draw).
    pub fn row_weights(self, hop: &Hop<'_>, bias: Option<&Bias>) -> Result<Vec<f64>, SampleError> {
        self.check(hop.frontier, bias)?;
        let excluded = ExcludedEdges::default();
        Ok(draw::row_weights(self, hop.frontier, hop.rule(bias, &excluded)))
    }

    /// Checks that nodes are of this patch, and weights those of its edges.
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

    /// The rows that are here.
    pub(crate) fn rows(self) -> &'g Csr {
        self.rows
    }

    /// Whether the edges of a node are here.
    pub(crate) fn contains(self, node: NodeId) -> bool {
        node >= self.first_node && self.row(node) < self.rows.n_rows()
    }

    /// Which of the rows is that of a node of this patch.
    #[inline(always)]
    pub(crate) fn row(self, node: NodeId) -> usize {
        (node - self.first_node) as usize
    }

    /// Where the edges of a node of this patch lie in `rows`.
    #[inline(always)]
    pub(crate) fn row_range(self, node: NodeId) -> Range<usize> {
        self.rows.row_range(self.row(node))
    }

    /// The id of the edge at a place in `rows`.
    #[inline(always)]
    pub(crate) fn edge(self, place: usize) -> u64 {
        self.first_edge + place as u64
    }

    /// The ids of the edges at some places.
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

/// Why LABOR does not draw by weights.
pub(crate) fn labor_with_weights() -> SampleError {
    SampleError::invalid("LABOR draws edges without weights; leave weights out, or draw per node or layer")
}
