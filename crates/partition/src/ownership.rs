//! [`Ownership`]: any assignment of nodes to parts, as ranges of new ids.

use std::ops::Range;

use girih_graph_format::{Csr, NodeId, Permutation};

use crate::{PartitionError, imbalance};

/// Parts of a graph, renumbered so that each is a range of ids: finding an owner is a search among a few bounds (Cai et al.,
/// DSP, PPoPP 2023, section 4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    permutation: Permutation,
    /// Where each part begins, and the number of nodes.
    bounds: Vec<NodeId>,
}

impl Ownership {
    /// Parts `0..n_parts` from the part of every node. Nodes of a part keep their order.
    ///
    /// # Errors
    /// When a node is given a part that there is not.
    pub fn new(part_of: &[u32], n_parts: usize) -> Result<Self, PartitionError> {
        let mut bounds = vec![0; n_parts + 1];
        for (node, &part) in part_of.iter().enumerate() {
            let Some(count) = bounds.get_mut(part as usize + 1).filter(|_| (part as usize) < n_parts) else {
                return Err(PartitionError::invalid(format!("node {node} is in part {part}, but there are {n_parts}")));
            };
            *count += 1;
        }
        for part in 0..n_parts {
            bounds[part + 1] += bounds[part];
        }
        let mut next = bounds.clone();
        let place = |&part: &u32| {
            let new = next[part as usize];
            next[part as usize] += 1;
            new
        };
        let new_of_old: Vec<NodeId> = part_of.iter().map(place).collect();
        let permutation = Permutation::from_new_of_old(new_of_old).expect("each node gets the next id of its part");
        Ok(Self { permutation, bounds })
    }

    /// From old ids to new ones.
    #[must_use]
    pub fn permutation(&self) -> &Permutation {
        &self.permutation
    }

    /// The number of parts.
    #[must_use]
    pub fn n_parts(&self) -> usize {
        self.bounds.len() - 1
    }

    /// The new ids of a part.
    #[must_use]
    pub fn range(&self, part: usize) -> Range<NodeId> {
        self.bounds[part]..self.bounds[part + 1]
    }

    /// The part that a new id belongs to.
    ///
    /// # Panics
    /// When there is no such node.
    #[must_use]
    pub fn owner(&self, node: NodeId) -> usize {
        assert!(node < *self.bounds.last().expect("a last bound"), "there is no node {node}");
        self.bounds.partition_point(|&bound| bound <= node) - 1
    }

    /// Nodes of other parts that the rows of `part` name in `graph`, which is numbered anew; ascending.
    #[must_use]
    pub fn halo(&self, graph: &Csr, part: usize) -> Vec<NodeId> {
        let own = self.range(part);
        let mut halo: Vec<NodeId> = own.clone().flat_map(|v| graph.row(v as usize)).copied().collect();
        halo.retain(|v| !own.contains(v));
        halo.sort_unstable();
        halo.dedup();
        halo
    }

    /// Largest part over the mean, by nodes.
    #[must_use]
    pub fn node_imbalance(&self) -> f64 {
        imbalance(&(0..self.n_parts()).map(|part| self.range(part).len() as u64).collect::<Vec<_>>())
    }

    /// Largest part over the mean, by stored edges of `graph`, which is numbered anew.
    #[must_use]
    pub fn edge_imbalance(&self, graph: &Csr) -> f64 {
        let nnz = |part| {
            let range = self.range(part);
            graph.indptr()[range.end as usize] - graph.indptr()[range.start as usize]
        };
        imbalance(&(0..self.n_parts()).map(nnz).collect::<Vec<_>>())
    }

    /// Largest part over the mean, by those of some nodes (training nodes), given by new ids.
    #[must_use]
    pub fn subset_imbalance(&self, nodes: &[NodeId]) -> f64 {
        let mut counts = vec![0; self.n_parts()];
        nodes.iter().for_each(|&node| counts[self.owner(node)] += 1);
        imbalance(&counts)
    }
}
