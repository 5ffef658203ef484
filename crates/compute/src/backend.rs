//! [`Backend`]: what a device must offer.
//!
//! Conventions of every operation:
//! - Matrices are dense and row-major. Results go into `out`, which has the right shape already and is overwritten,
//!   unless the [`Epilogue`] accumulates.
//! - Shapes that do not fit are refused with [`ComputeError`]; nothing is written then.
//! - Sums are `f32` or wider whatever the storage, in an order that does not depend on the number of threads: the same
//!   call gives the same bits.

use std::fmt;

use girih_graph_format::{Csr, Matrix, Scales};
use girih_random::Key;
use serde::{Deserialize, Serialize};

use crate::{ComputeError, Dropout};

/// Rows and columns of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
}

impl Shape {
    /// A shape.
    #[must_use]
    pub fn new(rows: usize, cols: usize) -> Self {
        Self { rows, cols }
    }

    /// Number of elements.
    #[must_use]
    pub fn len(self) -> usize {
        self.rows * self.cols
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Rows and columns exchanged.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { rows: self.cols, cols: self.rows }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", self.rows, self.cols)
    }
}

/// How elements are stored; sums are `f32` in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 32-bit floats.
    #[default]
    F32,
    /// bfloat16: the upper half of a 32-bit float, rounded to nearest even.
    Bf16,
}

impl Dtype {
    /// Bytes of one element.
    #[must_use]
    pub fn n_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// What follows the sum in an epilogue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    #[default]
    Identity,
    /// `max(x, 0)`.
    Relu,
}

/// What happens to a result on its way out: `out = activation(result + (accumulate ? out : 0) + bias)`.
#[derive(Debug)]
pub struct Epilogue<'a, M> {
    /// Add to what `out` holds instead of overwriting it.
    pub accumulate: bool,
    /// One row, added to every row of the result.
    pub bias: Option<&'a M>,
    /// Applied last.
    pub activation: Activation,
}

impl<M> Default for Epilogue<'_, M> {
    fn default() -> Self {
        Self { accumulate: false, bias: None, activation: Activation::Identity }
    }
}

impl<M> Epilogue<'_, M> {
    /// Adds the plain result to what `out` holds.
    #[must_use]
    pub fn accumulate() -> Self {
        Self { accumulate: true, ..Self::default() }
    }
}

/// Whether an operand is read as it is or transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transpose {
    /// As it is.
    No,
    /// Transposed.
    Yes,
}

/// A sparse matrix on its way to a device: `L·A·R` with diagonal `L` and `R`.
#[derive(Clone, Debug)]
pub struct SparseOperand<'a> {
    /// `A`.
    pub csr: &'a Csr,
    /// `L` and `R`.
    pub scales: Scales,
    /// `A` equals its transpose, so that `(L·A·R)ᵀ = R·A·L` needs no second copy. The caller knows.
    pub symmetric: bool,
}

/// One step of Adam or AdamW (Loshchilov and Hutter, ICLR 2019).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamStep {
    /// Learning rate of this step.
    pub lr: f32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub eps: f32,
    /// Weight decay; `0` for none.
    pub weight_decay: f32,
    /// AdamW: decay the weights directly, in proportion to `lr`, instead of through the gradient.
    pub decoupled: bool,
    /// Number of this step, from 1: corrects the bias of the moments.
    pub step: u64,
}

/// A device that holds matrices and runs the operations of graph neural networks.
///
/// `Matrix`, `Sparse` and `Ids` live on the device and are freed when dropped.
pub trait Backend: Send + Sync {
    /// A dense matrix.
    type Matrix: Send + Sync;
    /// A sparse matrix `L·A·R` with what its transpose needs.
    type Sparse: Send + Sync;
    /// A list of 32-bit numbers: node ids or classes.
    type Ids: Send + Sync;

    /// A short name for logs and results: `cpu`, `cuda:0`.
    fn name(&self) -> String;

    /// A matrix of zeros.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn zeros(&self, shape: Shape, dtype: Dtype) -> Result<Self::Matrix, ComputeError>;

    /// The rows of `host`, rounded to `dtype`. A device that computes in main memory may share them until they change.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn upload(&self, host: &Matrix, dtype: Dtype) -> Result<Self::Matrix, ComputeError>;

    /// The elements of `matrix` on the host, as `f32`.
    ///
    /// # Errors
    /// When the device fails.
    fn download(&self, matrix: &Self::Matrix) -> Result<Matrix, ComputeError>;

