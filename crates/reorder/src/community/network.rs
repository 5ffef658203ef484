//! [`Network`]: a graph whose nodes are communities of a finer one.

use std::borrow::Cow;

use girih_graph_format::{Csr, NodeId};

/// Undirected graph with integer weights, for local moves. Sums of integers are exact in any order.
pub(super) struct Network<'g> {
    pub(super) indptr: Cow<'g, [u64]>,
    /// Neighbors of each node, without the node itself.
    pub(super) targets: Cow<'g, [NodeId]>,
    /// Number of edges of the finest graph behind each edge; all 1 if `None`.
    pub(super) weights: Option<Vec<u32>>,
    /// Number of edge ends of the finest graph in each node, including edges inside it.
    pub(super) ends: Vec<u64>,
}

impl<'g> Network<'g> {
    /// Network of a graph as it is. A self-loop counts as an edge to another node, and has little weight.
    pub(super) fn new(graph: &'g Csr) -> Self {
        let ends = (0..graph.n_rows()).map(|v| graph.degree(v) as u64).collect();
        Self { indptr: graph.indptr().into(), targets: graph.indices().into(), weights: None, ends }
    }

    pub(super) fn n_nodes(&self) -> usize {
        self.ends.len()
    }

    /// Neighbors of a node, with the weights of the edges to them.
    #[inline]
    pub(super) fn neighbors(&self, v: usize) -> impl Iterator<Item = (NodeId, u32)> + '_ {
        let range = self.indptr[v] as usize..self.indptr[v + 1] as usize;
        let weight = |e: usize| self.weights.as_ref().map_or(1, |weights| weights[e]);
        range.map(move |e| (self.targets[e], weight(e)))
    }
}
