//! Distances between the columns of a row, and reuse of columns by windows of rows.

use girih_graph_format::Csr;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Number of rows whose bits are added up before they are added to those of others.
const PIECE: usize = 1 << 12;

/// Distances between ids of neighbors in a numbering.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gaps {
    /// Bandwidth: the largest distance of an entry from the diagonal.
    pub bandwidth: usize,
    /// Mean of `log2(1 + |column − previous column|)` over entries; the first entry of a row counts from the
    /// diagonal. It is about the number of bits that an entry takes (Chierichetti et al., KDD 2009).
    pub mean_log2: f64,
}

impl Gaps {
    /// Measures a graph as it is numbered.
    #[must_use]
    pub fn of(graph: &Csr) -> Self {
        let of_row = |v: usize| {
            let (mut bandwidth, mut bits, mut before) = (0, 0.0, v);
            for &u in graph.row(v) {
                let u = u as usize;
                bandwidth = bandwidth.max(u.abs_diff(v));
                bits += (1.0 + u.abs_diff(before) as f64).log2();
                before = u;
            }
            (bandwidth, bits)
        };
        // Pieces of fixed size, added in order, so that the sum does not depend on threads.
        let n = graph.n_rows();
        let piece = |i: usize| {
            let rows = i * PIECE..((i + 1) * PIECE).min(n);
            rows.map(of_row).fold((0, 0.0), |a: (usize, f64), b| (a.0.max(b.0), a.1 + b.1))
        };
        let pieces: Vec<(usize, f64)> = (0..n.div_ceil(PIECE)).into_par_iter().map(piece).collect();
        let bandwidth = pieces.iter().map(|piece| piece.0).max().unwrap_or(0);
        let bits: f64 = pieces.iter().map(|piece| piece.1).sum();
        Self { bandwidth, mean_log2: bits / graph.nnz().max(1) as f64 }
    }
}

/// Entries per distinct column in windows of `rows` consecutive rows, over all windows. It says how often nearby rows
/// read a fetched row of the operand again; 1 if no two rows of a window share a column.
///
/// # Panics
/// When `rows` is 0.
#[must_use]
pub fn window_reuse(graph: &Csr, rows: usize) -> f64 {
    assert!(rows > 0, "a window has rows");
    let distinct = |window: usize| {
        let rows = window * rows..((window + 1) * rows).min(graph.n_rows());
        let mut columns: Vec<u32> = rows.flat_map(|v| graph.row(v)).copied().collect();
        columns.sort_unstable();
        columns.dedup();
        columns.len()
    };
    let n_distinct: usize = (0..graph.n_rows().div_ceil(rows)).into_par_iter().map(distinct).sum();
    graph.nnz() as f64 / n_distinct.max(1) as f64
}
