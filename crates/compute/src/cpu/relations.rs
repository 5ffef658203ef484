//! Products of rows that have types: a weight for each run of rows, and sums of bases.
//!
//! Work is divided into pieces of fixed size, whose sums are added in order: the bits do not depend on the number of
//! threads.

use std::ops::Range;

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use girih_machine::parallel;

use super::simd::Isa;
use crate::Transpose;
use crate::backend::runs_of;

/// Maximum number of rows of a run that one thread multiplies at a time.
const PIECE_ROWS: usize = 2048;
/// Number of pieces into which rows with bases are divided.
const N_PIECES: usize = 64;

/// Rows of one run.
#[derive(Clone)]
struct Piece {
    run: usize,
    rows: Range<usize>,
}

/// Pieces of all runs, in order.
fn pieces(runs: &[usize]) -> Vec<Piece> {
    let of_run = |(run, n, first): (usize, usize, usize)| {
        let end = first + n;
        let starts = (first..end).step_by(PIECE_ROWS);
        starts.map(move |start| Piece { run, rows: start..(start + PIECE_ROWS).min(end) })
    };
    runs_of(runs).flat_map(of_run).collect()
}

/// Computes `out = x·W_r`, or `x·W_rᵀ`, for the rows of each run. Rows of `x` and `out` have `of_x` and `of_out` columns.
pub(crate) fn multiply(
    runs: &[usize],
    (x, of_x): (&[f32], usize),
    (weights, transpose): (&[f32], Transpose),
    (mut out, of_out): (&mut [f32], usize),
) {
    if of_x * of_out == 0 {
        out.fill(0.0);
        return;
    }
    let mut parts = Vec::new();
    for piece in pieces(runs) {
        let (part, rest) = std::mem::take(&mut out).split_at_mut(piece.rows.len() * of_out);
        out = rest;
        parts.push((piece, part));
    }
    parallel::for_each(parts, |(Piece { run, rows }, out)| {
        let n = rows.len();
        let x = MatRef::from_row_major_slice(&x[rows.start * of_x..rows.end * of_x], n, of_x);
        let weight = &weights[run * of_x * of_out..(run + 1) * of_x * of_out];
        let weight = match transpose {
            Transpose::No => MatRef::from_row_major_slice(weight, of_x, of_out),
            Transpose::Yes => MatRef::from_row_major_slice(weight, of_out, of_x).transpose(),
        };
        let out = MatMut::from_row_major_slice_mut(out, n, of_out);
        matmul(out, Accum::Replace, x, weight, 1.0, Par::Seq);
    });
}

/// Adds `x_rᵀ·grad_r` to row `r` of `out`, for the rows of each run.
pub(crate) fn add_weight_grads(runs: &[usize], (x, k): (&[f32], usize), (grad, d): (&[f32], usize), out: &mut [f32]) {
    if k * d == 0 {
        return;
    }
    let pieces = pieces(runs);
    let sums = parallel::map(pieces.iter(), |Piece { rows, .. }| {
        let mut sum = vec![0.0; k * d];
        let x = MatRef::from_row_major_slice(&x[rows.start * k..rows.end * k], rows.len(), k);
        let grad = MatRef::from_row_major_slice(&grad[rows.start * d..rows.end * d], rows.len(), d);
        matmul(MatMut::from_row_major_slice_mut(&mut sum, k, d), Accum::Replace, x.transpose(), grad, 1.0, Par::Seq);
        sum
    });
    for (Piece { run, .. }, sum) in pieces.iter().zip(&sums) {
        let out = &mut out[run * k * d..(run + 1) * k * d];
        out.iter_mut().zip(sum).for_each(|(out, sum)| *out += sum);
    }
}

/// Pairs of a row and a relation, by ascending rows, with the coefficients of relations for bases.
#[derive(Clone, Copy)]
pub(crate) struct PairsWithBases<'a> {
    pub(crate) rows: &'a [u32],
    pub(crate) relations: &'a [u32],
    /// Coefficients, `n_relations × n_bases`.
    pub(crate) coefficients: &'a [f32],
    pub(crate) n_bases: usize,
    /// Number of columns of a basis.
    pub(crate) width: usize,
    pub(crate) isa: Isa,
}

