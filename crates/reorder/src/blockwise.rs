//! [`Blockwise`]: an order inside equal ranges of ids.

use std::sync::{Mutex, PoisonError};

use girih_graph_format::{Csr, NodeId, Permutation};
use rayon::prelude::*;

use crate::{Progress, Reorder, ReorderError, square};

/// Order within blocks: cuts the ids into `blocks` equal ranges and orders each diagonal block as a graph of its own
/// (Miao et al., Journal of Software 34(9), 2023, algorithm 2).
///
/// Nodes stay in their range, so every block of the adjacency keeps its non-zeros and the balance over ranks stays.
/// Blocks off the diagonal gain locality too: a cluster that spreads over several ranges becomes consecutive in each.
#[derive(Clone, Debug)]
pub struct Blockwise<R> {
    /// Number of ranges.
    pub blocks: usize,
    /// Order inside each range.
    pub inner: R,
}

impl<R: Reorder> Reorder for Blockwise<R> {
    fn name(&self) -> String {
        format!("{} in {} blocks", self.inner.name(), self.blocks)
    }

    fn order_with(&self, graph: &Csr, progress: &Progress<'_>) -> Result<Permutation, ReorderError> {
        square(graph)?;
        let n = graph.n_rows();
        if self.blocks == 0 {
            return Err(ReorderError::invalid("no blocks; the ids are cut into at least one range"));
        }
        let bound = |block: usize| n * block / self.blocks;
        let shares = Mutex::new(vec![0.0; self.blocks]);
        let progress_of = |block: usize, share: f64| {
            let mut shares = shares.lock().unwrap_or_else(PoisonError::into_inner);
            shares[block] = share;
            progress(shares.iter().sum::<f64>() / self.blocks as f64);
        };
        let of_block = |block: usize| -> Result<Vec<NodeId>, ReorderError> {
            let range = bound(block)..bound(block + 1);
            let diagonal = graph.block(range.clone(), range.clone()).expect("a range of the graph");
            let order = self.inner.order_with(&diagonal, &|share| progress_of(block, share))?;
            Ok(order.new_of_old().iter().map(|new| new + range.start as NodeId).collect())
        };
        let blocks: Result<Vec<_>, _> = (0..self.blocks).into_par_iter().map(of_block).collect();
        Ok(Permutation::from_new_of_old(blocks?.concat()).expect("nodes stay in their range"))
    }
}
