//! [`Csr`]: compressed sparse rows.
//!
//! ```text
//! 0 ──▶ 1     row       0 │ 1 │ 2    │ 3 │      row v lists the in-neighbors of v
//! │     │     indptr    0   0   1      3   4    n_rows + 1 offsets, u64
//! └─▶ 2 ◀┘    indices   ∅ │ 0 │ 0  1 │ 2 │      nnz column ids, u32, ascending in a row
//!     └──▶ 3  row(2) = indices[indptr[2]..indptr[3]] = [0, 1];  row(0) = []
//! ```
//! Aggregating neighbors is the product `Y = A·X`: row `v` of `Y` sums the rows of `X` that row `v` of `A` lists.

use std::ops::Range;

use girih_machine::parallel;
use rayon::prelude::*;

use crate::{Buffer, FormatError, Matrix, NodeId};

/// Largest number of nodes of a graph. Ids also fit in `i32`, as NumPy and `SciPy` store them, and leave kernels a
/// spare bit.
pub const MAX_NODES: usize = i32::MAX as usize;

/// Sparse matrix by rows, with an optional `f32` weight on every entry; without weights every entry is one.
///
/// # Invariants
/// [`Csr::new`] checks them. A mapped file may break them later: code that indexes without checks takes
/// [`Csr::in_memory`].
/// 1. `indptr` has `n_rows + 1` offsets, starts at 0, never decreases, and ends at `indices.len()`.
/// 2. Columns are below `n_cols` and ascend strictly within a row (so no entry is stored twice).
/// 3. Weights, if any, are finite and as many as `indices`.
/// 4. `n_rows` and `n_cols` are at most [`MAX_NODES`].
#[derive(Clone, Debug, PartialEq)]
pub struct Csr {
    n_rows: usize,
    n_cols: usize,
    indptr: Buffer<u64>,
    indices: Buffer<NodeId>,
    values: Option<Buffer<f32>>,
}

impl Csr {
    /// Makes a matrix from its arrays, and checks every invariant: O(rows + entries), in parallel.
    ///
    /// # Errors
    /// At the first broken invariant, naming row and entry.
    pub fn new(
        n_rows: usize,
        n_cols: usize,
        indptr: impl Into<Buffer<u64>>,
        indices: impl Into<Buffer<NodeId>>,
        values: Option<Buffer<f32>>,
    ) -> Result<Self, FormatError> {
        let csr = Self { n_rows, n_cols, indptr: indptr.into(), indices: indices.into(), values };
        csr.validate()?;
        Ok(csr)
    }

    /// Makes a matrix from its arrays, without checks except in debug builds.
    ///
    /// # Safety
    /// All invariants of [`Csr`] hold: kernels index by column without bounds checks.
    #[must_use]
    pub unsafe fn new_unchecked(
        n_rows: usize,
        n_cols: usize,
        indptr: impl Into<Buffer<u64>>,
        indices: impl Into<Buffer<NodeId>>,
        values: Option<Buffer<f32>>,
    ) -> Self {
        let csr = Self { n_rows, n_cols, indptr: indptr.into(), indices: indices.into(), values };
        debug_assert!(csr.validate().is_ok(), "{}", csr.validate().unwrap_err());
        csr
    }

    /// Makes a matrix of a range of the entries, which stay shared.
    ///
    /// # Safety
    /// `indptr` must hold the offsets of whole rows, and `entries` must be the range of their entries.
    pub(crate) unsafe fn with_rows(&self, indptr: Vec<u64>, entries: Range<usize>) -> Self {
        let values = self.values.as_ref().map(|values| values.slice(entries.clone()));
        // SAFETY: the entries belong to whole rows of a valid matrix, as the caller promises.
        unsafe { Self::new_unchecked(indptr.len() - 1, self.n_cols, indptr, self.indices.slice(entries), values) }
    }

    /// Copies the matrix to memory of this process, for code that indexes by columns without checks. Returns a clone
    /// that shares the arrays where nothing is mapped from a file or lent by another owner.
    ///
    /// # Errors
    /// When arrays have changed since the matrix was made, so that an invariant no longer holds.
    pub fn in_memory(&self) -> Result<Self, FormatError> {
        if self.indptr.is_owned() && self.indices.is_owned() && self.values.as_ref().is_none_or(Buffer::is_owned) {
            return Ok(self.clone());
        }
        let values = self.values.as_ref().map(Buffer::in_memory);
        let copy = Self::new(self.n_rows, self.n_cols, self.indptr.in_memory(), self.indices.in_memory(), values);
        copy.map_err(|error| changed(&error))
    }

    /// Offsets of rows in memory of this process, copied as by [`in_memory`](Self::in_memory).
    ///
    /// # Errors
    /// When they have changed since the matrix was made, so that they are no longer valid offsets.
    pub fn indptr_in_memory(&self) -> Result<Buffer<u64>, FormatError> {
        let indptr = self.indptr.in_memory();
        if !self.indptr.is_owned() {
            check_indptr(&indptr, self.n_rows, self.indices.len()).map_err(|error| changed(&error))?;
        }
        Ok(indptr)
    }

