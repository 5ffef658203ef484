//! Elementwise operations.

use girih_machine::parallel;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::chunks::{CHUNK, row_chunk_len, zip_chunks};
use super::element::Element;
use super::exp::exp;
use super::mask;
use super::simd::Isa;
use crate::{Activation, Dropout, Shape};

/// Computes `out = x`, rounded to the storage type of `out`.
///
/// # Panics
/// When lengths differ.
pub(crate) fn convert<X: Element, Y: Element>(x: &[X], out: &mut [Y]) {
    assert_eq!(x.len(), out.len(), "as many elements in as out");
    zip_chunks(
        x,
        out,
        #[inline(always)]
        |x, out| copy(x, out),
    );
}

/// Computes `out += factor · x`.
pub(crate) fn add_scaled<X: Element, Y: Element>(factor: f32, x: &[X], out: &mut [Y]) {
    zip_chunks(
        x,
        out,
        #[inline(always)]
        |x, out| {
            for (out, x) in out.iter_mut().zip(x) {
                *out = Y::from_f32(out.to_f32() + factor * x.to_f32());
            }
        },
    );
}

/// Computes `out = factor · x`.
pub(crate) fn scale<X: Element, Y: Element>(factor: f32, x: &[X], out: &mut [Y]) {
    zip_chunks(
        x,
        out,
        #[inline(always)]
        |x, out| {
            for (out, x) in out.iter_mut().zip(x) {
                *out = Y::from_f32(factor * x.to_f32());
            }
        },
    );
}

/// Computes `out = diag(factors)·x`, for the columns of `x` from `first` on. Both matrices come with their number of
/// columns.
pub(crate) fn scale_rows<X: Element, Y: Element>(
    factors: &[f32],
    (x, x_cols, first): (&[X], usize, usize),
    (out, cols): (&mut [Y], usize),
) {
    let (x_cols, cols) = (x_cols.max(1), cols.max(1));
    let rows_at_once = (CHUNK / cols).max(1);
    let arch = Arch::new();
    let chunks = out.chunks_mut(rows_at_once * cols).zip(x.chunks(rows_at_once * x_cols));
    parallel::for_each(chunks.zip(factors.chunks(rows_at_once)), |((out, x), factors)| {
        arch.dispatch(
            #[inline(always)]
            || {
                for ((out, x), factor) in out.chunks_mut(cols).zip(x.chunks(x_cols)).zip(factors) {
                    for (out, x) in out.iter_mut().zip(&x[first..]) {
                        *out = Y::from_f32(factor * x.to_f32());
                    }
                }
            },
        );
    });
}

/// Computes `x = diag(factors)·x`, with rows of `cols` elements.
pub(crate) fn scale_rows_in_place<X: Element>(factors: &[f32], (x, cols): (&mut [X], usize)) {
    let cols = cols.max(1);
    let rows_at_once = (CHUNK / cols).max(1);
    let arch = Arch::new();
    parallel::for_each(x.chunks_mut(rows_at_once * cols).zip(factors.chunks(rows_at_once)), |(x, factors)| {
        arch.dispatch(
            #[inline(always)]
            || {
                for (x, factor) in x.chunks_mut(cols).zip(factors) {
                    for x in x {
                        *x = X::from_f32(factor * x.to_f32());
                    }
                }
            },
        );
    });
}

/// Overwrites `out` with zeros.
pub(crate) fn set_zero<Y: Element>(out: &mut [Y]) {
    parallel::for_each(out.chunks_mut(CHUNK), |out| out.fill(Y::zeroed()));
}

/// Returns `Σ x²`. Chunks are summed in `f64` and in order.
pub(crate) fn sum_of_squares<X: Element>(x: &[X]) -> f64 {
    let piece = |x: &[X]| x.iter().map(|x| f64::from(x.to_f32()).powi(2)).sum();
    parallel::map(x.chunks(CHUNK), piece).iter().sum()
}

