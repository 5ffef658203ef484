//! [`Backend`]: the operations that a device implements.
//!
//! Conventions of every operation:
//! - Matrices are dense and row-major. Results go into `out`, which already has the right shape. An operation
//!   overwrites `out`, unless the [`Epilogue`] accumulates.
//! - An operation refuses operands of wrong shape with [`ComputeError`] and then writes nothing.
//! - Sums are `f32` or wider for every storage type. Their order does not depend on the number of threads: the same
//!   call gives the same bits.

use std::fmt;
use std::sync::Arc;

use girih_compress::CompressedFeatures;
use girih_graph_format::{Csr, Matrix, Scales};
use girih_random::Key;
use girih_tiers::{HostReads, Placement};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{
    ComputeError, Dropout, FeatureStore, HostFeatures, NeighborGraph, NeighborOperand, SplitRows, WritableStore, checks,
};

/// Rows and columns of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
}

impl Shape {
    /// Shape with `rows` rows and `cols` columns.
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

    /// Shape of the transpose.
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

/// Storage type of the elements of a matrix. Sums are `f32` for every storage type.
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

    /// Name of the type for users: `f32` or `bf16`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }
}

/// Activation function of an epilogue, applied element by element after the bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// No activation: `x`.
    #[default]
    Identity,
    /// `max(x, 0)`.
    Relu,
    /// `x` if positive, else `exp(x) - 1` (Clevert et al., ICLR 2016).
    Elu,
}

/// Epilogue of a product: `out = mask ⊙ activation(result + (accumulate ? out : 0) + bias)`.
#[derive(Debug)]
pub struct Epilogue<'a, M> {
    /// Adds the result to the contents of `out` instead of overwriting them.
    pub accumulate: bool,
    /// Bias (1 × columns of the result), added to every row.
    pub bias: Option<&'a M>,
    /// Activation of the biased sum.
    pub activation: Activation,
    /// Dropout of the activated result, allowed after [`Activation::Relu`] only. The derivative is zero wherever the
    /// mask or ReLU made the result zero, so the backward pass needs the result alone.
    pub dropout: Option<Dropout>,
}

impl<M> Default for Epilogue<'_, M> {
    fn default() -> Self {
        Self { accumulate: false, bias: None, activation: Activation::Identity, dropout: None }
    }
}

/// Derivative of an [`Epilogue`], as a function of its result `y`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ActivationGrad {
    /// Activation of the epilogue.
    pub activation: Activation,
    /// Dropout scale of the kept elements, `1 / (1 - p)`; 1 without dropout.
    pub kept: f32,
}

impl ActivationGrad {
    /// Derivative of an epilogue with this activation and dropout.
    #[must_use]
    pub fn of(activation: Activation, dropout: Option<Dropout>) -> Self {
        Self { activation, kept: dropout.map_or(1.0, Dropout::scale) }
    }
}

/// Operands that [`gemm_backward`](Backend::gemm_backward) needs for the backward pass of an [`Epilogue`].
#[derive(Debug)]
pub struct EpilogueGrad<'a, M> {
    /// Derivative of the epilogue.
    pub slope: ActivationGrad,
    /// Result of the epilogue (`n × d`).
    pub y: &'a M,
    /// Index of the first column of `y` that the gradient covers.
    pub first: usize,
    /// Per-row scale (`n × 1`, `f32`), applied after the gradient of the epilogue. `None` scales nothing.
    pub factors: Option<&'a M>,
}

impl<'a, M> EpilogueGrad<'a, M> {
    /// Backward pass over all columns of `y`, without row factors.
    #[must_use]
    pub fn new(slope: ActivationGrad, y: &'a M) -> Self {
        Self { slope, y, first: 0, factors: None }
    }
}

impl<M> Epilogue<'_, M> {
    /// Epilogue that adds the result to `out`, without bias, activation or dropout.
    #[must_use]
    pub fn accumulate() -> Self {
        Self { accumulate: true, ..Self::default() }
    }
}

/// Orientation in which an operation reads an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transpose {
    /// The stored matrix.
    No,
    /// The transpose of the stored matrix.
    Yes,
}

/// Sparse matrix `L·A·R` to upload to a device, with diagonal `L` and `R`.
#[derive(Clone, Debug)]
pub struct SparseOperand<'a> {
    /// Sparse matrix `A` (`n × m`).
    pub csr: &'a Csr,
    /// Diagonals of `L` (`n` factors) and `R` (`m` factors).
    pub scales: Scales,
    /// If true, `A` equals its transpose, and `(L·A·R)ᵀ = R·A·L` needs no second copy. The caller guarantees it.
    pub symmetric: bool,
    /// Global ids of rows and columns if `A` is a submatrix of a larger matrix; `None` otherwise.
    pub names: Option<GlobalIds>,
}

