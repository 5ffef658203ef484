//! Share of non-zeros in blocks that are dense enough for tensor cores.

use girih_graph_format::{BlockLayout, Csr, NodeId, Permutation};
use rayon::prelude::*;

/// Size of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
}

impl Block {
    /// Tile of Miao et al. (Journal of Software 34(9), 2023).
    pub const SMALL: Self = Self { rows: 32, cols: 32 };
    /// Block that one warp group multiplies at once on tensor cores.
    pub const MEDIUM: Self = Self { rows: 128, cols: 64 };
    /// Block that two warp groups multiply at once on tensor cores.
    pub const LARGE: Self = Self { rows: BlockLayout::Fragments.rows(), cols: BlockLayout::Fragments.cols() };
}

/// Share of non-zeros in blocks with a density of at least `density`, in `0.0..=1.0`.
#[must_use]
pub fn coverage(graph: &Csr, block: Block, density: f64) -> f64 {
    covered(graph, block, density, |row| row, |col| col)
}

/// As [`coverage`], for the graph renumbered by `order`, without building it.
///
/// # Panics
/// When the order has another number of nodes.
#[must_use]
pub fn coverage_of(graph: &Csr, order: &Permutation, block: Block, density: f64) -> f64 {
    assert_eq!(order.len(), graph.n_rows(), "an order of the nodes of this graph");
    let old_of_new = order.inverse();
    covered(graph, block, density, |row| old_of_new.map(row as NodeId) as usize, |col| order.map(col))
}

/// Share of non-zeros in dense blocks, in O(rows + entries). Row `i` of the numbering is row `old_row(i)` of the
/// graph; column `c` of the graph is `new_col(c)` in the numbering.
fn covered(
    graph: &Csr,
    block: Block,
    density: f64,
    old_row: impl Fn(usize) -> usize + Sync,
    new_col: impl Fn(NodeId) -> NodeId + Sync,
) -> f64 {
    let enough = density * (block.rows * block.cols) as f64;
    // Only counters that a window touched are read and cleared; in a sparse window these are few.
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
