//! [`Backend`]: what a device must offer.
//!
//! Conventions of every operation:
//! - Matrices are dense and row-major. Results go into `out`, which has the right shape already and is overwritten,
//!   unless the [`Epilogue`] accumulates.
//! - Shapes that do not fit are refused with [`ComputeError`]; nothing is written then.
//! - Sums are `f32` or wider whatever the storage, in an order that does not depend on the number of threads: the same
//!   call gives the same bits.

use std::fmt;
use std::sync::Arc;

use girih_compress::CompressedFeatures;
use girih_graph_format::{Csr, Matrix, Scales};
use girih_random::Key;
use girih_tiers::{HostReads, Placement};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{ComputeError, Dropout, FarRows, NeighborGraph, NeighborOperand, RowReader, RowStore, SplitRows, checks};

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

    /// What users call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
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
    /// `x` where it is positive, else `exp(x) - 1` (Clevert et al., ICLR 2016).
    Elu,
}

/// What happens to a result on its way out: `out = mask ⊙ activation(result + (accumulate ? out : 0) + bias)`.
#[derive(Debug)]
pub struct Epilogue<'a, M> {
    /// Add to what `out` holds instead of overwriting it.
    pub accumulate: bool,
    /// One row, added to every row of the result.
    pub bias: Option<&'a M>,
    /// Applied to the sum.
    pub activation: Activation,
    /// Masks what is stored. After [`Activation::Relu`] only: of what the mask or the activation has made zero the
    /// derivative is zero, so that the result alone tells the way back.
    pub dropout: Option<Dropout>,
}

impl<M> Default for Epilogue<'_, M> {
    fn default() -> Self {
        Self { accumulate: false, bias: None, activation: Activation::Identity, dropout: None }
    }
}

/// The derivative of an [`Epilogue`] in terms of its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// The activation.
    pub activation: Activation,
    /// What a mask multiplied by that it kept; 1 without one.
    pub kept: f32,
}

impl Slope {
    /// That of an epilogue with this activation and mask.
    #[must_use]
    pub fn of(activation: Activation, dropout: Option<Dropout>) -> Self {
        Self { activation, kept: dropout.map_or(1.0, Dropout::scale) }
    }
}

/// How a gradient goes back through an [`Epilogue`] as [`gemm_backward`](Backend::gemm_backward) stores it.
#[derive(Debug)]
pub struct WayBack<'a, M> {
    /// The derivative of the epilogue.
    pub slope: Slope,
    /// The epilogue's result.
    pub y: &'a M,
    /// Which of the columns of `y` is the first that the gradient has.
    pub first: usize,
    /// What rows are multiplied by behind the epilogue: a column of `f32`.
    pub factors: Option<&'a M>,
}

impl<'a, M> WayBack<'a, M> {
    /// Of all columns, without factors.
    #[must_use]
    pub fn through(slope: Slope, y: &'a M) -> Self {
        Self { slope, y, first: 0, factors: None }
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
    /// Where the entries lie in the matrix that `A` was cut from, if it was.
    pub names: Option<EntryNames>,
}

/// What the entries of a piece of a sparse matrix are called in the whole. Draws for an entry or a row are keyed by
/// these names, so that the pieces draw what the whole would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryNames {
    /// The row of the whole that is the piece's first; its rows are consecutive ones of the whole.
    pub first_row: u32,
    /// The column of the whole that each column of the piece is.
    pub columns: Arc<[u32]>,
}

impl EntryNames {
    /// What row `row` of a piece is called; of no piece, as it is.
    pub(crate) fn row(names: Option<&Self>, row: u32) -> u32 {
        names.map_or(row, |names| names.first_row + row)
    }

    /// What column `col` of a piece is called; of no piece, as it is.
    pub(crate) fn col(names: Option<&Self>, col: u32) -> u32 {
        names.map_or(col, |names| names.columns[col as usize])
    }
}

