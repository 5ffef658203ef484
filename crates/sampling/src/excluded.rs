//! [`ExcludedEdges`]: edges that a batch must not see.

use std::ops::Range;

/// Edges that are not drawn, such as those that a link predictor is asked about: as if the graph did not have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExcludedEdges {
    /// Ascending, without repeats.
    edge_ids: Vec<u64>,
}

impl ExcludedEdges {
    /// The edges at these positions of the graph's `indices`, in any order; those that the graph does not have exclude
    /// nothing. An undirected edge is two entries, and both are to be given.
    #[must_use]
    pub fn new(mut edge_ids: Vec<u64>) -> Self {
        edge_ids.sort_unstable();
        edge_ids.dedup();
        Self { edge_ids }
    }

    /// Whether nothing is excluded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.edge_ids.is_empty()
    }

    /// Which of these edges are excluded, ascending.
    pub(crate) fn within(&self, edges: &Range<u64>) -> &[u64] {
        let from = self.edge_ids.partition_point(|&edge| edge < edges.start);
        let len = self.edge_ids[from..].partition_point(|&edge| edge < edges.end);
        &self.edge_ids[from..from + len]
    }
}