    /// Whether an array of the matrix is mapped from a file, which may change.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.indptr.is_mapped() || self.indices.is_mapped() || self.values.as_ref().is_some_and(Buffer::is_mapped)
    }

    /// Makes a matrix without entries.
    ///
    /// # Errors
    /// When a dimension exceeds [`MAX_NODES`].
    pub fn empty(n_rows: usize, n_cols: usize) -> Result<Self, FormatError> {
        check_dimensions(n_rows, n_cols)?;
        Self::new(n_rows, n_cols, vec![0; n_rows + 1], Vec::new(), None)
    }

    /// Checks every invariant again.
    ///
    /// # Errors
    /// At the first broken invariant.
    pub fn validate(&self) -> Result<(), FormatError> {
        check_dimensions(self.n_rows, self.n_cols)?;
        check_indptr(&self.indptr, self.n_rows, self.indices.len())?;
        self.validate_columns()?;
        self.validate_values()
    }

    fn validate_columns(&self) -> Result<(), FormatError> {
        // Only the last column of an ascending row can be out of range: one pass over the entries.
        let is_valid =
            |row: &[NodeId]| row.is_sorted_by(|a, b| a < b) && row.last().is_none_or(|&c| (c as usize) < self.n_cols);
        let rows = (0..self.n_rows).into_par_iter().with_min_len(1024);
        match rows.find_first(|&row| !is_valid(self.row(row))) {
            None => Ok(()),
            Some(row) => Err(self.column_error(row)),
        }
    }

    /// Error of the columns of `row`.
    fn column_error(&self, row: usize) -> FormatError {
        let columns = self.row(row);
        let n_cols = self.n_cols;
        let message = match columns.iter().position(|&c| c as usize >= n_cols) {
            Some(at) => format!(
                "row {row}: entry {at} is column {}, but there are only {n_cols} columns; does the edge name a node that \
                 does not exist?",
                columns[at]
            ),
            None => {
                let at = columns.windows(2).position(|w| w[0] >= w[1]).unwrap_or(0);
                let pair = &columns[at..at + 2];
                format!("row {row}: column {} is followed by {}; columns must ascend without repeats", pair[0], pair[1])
            }
        };
        FormatError::invalid(message)
    }

    fn validate_values(&self) -> Result<(), FormatError> {
        let Some(values) = &self.values else { return Ok(()) };
        if values.len() != self.indices.len() {
            return Err(FormatError::invalid(format!(
                "there are {} weights for {} entries",
                values.len(),
                self.indices.len()
            )));
        }
        match parallel::position(values, |v| !v.is_finite()) {
            None => Ok(()),
            Some(at) => {
                Err(FormatError::invalid(format!("the weight of entry {at} is {}; weights must be finite", values[at])))
            }
        }
    }

    /// Number of rows, which are the destinations of edges.
    #[inline]
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Number of columns, which are the sources of edges.
    #[inline]
    #[must_use]
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Number of stored entries.
    #[inline]
    #[must_use]
    pub fn nnz(&self) -> usize {
        self.indices.len()
    }

    /// Whether the matrix is square, so that rows and columns are nodes of one set.
    #[must_use]
    pub fn is_square(&self) -> bool {
        self.n_rows == self.n_cols
    }

    /// Offsets of rows: row `i` is `indptr[i]..indptr[i + 1]`.
    #[inline]
    #[must_use]
    pub fn indptr(&self) -> &[u64] {
        &self.indptr
    }

    /// Buffer of the offsets, shared.
    #[must_use]
    pub fn offsets(&self) -> &Buffer<u64> {
        &self.indptr
    }

    /// All columns, row after row.
    #[inline]
    #[must_use]
    pub fn indices(&self) -> &[NodeId] {
        &self.indices
    }

    /// All weights, row after row; `None` when every entry is one.
    #[inline]
    #[must_use]
    pub fn values(&self) -> Option<&[f32]> {
        self.values.as_deref()
    }

    /// Positions of row `i` in [`indices`](Self::indices) and [`values`](Self::values).
    ///
    /// # Panics
    /// When `i >= n_rows`.
    #[inline]
    #[must_use]
    pub fn row_range(&self, i: usize) -> Range<usize> {
        self.indptr[i] as usize..self.indptr[i + 1] as usize
    }

    /// The columns of row `i`, ascending.
    ///
    /// # Panics
    /// When `i >= n_rows`.
    #[inline]
    #[must_use]
    pub fn row(&self, i: usize) -> &[NodeId] {
        &self.indices[self.row_range(i)]
    }

    /// The entries of row `i`: column and weight.
    ///
    /// # Panics
    /// When `i >= n_rows`.
    pub fn row_entries(&self, i: usize) -> impl Iterator<Item = (NodeId, f32)> + '_ {
        let range = self.row_range(i);
        range.map(move |e| (self.indices[e], self.values.as_ref().map_or(1.0, |v| v[e])))
    }

    /// Columns that have an entry, ascending.
    pub fn used_columns(&self) -> impl Iterator<Item = usize> + use<> {
        let mut is_used = vec![false; self.n_cols()];
        self.indices().iter().for_each(|&column| is_used[column as usize] = true);
        is_used.into_iter().enumerate().filter_map(|(column, is_used)| is_used.then_some(column))
    }

    /// Number of entries in row `i`.
    ///
    /// # Panics
    /// When `i >= n_rows`.
    #[inline]
    #[must_use]
    pub fn degree(&self, i: usize) -> usize {
        (self.indptr[i + 1] - self.indptr[i]) as usize
    }

    /// Bytes of all arrays.
    #[must_use]
    pub fn n_bytes(&self) -> u64 {
        (size_of_val(&self.indptr[..]) + size_of_val(&self.indices[..]) + self.values().map_or(0, size_of_val)) as u64
    }

    /// Replaces the weights and keeps the pattern (`None`: every entry is one).
    ///
    /// # Errors
    /// When the number of weights differs from the number of entries, or one is not finite.
    pub fn with_values(&self, values: Option<Buffer<f32>>) -> Result<Self, FormatError> {
        let csr = Self { values, ..self.clone() };
        csr.validate_values()?;
        Ok(csr)
    }

    /// The non-zero values of a dense matrix.
    ///
    /// # Errors
    /// When a value is not finite.
    pub fn of_nonzeros(matrix: &Matrix) -> Result<Self, FormatError> {
        let (mut indptr, mut indices, mut values) = (vec![0u64], Vec::new(), Vec::new());
        for row in 0..matrix.n_rows() {
            let entries = matrix.row(row).iter().enumerate().filter(|&(_, &value)| value != 0.0);
            for (column, &value) in entries {
                indices.push(column as NodeId);
                values.push(value);
            }
            indptr.push(indices.len() as u64);
        }
        Self::new(matrix.n_rows(), matrix.n_cols(), indptr, indices, Some(values.into()))
    }

    /// These rows, followed by those of `below`. Entries without weights count one, if the others have weights.
    ///
    /// # Errors
    /// When the numbers of columns differ.
    pub fn stacked(&self, below: &Self) -> Result<Self, FormatError> {
        if self.n_cols != below.n_cols {
            let (above, below) = (self.n_cols, below.n_cols);
            return Err(FormatError::invalid(format!(
                "rows of {above} columns above rows of {below}; give as many to both"
            )));
        }
        let first = self.nnz() as u64;
        let indptr: Vec<u64> =
            self.indptr().iter().copied().chain(below.indptr().iter().skip(1).map(|&at| first + at)).collect();
        let indices = [self.indices(), below.indices()].concat();
        let weights = |rows: &Self| rows.values().map_or_else(|| vec![1.0; rows.nnz()], <[f32]>::to_vec);
        let weighted = self.values.is_some() || below.values.is_some();
        let values = weighted.then(|| [weights(self), weights(below)].concat().into());
        Self::new(self.n_rows + below.n_rows, self.n_cols, indptr, indices, values)
    }

    /// Drops the weights if all are one.
    #[must_use]
    pub fn without_unit_weights(self) -> Self {
        let values = self.values.filter(|values| !values.par_iter().all(|&w| w == 1.0));
        Self { values, ..self }
    }
}

