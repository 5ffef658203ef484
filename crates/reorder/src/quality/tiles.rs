//! Non-zeros of blocks, and how many of them lie in blocks dense enough for tensor cores.

use girih_graph_format::{Csr, NodeId, Permutation};
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

/// The share of non-zeros in blocks of which at least `density` is filled.
#[must_use]
pub fn coverage(graph: &Csr, block: Block, density: f64) -> f64 {
    covered(graph, block, density, |row| row, |col| col)
}

/// As [`coverage`], of the graph numbered by `order`, without building it.
///
/// # Panics
/// When the order is of another number of nodes.
#[must_use]
pub fn coverage_of(graph: &Csr, order: &Permutation, block: Block, density: f64) -> f64 {
    assert_eq!(order.len(), graph.n_rows(), "an order of the nodes of this graph");
    let old_of_new = order.inverse();
    covered(graph, block, density, |row| old_of_new.map(row as NodeId) as usize, |col| order.map(col))
}

/// The share of non-zeros in dense blocks, in O(rows + entries), where row `i` of the numbering is row `old_row(i)` of the graph, and column
/// `c` of the graph is `new_col(c)` in the numbering.
fn covered(
    graph: &Csr,
    block: Block,
    density: f64,
    old_row: impl Fn(usize) -> usize + Sync,
    new_col: impl Fn(NodeId) -> NodeId + Sync,
) -> f64 {
    let enough = density * (block.rows * block.cols) as f64;
    // Only the counters that a window touched are looked at and cleared: of a sparse window that is next to none.
    let of_window = |(counts, touched): &mut (Vec<u32>, Vec<usize>), window: usize| {
        for row in window * block.rows..((window + 1) * block.rows).min(graph.n_rows()) {
            for &col in graph.row(old_row(row)) {
                let at = new_col(col) as usize / block.cols;
                if counts[at] == 0 {
                    touched.push(at);
                }
                counts[at] += 1;
            }
        }
        let nnz = touched.drain(..).map(|at| std::mem::take(&mut counts[at]));
        nnz.filter(|&nnz| f64::from(nnz) >= enough).map(u64::from).sum::<u64>()
    };
    let counters = || (vec![0; graph.n_cols().div_ceil(block.cols)], Vec::new());
    let windows = (0..graph.n_rows().div_ceil(block.rows)).into_par_iter();
    let covered: u64 = windows.map_init(counters, of_window).sum();
    covered as f64 / graph.nnz().max(1) as f64
}