/// What [`Backend::top_k_rows`] names where a row has no further column.
pub const NO_COLUMN: u32 = u32::MAX;

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
    /// AdamW: decay the weights directly, in proportion to `lr`, instead of through the gradient.
    pub decoupled: bool,
    /// Number of this step, from 1: corrects the bias of the moments.
    pub step: u64,
}

/// What a training step is given that changes from one to the next; all else stays where and as it was.
#[derive(Clone, Debug, PartialEq)]
pub struct StepInputs {
    /// The keys of its dropouts.
    pub keys: Vec<Key>,
    /// The step that its optimiser takes; one without moments takes only the learning rate of it.
    pub optimizer: AdamStep,
}

/// A parameter in a step of Adam. The matrices have one shape and are `f32`.
#[derive(Debug)]
pub struct AdamUpdate<'a, M> {
    /// The parameter.
    pub param: &'a mut M,
    /// Its gradient.
    pub grad: &'a M,
    /// Its first moment.
    pub first: &'a mut M,
    /// Its second moment.
    pub second: &'a mut M,
    /// How much it decays; `0` for not.
    pub weight_decay: f32,
}

/// A parameter in a step of stochastic gradient descent. The matrices have one shape and are `f32`.
#[derive(Debug)]
pub struct SgdUpdate<'a, M> {
    /// The parameter.
    pub param: &'a mut M,
    /// Its gradient.
    pub grad: &'a M,
    /// Its velocity.
    pub velocity: &'a mut M,
    /// How much it decays; `0` for not.
    pub weight_decay: f32,
}

/// Attention over the entries of a sparse pattern, with one or more heads side by side.
///
/// Heads are interleaved: of `width = heads · d` columns, column `k · heads + h` belongs to head `h`, so that one
/// vector of coefficients serves every group of `heads` columns. For an entry `(i, j)` and a head `h`,
///
/// ```text
/// score   e = leaky(destination[i, h] + source[j, h])                          without `vector` (GAT)
///         e = Σ_k vector[c] · leaky(destination[i, c] + source[j, c])          with it, c = k · heads + h (GATv2)
/// share   α = softmax of e over the entries of row i
/// result  out[i, c] = Σ_j mask(i, j, h) · α · values[j, c]
/// ```
/// with `leaky(x) = x` for positive `x` and `slope · x` otherwise, and [`Dropout::entry_factor`] as the mask. Values
/// and scales of the sparse matrix play no part. Rows without entries become zero. Sources: Veličković et al., ICLR
/// 2018; Brody et al., ICLR 2022.
pub struct Attention<'a, B: Backend + ?Sized> {
    /// The pattern, `n × m`.
    pub graph: &'a B::Sparse,
    /// Number of heads; it divides the width of the values.
    pub heads: usize,
    /// Slope of the leaky rectifier below zero.
    pub slope: f32,
    /// Drops shares after the softmax.
    pub dropout: Option<Dropout>,
    /// `n × heads`; with a vector `n × width`.
    pub destination: &'a B::Matrix,
    /// `m × heads`; with a vector `m × width`.
    pub source: &'a B::Matrix,
    /// `1 × width`, for the scores of GATv2.
    pub vector: Option<&'a B::Matrix>,
    /// `m × width`.
    pub values: &'a B::Matrix,
}

/// Where the gradients of an [`Attention`] go; each is shaped like its operand and overwritten.
pub struct AttentionGrads<'a, M> {
    /// Of the destinations' scores.
    pub destination: &'a mut M,
    /// Of the sources' scores.
    pub source: &'a mut M,
    /// Of the vector, if there is one.
    pub vector: Option<&'a mut M>,
    /// Of the values.
    pub values: &'a mut M,
}

/// What normalises columns: their moments over all rows, of which those at hand may be a part.
///
/// It makes `x` into `x̂ = (x - mean) / √(variance + eps)`.
#[derive(Debug)]
pub struct ColumnMoments<'a, M> {
    /// The mean of each column, one row.
    pub means: &'a M,
    /// The mean square of what each column is off its mean, one row.
    pub variances: &'a M,
    /// Added to variances before their root is taken.
    pub eps: f32,
}

