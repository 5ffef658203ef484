//! Random operands. Shapes come from proptest, so that they shrink; values come from a seed, so that shapes shrink
//! quickly.

use girih_graph_format::{Csr, Matrix};
use girih_random::{Key, Stream};
use proptest::prelude::*;

use crate::checks::COLUMNS;
use crate::{Activation, ActivationGrad, Backend, Dropout, Dtype, Epilogue, GlobalIds, Shape};

/// Purpose of the random keys of this suite; no run of a model uses it.
const PURPOSE: u32 = u32::MAX;

/// Number of rows: zero, one, a few, or up to `max`.
pub(super) fn n_rows(max: usize) -> impl Strategy<Value = usize> {
    prop_oneof![1 => Just(0), 1 => Just(1), 5 => 2..40usize, 2 => 40..=max]
}

/// Number of rows, at least one.
pub(super) fn n_rows_some(max: usize) -> impl Strategy<Value = usize> {
    n_rows(max).prop_map(|n| n.max(1))
}

/// Number of columns, around the widths of vectors and cache lines.
pub(super) fn width() -> impl Strategy<Value = usize> {
    1..70usize
}

/// First column, near the middle of `width`, of an operation on some columns.
pub(super) fn middle(width: usize) -> usize {
    width.saturating_sub(1) / COLUMNS / 2 * COLUMNS
}

pub(super) fn dtype() -> impl Strategy<Value = Dtype> {
    prop_oneof![Just(Dtype::F32), Just(Dtype::Bf16)]
}

pub(super) fn activation() -> impl Strategy<Value = Activation> {
    prop_oneof![Just(Activation::Identity), Just(Activation::Relu), Just(Activation::Elu)]
}

/// Derivative of an epilogue.
pub(super) fn slope() -> impl Strategy<Value = ActivationGrad> {
    prop_oneof![
        2 => activation().prop_map(|activation| ActivationGrad::of(activation, None)),
        1 => (1.0f32..10.0).prop_map(|kept| ActivationGrad { activation: Activation::Relu, kept }),
    ]
}

/// Epilogue whose bias is drawn later.
#[derive(Clone, Copy, Debug)]
pub(super) struct EpilogueCase {
    accumulate: bool,
    bias: bool,
    activation: Activation,
    /// Dropout probability and the seed of its key.
    dropout: Option<(f32, u64)>,
}

pub(super) fn epilogue() -> impl Strategy<Value = EpilogueCase> {
    let activation = prop_oneof![
        2 => activation().prop_map(|activation| (activation, None)),
        1 => (0.0f32..0.9, any::<u64>()).prop_map(|dropout| (Activation::Relu, Some(dropout))),
    ];
    let fields = (any::<bool>(), any::<bool>(), activation);
    fields.prop_map(|(accumulate, bias, (activation, dropout))| EpilogueCase { accumulate, bias, activation, dropout })
}

impl EpilogueCase {
    /// Epilogue with `bias`, if it has a bias.
    pub(super) fn with<M>(self, bias: &M) -> Epilogue<'_, M> {
        let mask = |(p, seed): (f32, u64)| Dropout::new(p, Key::new(seed, PURPOSE)).from_row(seed as usize % 3);
        Epilogue {
            accumulate: self.accumulate,
            bias: self.bias.then_some(bias),
            activation: self.activation,
            dropout: self.dropout.map(mask),
        }
    }
}

/// Random values, in the order of a case's calls.
pub(super) struct Draws(Stream);

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        Self(Key::new(seed, PURPOSE).stream(0, 0))
    }

    /// Random value in `-1..1`; one in eight is zero.
    pub(super) fn value(&mut self) -> f32 {
        if self.0.below(8) == 0 { 0.0 } else { 2.0 * self.0.unit_f32() - 1.0 }
    }

    pub(super) fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.value()).collect()
    }

    /// `n` random integers below `bound`.
    pub(super) fn ids(&mut self, n: usize, bound: usize) -> Vec<u32> {
        (0..n).map(|_| self.0.below(bound as u64) as u32).collect()
    }

    /// Global ids of the rows and columns of a submatrix.
    pub(super) fn names(&mut self, shape: Shape) -> GlobalIds {
        GlobalIds { first_row: self.ids(1, 1 << 30)[0], columns: self.ids(shape.cols, 1 << 30).into() }
    }

    pub(super) fn host(&mut self, shape: Shape) -> Matrix {
        host(shape, self.values(shape.len()))
    }

    pub(super) fn matrix<B: Backend>(&mut self, backend: &B, shape: Shape, dtype: Dtype) -> B::Matrix {
        backend.upload(&self.host(shape), dtype).expect("upload")
    }

    /// Sparse matrix with empty rows, sparse rows and full rows.
    pub(super) fn csr(&mut self, shape: Shape, valued: bool) -> Csr {
        let (mut indptr, mut indices) = (vec![0], Vec::new());
        for _ in 0..shape.rows {
            // One of `period` columns is kept on average; a quarter of the rows is empty, a quarter full.
            let period = [0, 1, 3, 10][self.0.below(4) as usize];
            indices.extend((0..shape.cols as u32).filter(|_| period > 0 && self.0.below(period) == 0));
            indptr.push(indices.len() as u64);
        }
        let values = valued.then(|| self.values(indices.len()).into());
        Csr::new(shape.rows, shape.cols, indptr, indices, values).expect("a sparse matrix")
    }

    /// Binary matrix that equals its transpose.
    pub(super) fn symmetric_csr(&mut self, n: usize) -> Csr {
        let half = self.csr(Shape::new(n, n), false);
        let (mut indptr, mut indices) = (vec![0], Vec::new());
        for row in 0..n {
            let kept = |&col: &u32| {
                let (low, high) = (row.min(col as usize), row.max(col as usize));
                half.row(low).binary_search(&(high as u32)).is_ok()
            };
            indices.extend((0..n as u32).filter(kept));
            indptr.push(indices.len() as u64);
        }
        Csr::new(n, n, indptr, indices, None).expect("a sparse matrix")
    }
}

/// Matrix of `values` on the host.
pub(super) fn host(shape: Shape, values: Vec<f32>) -> Matrix {
    Matrix::new(shape.rows, shape.cols, values).expect("as many values as the shape asks for")
}
