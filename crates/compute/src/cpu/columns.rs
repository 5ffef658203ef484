//! Sums of columns, alone and fused with the backward of an epilogue.
//!
//! A piece of rows is summed in `f32`, the pieces in `f64` and in order.

use pulp::Arch;
use rayon::prelude::*;

use super::chunks::row_chunk_len;
use super::element::Element;

/// The sum of each column of `x`, whose rows are `cols` wide.
pub(crate) fn sums<X: Element>(x: &[X], cols: usize) -> Vec<f32> {
    let arch = Arch::new();
    let pieces = x.par_chunks(row_chunk_len(cols));
    total(
        cols,
        pieces
            .map(|piece| {
                arch.dispatch(
                    #[inline(always)]
                    || piece_sums(piece, cols),
                )
            })
            .collect(),
    )
}

/// `grad = 0` where `y` is not positive; returns the column sums of what is left.
pub(crate) fn relu_backward<Y: Element, G: Element>(y: &[Y], grad: &mut [G], cols: usize) -> Vec<f32> {
    let (arch, len) = (Arch::new(), row_chunk_len(cols));
    let pieces = grad.par_chunks_mut(len).zip(y.par_chunks(len));
    let sums = pieces.map(|(grad, y)| {
        arch.dispatch(
            #[inline(always)]
            || {
                for (grad, y) in grad.iter_mut().zip(y) {
                    *grad = if y.to_f32() > 0.0 { *grad } else { G::from_f32(0.0) };
                }
                piece_sums(grad, cols)
            },
        )
    });
    total(cols, sums.collect())
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

/// The sums of all pieces, added in order.
fn total(cols: usize, pieces: Vec<Vec<f32>>) -> Vec<f32> {
    let mut total = vec![0.0f64; cols];
    for piece in pieces {
        for (total, sum) in total.iter_mut().zip(piece) {
            *total += f64::from(sum);
        }
    }
    total.into_iter().map(|sum| sum as f32).collect()
}
