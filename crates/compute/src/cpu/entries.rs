//! Operations with one number for each stored entry of a sparse matrix and each head.
//!
//! Heads are interleaved: column `k · heads + h` belongs to head `h`.

use pulp::Arch;
use rayon::prelude::*;

use super::schedule::Schedule;
use super::sparse::Direction;

/// Computes `out[e, h] = l[i]·r[j]·Σ_k x[i, k · heads + h]·y[j, k · heads + h]` for the entries `(i, j)` of
/// `direction`.
pub(crate) fn sddmm(direction: Direction<'_>, x: &[f32], y: &[f32], width: usize, heads: usize, out: &mut [f32]) {
    for_pieces(
        direction,
        heads,
        out,
        #[inline(always)]
        |row, entries, out| {
            let x = &x[row * width..(row + 1) * width];
            for (&col, out) in direction.csr.indices()[entries].iter().zip(out.chunks_exact_mut(heads)) {
                let y = &y[col as usize * width..(col as usize + 1) * width];
                out.fill(0.0);
                for (x, y) in x.chunks_exact(heads).zip(y.chunks_exact(heads)) {
                    out.iter_mut().zip(x.iter().zip(y)).for_each(|(out, (x, y))| *out += x * y);
                }
                let scale = direction.scale(row, col as usize);
                out.iter_mut().for_each(|out| *out *= scale);
            }
        },
    );
}

/// Softmax over the entries of each row, per head, in place.
pub(crate) fn softmax(direction: Direction<'_>, heads: usize, scores: &mut [f32]) {
    for_pieces(
        direction,
        heads,
        scores,
        #[inline(always)]
        |_, _, scores| {
            for h in 0..heads {
                let of_head = || (h..scores.len()).step_by(heads);
                let max = of_head().map(|e| scores[e]).fold(f32::NEG_INFINITY, f32::max);
                let sum: f32 = of_head().map(|e| (scores[e] - max).exp()).sum();
                for e in (h..scores.len()).step_by(heads) {
                    scores[e] = (scores[e] - max).exp() / sum;
                }
            }
        },
    );
}

/// Computes `grad = shares ⊙ (grad - Σ shares ⊙ grad)` over the entries of each row, per head, in place.
pub(crate) fn softmax_backward(direction: Direction<'_>, heads: usize, shares: &[f32], grad: &mut [f32]) {
    for_pieces(
        direction,
        heads,
        grad,
        #[inline(always)]
        |_, entries, grad| {
            let shares = &shares[entries.start * heads..entries.end * heads];
            for h in 0..heads {
                let mean: f32 = (h..grad.len()).step_by(heads).map(|e| shares[e] * grad[e]).sum();
                for e in (h..grad.len()).step_by(heads) {
                    grad[e] = shares[e] * (grad[e] - mean);
                }
            }
        },
    );
}

/// Calls `work(row, entries, elements of these entries)` for every row, in parallel over rows.
fn for_pieces(
    direction: Direction<'_>,
    heads: usize,
    elements: &mut [f32],
    work: impl Fn(usize, std::ops::Range<usize>, &mut [f32]) + Sync,
) {
    let (arch, csr) = (Arch::new(), direction.csr);
    let parts = split_entries(direction.schedule, csr.indptr(), heads, elements);
    direction.schedule.pieces().par_iter().zip(parts).with_max_len(1).for_each(|(piece, mut part)| {
        arch.dispatch(
            #[inline(always)]
            || {
                for row in piece.rows() {
                    let entries = csr.row_range(row);
                    let (elements, rest) = std::mem::take(&mut part).split_at_mut(entries.len() * heads);
                    work(row, entries, elements);
                    part = rest;
                }
            },
        );
    });
}

/// Splits elements of entries into those of each piece.
fn split_entries<'v>(
    schedule: &Schedule,
    indptr: &[u64],
    heads: usize,
    mut elements: &'v mut [f32],
) -> Vec<&'v mut [f32]> {
    let parts = schedule.pieces().iter().map(|piece| {
        let rows = piece.rows();
        let n_entries = (indptr[rows.end] - indptr[rows.start]) as usize;
        let (part, rest) = std::mem::take(&mut elements).split_at_mut(n_entries * heads);
        elements = rest;
        part
    });
    parts.collect()
}

/// Computes `out = L·Σ weights ⊙ (R·X)`, a sparse product with a weight per entry and head. `weights` are in the
/// order of the untransposed entries; `out` is overwritten.
pub(crate) fn weighted_sums(
    direction: Direction<'_>,
    heads: usize,
    weights: &[f32],
    x: &[f32],
    width: usize,
    out: &mut [f32],
) {
    let (arch, csr) = (Arch::new(), direction.csr);
    let rows = direction.schedule.split_rows(out, width);
    direction.schedule.pieces().par_iter().zip(rows).with_max_len(1).for_each(|(piece, out)| {
        arch.dispatch(
            #[inline(always)]
            || {
                for (row, out) in piece.rows().zip(out.chunks_exact_mut(width)) {
                    out.fill(0.0);
                    for e in csr.row_range(row) {
                        let col = csr.indices()[e] as usize;
                        let position = direction.positions.map_or(e, |positions| positions[e] as usize);
                        let weights = &weights[position * heads..(position + 1) * heads];
                        let scale = direction.scale(row, col);
                        let groups = out.chunks_exact_mut(heads).zip(x[col * width..][..width].chunks_exact(heads));
                        for (out, x) in groups {
                            for h in 0..heads {
                                out[h] += scale * weights[h] * x[h];
                            }
                        }
                    }
                }
            },
        );
    });
}
