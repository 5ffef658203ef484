//! [`Checked`]: a sampler from outside, whose blocks are checked before the model reads them.

use girih_graph_format::{Csr, NodeId};
use girih_sampling::{Block, Columns, DrawKey, MiniBatch, SampleError, Sampler};

/// Sampler from outside, with the checks of its batches that models rely on.
pub(super) struct Checked {
    sampler: Box<dyn Sampler>,
    n_layers: usize,
    needs_edge_ids: bool,
}

impl Checked {
    /// Sampler for a model of `n_layers`. `needs_edge_ids` is set if edges have weights.
    pub(super) fn new(sampler: Box<dyn Sampler>, n_layers: usize, needs_edge_ids: bool) -> Self {
        Self { sampler, n_layers, needs_edge_ids }
    }

    /// Complaint about a batch for `seeds`, if there is one.
    fn complaint(&self, graph: &Csr, seeds: &[NodeId], blocks: &[Block]) -> Option<String> {
        let (n_found, n_layers) = (blocks.len(), self.n_layers);
        if n_found != n_layers {
            return Some(format!("drew {n_found} blocks for {n_layers} layers: draw one for each"));
        }
        for (layer, block) in blocks.iter().enumerate() {
            if !is_whole(block, graph.n_rows()) {
                return Some(format!("drew arrays for layer {layer} that are no block: see the fields of `Block`"));
            }
            let (wanted, of) =
                blocks.get(layer + 1).map_or((seeds, "seeds"), |next| (&next.nodes, "next block's nodes"));
            if block.destinations() != wanted {
                return Some(format!(
                    "drew layer {layer} for other nodes: list the {of} as destinations, in their order"
                ));
            }
            let is_entry = |&edge: &u64| edge < graph.nnz() as u64;
            let has_ids = block.edge_ids.len() == block.n_edges() && block.edge_ids.iter().all(is_entry);
            if self.needs_edge_ids && !has_ids {
                return Some(format!("drew no `edge_ids` for layer {layer}: keep them, since edges have weights"));
            }
        }
        None
    }
}

impl Sampler for Checked {
    fn sample_into(
        &self,
        graph: &Csr,
        seeds: &[NodeId],
        key: DrawKey,
        batch: &mut MiniBatch,
    ) -> Result<(), SampleError> {
        self.sampler.sample_into(graph, seeds, key, batch)?;
        match self.complaint(graph, seeds, &batch.blocks) {
            None => Ok(()),
            Some(what) => Err(SampleError::invalid(format!("the model's own sampler {what}"))),
        }
    }
}

/// Whether the arrays of a block fit each other, and a graph of `n_nodes`.
fn is_whole(block: &Block, n_nodes: usize) -> bool {
    let Block { nodes, n_destinations, n_columns, indptr, indices, weights, columns, edge_ids: _ } = block;
    let n_columns_expected = match columns {
        Columns::Local => nodes.len(),
        Columns::Global => n_nodes,
    };
    let n_edges = indices.len();
    *n_destinations <= nodes.len()
        && *n_columns == n_columns_expected
        && indptr.len() == n_destinations + 1
        && indptr[0] == 0
        && indptr.is_sorted()
        && indptr[*n_destinations] == n_edges as u64
        && (weights.is_empty() || weights.len() == n_edges)
        && nodes.iter().all(|&node| (node as usize) < n_nodes)
        && indices.iter().all(|&column| (column as usize) < *n_columns)
}
