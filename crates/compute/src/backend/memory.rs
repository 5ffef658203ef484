//! [`Memory`]: matrices, sparse matrices and lists of ids in a device's memory.

use std::sync::Arc;

use girih_graph_format::{Csr, Matrix, Scales};
use girih_machine::parallel;

use crate::checks::{self, Checked, IdRange};
use crate::{ComputeError, Dtype, Shape};

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
    parallel::for_each(values.chunks_mut(rows * cols.max(1)).enumerate(), |(piece, values)| fill(piece * rows, values));
}

/// Number of rows of `cols` columns that are filled at a time; at least 1.
pub(crate) fn filled_rows(cols: usize) -> usize {
    (FILLED_VALUES / cols.max(1)).max(1)
}

/// Memory of a device: allocations, uploads, downloads and shapes.
///
/// Values of `Matrix`, `Sparse` and `Ids` live on the device; dropping them frees their memory.
pub trait Memory: Send + Sync + 'static {
    /// Dense matrix.
    type Matrix: Send + Sync;
    /// Sparse matrix `L·A·R`, with the data that products with its transpose need.
    type Sparse: Send + Sync;
    /// List of 32-bit integers: node ids or classes.
    type Ids: Send + Sync;

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

    /// Length and upper bound of `ids`.
    fn id_range(&self, ids: &Self::Ids) -> IdRange;

    /// Overwrites `out` (`n × d`) with zeros.
    ///
    /// # Errors
    /// When the device fails.
    fn set_zero(&self, out: &mut Self::Matrix) -> Result<(), ComputeError>;

    /// Allocates a list of `len` zeros, for an operation to overwrite.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn zero_ids(&self, len: usize) -> Result<Self::Ids, ComputeError>;

    checked! {
        /// Overwrites `out` with the values of `host`, which has the same shape. The storage type of `out` stays.
        ///
        /// # Errors
        /// When shapes differ.
        fn write, run_write(&self, host: &Matrix, out: &mut Self::Matrix) -> Result<(), ComputeError> {
            let expected = Shape::new(host.n_rows(), host.n_cols());
            checks::expect("write", "out", self.shape(out), expected)
        }

        /// Uploads a sparse matrix (`n × m`) and prepares it for products with it and with its transpose.
        ///
        /// # Errors
        /// When the device's memory does not suffice.
        fn upload_sparse, run_upload_sparse(&self, operand: &SparseOperand<'_>) -> Result<Self::Sparse, ComputeError> {
            check_sparse(operand)
        }

        /// Uploads a sparse matrix that few products use, such as a block of a mini-batch. A device then prepares what it
        /// can make in less time than it would take the host. Results are those of [`upload_sparse`](Self::upload_sparse), up
        /// to the order of sums.
        ///
        /// # Errors
        /// As [`upload_sparse`](Self::upload_sparse).
        fn upload_block, run_upload_block(&self, operand: &SparseOperand<'_>) -> Result<Self::Sparse, ComputeError> {
            check_sparse(operand)
        } else {
            self.upload_sparse(operand)
        }
    }
}

/// Checks that scales and global ids have the lengths of rows and columns, and that a symmetric operand is square.
fn check_sparse(operand: &SparseOperand<'_>) -> Checked {
    const OPERATION: &str = "upload_sparse";
    let SparseOperand { csr, scales, symmetric, names } = operand;
    let column = |len| Shape::new(len, 1);
    for (name, scale, len) in [("left scale", &scales.left, csr.n_rows()), ("right scale", &scales.right, csr.n_cols())]
    {
        checks::expect_given(OPERATION, name, scale.as_ref().map(|scale| column(scale.len())), column(len))?;
    }
    if *symmetric && !csr.is_square() {
        let shape = Shape::new(csr.n_rows(), csr.n_cols());
        return Err(ComputeError::argument(OPERATION, format!("a {shape} matrix cannot equal its transpose")));
    }
    let n_names = names.as_ref().map(|names| column(names.columns.len()));
    checks::expect_given(OPERATION, "names of columns", n_names, column(csr.n_cols()))
}
