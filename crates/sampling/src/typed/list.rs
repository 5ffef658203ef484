//! [`TypedEdgeList`]: a typed mini-batch as a list of edges for each edge type, as `PyG` has it.

use std::iter::repeat_n;

use super::TypedBatch;
use super::block::RelationRows;
use crate::edge_list::drew_anew;
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
        self.edge_index.iter_mut().zip(all).for_each(|(list, rows)| fill_rows(list, rows));
        let hops = || batch.blocks.iter().rev();
        let of_nodes = |t: usize| by_hop(hops().map(|hop| hop.n_destinations[t]).chain([batch.nodes[t].len()]));
        self.nodes_by_hop = (0..batch.nodes.len()).map(of_nodes).collect();
        let of_edges = |r: usize| by_hop(hops().map(|hop| hop.relations[r].indices.len()));
        self.edges_by_hop = (0..n_edge_types).map(of_edges).collect();
        Ok(())
    }
}

/// Writes the edges of a relation's rows, row after row.
fn fill_rows<I: Index>(list: &mut Vec<I>, rows: &RelationRows) {
    list.clear();
    list.reserve(2 * rows.indices.len());
    list.extend(rows.indices.iter().map(|&source| I::of(source)));
    for (row, ends) in (0..).zip(rows.indptr.windows(2)) {
        list.extend(repeat_n(I::of(row), (ends[1] - ends[0]) as usize));
    }
}

/// Differences of numbers that count all up to each hop.
fn by_hop(up_to: impl Iterator<Item = usize>) -> Vec<usize> {
    up_to
        .scan(0, |before, n| {
            let new = n - *before;
            *before = n;
            Some(new)
        })
        .collect()
}