/// Global ids of the rows and columns of a submatrix. Random draws for an entry or a row are keyed by these ids, so
/// that a submatrix draws the values of the whole matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalIds {
    /// Global id of the submatrix's first row. The rows of the submatrix are consecutive in the whole matrix.
    pub first_row: u32,
    /// Global id of each column of the submatrix.
    pub columns: Arc<[u32]>,
}

impl GlobalIds {
    /// Global id of local row `row`; `row` itself without `names`.
    pub(crate) fn row(names: Option<&Self>, row: u32) -> u32 {
        names.map_or(row, |names| names.first_row + row)
    }

    /// Global id of local column `col`; `col` itself without `names`.
    pub(crate) fn col(names: Option<&Self>, col: u32) -> u32 {
        names.map_or(col, |names| names.columns[col as usize])
    }
}

/// Padding of [`Backend::top_k_rows`] for rows with fewer than `k` eligible columns.
pub const NO_COLUMN: u32 = u32::MAX;

/// One step of Adam or AdamW (Loshchilov and Hutter, ICLR 2019).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamStep {
    /// Learning rate of this step.
    pub lr: f32,
    /// Decay rate of the first moment.
    pub beta1: f32,
    /// Decay rate of the second moment.
    pub beta2: f32,
    /// Constant added to the square root of the second moment.
    pub eps: f32,
    /// If true, AdamW: the weights decay directly, in proportion to `lr`, instead of through the gradient.
    pub decoupled: bool,
    /// Number of this step, from 1. The bias correction of the moments uses it.
    pub step: u64,
}

/// Inputs of a training step that change from step to step. Everything else keeps its place and value between steps.
#[derive(Clone, Debug, PartialEq)]
pub struct StepInputs {
    /// Random keys of the step's dropouts.
    pub keys: Vec<Key>,
    /// Step of the optimiser. An optimiser without moments reads only its learning rate.
    pub optimizer: AdamStep,
}

/// Parameter and state for a step of Adam. All matrices have one shape and are `f32`.
#[derive(Debug)]
pub struct AdamUpdate<'a, M> {
    /// Parameter, updated in place.
    pub param: &'a mut M,
    /// Gradient of the parameter.
    pub grad: &'a M,
    /// First moment, updated in place.
    pub first: &'a mut M,
    /// Second moment, updated in place.
    pub second: &'a mut M,
    /// Weight decay; 0 for none.
    pub weight_decay: f32,
}

/// Parameter and state for a step of stochastic gradient descent. All matrices have one shape and are `f32`.
#[derive(Debug)]
pub struct SgdUpdate<'a, M> {
    /// Parameter, updated in place.
    pub param: &'a mut M,
    /// Gradient of the parameter.
    pub grad: &'a M,
    /// Velocity, updated in place.
    pub velocity: &'a mut M,
    /// Weight decay; 0 for none.
    pub weight_decay: f32,
}

/// Attention over the entries of a sparse pattern, with one or more heads.
///
/// Heads are interleaved: of `width = heads · d` columns, column `k · heads + h` belongs to head `h`. One vector of
/// coefficients therefore serves every group of `heads` columns. For an entry `(i, j)` and a head `h`,
///
/// ```text
/// score   e = leaky(destination[i, h] + source[j, h])                          without `vector` (GAT)
///         e = Σ_k vector[c] · leaky(destination[i, c] + source[j, c])          with it, c = k · heads + h (GATv2)
/// share   α = softmax of e over the entries of row i
/// result  out[i, c] = Σ_j mask(i, j, h) · α · values[j, c]
/// ```
/// Here `leaky(x) = x` for positive `x` and `slope · x` otherwise; [`Dropout::entry_factor`] is the mask. Values and
/// scales of the sparse matrix are ignored. Rows without entries become zero. Sources: Veličković et al., ICLR 2018;
/// Brody et al., ICLR 2022.
pub struct Attention<'a, B: Backend + ?Sized> {
    /// Sparsity pattern (`n × m`): row `i` attends to the columns of its entries.
    pub graph: &'a B::Sparse,
    /// Number of heads. The width of `values` must be a multiple of it.
    pub heads: usize,
    /// Slope of the leaky ReLU below zero.
    pub slope: f32,
    /// Dropout of the attention coefficients, after the softmax.
    pub dropout: Option<Dropout>,
    /// Scores of the destinations (`n × heads`); with `vector`, features of the destinations (`n × width`).
    pub destination: &'a B::Matrix,
    /// Scores of the sources (`m × heads`); with `vector`, features of the sources (`m × width`).
    pub source: &'a B::Matrix,
    /// Score vector of GATv2 (`1 × width`); `None` for GAT.
    pub vector: Option<&'a B::Matrix>,
    /// Values of the sources (`m × width`), summed by the attention coefficients.
    pub values: &'a B::Matrix,
}

