//! [`Network`]: a graph whose nodes are communities of a finer one.

use std::borrow::Cow;

use girih_graph_format::{Csr, NodeId};

/// An undirected graph with whole-number weights, for local moves. Sums of whole numbers are exact, whatever their
/// order.
pub(super) struct Network<'g> {
    pub(super) indptr: Cow<'g, [u64]>,
    /// Neighbours, the node itself not among them.
    pub(super) targets: Cow<'g, [NodeId]>,
    /// Edges of the finest graph behind each edge; one where there are none.
    pub(super) weights: Option<Vec<u32>>,
    /// Ends of edges of the finest graph in each node, those inside it included.
    pub(super) ends: Vec<u64>,
}

impl<'g> Network<'g> {
    /// A graph as it is; a self-loop counts as an edge to another node, which weighs next to nothing.
    pub(super) fn new(graph: &'g Csr) -> Self {
        let ends = (0..graph.n_rows()).map(|v| graph.degree(v) as u64).collect();
        Self { indptr: graph.indptr().into(), targets: graph.indices().into(), weights: None, ends }
    }

    pub(super) fn n_nodes(&self) -> usize {
        self.ends.len()
    }

    /// Neighbours of a node with the weights of the edges to them.
    #[inline]
    pub(super) fn neighbours(&self, v: usize) -> impl Iterator<Item = (NodeId, u32)> + '_ {
        let range = self.indptr[v] as usize..self.indptr[v + 1] as usize;
        let weight = |e: usize| self.weights.as_ref().map_or(1, |weights| weights[e]);
        range.map(move |e| (self.targets[e], weight(e)))
    }
}
