//! [`CpuSparse`]: a sparse matrix ready for products with it and with its transpose.

use std::sync::OnceLock;

use girih_graph_format::{Csr, ReuseCurve, Scales, Transposed};

use super::schedule::Schedule;
use crate::{ComputeError, EntryNames, Shape, SparseOperand, Transpose};

/// Entries that an estimate of the locality of a matrix looks at: a small part of the time of one product.
const READS_LOOKED_AT: usize = 1 << 20;

/// `L·A·R` in main memory, with its schedule. The transpose is built when a product first needs it.
#[derive(Clone, Debug)]
pub struct CpuSparse {
    csr: Csr,
    scales: Scales,
    symmetric: bool,
    names: Option<EntryNames>,
    schedule: Schedule,
    reuse: OnceLock<ReuseCurve>,
    transpose: OnceLock<TransposeParts>,
}

#[derive(Clone, Debug)]
struct TransposeParts {
    csr: Csr,
    /// For each entry of the transpose, its position among the entries of the original.
    positions: Vec<u64>,
    schedule: Schedule,
    reuse: OnceLock<ReuseCurve>,
}

/// One direction of a [`CpuSparse`]: what a product reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direction<'a> {
    /// The pattern and the values.
    pub(crate) csr: &'a Csr,
    /// Where weights in the original order are found; `None` when the orders agree.
    pub(crate) positions: Option<&'a [u64]>,
    /// Factors of the rows of the result.
    pub(crate) left: Option<&'a [f32]>,
    /// Factors of the rows of the operand.
    pub(crate) right: Option<&'a [f32]>,
    /// How the work is shared.
    pub(crate) schedule: &'a Schedule,
    /// See [`reuse`](Self::reuse).
    reuse: &'a OnceLock<ReuseCurve>,
}

impl<'a> Direction<'a> {
    /// How often caches hold the rows of the operand that the entries read; found out when it is first needed.
    pub(crate) fn reuse(&self) -> &'a ReuseCurve {
        self.reuse.get_or_init(|| ReuseCurve::of(self.csr, READS_LOOKED_AT))
    }

    /// The product of the two factors of an entry.
    #[inline(always)]
    pub(crate) fn scale(&self, row: usize, col: usize) -> f32 {
        self.left.map_or(1.0, |left| left[row]) * self.right.map_or(1.0, |right| right[col])
    }
}

impl CpuSparse {
    /// Prepares `operand`; its arrays are shared, unless they are mapped from a file.
    ///
    /// # Errors
    /// When such a file has changed.
    pub(crate) fn new(operand: &SparseOperand<'_>) -> Result<Self, ComputeError> {
        // Products gather by column without checks.
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

    /// Rows and columns.
    pub(crate) fn shape(&self) -> Shape {
        Shape::new(self.csr.n_rows(), self.csr.n_cols())
    }

    /// What rows and columns are called in the matrix that this is a piece of.
    pub(crate) fn names(&self) -> Option<&EntryNames> {
        self.names.as_ref()
    }

    /// Stored entries.
    pub(crate) fn nnz(&self) -> usize {
        self.csr.nnz()
    }

    /// What a product with the matrix or with its transpose reads. A symmetric matrix stands for its own transpose
    /// unless `weighted`: other weights in the place of its values need not be symmetric.
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
        // Built outside the lock: a thread that waits inside rayon may take up a task that wants the same transpose.
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
