//! [`Patches`]: a graph cut into ranges of ids, one for each card.

use std::ops::Range;

use girih_graph_format::{Csr, NodeId};
use rayon::prelude::*;

use crate::TierError;

/// Ranges of ids, one for each card, whose nodes' rows that card has; and how many edges cross between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Patches {
    ends: Vec<NodeId>,
    crossing: f64,
}

impl Patches {
    /// Patches of `graph` that end before the ids of `ends`.
    ///
    /// # Errors
    /// When the ends do not ascend to the number of nodes.
    pub fn new(graph: &Csr, ends: Vec<NodeId>) -> Result<Self, TierError> {
        if let Some(at) = ends.windows(2).position(|pair| pair[0] > pair[1]) {
            return Err(TierError::invalid(format!(
                "patch {} ends at {}, before patch {at} does, at {}; ends have to ascend",
                at + 1,
                ends[at + 1],
                ends[at]
            )));
        }
        let n_nodes = graph.n_rows();
        if ends.last().map_or(0, |&end| end as usize) != n_nodes || ends.is_empty() {
            return Err(TierError::invalid(format!(
                "patches end at {:?}, but the graph has {n_nodes} nodes; the last patch has to end there",
                ends.last()
            )));
        }
        let mut patches = Self { ends, crossing: 0.0 };
        let crossing: usize = (0..patches.len()).map(|patch| patches.edges_out_of(graph, patch)).sum();
        patches.crossing = crossing as f64 / graph.nnz().max(1) as f64;
        Ok(patches)
    }

    /// So many patches of about equal numbers of nodes and edges together, in the order that nodes have.
    ///
    /// # Panics
    /// When there shall be none.
    #[must_use]
    pub fn even(graph: &Csr, n_patches: usize) -> Self {
        assert!(n_patches > 0, "at least one patch");
        let n_nodes = graph.n_rows();
        let work = |node: usize| graph.indptr()[node] + node as u64;
        let total = work(n_nodes);
        let end = |patch: usize| {
            let wanted = (u128::from(total) * patch as u128 / n_patches as u128) as u64;
            let (mut low, mut high) = (0, n_nodes);
            while low < high {
                let middle = low.midpoint(high);
                if work(middle) < wanted { low = middle + 1 } else { high = middle }
            }
            low as NodeId
        };
        let ends = (1..n_patches).map(end).chain([n_nodes as NodeId]).collect();
        Self::new(graph, ends).expect("ends ascend to the number of nodes")
    }

    fn edges_out_of(&self, graph: &Csr, patch: usize) -> usize {
        let own = self.range(patch);
        own.clone().into_par_iter().map(|v| graph.row(v as usize).iter().filter(|u| !own.contains(u)).count()).sum()
    }

    /// Number of patches.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The nodes of a patch.
    ///
    /// # Panics
    /// When there is no such patch.
    #[must_use]
    pub fn range(&self, patch: usize) -> Range<NodeId> {
        let start = patch.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[patch]
    }

    /// The patch of a node.
    #[must_use]
    pub fn of(&self, node: NodeId) -> usize {
        self.ends.partition_point(|&end| end <= node)
    }

    /// The share of edges whose ends lie in different patches.
    #[must_use]
    pub fn crossing(&self) -> f64 {
        self.crossing
    }

    /// The share of rows, among those that batches of so many hops read, that lie in another patch than the batch's seeds; each
    /// hop may lead out of the patch. At most what patches without any order have.
    #[must_use]
    pub(crate) fn remote(&self, n_hops: usize) -> f64 {
        let n = self.len() as f64;
        // Hop `h` reads the rows of nodes that are `h` hops away, counted from 0, and the last one most of them.
        let crossed = 1.0 - (1.0 - self.crossing).powi(n_hops.saturating_sub(1) as i32);
        crossed.min((n - 1.0) / n)
    }
}