/// Gradients of an [`Attention`]. Each has the shape of its operand and is overwritten.
pub struct AttentionGrads<'a, M> {
    /// Gradient of [`Attention::destination`].
    pub destination: &'a mut M,
    /// Gradient of [`Attention::source`].
    pub source: &'a mut M,
    /// Gradient of [`Attention::vector`]; present exactly if the vector is.
    pub vector: Option<&'a mut M>,
    /// Gradient of [`Attention::values`].
    pub values: &'a mut M,
}

/// Moments of columns for batch normalisation, taken over all rows. A rank may hold only some of these rows.
///
/// Normalisation with them turns `x` into `x̂ = (x - mean) / √(variance + eps)`.
#[derive(Debug)]
pub struct ColumnMoments<'a, M> {
    /// Mean of each column (`1 × d`).
    pub means: &'a M,
    /// Variance of each column (`1 × d`), biased: the mean squared deviation.
    pub variances: &'a M,
    /// Constant added to the variances before the square root.
    pub eps: f32,
}

impl<M> ColumnMoments<'_, M> {
    /// Names and shapes of the two moments, for [`checks`].
    pub(crate) fn shapes<B: Backend<Matrix = M>>(&self, backend: &B) -> [(&'static str, Shape); 2] {
        [("means", backend.shape(self.means)), ("variances", backend.shape(self.variances))]
    }
}

/// Dense matrix in memory of the host, with access to its raw bytes.
pub trait HostMatrix {
    /// Shape of the matrix.
    fn shape(&self) -> Shape;

    /// Storage type of the elements.
    fn dtype(&self) -> Dtype;

    /// Elements, row by row, in the byte order of the machine.
    fn bytes(&self) -> &[u8];

    /// As [`bytes`](Self::bytes), but mutable.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Number of values filled at a time, so that a block of rows stays in a core's own cache.
const FILLED_VALUES: usize = 1 << 15;

/// Fills `values`, rows of `cols` columns, in blocks of rows on all threads. `fill(first, rows)` writes the block
/// that starts at row `first`.
pub(crate) fn fill_rows(fill: &(dyn Fn(usize, &mut [f32]) + Sync), cols: usize, values: &mut [f32]) {
    let rows = filled_rows(cols);
    values.par_chunks_mut(rows * cols.max(1)).enumerate().for_each(|(piece, values)| fill(piece * rows, values));
}

/// Number of rows of `cols` columns that are filled at a time; at least 1.
pub(crate) fn filled_rows(cols: usize) -> usize {
    (FILLED_VALUES / cols.max(1)).max(1)
}

/// Device that stores matrices and runs the operations of graph neural networks.
///
/// Values of `Matrix`, `Sparse` and `Ids` live on the device; dropping them frees their memory.
pub trait Backend: Send + Sync + 'static {
    /// Dense matrix.
    type Matrix: Send + Sync;
    /// Sparse matrix `L·A·R`, with the data that products with its transpose need.
    type Sparse: Send + Sync;
    /// List of 32-bit integers: node ids or classes.
    type Ids: Send + Sync;
    /// Recording of a repeated step, for example a captured CUDA graph. Its default holds no step yet. See
    /// [`repeat`](Self::repeat).
    type Recording: Default;

    /// Short name for logs and results: `cpu`, `cuda:0`.
    fn name(&self) -> String;

    /// Storage type of per-node results and of their gradients. Weights, their gradients, sums and losses are always
    /// `f32`.
    fn activations(&self) -> Dtype {
        Dtype::F32
    }

    /// Whether matrices lie in the device's own memory rather than in the host's.
    fn has_own_memory(&self) -> bool {
        false
    }

    /// True if calls may return before their work is done. The work runs in the order of the calls. Only calls that
    /// return data to the host wait, so the host's clock cannot time the others.
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// Runs a step that differs from the one before only in `inputs`. The default calls `step`. A device that has
    /// captured the work of `step` may replay it without calling `step`. Effects of `step` on the host must therefore
    /// not matter to later steps. They find their results in the matrices to which the last call of `step` wrote
    /// them.
    ///
    /// From the first step on, the device memory that `step` uses must stay in place: its matrices live until
    /// `recording` is dropped. Other work may use the matrices that `step` overwrites, but only between steps and
    /// without keeping anything there. No other thread may use the backend during the call.
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