impl<M> ColumnMoments<'_, M> {
    /// The moments by name, for checks.
    pub(crate) fn shapes<B: Backend<Matrix = M>>(&self, backend: &B) -> [(&'static str, Shape); 2] {
        [("means", backend.shape(self.means)), ("variances", backend.shape(self.variances))]
    }
}

/// A matrix in main memory, for those who move its bytes.
pub trait HostMatrix {
    /// Rows and columns.
    fn shape(&self) -> Shape;

    /// How elements are stored.
    fn dtype(&self) -> Dtype;

    /// The elements, row after row, in the machine's own byte order.
    fn bytes(&self) -> &[u8];

    /// [`bytes`](Self::bytes), to be overwritten.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Values of the rows that are filled at a time: they stay in a core's own cache.
const FILLED_VALUES: usize = 1 << 15;

/// Lets `fill` write all rows of `cols` columns, a few at a time, on all threads.
pub(crate) fn fill_rows(fill: &(dyn Fn(usize, &mut [f32]) + Sync), cols: usize, values: &mut [f32]) {
    let rows = filled_rows(cols);
    values.par_chunks_mut(rows * cols.max(1)).enumerate().for_each(|(piece, values)| fill(piece * rows, values));
}

/// Rows of `cols` columns that are filled at a time.
pub(crate) fn filled_rows(cols: usize) -> usize {
    (FILLED_VALUES / cols.max(1)).max(1)
}

/// A device that holds matrices and runs the operations of graph neural networks.
///
/// `Matrix`, `Sparse` and `Ids` live on the device and are freed when dropped.
pub trait Backend: Send + Sync + 'static {
    /// A dense matrix.
    type Matrix: Send + Sync;
    /// A sparse matrix `L·A·R` with what its transpose needs.
    type Sparse: Send + Sync;
    /// A list of 32-bit numbers: node ids or classes.
    type Ids: Send + Sync;
    /// What is known of a step that is taken again and again; its default before the first time. See
    /// [`repeat`](Self::repeat).
    type Recording: Default;

    /// A short name for logs and results: `cpu`, `cuda:0`.
    fn name(&self) -> String;

    /// How results that have a row for each node are to be stored, and their gradients. Weights, their gradients, sums
    /// and losses are `f32` everywhere.
    fn activations(&self) -> Dtype {
        Dtype::F32
    }

    /// Whether matrices lie in memory of the device's own, and not in the host's.
    fn has_own_memory(&self) -> bool {
        false
    }

    /// Whether calls may return before their work is done, in the order of calls. Then only those wait that hand
    /// something to the host, and the host's clock tells nothing of the others.
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// Takes a step that is like the one before but for its `inputs`: by running `step`, or, on a device that has
    /// recorded what `step` asked of it, without. What happens on the host must therefore not matter to later steps,
    /// which find their results in the matrices where the last run of `step` left them.
    ///
    /// From the first step on, whatever `step` touches on the device has to stay: matrices live until `recording` is
    /// dropped, and those that it writes as it goes may be used in between, but keep nothing from one step to the next.
    /// Nobody else may use the backend meanwhile.
    ///
    /// # Errors
    /// When `step` fails, or the device does.
    fn repeat<E: From<ComputeError> + fmt::Display>(
        &self,
        _recording: &mut Self::Recording,
        _inputs: &StepInputs,
        step: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        step()
    }

    /// A matrix of zeros.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn zeros(&self, shape: Shape, dtype: Dtype) -> Result<Self::Matrix, ComputeError>;

    /// Gives `matrix` another shape, with unspecified contents, if the memory that it holds suffices; whether it did.
    /// Steps whose shapes change need not ask the system for memory again.
    fn resize(&self, _matrix: &mut Self::Matrix, _shape: Shape) -> bool {
        false
    }

    /// The rows of `host`, rounded to `dtype`. A device that computes in main memory may share them until they change.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn upload(&self, host: &Matrix, dtype: Dtype) -> Result<Self::Matrix, ComputeError>;

