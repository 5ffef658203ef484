//! To and from [`petgraph::graph::DiGraph`]: its edge `u → v` is row `v`, column `u` here, as everywhere in girih.

use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

use crate::{Coo, Csr, Duplicates, FormatError, NodeId};

impl From<&Csr> for DiGraph<(), f32, u32> {
    /// Numbers the nodes as the rows.
    ///
    /// # Panics
    /// When the matrix is not square, or has more than 2³² - 2 entries, which `petgraph` cannot number.
    fn from(csr: &Csr) -> Self {
        assert!(csr.is_square(), "only a square matrix is a graph");
        let mut graph = Self::with_capacity(csr.n_rows(), csr.nnz());
        for _ in 0..csr.n_rows() {
            graph.add_node(());
        }
        for destination in 0..csr.n_rows() {
            for (source, weight) in csr.row_entries(destination) {
                graph.add_edge(NodeIndex::new(source as usize), NodeIndex::new(destination), weight);
            }
        }
        graph
    }
}

impl<N> TryFrom<&DiGraph<N, f32, u32>> for Csr {
    type Error = FormatError;

    /// Adds up the weights of parallel edges; weights that are all one are left out.
    ///
    /// # Errors
    /// When there are more than [`MAX_NODES`](crate::MAX_NODES) nodes, or a weight is not finite.
    fn try_from(graph: &DiGraph<N, f32, u32>) -> Result<Self, FormatError> {
        let id = |node: NodeIndex<u32>| node.index() as NodeId;
        let (rows, cols) = graph.edge_references().map(|e| (id(e.target()), id(e.source()))).unzip();
        let weights = graph.edge_weights().copied().collect();
        let coo = Coo::new(graph.node_count(), graph.node_count(), rows, cols, Some(weights))?;
        Ok(coo.to_csr(Duplicates::Sum)?.without_unit_weights())
    }
}