    /// Allocates a matrix of zeros.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn zeros(&self, shape: Shape, dtype: Dtype) -> Result<Self::Matrix, ComputeError>;

    /// Changes the shape of `matrix` if its allocation is large enough, and returns whether it did. The contents are
    /// then unspecified. Steps of varying shapes thus reuse memory.
    fn resize(&self, _matrix: &mut Self::Matrix, _shape: Shape) -> bool {
        false
    }

    /// Uploads `host`, rounded to `dtype`. A device that computes in memory of the host may share the data until
    /// either copy changes.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn upload(&self, host: &Matrix, dtype: Dtype) -> Result<Self::Matrix, ComputeError>;

    /// Uploads the `rows · cols` values that `make` returns in row-major order. A symbolic backend does not call
    /// `make`, so that a dry run does not allocate the data that it plans.
    ///
    /// # Errors
    /// When the number of values is wrong, or the device's memory does not suffice.
    fn upload_made(
        &self,
        shape: Shape,
        dtype: Dtype,
        make: &mut dyn FnMut() -> Vec<f32>,
    ) -> Result<Self::Matrix, ComputeError> {
        let host = Matrix::new(shape.rows, shape.cols, make());
        self.upload(&host.map_err(|e| ComputeError::argument("upload", e.to_string()))?, dtype)
    }

    /// Copies `matrix` (`n × d`) to the host, as `f32`.
    ///
    /// # Errors
    /// When the device fails.
    fn download(&self, matrix: &Self::Matrix) -> Result<Matrix, ComputeError>;

