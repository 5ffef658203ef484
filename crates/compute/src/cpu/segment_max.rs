//! Maximum over neighbors, and its backward pass.
//!
//! Both directions gather, so that one task writes each element. The forward pass runs along the rows of the pattern.
//! The backward pass runs along the rows of its transpose, and sums the gradients whose winner is the current row.

use std::ops::Range;

use pulp::Arch;
use rayon::prelude::*;

use super::chunks::split_rows;
use super::element::Element;
use super::prefetch::{CACHE_LINE, prefetch};
use super::schedule::Schedule;
use super::sparse::Direction;

/// Number of columns processed together. Their maxima and winners stay in registers or L1.
const BLOCK: usize = 64;
/// Prefetch distance in entries.
const AHEAD: usize = 8;

/// Computes `out[i, c]` as the maximum of `x[j, c]` over the entries `(i, j)` of the pattern, and writes the first
/// such `j` to `winners`. Rows without entries give zeros. Rows are `width` wide.
pub(crate) fn forward<X: Element, Y: Element>(
    direction: Direction<'_>,
    x: &[X],
    width: usize,
    out: &mut [Y],
    winners: Option<&mut [u32]>,
) {
    let Direction { csr, schedule, .. } = direction;
    let n_rows = || schedule.pieces().iter().map(|piece| piece.rows().len());
    let winners: Vec<Option<&mut [u32]>> = match winners {
        Some(winners) => split_rows(winners, width, n_rows()).map(Some).collect(),
        None => schedule.pieces().iter().map(|_| None).collect(),
    };
    for_pieces(
        schedule,
        width,
        out,
        winners,
        #[inline(always)]
        |rows, out, mut winners| {
            for (row, place, columns) in blocks(rows, width) {
                let best = Best::of(csr.row(row), x, width, columns);
                if let Some(winners) = &mut winners {
                    winners[place.clone()].copy_from_slice(&best.rows[..place.len()]);
                }
                out[place].iter_mut().zip(best.values).for_each(|(out, value)| *out = Y::from_f32(value));
            }
        },
    );
}

/// Overwrites row `u` of `x_grad` with the sum of the elements of `grad` that row `u` won. `direction` is that of the
/// transpose.
pub(crate) fn backward<G: Element, X: Element>(
    direction: Direction<'_>,
    winners: &[u32],
    grad: &[G],
    width: usize,
    x_grad: &mut [X],
) {
    let Direction { csr, schedule, .. } = direction;
    let nothing = vec![(); schedule.pieces().len()];
    for_pieces(
        schedule,
        width,
        x_grad,
        nothing,
        #[inline(always)]
        |rows, x_grad, ()| {
            for (row, place, columns) in blocks(rows, width) {
                let sums = won_by(row as u32, csr.row(row), (winners, grad), width, columns);
                x_grad[place].iter_mut().zip(sums).for_each(|(out, sum)| *out = X::from_f32(sum));
            }
        },
    );
}

/// Calls `kernel` for each piece of rows, with its part of `out` and its companion. `kernel` must be
/// `#[inline(always)]` to be compiled for this machine's vectors.
fn for_pieces<Y: Send, C: Send>(
    schedule: &Schedule,
    width: usize,
    out: &mut [Y],
    companions: Vec<C>,
    kernel: impl Fn(Range<usize>, &mut [Y], C) + Sync,
) {
    let arch = Arch::new();
    let parts: Vec<_> = split_rows(out, width, schedule.pieces().iter().map(|piece| piece.rows().len())).collect();
    let pieces = schedule.pieces().par_iter().zip(parts).zip(companions).with_max_len(1);
    pieces.for_each(|((piece, out), companion)| {
        arch.dispatch(
            #[inline(always)]
            || kernel(piece.rows(), out, companion),
        );
    });
}

/// Iterates over the blocks of columns of every row. Yields the row, the range of the block in a slice that starts
/// with the first row, and the columns.
#[inline(always)]
fn blocks(rows: Range<usize>, width: usize) -> impl Iterator<Item = (usize, Range<usize>, Range<usize>)> {
    rows.enumerate().flat_map(move |(at, row)| {
        (0..width).step_by(BLOCK).map(move |first| {
            let columns = first..(first + BLOCK).min(width);
            (row, at * width + columns.start..at * width + columns.end, columns)
        })
    })
}

/// Largest values so far of a block of columns, and the rows that hold them.
struct Best {
    values: [f32; BLOCK],
    rows: [u32; BLOCK],
}

impl Best {
    /// Maxima over the rows of `x` that `named` lists; zeros if there are none.
    #[inline(always)]
    fn of<X: Element>(named: &[u32], x: &[X], width: usize, columns: Range<usize>) -> Self {
        let mut best = Self { values: [0.0; BLOCK], rows: [0; BLOCK] };
        for (e, &row) in named.iter().enumerate() {
            if let Some(&next) = named.get(e + AHEAD) {
                prefetch_row(&x[next as usize * width..][columns.clone()]);
            }
            let values = &x[row as usize * width..][columns.clone()];
            if e == 0 {
                best.start(row, values);
            } else {
                best.challenge(row, values);
            }
        }
        best
    }

    #[inline(always)]
    fn start<X: Element>(&mut self, row: u32, values: &[X]) {
        self.rows = [row; BLOCK];
        self.values.iter_mut().zip(values).for_each(|(best, value)| *best = value.to_f32());
    }

    /// Larger values and NaN win, and a NaN stays: a maximum that skips it would hide a diverging model.
    #[inline(always)]
    fn challenge<X: Element>(&mut self, row: u32, values: &[X]) {
        for ((best, winner), value) in self.values.iter_mut().zip(&mut self.rows).zip(values) {
            let value = value.to_f32();
            let wins = !best.is_nan() & ((value > *best) | value.is_nan());
            *best = if wins { value } else { *best };
            *winner = if wins { row } else { *winner };
        }
    }
}

/// Sums of a block of columns of `grad` over the rows of `named` whose winner is `row`.
#[inline(always)]
fn won_by<G: Element>(
    row: u32,
    named: &[u32],
    (winners, grad): (&[u32], &[G]),
    width: usize,
    columns: Range<usize>,
) -> [f32; BLOCK] {
    let mut sums = [0.0; BLOCK];
    for (e, &from) in named.iter().enumerate() {
        if let Some(&next) = named.get(e + AHEAD) {
            prefetch_row(&winners[next as usize * width..][columns.clone()]);
            prefetch_row(&grad[next as usize * width..][columns.clone()]);
        }
        let start = from as usize * width;
        let (winners, grad) = (&winners[start..][columns.clone()], &grad[start..][columns.clone()]);
        for ((sum, &winner), grad) in sums.iter_mut().zip(winners).zip(grad) {
            *sum += if winner == row { grad.to_f32() } else { 0.0 };
        }
    }
    sums
}

#[inline(always)]
fn prefetch_row<T>(values: &[T]) {
    values.iter().step_by(CACHE_LINE / size_of::<T>()).for_each(|value| prefetch(value));
}
