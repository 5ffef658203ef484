//! [`Patch`]: consecutive nodes of a graph, with all their edges.

use std::ops::Range;

use girih_graph_format::Csr;

use crate::{NodeId, SampleError};

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
