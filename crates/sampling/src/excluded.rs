//! [`ExcludedEdges`]: edges that a batch must not contain.

use std::ops::Range;

/// Edges that are never drawn, as if the graph did not have them; for example the target edges of a link predictor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExcludedEdges {
    /// Edge ids, ascending and distinct.
    edge_ids: Vec<u64>,
}

impl ExcludedEdges {
    /// Excludes the edges at these positions of the graph's `indices`, in any order. Positions beyond the graph's
    /// edges have no effect. An undirected edge is two entries, and both have to be given.
    #[must_use]
    pub fn new(mut edge_ids: Vec<u64>) -> Self {
        edge_ids.sort_unstable();
        edge_ids.dedup();
        Self { edge_ids }
    }

    /// Whether no edge is excluded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.edge_ids.is_empty()
    }

    /// Excluded edges among `edges`, ascending.
    pub(crate) fn within(&self, edges: &Range<u64>) -> &[u64] {
        let from = self.edge_ids.partition_point(|&edge| edge < edges.start);
        let len = self.edge_ids[from..].partition_point(|&edge| edge < edges.end);
        &self.edge_ids[from..from + len]
    }
}