/// Checks the first invariant of [`Csr`]: offsets of `n_rows` rows over `nnz` entries.
pub(crate) fn check_indptr(indptr: &[u64], n_rows: usize, nnz: usize) -> Result<(), FormatError> {
    if indptr.len() != n_rows + 1 {
        return Err(FormatError::invalid(format!(
            "indptr has {} offsets; {n_rows} rows need {}",
            indptr.len(),
            n_rows + 1
        )));
    }
    if indptr[0] != 0 {
        return Err(FormatError::invalid(format!("indptr starts at {}; it must start at 0", indptr[0])));
    }
    let decrease = indptr.par_windows(2).position_first(|w| w[0] > w[1]);
    if let Some(row) = decrease {
        return Err(FormatError::invalid(format!(
            "indptr decreases from {} to {} at row {row}; offsets never decrease",
            indptr[row],
            indptr[row + 1]
        )));
    }
    if indptr[n_rows] != nnz as u64 {
        return Err(FormatError::invalid(format!(
            "indptr ends at {}, but there are {nnz} column indices",
            indptr[n_rows]
        )));
    }
    Ok(())
}

/// Error of values that were valid when the matrix was made.
fn changed(error: &FormatError) -> FormatError {
    FormatError::invalid(format!(
        "{error}; the graph has changed while it was read: its file, or the memory that it borrows"
    ))
}

fn check_dimensions(n_rows: usize, n_cols: usize) -> Result<(), FormatError> {
    if n_rows.max(n_cols) > MAX_NODES {
        return Err(FormatError::invalid(format!(
            "{n_rows} × {n_cols} exceeds the limit of {MAX_NODES} nodes; node ids are 32-bit"
        )));
    }
    Ok(())
}
