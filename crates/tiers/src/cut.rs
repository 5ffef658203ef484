//! [`Cut`]: the patches of a graph, one for each card, and how many of its edges cross between them.

use girih_graph_format::Csr;
use girih_partition::Patches;

use crate::TierError;

/// A graph in patches, one for each card, which has the rows of the nodes in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    patches: Patches,
    crossing: f64,
}

impl Cut {
    /// The patches of `graph`.
    ///
    /// # Errors
    /// When they are of another number of nodes.
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

    /// The patches.
    #[must_use]
    pub fn patches(&self) -> &Patches {
        &self.patches
    }

    /// The share of edges whose ends lie in different patches.
    #[must_use]
    pub fn crossing(&self) -> f64 {
        self.crossing
    }

    /// The share of rows, among those that batches of so many hops read, that lie in another patch than the batch's
    /// seeds; each hop may lead out of the patch. At most what patches without any order have.
    #[must_use]
    pub(crate) fn remote(&self, n_hops: usize) -> f64 {
        let n = self.patches.len() as f64;
        // Hop `h` reads the rows of nodes that are `h` hops away, counted from 0, and the last one most of them.
        let crossed = 1.0 - (1.0 - self.crossing).powi(n_hops.saturating_sub(1) as i32);
        crossed.min((n - 1.0) / n)
    }
}
