//! [`TypedEdgeList`]: a typed mini-batch as a list of edges for each edge type, as `PyG` has it.

use super::TypedBatch;
use crate::edge_list::{by_hop, drew_anew, list_rows};
use crate::{Expand, Index, SampleError};

/// Edges of a typed mini-batch as pairs of local ids, hop after hop from the seeds on; its memory is reused by
/// [`fill`](Self::fill).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypedEdgeList<I> {
    /// Nodes of each type by ids inside the type: the seeds, then those that each hop found.
    pub nodes: Vec<Vec<I>>,
    /// For each node type, the number of seeds, then of the nodes that each hop found.
    pub nodes_by_hop: Vec<Vec<usize>>,
    /// For each edge type, the sources of all edges, then their destinations: `2 × n_edges`, positions in `nodes`.
    pub edge_index: Vec<Vec<I>>,
    /// For each edge type, the number of edges that each hop drew.
    pub edges_by_hop: Vec<Vec<usize>>,
}

impl<I: Index> TypedEdgeList<I> {
    /// Lists the edges of a batch. `expand` is the option of its sampler: nodes must have drawn once, or the batch must
    /// have one block. It is not checked that the sampler had it.
    ///
    /// # Errors
    /// When nodes drew anew in every hop.
    pub fn fill(&mut self, batch: &TypedBatch, expand: Expand) -> Result<(), SampleError> {
        if expand == Expand::PerLayer && batch.blocks.len() > 1 {
            return Err(drew_anew());
        }
        let n_edge_types = batch.blocks.first().map_or(0, |block| block.relations.len());
        self.nodes.resize_with(batch.nodes.len(), Vec::new);
        for (list, nodes) in self.nodes.iter_mut().zip(&batch.nodes) {
            list.clear();
            list.extend(nodes.iter().map(|&id| I::of(id)));
        }
        self.edge_index.resize_with(n_edge_types, Vec::new);
        // The first block has all edges; those of a nearer hop are the first of its rows.
        let all = batch.blocks.first().map_or(&[][..], |block| &block.relations);
        for (list, rows) in self.edge_index.iter_mut().zip(all) {
            list.clear();
            list_rows(list, &rows.indptr, &rows.indices);
        }
        let hops = || batch.blocks.iter().rev();
        let of_nodes =
            |t: usize| by_hop(hops().map(|hop| hop.n_destinations[t]).chain([batch.nodes[t].len()])).collect();
        self.nodes_by_hop = (0..batch.nodes.len()).map(of_nodes).collect();
        let of_edges = |r: usize| by_hop(hops().map(|hop| hop.relations[r].indices.len())).collect();
        self.edges_by_hop = (0..n_edge_types).map(of_edges).collect();
        Ok(())
    }
}
