//! [`Components`]: the connected components of a graph.

use girih_graph_format::{Csr, NodeId};
use petgraph::unionfind::UnionFind;

/// Weakly connected components of a graph: directions of edges do not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Components {
    /// Representative of each node's component.
    roots: Vec<NodeId>,
    /// Size of the component at its representative; 0 for all other nodes.
    sizes: Vec<usize>,
    largest: usize,
}

impl Components {
    /// Finds the components of a square matrix in nearly O(edges).
    ///
    /// # Panics
    /// When the matrix is not square.
    #[must_use]
    pub fn of(graph: &Csr) -> Self {
        assert!(graph.is_square(), "only a square matrix is a graph");
        let mut sets = UnionFind::<NodeId>::new(graph.n_rows());
        for v in 0..graph.n_rows() {
            for &u in graph.row(v) {
                sets.union(v as NodeId, u);
            }
        }
        let roots = sets.into_labeling();
        let mut sizes = vec![0; roots.len()];
        for &root in &roots {
            sizes[root as usize] += 1;
        }
        let largest = sizes.iter().copied().max().unwrap_or(0);
        Self { roots, sizes, largest }
    }

    /// Number of components.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sizes.iter().filter(|&&size| size > 0).count()
    }

    /// Number of nodes of the largest component.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.largest
    }

    /// Whether `v` is in a component of the largest size.
    ///
    /// # Panics
    /// When `v` is not a node.
    #[must_use]
    pub fn in_largest(&self, v: NodeId) -> bool {
        self.sizes[self.roots[v as usize] as usize] == self.largest
    }
}
