//! [`Reference`]: every operation directly from its definition, in `f64`, on one thread.
//!
//! Tests compare other backends with it. They also check gradients on it with finite differences: elements of a
//! [`RefMatrix`] can change by 10⁻⁶, which `f32` cannot resolve.

mod attention;
mod dense;
mod loss;
mod lstm;
mod memory;
mod norm;
mod optim;
mod relation;
mod segment;
mod sparse;

use std::ops::Range;

use half::bf16;

use crate::checks::IdRange;
use crate::{Activation, Backend, Dtype, Epilogue, GlobalIds, Shape, Transpose};

/// Reference backend, simple enough to be verified by reading.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

/// Dense row-major matrix of `f64`.
///
/// With [`Dtype::Bf16`], operations, [`set`](Self::set) and uploads round to bf16. With [`Dtype::F32`] nothing is
/// rounded, so that finite differences stay exact.
#[derive(Clone, Debug, PartialEq)]
pub struct RefMatrix {
    shape: Shape,
    dtype: Dtype,
    data: Vec<f64>,
}

impl RefMatrix {
    fn zeros(shape: Shape, dtype: Dtype) -> Self {
        Self { shape, dtype, data: vec![0.0; shape.len()] }
    }

    /// Shape of the matrix.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Element at row `r`, column `c`.
    ///
    /// # Panics
    /// When there is no such element.
    #[must_use]
    pub fn get(&self, r: usize, c: usize) -> f64 {
        self.data[self.position(r, c)]
    }

    /// Overwrites the element at row `r`, column `c`, rounded to the storage type.
    ///
    /// # Panics
    /// When there is no such element.
    pub fn set(&mut self, r: usize, c: usize, value: f64) {
        let position = self.position(r, c);
        self.data[position] = self.rounded(value);
    }

    /// All elements, row by row.
    #[must_use]
    pub fn data(&self) -> &[f64] {
        &self.data
    }

    /// All elements, row by row, mutable. Values written here are not rounded.
    pub fn data_mut(&mut self) -> &mut [f64] {
        &mut self.data
    }

    fn position(&self, r: usize, c: usize) -> usize {
        let Shape { rows, cols } = self.shape;
        assert!(r < rows && c < cols, "element ({r}, {c}) of a {} matrix", self.shape);
        r * cols + c
    }

    fn rounded(&self, value: f64) -> f64 {
        match self.dtype {
            Dtype::F32 => value,
            Dtype::Bf16 => bf16::from_f32(value as f32).to_f64(),
        }
    }

    /// Overwrites every element with `f(row, column, old element)`.
    fn update(&mut self, mut f: impl FnMut(usize, usize, f64) -> f64) {
        for r in 0..self.shape.rows {
            for c in 0..self.shape.cols {
                self.set(r, c, f(r, c, self.get(r, c)));
            }
        }
    }

    /// Element `(r, c)` of the matrix, or of its transpose.
    fn read(&self, transpose: Transpose, r: usize, c: usize) -> f64 {
        match transpose {
            Transpose::No => self.get(r, c),
            Transpose::Yes => self.get(c, r),
        }
    }
}

/// Sparse matrix `L·A·R` as a list of its entries, row by row.
#[derive(Clone, Debug)]
pub struct RefSparse {
    shape: Shape,
    entries: Vec<Entry>,
    /// Offsets of the rows in `entries` (rows + 1 of them).
    indptr: Vec<usize>,
    names: Option<GlobalIds>,
}

/// Stored entry of `A`, with the product of its two scales.
#[derive(Clone, Copy, Debug)]
struct Entry {
    row: usize,
    col: usize,
    value: f64,
    scale: f64,
}

impl RefSparse {
    /// Positions of the entries of row `r`.
    fn row(&self, r: usize) -> Range<usize> {
        self.indptr[r]..self.indptr[r + 1]
    }
}

/// List of 32-bit integers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefIds {
    ids: Vec<u32>,
    range: IdRange,
}

impl RefIds {
    /// The integers.
    #[must_use]
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }
}

/// Computes `out = epilogue(result)`.
fn apply_epilogue(epilogue: &Epilogue<'_, RefMatrix>, out: &mut RefMatrix, result: impl Fn(usize, usize) -> f64) {
    apply_to_columns(epilogue, (out, 0..usize::MAX), result);
}

/// As [`apply_epilogue`], but for the given columns of `out`; the others stay.
fn apply_to_columns(
    epilogue: &Epilogue<'_, RefMatrix>,
    (out, columns): (&mut RefMatrix, Range<usize>),
    result: impl Fn(usize, usize) -> f64,
) {
    let cols = out.shape.cols;
    out.update(|r, c, old| {
        if !columns.contains(&c) {
            return old;
        }
        let kept = if epilogue.accumulate { old } else { 0.0 };
        let sum = result(r, c) + kept + epilogue.bias.map_or(0.0, |bias| bias.get(0, c));
        let mask = epilogue
            .dropout
            .map_or(1.0, |dropout| f64::from(dropout.factor(dropout.first_element(cols) + r * cols + c)));
        mask * activated(epilogue.activation, sum)
    });
}

fn activated(activation: Activation, x: f64) -> f64 {
    match activation {
        // `max` would turn NaN into zero.
        Activation::Relu if x < 0.0 => 0.0,
        Activation::Elu if x < 0.0 => x.exp_m1(),
        Activation::Identity | Activation::Relu | Activation::Elu => x,
    }
}

impl Backend for Reference {
    type Recording = ();
}
