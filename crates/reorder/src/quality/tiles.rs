//! Non-zeros of blocks, and how many of them lie in blocks dense enough for tensor cores.

use girih_graph_format::{Csr, Permutation};
use rayon::prelude::*;

/// The size of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
}

impl Block {
    /// Tiles of paper A.
    pub const SMALL: Self = Self { rows: 32, cols: 32 };
    /// What one group of warps multiplies at once on tensor cores.
    pub const MEDIUM: Self = Self { rows: 128, cols: 64 };
    /// What two of them do.
    pub const LARGE: Self = Self { rows: 256, cols: 64 };
}

/// Non-zeros of every block of a window that has any.
fn counts(graph: &Csr, block: Block, window: usize, counts: &mut Vec<u32>) {
    counts.clear();
    counts.resize(graph.n_cols().div_ceil(block.cols), 0);
    for v in window * block.rows..((window + 1) * block.rows).min(graph.n_rows()) {
        graph.row(v).iter().for_each(|&u| counts[u as usize / block.cols] += 1);
    }
}

/// The share of non-zeros in blocks of which at least `density` is filled.
#[must_use]
pub fn coverage(graph: &Csr, block: Block, density: f64) -> f64 {
    let enough = density * (block.rows * block.cols) as f64;
    let of_window = |blocks: &mut Vec<u32>, window| {
        counts(graph, block, window, blocks);
        blocks.iter().filter(|&&nnz| nnz > 0 && f64::from(nnz) >= enough).map(|&nnz| u64::from(nnz)).sum::<u64>()
    };
    let windows = (0..graph.n_rows().div_ceil(block.rows)).into_par_iter();
    let covered: u64 = windows.map_init(Vec::new, of_window).sum();
    covered as f64 / graph.nnz().max(1) as f64
}

/// As [`coverage`], of the graph numbered by `order`, without building it.
///
/// # Panics
/// When the order is of another number of nodes.
#[must_use]
pub fn coverage_of(graph: &Csr, order: &Permutation, block: Block, density: f64) -> f64 {
    assert_eq!(order.len(), graph.n_rows(), "an order of the nodes of this graph");
    let (new_of_old, old_of_new) = (order.new_of_old(), order.inverse());
    let enough = density * (block.rows * block.cols) as f64;
    let of_window = |blocks: &mut Vec<u32>, rows: &[u32]| {
        blocks.clear();
        blocks.resize(graph.n_cols().div_ceil(block.cols), 0);
        for &v in rows {
            graph.row(v as usize).iter().for_each(|&u| blocks[new_of_old[u as usize] as usize / block.cols] += 1);
        }
        blocks.iter().filter(|&&nnz| nnz > 0 && f64::from(nnz) >= enough).map(|&nnz| u64::from(nnz)).sum::<u64>()
    };
    let covered: u64 = old_of_new.new_of_old().par_chunks(block.rows).map_init(Vec::new, of_window).sum();
    covered as f64 / graph.nnz().max(1) as f64
}
