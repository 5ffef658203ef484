//! [`Cut`]: patches of a graph, one per GPU, and the share of edges that cross between them.

use girih_graph_format::Csr;
use girih_partition::Patches;

use crate::TierError;

/// Graph in patches, one per GPU; each GPU holds the rows of its patch's nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    patches: Patches,
    crossing: f64,
}

impl Cut {
    /// Patches of `graph`.
    ///
    /// # Errors
    /// When patches and graph differ in their number of nodes.
    pub fn new(graph: &Csr, patches: Patches) -> Result<Self, TierError> {
        if patches.n_nodes() != graph.n_rows() {
            return Err(TierError::invalid(format!(
                "the partition is of {} nodes, and the graph has {}: partition this graph",
                patches.n_nodes(),
                graph.n_rows()
            )));
        }
        let crossing = graph.nnz() as u64 - patches.inner_edges(graph);
        Ok(Self { patches, crossing: crossing as f64 / graph.nnz().max(1) as f64 })
    }

    /// Patches of the graph.
    #[must_use]
    pub fn patches(&self) -> &Patches {
        &self.patches
    }

    /// Share of edges whose ends are in different patches, in `0.0..=1.0`.
    #[must_use]
    pub fn crossing(&self) -> f64 {
        self.crossing
    }

    /// Share of the rows read by batches of `n_hops` hops that are in another patch than the batch's seeds. Each hop
    /// may leave the patch. The share is at most that of patches without any locality.
    #[must_use]
    pub(crate) fn remote(&self, n_hops: usize) -> f64 {
        let n = self.patches.len() as f64;
        // Hop `h`, counted from 0, reads the rows of nodes that are `h` hops away. The last hop reads most of them.
        let crossed = 1.0 - (1.0 - self.crossing).powi(n_hops.saturating_sub(1) as i32);
        crossed.min((n - 1.0) / n)
    }
}