    /// Overwrites `out` with the values of `host`, which has the same shape. The storage type of `out` stays.
    ///
    /// # Errors
    /// When shapes differ.
    fn write(&self, host: &Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Overwrites `out` with the values that `make` returns in row-major order, as [`upload_made`](Self::upload_made)
    /// does.
    ///
    /// # Errors
    /// When the number of values is not that of the elements of `out`.
    fn write_made(&self, make: &mut dyn FnMut() -> Vec<f32>, out: &mut Self::Matrix) -> Result<(), ComputeError> {
        let Shape { rows, cols } = self.shape(out);
        let host = Matrix::new(rows, cols, make());
        self.write(&host.map_err(|e| ComputeError::argument("write", e.to_string()))?, out)
    }

    /// Overwrites `out` with rows that `fill` computes; the storage type of `out` stays. `fill(first, rows)` writes
    /// whole rows of `f32`, from row `first` on. It is called for blocks of rows, on any threads and in any order,
    /// once for every row. A device that computes in memory of the host needs no second copy of the rows.
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

    /// Uploads a sparse matrix (`n × m`) and prepares it for products with it and with its transpose.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn upload_sparse(&self, operand: &SparseOperand<'_>) -> Result<Self::Sparse, ComputeError>;

    /// Stores feature rows (`rows`, one per node) in memory of the host, for reads rounded to `dtype`. The placement
    /// may store some of them on devices as well. [`HostReads`] says how devices read the others. Returns `None` if
    /// the device's memory is the host's. All ranks of a process call it together, and each holds a part of the rows.
    ///
    /// # Errors
    /// When the host cannot allocate such memory, a device's memory does not suffice, the placement is for other
    /// devices, or a device cannot read the memory of another.
    fn host_features(
        &self,
        _rows: &Matrix,
        _dtype: Dtype,
        _placed: (&Placement, HostReads),
    ) -> Result<Option<HostFeatures<Self>>, ComputeError>
    where
        Self: Sized,
    {
        Ok(None)
    }

    /// Stores compressed features in the device's memory, or where a placement puts them, as
    /// [`host_features`](Self::host_features) does. Reads decode rows to `dtype`. The codes must [be
    /// sound](CompressedFeatures::check_codes). Returns `None` if the device cannot decode them; the host then
    /// decodes and uploads.
    ///
    /// # Errors
    /// As [`host_features`](Self::host_features).
    fn code_rows(
        &self,
        _codes: &CompressedFeatures,
        _dtype: Dtype,
        _placed: Option<(&Placement, HostReads)>,
    ) -> Result<Option<Box<dyn FeatureStore<Self>>>, ComputeError>
    where
        Self: Sized,
    {
        Ok(None)
    }

    /// Creates a reader of rows that the ranks store in memory of their hosts. Rows that the placement assigns to
    /// every device are copied there at once. All ranks call it together, with the same placement, and
    /// [begin](FeatureStore::begin) equally many reads. Codes must be [sound](CompressedFeatures::check_codes). Returns
    /// `None` if the device's memory is the host's, or the device cannot decode such codes.
    ///
    /// # Errors
    /// When the device's memory does not suffice, the placement gives rows to single devices, or a rank fails.
    fn split_rows(
        &self,
        _rows: SplitRows<'_>,
        _placement: &Placement,
    ) -> Result<Option<Box<dyn FeatureStore<Self>>>, ComputeError>
    where
        Self: Sized,
    {
        Ok(None)
    }

    /// Allocates a row store in memory of the host that the device writes and reads. Returns `None` if the device's
    /// memory is the host's. With `together`, all ranks call it, and the ranks of one process share one store.
    ///
    /// # Errors
    /// When the host cannot allocate such memory, or a rank fails.
    fn row_store(
        &self,
        _shape: Shape,
        _dtype: Dtype,
        _together: bool,
    ) -> Result<Option<Box<dyn WritableStore<Self>>>, ComputeError>
    where
        Self: Sized,
    {
        Ok(None)
    }

    /// Uploads a graph from which the device samples mini-batches. Returns `None` if the device does not sample; the
    /// host then samples and uploads.
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

    /// Uploads a list of ids.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn upload_ids(&self, ids: &[u32]) -> Result<Self::Ids, ComputeError>;

    /// Shape of `matrix`.
    fn shape(&self, matrix: &Self::Matrix) -> Shape;

    /// Storage type of `matrix`.
    fn dtype(&self, matrix: &Self::Matrix) -> Dtype;

    /// Shape of `sparse`.
    fn sparse_shape(&self, sparse: &Self::Sparse) -> Shape;

    /// Number of stored entries of `sparse`.
    fn nnz(&self, sparse: &Self::Sparse) -> usize;

    /// Dense product with a fused epilogue: `out = epilogue(op(A)·op(B))`. `op(A)` is `n × k`, `op(B)` is `k × d`,
    /// `out` is `n × d`, and the bias is `1 × d`. With `dropout`, the stored `A` is masked before the product.
    ///
    /// Operands may be `NN`, `NT` or `TN`; `TT` is refused.
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

    /// Sum of two dense products with a fused epilogue: `out = epilogue(X·W + Y·V)`, for the pairs `(X, W)` and
    /// `(Y, V)`. `X` is `n × k`, `W` is `k × d`, `Y` is `n × l`, `V` is `l × d`, and `out` is `n × d`. It equals the
    /// product of the concatenation `[X ‖ Y]`, which is not stored.
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

    /// Sparse product with a fused epilogue: `out = epilogue(op(L·A·R)·X)`. `op(A)` is `n × k`, `X` is `k × d`, `out`
    /// is `n × d`, and the bias is `1 × d`. `weights` (`nnz × heads`, in the order of the untransposed entries)
    /// replace the values of `A` if given. With several heads, each weight multiplies the columns of its head,
    /// interleaved as in [`Attention`].
    ///
    /// For an `X` stored as bf16, a backend may round `R·X` to bf16 again. A backend may offer the same for `f32`,
    /// see [`Cpu::gathering`](crate::Cpu::gathering).
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

    /// As [`spmm`](Self::spmm), but into consecutive columns of `out`, from the given first column on; the other
    /// columns stay. `X` is `k × w` and `out` is `n × d` with `w ≤ d`. Bias (`1 × d`) and dropout are those of the
    /// whole result. The columns begin and end at multiples of [`COLUMNS`](crate::checks::COLUMNS), or with the
    /// result.
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

    /// Sparse product in place: `X = op(L·A·R)·X`, with `A` `n × n` and `X` `n × d`. A device that can do so needs no
    /// second copy of a large `X`; the default allocates one.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn spmm_in_place(&self, a: (&Self::Sparse, Transpose), x: &mut Self::Matrix) -> Result<(), ComputeError> {
        let mut out = self.zeros(self.shape(x), self.dtype(x))?;
        self.spmm(a, None, x, Epilogue::default(), &mut out)?;
        *x = out;
        Ok(())
    }