    /// A matrix of the values that `make` returns, row by row, as many as `shape` has. A backend that only counts does
    /// not call it, so that no plan allocates what it plans.
    ///
    /// # Errors
    /// When there are not as many values, or the device's memory does not suffice.
    fn upload_made(
        &self,
        shape: Shape,
        dtype: Dtype,
        make: &mut dyn FnMut() -> Vec<f32>,
    ) -> Result<Self::Matrix, ComputeError> {
        let host = Matrix::new(shape.rows, shape.cols, make());
        self.upload(&host.map_err(|e| ComputeError::argument("upload", e.to_string()))?, dtype)
    }

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

    /// The same with the values that `make` returns, row by row, as [`upload_made`](Self::upload_made) has them.
    ///
    /// # Errors
    /// When there are not as many values as `out` has.
    fn write_made(&self, make: &mut dyn FnMut() -> Vec<f32>, out: &mut Self::Matrix) -> Result<(), ComputeError> {
        let Shape { rows, cols } = self.shape(out);
        let host = Matrix::new(rows, cols, make());
        self.write(&host.map_err(|e| ComputeError::argument("write", e.to_string()))?, out)
    }

    /// Overwrites `out` with rows that `fill` makes, keeping its storage: `fill(first, rows)` writes whole rows of
    /// `f32`, that of number `first` and those behind it. It is called for a few rows at a time, on any threads and in
    /// any order, for every row once. A device that computes in main memory need not have the rows twice.
    ///
    /// # Errors
    /// When the device fails.
    fn write_rows(
        &self,
        fill: &(dyn Fn(usize, &mut [f32]) + Sync),
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError> {
        let Shape { rows, cols } = self.shape(out);
        let mut values = vec![0.0; rows * cols];
        fill_rows(fill, cols, &mut values);
        let host =
            Matrix::new(rows, cols, values).map_err(|error| ComputeError::argument("write_rows", error.to_string()))?;
        self.write(&host, out)
    }

    /// A sparse operand, prepared for products with it and with its transpose.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn upload_sparse(&self, operand: &SparseOperand<'_>) -> Result<Self::Sparse, ComputeError>;

    /// Keeps `rows`, which are read rounded to `dtype`, in memory of the host, and on devices those that a placement
    /// puts there, too; how devices get the others says [`HostReads`]. `None` where the device's memory is the host's.
    /// Of several ranks in one process all call it together, and each holds a part.
    ///
    /// # Errors
    /// When the host gives no such memory, that of a device does not suffice, the placement is for other devices than
    /// there are, or one cannot read what another has.
    fn far_rows(
        &self,
        _rows: &Matrix,
        _dtype: Dtype,
        _placed: (&Placement, HostReads),
    ) -> Result<Option<FarRows<Self>>, ComputeError>
    where
        Self: Sized,
    {
        Ok(None)
    }

    /// Keeps codes of features in the device's memory, or where a placement puts them as [`far_rows`](Self::far_rows)
    /// does, and decodes rows to `dtype` as they are asked for, which wants codes that [are
    /// sound](CompressedFeatures::check_codes); `None` where the device cannot, so that the host decodes and uploads.
    ///
    /// # Errors
    /// As [`far_rows`](Self::far_rows).
    fn code_rows(
        &self,
        _codes: &CompressedFeatures,
        _dtype: Dtype,
        _placed: Option<(&Placement, HostReads)>,
    ) -> Result<Option<Box<dyn RowReader<Self>>>, ComputeError>
    where
        Self: Sized,
    {
        Ok(None)
    }

    /// Reads rows that ranks have in memory of their hosts, but for those that a placement gives to every device, which
    /// are brought there at once. All ranks call it together, with the same placement, and [begin](RowReader::begin) to
    /// read as often. `None` where the device's memory is the host's, or the device does not decode such codes, which
    /// have to be [sound](CompressedFeatures::check_codes).
    ///
    /// # Errors
    /// When the device's memory does not suffice, the placement gives rows to single devices, or a rank fails.
    fn split_rows(
        &self,
        _rows: SplitRows<'_>,
        _placement: &Placement,
    ) -> Result<Option<Box<dyn RowReader<Self>>>, ComputeError>
    where
        Self: Sized,
    {
        Ok(None)
    }

    /// Room for rows in memory of the host that the device writes and reads; `None` where the device's memory is the
    /// host's. Where ranks make it `together`, all of them call this, and those of one process get the same room.
    ///
    /// # Errors
    /// When the host gives no such memory, or a rank fails.
    fn row_store(
        &self,
        _shape: Shape,
        _dtype: Dtype,
        _together: bool,
    ) -> Result<Option<Box<dyn RowStore<Self>>>, ComputeError>
    where
        Self: Sized,
    {
        Ok(None)
    }

    /// A graph where the device samples mini-batches from it; `None` where it does not, so that the host samples and
    /// uploads.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn neighbor_graph(
        &self,
        _operand: &NeighborOperand<'_>,
    ) -> Result<Option<Box<dyn NeighborGraph<Self>>>, ComputeError>
    where
        Self: Sized,
    {
        Ok(None)
    }

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

