//! [`Volume`]: bytes that a product exchanges, and non-zeros of blocks.

use std::ops::{AddAssign, Range};

use girih_graph_format::Csr;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{BlockPlan, Reduce, Schedule, Slicing, StepExchange, place_in};

/// Number of rows whose entries a thread counts at a time.
const ROWS_AT_ONCE: usize = 1 << 14;

/// Bytes that a rank exchanges with others in one product `Â·H`, as collectives count them. Rows that stay on the
/// rank do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Bytes that leave the rank.
    pub sent: u64,
    /// Bytes that enter the rank.
    pub received: u64,
}

impl AddAssign for Volume {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.received += other.received;
    }
}

impl BlockPlan {
    /// Bytes that each rank exchanges in one product with an operand of `cols` columns of `element` bytes. Without a
    /// schedule, whole panels travel.
    #[must_use]
    pub fn volumes(&self, schedule: Option<&Schedule>, cols: usize, element: usize) -> Vec<Volume> {
        (0..self.ranks.len()).map(|rank| self.volume(rank, schedule, cols, element)).collect()
    }

    fn volume(&self, rank: usize, schedule: Option<&Schedule>, cols: usize, element: usize) -> Volume {
        let mine = &self.ranks[rank];
        let width = mine.width(cols);
        let mut rows = Volume::default();
        if let Some(slicing) = &mine.slice {
            rows += self.slicing_rows(slicing);
        }
        for i in 0..mine.steps.len() {
            rows += self.step_rows(rank, i, schedule);
        }
        let bytes = |elements: u64| elements * element as u64;
        let mut volume =
            Volume { sent: bytes(rows.sent * width as u64), received: bytes(rows.received * width as u64) };
        let reduced = self.reduce_elements(rank, width);
        volume += Volume { sent: bytes(reduced.sent), received: bytes(reduced.received) };
        volume
    }

    /// Rows of slices that a rank exchanges before and after a product.
    fn slicing_rows(&self, slicing: &Slicing) -> Volume {
        let own = |place: usize| self.ranks[slicing.group[place]].own.len() as u64;
        let others: u64 = (0..slicing.group.len()).filter(|&place| place != slicing.place).map(own).sum();
        let mine = own(slicing.place) * (slicing.group.len() as u64 - 1);
        // To the slices and back.
        Volume { sent: mine + others, received: others + mine }
    }

    /// Rows that a rank sends or receives in its step `i`.
    fn step_rows(&self, rank: usize, i: usize, schedule: Option<&Schedule>) -> Volume {
        let mine = &self.ranks[rank];
        let step = mine.steps[i];
        let dense = StepExchange::Dense;
        let exchange = schedule.map_or(&dense, |schedule| &schedule.steps(rank)[i]);
        let rows_of = |place: usize| match exchange {
            StepExchange::Dense => self.panels[step.panel].len() as u64,
            StepExchange::Rows { lists } => lists[place].len() as u64,
        };
        if step.root == rank {
            let others = mine.group.iter().enumerate().filter(|(_, member)| **member != rank);
            return Volume { sent: others.map(|(place, _)| rows_of(place)).sum(), received: 0 };
        }
        Volume { sent: 0, received: rows_of(place_in(&mine.group, rank)) }
    }

    fn reduce_elements(&self, rank: usize, width: usize) -> Volume {
        let mine = &self.ranks[rank];
        match &mine.reduce {
            Reduce::None => Volume::default(),
            Reduce::AllReduce { group } => {
                let (g, i) = (group.len() as u64, place_in(group, rank) as u64);
                let of_chunk = |chunk: usize| {
                    let all = (self.n_chunk_rows(rank, chunk) * width) as u64;
                    let slice = all * (i + 1) / g - all * i / g;
                    (all - slice) + (g - 1) * slice
                };
                let moved = (0..self.n_chunks).map(of_chunk).sum();
                Volume { sent: moved, received: moved }
            }
            Reduce::Scatter { group } => {
                let all = (self.n_product_rows(rank) * width) as u64;
                let kept = (self.panels[mine.rows[place_in(group, rank)]].len() * width) as u64;
                Volume { sent: all - kept, received: (group.len() as u64 - 1) * kept }
            }
        }
    }

