//! Operations that treat every element alike.

use rayon::prelude::*;

use super::chunks::{CHUNK, zip_chunks};
use super::element::Element;
use super::mask;
use super::simd::Isa;
use crate::Dropout;

/// `out = x`, rounded to the storage of `out`.
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

/// `out += factor · x`.
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

/// `out = factor · x`.
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

/// Overwrites `out` with zeros.
pub(crate) fn set_zero<Y: Element>(out: &mut [Y]) {
    out.par_chunks_mut(CHUNK).for_each(|out| out.fill(Y::zeroed()));
}

/// `Σ x²`; pieces are summed in `f64` and in order.
pub(crate) fn sum_of_squares<X: Element>(x: &[X]) -> f64 {
    let piece = |x: &[X]| x.iter().map(|x| f64::from(x.to_f32()).powi(2)).sum();
    let sums: Vec<f64> = x.par_chunks(CHUNK).map(piece).collect();
    sums.iter().sum()
}

/// `out = mask ⊙ x`.
pub(crate) fn dropout<X: Element, Y: Element>(isa: Isa, dropout: Dropout, x: &[X], out: &mut [Y]) {
    let pieces = out.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK)).enumerate();
    pieces.for_each(|(i, (out, x))| mask::copy(isa, dropout, i * CHUNK, x, out));
}

/// `x ⊙= mask`.
pub(crate) fn dropout_in_place<X: Element>(isa: Isa, dropout: Dropout, x: &mut [X]) {
    x.par_chunks_mut(CHUNK).enumerate().for_each(|(i, x)| mask::apply(isa, dropout, i * CHUNK, x));
}

#[inline(always)]
fn copy<X: Element, Y: Element>(x: &[X], out: &mut [Y]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = Y::from_f32(x.to_f32());
    }
}