    /// `out = epilogue(X·W + Y·V)` for pairs `(X, W)` and `(Y, V)`: the product of a concatenation `[X ‖ Y]`, which is
    /// not stored.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn gemm_pair(
        &self,
        first: (&Self::Matrix, &Self::Matrix),
        second: (&Self::Matrix, &Self::Matrix),
        epilogue: Epilogue<'_, Self::Matrix>,
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError> {
        let no = Transpose::No;
        let before = Epilogue { accumulate: epilogue.accumulate, ..Epilogue::default() };
        self.gemm((first.0, no), None, (first.1, no), before, out)?;
        self.gemm((second.0, no), None, (second.1, no), Epilogue { accumulate: true, ..epilogue }, out)
    }

    /// `out = epilogue(op(L·A·R)·X)`; of an `X` stored as bf16, `R·X` may be rounded to bf16 again; a backend may offer
    /// to do so with `f32`, see [`Cpu::gathering`](crate::Cpu::gathering). `weights` (`nnz × 1`, in the order of the
    /// untransposed entries) stand in for the values of `A` if given. With several heads, `nnz × heads`, each weighs
    /// its own columns, interleaved as in [`Attention`].
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

    /// [`spmm`](Self::spmm) into some columns of a result: as many as `X` has, from the one that comes with `out` on;
    /// the others stay as they are. Bias and mask are those of the whole result, which several products make, one
    /// beside the other. Columns begin and end at multiples of [`COLUMNS`](crate::checks::COLUMNS), or with the result.
    ///
    /// # Errors
    /// On shapes or columns that do not fit.
    fn spmm_columns(
        &self,
        a: (&Self::Sparse, Transpose),
        x: &Self::Matrix,
        epilogue: Epilogue<'_, Self::Matrix>,
        out: (&mut Self::Matrix, usize),
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

    /// Takes a gradient back through an epilogue: `grad ⊙= slope(y)` in place, where `y` is the epilogue's result, and,
    /// if wanted, `bias_grad = column sums of grad` (overwritten, one row).
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn epilogue_backward(
        &self,
        slope: Slope,
        y: &Self::Matrix,
        grad: &mut Self::Matrix,
        bias_grad: Option<&mut Self::Matrix>,
    ) -> Result<(), ComputeError>;

    /// `G = (op(A)·op(B)) ⊙ slope(Y)`, `out = diag(factors)·G`, and, if wanted, `bias_grad = column sums of G`: the
    /// gradient of some columns `Y` of `y` as a dense product, taken back through the epilogue whose result `y` is.
    /// Columns begin and end as those of [`spmm_columns`](Self::spmm_columns). Both results are overwritten.
    ///
    /// # Errors
    /// On shapes, columns or storage that do not fit.
    fn gemm_backward(
        &self,
        a: (&Self::Matrix, Transpose),
        b: (&Self::Matrix, Transpose),
        WayBack { slope, y, first, factors }: WayBack<'_, Self::Matrix>,
        out: &mut Self::Matrix,
        bias_grad: Option<&mut Self::Matrix>,
    ) -> Result<(), ComputeError> {
        let shape = self.shape(out);
        let of_factors = factors.map(|factors| (self.shape(factors), self.dtype(factors)));
        checks::gemm_backward((self.shape(y), first), of_factors, shape)?;
        self.gemm(a, None, b, Epilogue::default(), out)?;
        if shape == self.shape(y) {
            self.epilogue_backward(slope, y, out, bias_grad)?;
        } else {
            let mut some = self.zeros(shape, self.dtype(y))?;
            self.copy_block(shape, y, (0, first), &mut some, (0, 0))?;
            self.epilogue_backward(slope, &some, out, bias_grad)?;
        }
        factors.map_or(Ok(()), |factors| self.scale_rows_in_place(factors, out))
    }

    /// `out = diag(factors)·op(A)·op(B)`, with a factor of `f32` for each row.
    ///
    /// # Errors
    /// On shapes or storage that do not fit.
    fn gemm_scaled(
        &self,
        factors: &Self::Matrix,
        a: (&Self::Matrix, Transpose),
        b: (&Self::Matrix, Transpose),
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError> {
        checks::row_factors("gemm_scaled", (self.shape(factors), self.dtype(factors)), self.shape(out).rows)?;
        self.gemm(a, None, b, Epilogue::default(), out)?;
        self.scale_rows_in_place(factors, out)
    }

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

    /// `out += factor · x`; where `x` has fewer rows, to the first rows of `out`.
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

    /// How many of `rows` have their largest element (the first of equals) in the column that `classes` names for them.
    /// A row that is named twice counts twice; a class that is no column is never right.
    ///
    /// # Errors
    /// When the device fails, there are no columns, no class for each row of `x`, or a row is out of range.
    fn count_correct(&self, x: &Self::Matrix, classes: &Self::Ids, rows: &Self::Ids) -> Result<u64, ComputeError>;

    /// One step of Adam on parameters: all of a model together, because many are small.
    ///
    /// # Errors
    /// On shapes that do not fit, other storage than `f32`, or step 0.
    fn adam(&self, step: AdamStep, updates: &mut [AdamUpdate<'_, Self::Matrix>]) -> Result<(), ComputeError>;

    /// One step of stochastic gradient descent, likewise: `v = momentum·v + grad + weight_decay·param`, `param -=
    /// lr·v`.
    ///
    /// # Errors
    /// On shapes that do not fit, or other storage than `f32`.
    fn sgd(&self, lr: f32, momentum: f32, updates: &mut [SgdUpdate<'_, Self::Matrix>]) -> Result<(), ComputeError>;

    /// `out[e, h] = l[i] · r[j] · Σ_k x[i, c]·y[j, c]` with `c = k · heads + h`, for each entry `e = (i, j)` of
    /// `L·A·R`: the product of `X` and `Yᵀ` sampled at the entries; values of `A` play no part. `x` is `n × (heads·d)`,
    /// `y` is `m × (heads·d)`, and `out` is `nnz × heads`. It is the gradient of a sparse product's weights.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn sddmm(
        &self,
        a: &Self::Sparse,
        x: &Self::Matrix,
        y: &Self::Matrix,
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Softmax over the entries of each row of the pattern of `a`, for each column of `scores` (`nnz × heads`), in
    /// place.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn segment_softmax(&self, a: &Self::Sparse, scores: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Takes a gradient back through [`segment_softmax`](Self::segment_softmax), whose result is `shares`, in place:
    /// `grad = shares ⊙ (grad - Σ shares ⊙ grad)`, the sum over each row's entries.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn segment_softmax_backward(
        &self,
        a: &Self::Sparse,
        shares: &Self::Matrix,
        grad: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// `out[r, h] = Σ_k x[r, c]·vector[c]` with `c = k · heads + h`, where `out` has `heads` columns.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn head_dots(&self, x: &Self::Matrix, vector: &Self::Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Takes a gradient back through [`head_dots`](Self::head_dots): `x_grad[r, c] += grad[r, h]·vector[c]`, and
    /// `vector_grad` is overwritten.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn head_dots_backward(
        &self,
        x: &Self::Matrix,
        vector: &Self::Matrix,
        grad: &Self::Matrix,
        x_grad: Option<&mut Self::Matrix>,
        vector_grad: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Attention over a pattern. `log_sums` (`n × heads`) receives the logarithm of the softmax's denominator, all that
    /// the backward pass needs: shares are computed again, and nothing of `nnz` elements is stored.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn attention(
        &self,
        attention: &Attention<'_, Self>,
        out: &mut Self::Matrix,
        log_sums: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Gradients of [`attention`](Self::attention), whose results are `out` and `log_sums`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn attention_backward(
        &self,
        attention: &Attention<'_, Self>,
        results: (&Self::Matrix, &Self::Matrix),
        grad: &Self::Matrix,
        grads: AttentionGrads<'_, Self::Matrix>,
    ) -> Result<(), ComputeError>;

    /// Layer normalisation (Ba et al., 2016): `out = (x - mean) · rstd · gain + bias` along each row, with `rstd = 1 /
    /// √(variance + eps)`; `gain` and `bias` are one row. Row `i` of `moments` (two columns) receives the mean and
    /// `rstd` of row `i`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn normalize_rows(
        &self,
        eps: f32,
        x: &Self::Matrix,
        gain_and_bias: (&Self::Matrix, &Self::Matrix),
        out: &mut Self::Matrix,
        moments: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Takes a gradient back through [`normalize_rows`](Self::normalize_rows): `grad` becomes that of `x` in place; the
    /// gradients of gain and bias are overwritten.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn normalize_rows_backward(
        &self,
        x: &Self::Matrix,
        gain: &Self::Matrix,
        moments: &Self::Matrix,
        grad: &mut Self::Matrix,
        grads: (&mut Self::Matrix, &mut Self::Matrix),
    ) -> Result<(), ComputeError>;

    /// `out` (one row) becomes the sums over rows of `(x - means)²`, column by column; `means` is one row.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn column_squares(
        &self,
        x: &Self::Matrix,
        means: &Self::Matrix,
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Batch normalisation (Ioffe and Szegedy, ICML 2015) by moments that are at hand: `out = x̂ · gain + bias`; `gain`
    /// and `bias` are one row.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn normalize_columns(
        &self,
        moments: ColumnMoments<'_, Self::Matrix>,
        x: &Self::Matrix,
        gain_and_bias: (&Self::Matrix, &Self::Matrix),
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// `out` (one row) becomes the sums over rows of `grad · x̂`, column by column: the gradient of the gain of
    /// [`normalize_columns`](Self::normalize_columns), given that of its result.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn normalized_products(
        &self,
        moments: ColumnMoments<'_, Self::Matrix>,
        x: &Self::Matrix,
        grad: &Self::Matrix,
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Takes a gradient back through [`normalize_columns`](Self::normalize_columns) and the moments themselves: `grad`
    /// becomes `gain / √(variance + eps) · (grad - mean of grad - x̂ · mean of grad · x̂)` in place. The two means (one
    /// row each) are over all rows that the moments are of.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn normalize_columns_backward(
        &self,
        moments: ColumnMoments<'_, Self::Matrix>,
        x: &Self::Matrix,
        gain: &Self::Matrix,
        means: (&Self::Matrix, &Self::Matrix),
        grad: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// The block of `out` with `shape` and its first element at row and column `to` becomes that of `x` at `from`.
    ///
    /// # Errors
    /// When a block does not lie inside its matrix.
    fn copy_block(
        &self,
        shape: Shape,
        x: &Self::Matrix,
        from: (usize, usize),
        out: &mut Self::Matrix,
        to: (usize, usize),
    ) -> Result<(), ComputeError>;

    /// `x = activation(x + bias)`, in place; `bias` is one row.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn activate(
        &self,
        activation: Activation,
        bias: Option<&Self::Matrix>,
        x: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Overwrites `out` with zeros.
    ///
    /// # Errors
    /// When the device fails.
    fn set_zero(&self, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// `out = factor · x`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn scale(&self, factor: f32, x: &Self::Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// `out = diag(factors)·X`: row `i` times the `i`-th of `factors`, a column of `f32`. `X` is as many columns of `x` as
    /// `out` has, from the one that comes with it on; they begin and end as those of
    /// [`spmm_columns`](Self::spmm_columns).
    ///
    /// # Errors
    /// On shapes, columns or storage that do not fit.
    fn scale_rows(
        &self,
        factors: &Self::Matrix,
        x: (&Self::Matrix, usize),
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// `X = diag(factors)·X`, in place.
    ///
    /// # Errors
    /// On shapes or storage that do not fit.
    fn scale_rows_in_place(&self, factors: &Self::Matrix, x: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Mean Bayesian personalised ranking loss (Rendle et al., UAI 2009, section 4) of `b` triples, into `loss`
    /// (`1 × 1`): `mean log(1 + exp(⟨u, n⟩ - ⟨u, p⟩))`, where row `t` of `triples` (`3b × d`) is the user `u` of triple
    /// `t`, row `b + t` the item `p` that the user met and row `2b + t` the item `n` to be ranked below it. `grad`, if
    /// wanted, is overwritten with the gradient with respect to `triples`.
    ///
    /// # Errors
    /// On shapes that do not fit, no triples, or a number of rows that is no multiple of three.
    fn bpr_loss(
        &self,
        triples: &Self::Matrix,
        grad: Option<&mut Self::Matrix>,
        loss: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// `loss += weight/2 · Σ x²` (`1 × 1`), and `grad = weight · x` if wanted: a penalty on large elements.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn l2_penalty(
        &self,
        weight: f32,
        x: &Self::Matrix,
        grad: Option<&mut Self::Matrix>,
        loss: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// The columns of the `k` largest elements of each row, largest first and the first of equals first, on the host:
    /// `k` numbers a row. Columns that the same row of `excluded` (shaped like `x`) lists are passed over, and so are
    /// NaN and -∞; where fewer than `k` are left, [`NO_COLUMN`] fills up.
    ///
    /// # Errors
    /// On shapes that do not fit, or when the device fails.
    fn top_k_rows(&self, x: &Self::Matrix, k: usize, excluded: &Csr) -> Result<Vec<u32>, ComputeError>;

    /// A list of `len` zeros, for an operation to write to.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn zero_ids(&self, len: usize) -> Result<Self::Ids, ComputeError>;

    /// Element `c` of row `i` of `out` becomes the largest element `c` of the rows of `x` that row `i` of `a` names,
    /// and, if wanted, number `i·cols + c` of `winners` the first row that holds it. Rows of `a` without entries give
    /// zeros, and winners without meaning. A NaN is larger than any number. Only the pattern of `a` counts, not its
    /// values or scales.
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

    /// The backward of [`segment_max`](Self::segment_max): `x_grad` becomes the gradient of `x`, of which each element
    /// of `grad` goes to its winner.
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

    /// Row `i` of `out` becomes the last state of an LSTM that reads the rows of `inputs` which row `i` of `a` names,
    /// one after the other: as they are stored, or in an order drawn below the key and the row, if there is a key. Rows
    /// of `a` without entries give zeros. Only the pattern of `a` counts, not its values or scales.
    ///
    /// With states of `h` columns, `inputs` (`n × 4h`) holds what the inputs add to the gates, biases and all, and
    /// `weight` (`h × 4h`) takes a state to what it adds to the next gates: input, forget, cell, output, in this order.
    /// State and memory start at zero (Hochreiter and Schmidhuber, Neural Computation 1997, with the forget gate of
    /// Gers et al., 2000).
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
    /// gradients of `inputs` and `weight`, given that of the result. Steps are computed again, so that forward keeps
    /// none.
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