    /// Number of non-zeros that a rank multiplies, by rank and step.
    ///
    /// # Panics
    /// When the adjacency has another size than the plan.
    #[must_use]
    pub fn step_nnz(&self, adjacency: &Csr) -> Vec<Vec<u64>> {
        let blocks = block_nnz(adjacency, &self.panels);
        let of_step = |rows: &[usize], panel: usize| rows.iter().map(|&row| blocks[row][panel]).sum();
        let of_rank = |plan: &crate::RankPlan| plan.steps.iter().map(|step| of_step(&plan.rows, step.panel)).collect();
        self.ranks.iter().map(of_rank).collect()
    }

    /// As [`step_nnz`](Self::step_nnz), for a graph with `nnz` evenly spread edges: for graphs that are not at hand.
    #[must_use]
    pub fn even_step_nnz(&self, nnz: u64) -> Vec<Vec<u64>> {
        let of_rank = |rank: usize| (0..self.ranks[rank].steps.len()).map(|i| self.even_nnz(rank, i, nnz)).collect();
        (0..self.ranks.len()).map(of_rank).collect()
    }

    /// Number of non-zeros of a rank in its step `i`, for a graph with `nnz` evenly spread edges.
    #[must_use]
    pub fn even_nnz(&self, rank: usize, i: usize, nnz: u64) -> u64 {
        let n = self.n_nodes as f64;
        let columns = self.panels[self.ranks[rank].steps[i].panel].len();
        (nnz as f64 * (self.n_product_rows(rank) as f64 / n) * (columns as f64 / n)).round() as u64
    }
}

/// Number of non-zeros of every block: `panels × panels`, by row panel and column panel.
///
/// # Panics
/// When the end of the last panel is not the size of the matrix.
#[must_use]
pub fn block_nnz(adjacency: &Csr, panels: &[Range<usize>]) -> Vec<Vec<u64>> {
    let end = panels.last().map_or(0, |panel| panel.end);
    assert!(end == adjacency.n_rows() && end == adjacency.n_cols(), "panels that cover the matrix");
    let count = |rows: Range<usize>| {
        let mut counts = vec![0; panels.len()];
        for row in rows {
            let ids = adjacency.row(row);
            let mut from = 0;
            for (count, columns) in counts.iter_mut().zip(panels) {
                let to = from + ids[from..].partition_point(|&id| (id as usize) < columns.end);
                *count += (to - from) as u64;
                from = to;
            }
        }
        counts
    };
    let of_panel = |rows: &Range<usize>| {
        let pieces = rows.clone().into_par_iter().step_by(ROWS_AT_ONCE);
        let counts = pieces.map(|first| count(first..rows.end.min(first + ROWS_AT_ONCE)));
        counts.reduce(|| vec![0; panels.len()], |a, b| a.iter().zip(&b).map(|(a, b)| a + b).collect())
    };
    panels.iter().map(of_panel).collect()
}

/// Load imbalance (max/mean): 1 for an even spread, and 1 if there is no work.
#[must_use]
pub fn imbalance(work: &[u64]) -> f64 {
    let total: u64 = work.iter().sum();
    if total == 0 {
        return 1.0;
    }
    *work.iter().max().expect("a total has parts") as f64 * work.len() as f64 / total as f64
}

/// Expected number of columns, of `columns`, that a block with `nnz` evenly spread entries reads. Real graphs read
/// fewer, since a few columns have many of the entries.
#[must_use]
pub fn evenly_touched(columns: usize, nnz: u64) -> usize {
    match columns {
        0 | 1 => columns.min(nnz as usize),
        // 1 − (1 − 1/c)ⁿ, without rounding errors for small shares.
        _ => (-(nnz as f64 * (-1.0 / columns as f64).ln_1p()).exp_m1() * columns as f64).round() as usize,
    }
}
