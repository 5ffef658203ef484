//! Column sums, alone and fused with the backward pass of an epilogue.
//!
//! Chunks of rows are summed in `f32`, then added in `f64` and in order.

use girih_machine::parallel;
use pulp::{Arch, Simd, WithSimd};

use super::chunks::row_chunk_len;
use super::element::Element;

/// Sum of each column of `x`, with rows of `cols` elements.
pub(crate) fn sums<X: Element>(x: &[X], cols: usize) -> Vec<f32> {
    let arch = Arch::new();
    let pieces = x.chunks(row_chunk_len(cols));
    total(
        cols,
        parallel::map(pieces, |piece| {
            arch.dispatch(
                #[inline(always)]
                || piece_sums(piece, cols),
            )
        }),
    )
}

/// Sum of each column of `f(column, x)`.
pub(crate) fn sums_of(x: &[f32], cols: usize, f: impl Fn(usize, f32) -> f32 + Sync) -> Vec<f32> {
    sums_of_products(x, x, cols, |c, x, _| f(c, x))
}

/// Sum of each column of `f(column, x, y)`.
pub(crate) fn sums_of_products(
    x: &[f32],
    y: &[f32],
    cols: usize,
    f: impl Fn(usize, f32, f32) -> f32 + Sync,
) -> Vec<f32> {
    let (arch, len) = (Arch::new(), row_chunk_len(cols));
    let partials = parallel::map(x.chunks(len).zip(y.chunks(len)), |(x, y)| {
        let mut sums = vec![0.0; cols];
        arch.dispatch(
            #[inline(always)]
            || {
                for (x, y) in x.chunks_exact(cols).zip(y.chunks_exact(cols)) {
                    for c in 0..cols {
                        sums[c] += f(c, x[c], y[c]);
                    }
                }
            },
        );
        sums
    });
    total(cols, partials)
}

/// Computes `grad *= slope(y)` and returns the column sums of the new `grad`. `slope` must be marked
/// `#[inline(always)]`.
pub(crate) fn scale_backward<Y: Element, G: Element>(
    y: &[Y],
    grad: &mut [G],
    cols: usize,
    slope: impl Fn(f32) -> f32 + Sync,
) -> Vec<f32> {
    let (arch, len) = (Arch::new(), row_chunk_len(cols));
    let pieces = grad.chunks_mut(len).zip(y.chunks(len));
    let sums = parallel::map(pieces, |(grad, y)| arch.dispatch(ScaledRows { grad, y, cols, slope: &slope }));
    total(cols, sums)
}

/// Rows of a gradient that are multiplied by slopes, and summed. A struct, because the body of a closure is not compiled
/// for the instruction set that it is dispatched to.
struct ScaledRows<'a, Y, G, F> {
    grad: &'a mut [G],
    y: &'a [Y],
    cols: usize,
    slope: &'a F,
}

impl<Y: Element, G: Element, F: Fn(f32) -> f32> WithSimd for ScaledRows<'_, Y, G, F> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Vec<f32> {
        let mut sums = vec![0.0; self.cols];
        for (grad, y) in self.grad.chunks_exact_mut(self.cols).zip(self.y.chunks_exact(self.cols)) {
            for ((grad, y), sum) in grad.iter_mut().zip(y).zip(&mut sums) {
                *grad = G::from_f32(grad.to_f32() * (self.slope)(y.to_f32()));
                *sum += grad.to_f32();
            }
        }
        sums
    }
}

#[inline(always)]
fn piece_sums<X: Element>(piece: &[X], cols: usize) -> Vec<f32> {
    let mut sums = vec![0.0; cols];
    for row in piece.chunks_exact(cols) {
        for (sum, value) in sums.iter_mut().zip(row) {
            *sum += value.to_f32();
        }
    }
    sums
}

/// Sum of the partial sums of all chunks, added in order.
pub(crate) fn total(cols: usize, pieces: Vec<Vec<f32>>) -> Vec<f32> {
    let mut total = vec![0.0f64; cols];
    for piece in pieces {
        for (total, sum) in total.iter_mut().zip(piece) {
            *total += f64::from(sum);
        }
    }
    total.into_iter().map(|sum| sum as f32).collect()
}