impl PairsWithBases<'_> {
    /// Number of columns of all bases.
    fn row_len(&self) -> usize {
        self.n_bases * self.width
    }

    fn coefficients(&self, relation: u32) -> &[f32] {
        &self.coefficients[relation as usize * self.n_bases..][..self.n_bases]
    }

    /// Computes `Σ_b a[r, b]·V_b[v]` for each pair.
    pub(crate) fn sums(&self, x: &[f32], out: &mut [f32]) {
        let (width, row_len) = (self.width, self.row_len());
        if width == 0 {
            return;
        }
        let pairs = self.rows.len().div_ceil(N_PIECES).max(1);
        parallel::for_each(out.chunks_mut(pairs * width).enumerate(), |(piece, out)| {
            let first = piece * pairs;
            self.isa.run(
                #[inline(always)]
                || {
                    for (at, out) in out.chunks_exact_mut(width).enumerate() {
                        let (row, relation) = (self.rows[first + at] as usize, self.relations[first + at]);
                        sum_bases(self.coefficients(relation), &x[row * row_len..][..row_len], out);
                    }
                },
            );
        });
    }

    /// Gradients of [`sums`](Self::sums): adds that of the coefficients, and overwrites that of `x`, or adds to it with
    /// `x_adds`.
    pub(crate) fn grads(
        &self,
        (x, grad): (&[f32], &[f32]),
        coefficients_grad: &mut [f32],
        (x_grad, x_adds): (&mut [f32], bool),
    ) {
        let row_len = self.row_len();
        if row_len == 0 {
            return;
        }
        let rows = (x.len() / row_len).div_ceil(N_PIECES).max(1);
        let parts = x_grad.chunks_mut(rows * row_len).enumerate();
        let sums = parallel::map(parts.collect::<Vec<_>>().into_iter(), |(piece, x_grad)| {
            let mut sums = vec![0.0; coefficients_grad.len()];
            let first = piece * rows;
            self.isa.run(
                #[inline(always)]
                || self.grads_of_piece((x, grad), first, (x_grad, x_adds), &mut sums),
            );
            sums
        });
        for sums in sums {
            coefficients_grad.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum);
        }
    }

    /// Gradients of the rows of `x_grad`, of which the first is row `first`. Those of the coefficients are added to `sums`.
    #[inline(always)]
    fn grads_of_piece(
        &self,
        (x, grad): (&[f32], &[f32]),
        first: usize,
        (x_grad, x_adds): (&mut [f32], bool),
        sums: &mut [f32],
    ) {
        let (width, row_len, n_bases) = (self.width, self.row_len(), self.n_bases);
        let mut pair = self.rows.partition_point(|&row| (row as usize) < first);
        for (row, x_grad) in (first..).zip(x_grad.chunks_exact_mut(row_len)) {
            if !x_adds {
                x_grad.fill(0.0);
            }
            while self.rows.get(pair).is_some_and(|&of| of as usize == row) {
                let (relation, grad) = (self.relations[pair], &grad[pair * width..][..width]);
                let bases = &x[row * row_len..][..row_len];
                let sums = &mut sums[relation as usize * n_bases..][..n_bases];
                add_base_grads((self.coefficients(relation), bases), grad, sums, x_grad);
                pair += 1;
            }
        }
    }
}

/// Number of columns that are summed in registers.
const LANES: usize = 16;

/// Columns `first..first + LANES` of a row.
#[inline(always)]
fn lanes(row: &[f32], first: usize) -> &[f32; LANES] {
    row[first..first + LANES].first_chunk().expect("as many columns")
}

/// Computes `out = Σ_b factors[b]·bases[b]` for bases side by side, each as wide as `out`.
#[inline(always)]
fn sum_bases(factors: &[f32], bases: &[f32], out: &mut [f32]) {
    let width = out.len();
    let blocks = width / LANES * LANES;
    for first in (0..blocks).step_by(LANES) {
        let mut sums = [0.0; LANES];
        for (basis, &factor) in factors.iter().enumerate() {
            let x = lanes(bases, basis * width + first);
            for lane in 0..LANES {
                sums[lane] += factor * x[lane];
            }
        }
        out[first..first + LANES].copy_from_slice(&sums);
    }
    for (c, out) in out.iter_mut().enumerate().skip(blocks) {
        *out = factors.iter().enumerate().map(|(basis, factor)| factor * bases[basis * width + c]).sum();
    }
}

/// Adds the gradients of [`sum_bases`] to those of the factors, `sums`, and of the bases, `base_grads`.
#[inline(always)]
fn add_base_grads((factors, bases): (&[f32], &[f32]), grad: &[f32], sums: &mut [f32], base_grads: &mut [f32]) {
    let width = grad.len();
    let blocks = width / LANES * LANES;
    for first in (0..blocks).step_by(LANES) {
        let grad = lanes(grad, first);
        for (basis, (&factor, sum)) in factors.iter().zip(&mut *sums).enumerate() {
            let at = basis * width + first;
            let (x, out) = (lanes(bases, at), &mut base_grads[at..at + LANES]);
            let mut products = [0.0; LANES];
            for lane in 0..LANES {
                products[lane] = x[lane] * grad[lane];
                out[lane] += factor * grad[lane];
            }
            *sum += sum_of(products);
        }
    }
    for (c, grad) in grad.iter().enumerate().skip(blocks) {
        for (basis, (factor, sum)) in factors.iter().zip(&mut *sums).enumerate() {
            *sum += bases[basis * width + c] * grad;
            base_grads[basis * width + c] += factor * grad;
        }
    }
}

/// Sum of all lanes, by halves.
#[inline(always)]
fn sum_of(mut lanes: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
        half /= 2;
    }
    lanes[0]
}
