//! [`RowEpilogue`]: the epilogue of sums that are still in registers or L1.

use std::borrow::Cow;

use rayon::prelude::*;

use super::element::Element;
use super::elementwise;
use super::machine::Machine;
use super::matrix::{CpuMatrix, as_f32, typed};
use crate::{Activation, Dropout, Epilogue};

/// [`Epilogue`] with its bias as `f32`. Dropout applies after all rows are stored ([`mask`](Self::mask)).
#[derive(Debug)]
pub(crate) struct RowEpilogue<'a> {
    accumulate: bool,
    bias: Option<Cow<'a, [f32]>>,
    activation: Activation,
    dropout: Option<Dropout>,
}

impl<'a> RowEpilogue<'a> {
    /// Prepares `epilogue`.
    pub(crate) fn new(epilogue: &Epilogue<'a, CpuMatrix>) -> Self {
        let Epilogue { accumulate, bias, activation, dropout } = *epilogue;
        Self { accumulate, bias: bias.map(as_f32), activation, dropout }
    }

    /// True if results are added to the contents of the output.
    pub(crate) fn accumulates(&self) -> bool {
        self.accumulate
    }

    /// Applies dropout to the result, if there is one.
    pub(crate) fn mask(&self, machine: &Machine, out: &mut CpuMatrix) {
        let Some(dropout) = self.dropout else { return };
        let first = dropout.first_element(out.shape().cols);
        typed!(out = out.storage_mut() => elementwise::dropout_in_place(machine.isa, dropout, first, out));
    }

    /// Whether sums are stored unchanged.
    pub(crate) fn is_plain(&self) -> bool {
        !self.accumulate && self.bias.is_none() && self.activation == Activation::Identity
    }

    /// Computes `out = activation(sums + (accumulate ? out : 0) + bias)` for a range of a row that starts at
    /// `first_column`. `sums` is overwritten.
    #[inline(always)]
    pub(crate) fn store<E: Element>(&self, first_column: usize, sums: &mut [f32], out: &mut [E]) {
        if self.accumulate {
            for (sum, old) in sums.iter_mut().zip(&*out) {
                *sum += old.to_f32();
            }
        }
        self.finish(first_column, sums);
        for (out, &sum) in out.iter_mut().zip(&*sums) {
            *out = E::from_f32(sum);
        }
    }

    /// As [`store`](Self::store), but for whole rows of `width`, in parallel.
    pub(crate) fn store_rows<E: Element>(&self, width: usize, sums: &mut [f32], out: &mut [E]) {
        let rows = sums.par_chunks_exact_mut(width.max(1)).zip(out.par_chunks_exact_mut(width.max(1)));
        rows.with_min_len(1 << 8).for_each(|(sums, out)| self.store(0, sums, out));
    }

    /// Computes `sums = activation(sums + bias)` in place, for a range of a row that starts at `first_column`.
    #[inline(always)]
    pub(crate) fn finish(&self, first_column: usize, sums: &mut [f32]) {
        if let Some(bias) = &self.bias {
            for (sum, &bias) in sums.iter_mut().zip(&bias[first_column..]) {
                *sum += bias;
            }
        }
        match self.activation {
            Activation::Identity => {}
            // `max` would turn NaN into zero and hide a diverging model.
            Activation::Relu => sums.iter_mut().for_each(|sum| *sum = if *sum < 0.0 { 0.0 } else { *sum }),
            Activation::Elu => sums.iter_mut().for_each(|sum| *sum = if *sum < 0.0 { sum.exp_m1() } else { *sum }),
        }
    }
}