    /// Backward pass of an epilogue, in place: `grad ⊙= slope(y)`, where `y` is the result of the epilogue. `y` and
    /// `grad` are `n × d`. `bias_grad` (`1 × d`), if given, is overwritten with the column sums of the new `grad`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn epilogue_backward(
        &self,
        slope: ActivationGrad,
        y: &Self::Matrix,
        grad: &mut Self::Matrix,
        bias_grad: Option<&mut Self::Matrix>,
    ) -> Result<(), ComputeError>;

    /// Dense product followed by the backward pass of an epilogue: `G = (op(A)·op(B)) ⊙ slope(Y)` and
    /// `out = diag(factors)·G`. `op(A)` is `n × k`, `op(B)` is `k × w`, `out` is `n × w`, and `factors` is `n × 1`.
    /// `Y` is the `w` columns of `y` (`n × d`) from `first` on, bounded as in [`spmm_columns`](Self::spmm_columns).
    /// `bias_grad` (`1 × w`), if given, is overwritten with the column sums of `G`.
    ///
    /// # Errors
    /// On shapes, columns or storage that do not fit.
    fn gemm_backward(
        &self,
        a: (&Self::Matrix, Transpose),
        b: (&Self::Matrix, Transpose),
        EpilogueGrad { slope, y, first, factors }: EpilogueGrad<'_, Self::Matrix>,
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

    /// Dense product with scaled rows: `out = diag(factors)·op(A)·op(B)`. `op(A)` is `n × k`, `op(B)` is `k × d`,
    /// `out` is `n × d`, and `factors` is `n × 1` of `f32`.
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

    /// Dropout: `out = mask ⊙ x`, both `n × d`. Applied to the gradient instead of `x`, it is its own backward pass.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn dropout(&self, x: &Self::Matrix, dropout: Dropout, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Dropout in place: `x ⊙= mask`, with `x` `n × d`.
    ///
    /// # Errors
    /// When the device fails.
    fn dropout_in_place(&self, dropout: Dropout, x: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Conversion: `out = x`, rounded to the storage type of `out`. Both are `n × d`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn convert(&self, x: &Self::Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Scaled addition: `out += factor · x`. `out` is `n × d` and `x` is `m × d` with `m ≤ n`; if `m < n`, only the
    /// first `m` rows of `out` change.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn add_scaled(&self, factor: f32, x: &Self::Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Gathers rows: row `i` of `out` (`ids.len() × d`) becomes row `ids[i]` of `x` (`n × d`).
    ///
    /// # Errors
    /// On shapes that do not fit, or an id out of range.
    fn gather_rows(&self, x: &Self::Matrix, ids: &Self::Ids, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Adds row `i` of `x` (`ids.len() × d`) to row `ids[i]` of `out` (`n × d`), in the order of the ids. This is the
    /// backward pass of [`gather_rows`](Self::gather_rows).
    ///
    /// # Errors
    /// On shapes that do not fit, or an id out of range.
    fn scatter_add_rows(&self, x: &Self::Matrix, ids: &Self::Ids, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Column sums: `out` (`1 × d`) becomes the sum of the rows of `x` (`n × d`).
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn column_sums(&self, x: &Self::Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Mean softmax cross-entropy over `rows` of `logits` (`n × c`), into `loss` (`1 × 1`). `classes` has `n` class
    /// ids, one per row of `logits`. `grad` (`n × c`), if given, is overwritten with the gradient with respect to the
    /// logits, zero outside `rows`. A row listed twice counts twice. Classes outside `rows` are not read, so
    /// unlabelled nodes may have any.
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

    /// Mean binary cross-entropy of sigmoids over all columns of `rows` of `logits` (`n × c`), into `loss` (`1 × 1`).
    /// `targets` (`n × c`) holds 0 or 1. `grad` (`n × c`) is as in
    /// [`softmax_cross_entropy`](Self::softmax_cross_entropy).
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

    /// Index of the largest element in each row of `x` (`n × d`), the first one of equals. Returns `n` indices on the
    /// host.
    ///
    /// # Errors
    /// When the device fails, or there are no columns.
    fn argmax_rows(&self, x: &Self::Matrix) -> Result<Vec<u32>, ComputeError>;

    /// Number of `rows` whose largest element (the first one of equals) lies in the column of their class. `x` is
    /// `n × d`, and `classes` has `n` class ids. A row listed twice counts twice. A class of `d` or more never counts
    /// as correct.
    ///
    /// # Errors
    /// When the device fails, there are no columns, no class for each row of `x`, or a row is out of range.
    fn count_correct(&self, x: &Self::Matrix, classes: &Self::Ids, rows: &Self::Ids) -> Result<u64, ComputeError>;

    /// One step of Adam on all parameters of a model. One call for all helps because many parameters are small.
    ///
    /// # Errors
    /// On shapes that do not fit, other storage than `f32`, or step 0.
    fn adam(&self, step: AdamStep, updates: &mut [AdamUpdate<'_, Self::Matrix>]) -> Result<(), ComputeError>;

    /// One step of stochastic gradient descent on all parameters of a model:
    /// `v = momentum·v + grad + weight_decay·param`, then `param -= lr·v`.
    ///
    /// # Errors
    /// On shapes that do not fit, or other storage than `f32`.
    fn sgd(&self, lr: f32, momentum: f32, updates: &mut [SgdUpdate<'_, Self::Matrix>]) -> Result<(), ComputeError>;

    /// Sampled dense-dense product: `out[e, h] = l[i] · r[j] · Σ_k x[i, c]·y[j, c]` with `c = k · heads + h`, for
    /// each entry `e = (i, j)` of `L·A·R` (`n × m`). `x` is `n × (heads·d)`, `y` is `m × (heads·d)`, and `out` is
    /// `nnz × heads`. The values of `A` are ignored. The result is the gradient of the weights of a sparse product.
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

    /// Softmax in place over the entries of each row of the pattern of `a`, for each column of `scores`
    /// (`nnz × heads`).
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn segment_softmax(&self, a: &Self::Sparse, scores: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Backward pass of [`segment_softmax`](Self::segment_softmax), in place:
    /// `grad = shares ⊙ (grad - Σ shares ⊙ grad)`, with the sum over the entries of each row. `shares` is the result
    /// of the softmax; it and `grad` are `nnz × heads`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn segment_softmax_backward(
        &self,
        a: &Self::Sparse,
        shares: &Self::Matrix,
        grad: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Dot products of rows with a vector, per head: `out[r, h] = Σ_k x[r, c]·vector[c]` with `c = k · heads + h`.
    /// `x` is `n × (heads·d)`, `vector` is `1 × (heads·d)`, and `out` is `n × heads`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn head_dots(&self, x: &Self::Matrix, vector: &Self::Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Backward pass of [`head_dots`](Self::head_dots), with `grad` `n × heads`:
    /// `x_grad[r, c] += grad[r, h]·vector[c]`, if `x_grad` (shaped like `x`) is given. `vector_grad` (shaped like
    /// `vector`) is overwritten with `Σ_r grad[r, h]·x[r, c]`.
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

    /// Attention over a pattern (`n × m`), into `out` (`n × width`). `log_sums` (`n × heads`) receives the logarithm
    /// of the softmax's denominator. The backward pass recomputes the coefficients from it, so that no array of `nnz`
    /// elements is stored.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn attention(
        &self,
        attention: &Attention<'_, Self>,
        out: &mut Self::Matrix,
        log_sums: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Backward pass of [`attention`](Self::attention), given its results `out` (`n × width`) and `log_sums`
    /// (`n × heads`). `grad` (`n × width`) is the gradient of `out`.
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

    /// Layer normalisation (Ba et al., 2016): `out = (x - mean) · rstd · gain + bias` along each row, with
    /// `rstd = 1 / √(variance + eps)`. `x` and `out` are `n × d`; `gain` and `bias` are `1 × d`. Row `i` of `moments`
    /// (`n × 2`) receives the mean and `rstd` of row `i`.
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

    /// Backward pass of [`normalize_rows`](Self::normalize_rows). In place, `grad` (`n × d`) becomes the gradient of
    /// `x`. `grads` (`1 × d` each) are overwritten with the gradients of gain and bias.
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

    /// Column sums of squared deviations: `out` (`1 × d`) becomes the sum of `(x - means)²` over the rows of `x`
    /// (`n × d`). `means` is `1 × d`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn column_squares(
        &self,
        x: &Self::Matrix,
        means: &Self::Matrix,
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Batch normalisation (Ioffe and Szegedy, ICML 2015) by given moments: `out = x̂ · gain + bias`. `x` and `out`
    /// are `n × d`; `gain` and `bias` are `1 × d`.
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

    /// Gradient of the gain of [`normalize_columns`](Self::normalize_columns): `out` (`1 × d`) becomes the sum of
    /// `grad · x̂` over rows. `x` and `grad`, the gradient of the result, are `n × d`.
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

    /// Backward pass of [`normalize_columns`](Self::normalize_columns), including its moments, in place: `grad`
    /// becomes `gain / √(variance + eps) · (grad - mean of grad - x̂ · mean of grad · x̂)`. `x` and `grad` are
    /// `n × d`, and `gain` is `1 × d`. `means` are the two means of the formula (`1 × d` each), over the same rows as
    /// the moments.
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

    /// Copies a block of `shape` from `x` to `out`. `from` and `to` are the row and column of its first element in
    /// `x` and `out`.
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

    /// Bias and activation in place: `x = activation(x + bias)`, with `x` `n × d` and `bias` `1 × d`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn activate(
        &self,
        activation: Activation,
        bias: Option<&Self::Matrix>,
        x: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Overwrites `out` (`n × d`) with zeros.
    ///
    /// # Errors
    /// When the device fails.
    fn set_zero(&self, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Scaled copy: `out = factor · x`, both `n × d`.
    ///
    /// # Errors
    /// On shapes that do not fit.
    fn scale(&self, factor: f32, x: &Self::Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Scales rows: `out = diag(factors)·X`, with `factors` `n × 1` of `f32` and `out` `n × w`. `X` is the `w`
    /// columns of `x` (`n × d`) from the given first column on, bounded as in [`spmm_columns`](Self::spmm_columns).
    ///
    /// # Errors
    /// On shapes, columns or storage that do not fit.
    fn scale_rows(
        &self,
        factors: &Self::Matrix,
        x: (&Self::Matrix, usize),
        out: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// Scales rows in place: `X = diag(factors)·X`, with `factors` `n × 1` of `f32` and `X` `n × d`.
    ///
    /// # Errors
    /// On shapes or storage that do not fit.
    fn scale_rows_in_place(&self, factors: &Self::Matrix, x: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Mean Bayesian personalised ranking loss (Rendle et al., UAI 2009, section 4) of `b` triples, into `loss`
    /// (`1 × 1`): `mean log(1 + exp(⟨u, n⟩ - ⟨u, p⟩))`. Of `triples` (`3b × d`), row `t` is the user `u` of triple
    /// `t`, row `b + t` its positive item `p`, and row `2b + t` its negative item `n`. `grad` (`3b × d`), if given,
    /// is overwritten with the gradient with respect to `triples`.
    ///
    /// # Errors
    /// On shapes that do not fit, no triples, or a number of rows that is no multiple of three.
    fn bpr_loss(
        &self,
        triples: &Self::Matrix,
        grad: Option<&mut Self::Matrix>,
        loss: &mut Self::Matrix,
    ) -> Result<(), ComputeError>;

    /// L2 penalty: `loss += weight/2 · Σ x²`, with `loss` `1 × 1` and `x` `n × d`. `grad` (`n × d`), if given, is
    /// overwritten with `weight · x`.
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

    /// Column indices of the `k` largest elements in each row of `x` (`n × d`), largest first and the first one of
    /// equals first. Returns `n · k` indices on the host, row by row. Columns listed in the same row of `excluded`
    /// (`n × d`) are skipped, as are NaN and -∞. Rows with fewer than `k` remaining columns are padded with
    /// [`NO_COLUMN`].
    ///
    /// # Errors
    /// On shapes that do not fit, or when the device fails.
    fn top_k_rows(&self, x: &Self::Matrix, k: usize, excluded: &Csr) -> Result<Vec<u32>, ComputeError>;

    /// Allocates a list of `len` zeros, for an operation to overwrite.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn zero_ids(&self, len: usize) -> Result<Self::Ids, ComputeError>;

    /// Maximum over neighbors: `out[i, c]` becomes the maximum of `x[j, c]` over the entries `(i, j)` of `a`. `a` is
    /// `n × m`, `x` is `m × d`, and `out` is `n × d`. If given, `winners` (`n · d` ids) receives in
    /// `winners[i·d + c]` the first row of `x` that holds the maximum. Rows of `a` without entries give zeros and
    /// unspecified winners. A NaN exceeds every number. The values and scales of `a` are ignored.
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

    /// Backward pass of [`segment_max`](Self::segment_max). `x_grad` (`m × d`) is overwritten: each element of `grad`
    /// (`n × d`) is added to the row of `x_grad` that `winners` (`n · d` ids) names.
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

    /// LSTM over neighbors: row `i` of `out` becomes the last state of an LSTM that reads the rows `j` of `inputs`
    /// for the entries `(i, j)` of `a`. The order is that of storage or, with a key, a random order drawn from the
    /// key and the row. Rows of `a` without entries give zeros. The values and scales of `a` are ignored.
    ///
    /// `a` is `n × m`, `inputs` is `m × 4h`, `weight` is `h × 4h`, and `out` is `n × h`. `inputs` holds the
    /// contributions of the inputs to the gates, biases included. `weight` maps a state to its contribution to the
    /// next gates. The gates lie in the order input, forget, cell, output. State and memory start at zero (Hochreiter
    /// and Schmidhuber, Neural Computation 1997, with the forget gate of Gers et al., 2000).
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

    /// Backward pass of [`segment_lstm`](Self::segment_lstm). `inputs_grad` (`m × 4h`) and `weight_grad` (`h × 4h`)
    /// are overwritten with the gradients of `inputs` and `weight`, given `grad` (`n × h`), the gradient of the
    /// result. The steps are recomputed, so that the forward pass stores none.
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
