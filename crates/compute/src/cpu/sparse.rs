//! [`CpuSparse`]: a sparse matrix prepared for products with it and with its transpose.

use std::sync::OnceLock;

use girih_graph_format::{Csr, ReuseCurve, Scales, Transposed};

use super::schedule::Schedule;
use crate::{ComputeError, GlobalIds, Shape, SparseOperand, Transpose};

/// Number of entries that the estimate of a matrix's locality reads. It takes a small part of the time of one
/// product.
const READS_LOOKED_AT: usize = 1 << 20;

/// Sparse matrix `L·A·R` in main memory, with its schedule. The transpose is built at its first use.
#[derive(Clone, Debug)]
pub struct CpuSparse {
    csr: Csr,
    scales: Scales,
    symmetric: bool,
    names: Option<GlobalIds>,
    schedule: Schedule,
    reuse: OnceLock<ReuseCurve>,
    transpose: OnceLock<TransposeParts>,
}

#[derive(Clone, Debug)]
struct TransposeParts {
    csr: Csr,
    /// Original position of each entry of the transpose.
    positions: Vec<u64>,
    schedule: Schedule,
    reuse: OnceLock<ReuseCurve>,
}

/// One direction of a [`CpuSparse`]: the arrays that a product reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direction<'a> {
    /// Pattern and values.
    pub(crate) csr: &'a Csr,
    /// Original position of each entry, to look up weights; `None` if the orders agree.
    pub(crate) positions: Option<&'a [u64]>,
    /// Factors of the result's rows.
    pub(crate) left: Option<&'a [f32]>,
    /// Factors of the operand's rows.
    pub(crate) right: Option<&'a [f32]>,
    /// Division of the work among tasks.
    pub(crate) schedule: &'a Schedule,
    /// See [`reuse`](Self::reuse).
    reuse: &'a OnceLock<ReuseCurve>,
}

impl<'a> Direction<'a> {
    /// Reuse curve: cache hit rate of the operand's rows, by cache size. It is computed at its first use.
    pub(crate) fn reuse(&self) -> &'a ReuseCurve {
        self.reuse.get_or_init(|| ReuseCurve::of(self.csr, READS_LOOKED_AT))
    }

    /// Product of the two factors of an entry.
    #[inline(always)]
    pub(crate) fn scale(&self, row: usize, col: usize) -> f32 {
        self.left.map_or(1.0, |left| left[row]) * self.right.map_or(1.0, |right| right[col])
    }
}

impl CpuSparse {
    /// Prepares `operand`. Its arrays are shared, unless they are mapped from a file.
    ///
    /// # Errors
    /// When a mapped file has changed.
    pub(crate) fn new(operand: &SparseOperand<'_>) -> Result<Self, ComputeError> {
        // Products gather by column id without bounds checks.
        let csr = operand.csr.in_memory().map_err(|error| ComputeError::device("upload_sparse", error.to_string()))?;
        Ok(Self {
            scales: operand.scales.clone(),
            symmetric: operand.symmetric,
            names: operand.names.clone(),
            schedule: Schedule::new(&csr),
            reuse: OnceLock::new(),
            transpose: OnceLock::new(),
            csr,
        })
    }

    /// Shape of the matrix.
    pub(crate) fn shape(&self) -> Shape {
        Shape::new(self.csr.n_rows(), self.csr.n_cols())
    }

    /// Global ids of rows and columns; `None` if the matrix is not a submatrix of a larger one.
    pub(crate) fn names(&self) -> Option<&GlobalIds> {
        self.names.as_ref()
    }

    /// Number of stored entries.
    pub(crate) fn nnz(&self) -> usize {
        self.csr.nnz()
    }

    /// Arrays for a product with the matrix or with its transpose. A symmetric matrix serves as its own transpose,
    /// unless `weighted`: other weights need not be symmetric.
    pub(crate) fn direction(&self, transpose: Transpose, weighted: bool) -> Direction<'_> {
        let Scales { left, right } = &self.scales;
        let (left, right) = match transpose {
            Transpose::No => (left.as_deref(), right.as_deref()),
            Transpose::Yes => (right.as_deref(), left.as_deref()),
        };
        if transpose == Transpose::No || (self.symmetric && !weighted) {
            let Self { csr, schedule, reuse, .. } = self;
            return Direction { csr, positions: None, left, right, schedule, reuse };
        }
        let TransposeParts { csr, positions, schedule, reuse } = self.transpose();
        Direction { csr, positions: Some(positions), left, right, schedule, reuse }
    }

    fn transpose(&self) -> &TransposeParts {
        if let Some(parts) = self.transpose.get() {
            return parts;
        }
        // Built outside the lock: a thread that waits inside rayon may start a task that needs the same transpose.
        let parts = TransposeParts::new(&self.csr);
        self.transpose.get_or_init(|| parts)
    }
}

impl TransposeParts {
    fn new(csr: &Csr) -> Self {
        let Transposed { csr, positions } = csr.transposed_with_positions();
        let schedule = Schedule::new(&csr);
        Self { csr, positions, schedule, reuse: OnceLock::new() }
    }
}
