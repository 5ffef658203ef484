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

#[cfg(test)]
mod tests {
    use girih_graph_format::{Coo, Duplicates};

    use super::*;

    #[test]
    fn directions_do_not_count() {
        let edges = Coo::new(6, 6, vec![1, 1, 4], vec![0, 2, 3], None).unwrap();
        let components = Components::of(&edges.to_csr(Duplicates::Refuse).unwrap());
        assert_eq!((components.count(), components.largest()), (3, 3));
        assert_eq!(
            (0..6).map(|v| components.in_largest(v)).collect::<Vec<_>>(),
            [true, true, true, false, false, false]
        );
    }

    #[test]
    fn a_graph_without_nodes_has_no_component() {
        let components = Components::of(&Csr::empty(0, 0).unwrap());
        assert_eq!((components.count(), components.largest()), (0, 0));
    }
}