/// Computes `out = mask ⊙ x`, where `x[0]` is element `first` of the masked matrix.
pub(crate) fn dropout<X: Element, Y: Element>(isa: Isa, dropout: Dropout, first: usize, x: &[X], out: &mut [Y]) {
    let pieces = out.chunks_mut(CHUNK).zip(x.chunks(CHUNK)).enumerate();
    parallel::for_each(pieces, |(i, (out, x))| mask::copy(isa, dropout, first + i * CHUNK, x, out));
}

/// Computes `x ⊙= mask`, where `x[0]` is element `first` of the masked matrix.
pub(crate) fn dropout_in_place<X: Element>(isa: Isa, dropout: Dropout, first: usize, x: &mut [X]) {
    parallel::for_each(x.chunks_mut(CHUNK).enumerate(), |(i, x)| mask::apply(isa, dropout, first + i * CHUNK, x));
}

/// Computes `x = activation(x + bias)`, with rows of `cols` elements.
pub(crate) fn activate<X: Element>(isa: Isa, activation: Activation, bias: Option<&[f32]>, cols: usize, x: &mut [X]) {
    parallel::for_each(x.chunks_mut(row_chunk_len(cols)), |rows| isa.run(Activate { activation, bias, cols, rows }));
}

/// Block of rows to which an activation is applied.
struct Activate<'a, X> {
    activation: Activation,
    bias: Option<&'a [f32]>,
    cols: usize,
    rows: &'a mut [X],
}

impl<X: Element> WithSimd for Activate<'_, X> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (zero, one) = (simd.splat_f32s(0.0), simd.splat_f32s(1.0));
        for row in self.rows.chunks_exact_mut(self.cols) {
            for (i, x) in row.chunks_mut(S::F32_LANES).enumerate() {
                let mut value = X::load_lanes(simd, x);
                if let Some(bias) = self.bias {
                    let bias = &bias[i * S::F32_LANES..][..x.len()];
                    value = simd.add_f32s(value, f32::load_lanes(simd, bias));
                }
                let is_negative = simd.less_than_f32s(value, zero);
                value = match self.activation {
                    Activation::Identity => value,
                    Activation::Relu => simd.select_f32s(is_negative, zero, value),
                    Activation::Elu => {
                        let negative = simd.sub_f32s(exp(simd, simd.min_f32s(value, zero)), one);
                        simd.select_f32s(is_negative, negative, value)
                    }
                };
                X::store_lanes(simd, value, x);
            }
        }
    }
}

/// Copies `x` to `out`, rounded to the storage type of `out`.
#[inline(always)]
fn copy<X: Element, Y: Element>(x: &[X], out: &mut [Y]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = Y::from_f32(x.to_f32());
    }
}

/// Place of a block in a matrix whose elements are the slice `T`.
#[derive(Clone, Copy)]
pub(crate) struct BlockIn<T> {
    /// Elements of the whole matrix, row by row.
    pub(crate) values: T,
    /// Number of columns of the matrix.
    pub(crate) cols: usize,
    /// Row and column of the block's first element.
    pub(crate) first: (usize, usize),
}

/// Copies a block of `shape` between matrices.
pub(crate) fn copy_block<X: Element, Y: Element>(shape: Shape, x: BlockIn<&[X]>, out: BlockIn<&mut [Y]>) {
    if shape.is_empty() {
        return;
    }
    let BlockIn { values: x, cols: x_cols, first: from } = x;
    let BlockIn { values: out, cols: out_cols, first: to } = out;
    let (x, out) = (&x[from.0 * x_cols..], &mut out[to.0 * out_cols..(to.0 + shape.rows) * out_cols]);
    let rows = out.par_chunks_exact_mut(out_cols).zip(x.par_chunks_exact(x_cols));
    rows.with_min_len(1 << 8).for_each(|(out, x)| copy(&x[from.1..][..shape.cols], &mut out[to.1..][..shape.cols]));
}