    /// Overwrites `out` with the values of `host`, keeping its storage.
    ///
    /// # Errors
    /// When shapes differ.
    fn write(&self, host: &Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// A sparse operand, prepared for products with it and with its transpose.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn upload_sparse(&self, operand: &SparseOperand<'_>) -> Result<Self::Sparse, ComputeError>;

    /// A list of ids.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn upload_ids(&self, ids: &[u32]) -> Result<Self::Ids, ComputeError>;

    /// Rows and columns of `matrix`.
    fn shape(&self, matrix: &Self::Matrix) -> Shape;

    /// How the elements of `matrix` are stored.
    fn dtype(&self, matrix: &Self::Matrix) -> Dtype;

    /// Rows and columns of `sparse`.
    fn sparse_shape(&self, sparse: &Self::Sparse) -> Shape;

    /// Stored entries of `sparse`.
    fn nnz(&self, sparse: &Self::Sparse) -> usize;

    /// `out = epilogue(op(A)·op(B))`, where `A` is first masked by `dropout` if there is one.
    ///
    /// Of the four combinations `NN`, `NT` and `TN` are offered; `TT` is refused.
    ///
    /// # Errors
    /// On shapes that do not fit, and for `TT`.
    fn gemm(
        &self,
        a: (&Self::Matrix, Transpose),
        dropout: Option<Dropout>,
        b: (&Self::Matrix, Transpose),
        epilogue: Epilogue<'_, Self::Matrix>,
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// `out = epilogue(op(L·A·R)·X)`; of an `X` stored as bf16, `R·X` may be rounded to bf16 again; a backend
    /// may offer to do so with `f32`, see [`Cpu::gathering`](crate::Cpu::gathering). `weights` (`nnz × 1`, in the order of the untransposed entries) stand in for the values of `A` if given.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn spmm(
        &self,
        a: (&Self::Sparse, Transpose),
        weights: Option<&Self::Matrix>,
        x: &Self::Matrix,
        epilogue: Epilogue<'_, Self::Matrix>,
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// `X = op(L·A·R)·X` for a square `A`, in place where the device can: for operands too large to hold twice.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn spmm_in_place(&self, a: (&Self::Sparse, Transpose), x: &mut Self::Matrix) -> Result<(), ComputeError> {
        let mut out = self.zeros(self.shape(x), self.dtype(x))?;
        self.spmm(a, None, x, Epilogue::default(), &mut out)?;
        *x = out;
        Ok(())
    }

    /// Takes a gradient back through an epilogue: `grad ⊙= activation'(y)` in place, where `y` is the epilogue's result,
    /// and, if wanted, `bias_grad = column sums of grad` (overwritten, one row).
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn epilogue_backward(
        &self,
        activation: Activation,
        y: &Self::Matrix,
        grad: &mut Self::Matrix,
        bias_grad: Option<&mut Self::Matrix>,
    ) -> Result<(), ComputeError>;

    /// `out = mask ⊙ x`; with a gradient for `x` it is its own backward.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn dropout(&self, x: &Self::Matrix, dropout: Dropout, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// `x ⊙= mask`, in place.
    ///
    /// # Errors
    /// When the device fails.
    fn dropout_in_place(&self, dropout: Dropout, x: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// `out = x`, rounded to the storage of `out`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn convert(&self, x: &Self::Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// `out += factor · x`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn add_scaled(&self, factor: f32, x: &Self::Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Row `i` of `out` becomes row `ids[i]` of `x`.
    ///
    /// # Errors
    /// On shapes that do not fit, or an id out of range.
    fn gather_rows(&self, x: &Self::Matrix, ids: &Self::Ids, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Row `ids[i]` of `out` grows by row `i` of `x`, in the order of the ids: the backward of
    /// [`gather_rows`](Self::gather_rows).
    ///
    /// # Errors
    /// On shapes that do not fit, or an id out of range.
    fn scatter_add_rows(&self, x: &Self::Matrix, ids: &Self::Ids, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// `out` (one row) becomes the sums of the columns of `x`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn column_sums(&self, x: &Self::Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Mean softmax cross-entropy over `rows` against `classes` (one per row of `logits`), into `loss` (`1 × 1`).
    /// `grad`, if wanted, is overwritten with its gradient with respect to the logits: zero outside `rows`. A row named
    /// twice counts twice. Classes outside `rows` are not looked at: unlabelled nodes have none.
    ///
    /// # Errors
    /// On shapes that do not fit, an empty `rows`, a row out of range, or a class of a row that is not a column.
    fn softmax_cross_entropy(
        &self,
        logits: &Self::Matrix,
        classes: &Self::Ids,
        rows: &Self::Ids,
        grad: Option<&mut Self::Matrix>,
        loss: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Mean binary cross-entropy of sigmoids over all columns of `rows` against `targets` (0 or 1, shaped like the
    /// logits), into `loss` (`1 × 1`); `grad` as in [`softmax_cross_entropy`](Self::softmax_cross_entropy).
    ///
    /// # Errors
    /// On shapes that do not fit, an empty `rows`, or a row out of range.
    fn sigmoid_cross_entropy(
        &self,
        logits: &Self::Matrix,
        targets: &Self::Matrix,
        rows: &Self::Ids,
        grad: Option<&mut Self::Matrix>,
        loss: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// The column of the largest element of each row (the first of equals), on the host.
    ///
    /// # Errors
    /// When the device fails, or there are no columns.
    fn argmax_rows(&self, x: &Self::Matrix) -> Result<Vec<u32>, ComputeError>;

    /// One step of Adam on `param`, with its two moments; all of them are `f32`.
    ///
    /// # Errors
    /// On shapes that do not fit, other storage than `f32`, or step 0.
    fn adam(
        &self,
        step: AdamStep,
        grad: &Self::Matrix,
        moments: (&mut Self::Matrix, &mut Self::Matrix),
        param: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// One step of stochastic gradient descent: `v = momentum·v + grad + weight_decay·param`, `param -= lr·v`.
    /// All operands are `f32`.
    ///
    /// # Errors
    /// On shapes that do not fit, or other storage than `f32`.
    fn sgd(
        &self,
        lr: f32,
        momentum: f32,
        weight_decay: f32,
        grad: &Self::Matrix,
        velocity: &mut Self::Matrix,
        param: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// A list of `len` zeros, for an operation to write to.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn zero_ids(&self, len: usize) -> Result<Self::Ids, ComputeError>;

    /// Element `c` of row `i` of `out` becomes the largest element `c` of the rows of `x` that row `i` of `a` names, and, if
    /// wanted, number `i·cols + c` of `winners` the first row that holds it. Rows of `a` without entries give zeros, and
    /// winners without meaning. A NaN is larger than any number. Only the pattern of `a` counts, not its values or scales.
    ///
    /// # Errors
    /// On shapes that do not fit, or when there is not one winner for each element of `out`.
    fn segment_max(
        &self,
        a: &Self::Sparse,
        x: &Self::Matrix,
        out: &mut Self::Matrix,
        winners: Option<&mut Self::Ids>,
    ) -> Result<(), ComputeError>;

    /// The backward of [`segment_max`](Self::segment_max): `x_grad` becomes the gradient of `x`, of which each element of
    /// `grad` goes to its winner.
    ///
    /// # Errors
    /// As [`segment_max`](Self::segment_max).
    fn segment_max_backward(
        &self,
        a: &Self::Sparse,
        winners: &Self::Ids,
        grad: &Self::Matrix,
        x_grad: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Row `i` of `out` becomes the last state of an LSTM that reads the rows of `inputs` which row `i` of `a` names, one
    /// after the other: as they are stored, or in an order drawn below the key and the row, if there is a key. Rows of `a`
    /// without entries give zeros. Only the pattern of `a` counts, not its values or scales.
    ///
    /// With states of `h` columns, `inputs` (`n × 4h`) holds what the inputs add to the gates, biases and all, and `weight`
    /// (`h × 4h`) takes a state to what it adds to the next gates: input, forget, cell, output, in this order. State and
    /// memory start at zero (Hochreiter and Schmidhuber, Neural Computation 1997, with the forget gate of Gers et al., 2000).
    ///
    /// # Errors
    /// On shapes that do not fit, or states without columns.
    fn segment_lstm(
        &self,
        sequences: (&Self::Sparse, Option<Key>),
        inputs: &Self::Matrix,
        weight: &Self::Matrix,
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// The backward of [`segment_lstm`](Self::segment_lstm): `inputs_grad` and `weight_grad` are overwritten with the
    /// gradients of `inputs` and `weight`, given that of the result. Steps are computed again, so that forward keeps none.
    ///
    /// # Errors
    /// As [`segment_lstm`](Self::segment_lstm).
    fn segment_lstm_backward(
        &self,
        sequences: (&Self::Sparse, Option<Key>),
        operands: (&Self::Matrix, &Self::Matrix),
        grad: &Self::Matrix,
        grads: (&mut Self::Matrix, &mut Self::Matrix),
    ) -> Result<(), ComputeError>;
}
