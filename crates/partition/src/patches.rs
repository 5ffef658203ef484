//! [`Patches`]: partition of a graph's nodes into consecutive ranges of ids.

use std::ops::Range;

use girih_graph_format::{Csr, NodeId};

use crate::plan::weighted;
use crate::{PartitionError, imbalance};

/// Consecutive ranges of ids that cover all nodes; some may be empty. A binary search over the bounds finds the owner
/// of a node (Cai et al., DSP, PPoPP 2023, section 4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patches {
    /// First node of each patch, and last the number of nodes: one more element than patches.
    bounds: Vec<NodeId>,
}

impl Patches {
    /// Patches that begin at `bounds`; the last bound is the number of nodes.
    ///
    /// # Errors
    /// When there is no patch, the first bound is not 0, or bounds do not ascend.
    pub fn new(bounds: Vec<NodeId>) -> Result<Self, PartitionError> {
        if bounds.len() < 2 || bounds[0] != 0 {
            return Err(PartitionError::invalid(format!(
                "patches with the bounds {bounds:?}; the first is 0, and there is one more than there are patches"
            )));
        }
        if let Some(at) = bounds.windows(2).position(|pair| pair[0] > pair[1]) {
            return Err(PartitionError::invalid(format!(
                "patch {at} begins at node {} and ends before node {}; bounds ascend",
                bounds[at],
                bounds[at + 1]
            )));
        }
        Ok(Self { bounds })
    }

    /// Patches of nearly equal numbers of nodes.
    ///
    /// # Errors
    /// When `n_patches` is 0.
    pub fn equal(n_nodes: usize, n_patches: usize) -> Result<Self, PartitionError> {
        Self::new((0..=n_patches).map(|patch| (n_nodes * patch / n_patches.max(1)) as NodeId).collect())
    }

    /// Patches of nearly equal weight, of which nodes and stored edges are half each. Row `v` of the graph ends at
    /// `indptr[v + 1]`.
    ///
    /// # Errors
    /// When `n_patches` is 0.
    pub fn weighted(indptr: &[u64], n_patches: usize) -> Result<Self, PartitionError> {
        let starts = weighted(indptr, n_patches, 0).into_iter().map(|panel| panel.start as NodeId);
        Self::new(starts.take(n_patches).chain([(indptr.len() - 1) as NodeId]).collect())
    }

    /// Patches of the given numbers of nodes.
    pub(crate) fn of_sizes(sizes: &[NodeId]) -> Self {
        let ends = sizes.iter().scan(0, |end, size| {
            *end += size;
            Some(*end)
        });
        Self { bounds: std::iter::once(0).chain(ends).collect() }
    }

    /// Merges consecutive patches into one patch per rank.
    ///
    /// # Errors
    /// When there are more ranks than patches, or no ranks.
    pub fn of_ranks(&self, n_ranks: usize) -> Result<Self, PartitionError> {
        if n_ranks == 0 || n_ranks > self.len() {
            return Err(PartitionError::invalid(format!(
                "{} cannot be dealt to {}; cut the graph into at least one patch a rank",
                crate::counted(self.len(), "patch"),
                crate::counted(n_ranks, "rank")
            )));
        }
        Ok(Self { bounds: (0..=n_ranks).map(|rank| self.bounds[self.len() * rank / n_ranks]).collect() })
    }

    /// Number of patches.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.bounds.len() - 1
    }

    /// Number of nodes.
    #[must_use]
    pub fn n_nodes(&self) -> usize {
        self.bounds[self.len()] as usize
    }

    /// First node of each patch, and last the number of nodes.
    #[must_use]
    pub fn bounds(&self) -> &[NodeId] {
        &self.bounds
    }

    /// Node ids of a patch.
    ///
    /// # Panics
    /// When `patch` is out of range.
    #[must_use]
    pub fn range(&self, patch: usize) -> Range<NodeId> {
        self.bounds[patch]..self.bounds[patch + 1]
    }

    /// Index of the patch that a node belongs to.
    ///
    /// # Panics
    /// When `node` is out of range.
    #[must_use]
    pub fn owner(&self, node: NodeId) -> usize {
        assert!((node as usize) < self.n_nodes(), "there is no node {node}");
        self.bounds.partition_point(|&bound| bound <= node) - 1
    }

    /// Node ids of other patches that the rows of `patch` read in `graph`, ascending.
    #[must_use]
    pub fn halo(&self, graph: &Csr, patch: usize) -> Vec<NodeId> {
        let own = self.range(patch);
        let mut halo: Vec<NodeId> = own.clone().flat_map(|v| graph.row(v as usize)).copied().collect();
        halo.retain(|v| !own.contains(v));
        halo.sort_unstable();
        halo.dedup();
        halo
    }

    /// Number of entries of `graph` whose row and column lie in one patch, over all patches.
    #[must_use]
    pub fn inner_edges(&self, graph: &Csr) -> u64 {
        let inner = |patch| {
            let own = self.range(patch);
            let columns = own.start as usize..own.end as usize;
            own.map(|v| graph.row_range_within(v as usize, &columns).len() as u64).sum::<u64>()
        };
        (0..self.len()).map(inner).sum()
    }

    /// Load imbalance by nodes: largest patch over the mean.
    #[must_use]
    pub fn node_imbalance(&self) -> f64 {
        imbalance(&(0..self.len()).map(|patch| self.range(patch).len() as u64).collect::<Vec<_>>())
    }

    /// Load imbalance by stored edges of `graph`: largest patch over the mean.
    #[must_use]
    pub fn edge_imbalance(&self, graph: &Csr) -> f64 {
        let nnz = |patch| {
            let range = self.range(patch);
            graph.indptr()[range.end as usize] - graph.indptr()[range.start as usize]
        };
        imbalance(&(0..self.len()).map(nnz).collect::<Vec<_>>())
    }

    /// Load imbalance by a subset of the nodes, such as training nodes: largest patch over the mean.
    #[must_use]
    pub fn subset_imbalance(&self, nodes: &[NodeId]) -> f64 {
        let mut counts = vec![0; self.len()];
        nodes.iter().for_each(|&node| counts[self.owner(node)] += 1);
        imbalance(&counts)
    }
}
