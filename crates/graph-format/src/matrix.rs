//! [`Matrix`]: dense rows of `f32`, owned or mapped.

use std::ops::Range;

use girih_machine::parallel;
use rayon::prelude::*;

use crate::{Buffer, Csr, FormatError};

/// Dense row-major matrix: row `i` is `data[i * n_cols..(i + 1) * n_cols]`.
///
/// # Invariants
/// `data.len() == n_rows * n_cols`.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    n_rows: usize,
    n_cols: usize,
    data: Buffer<f32>,
}

impl Matrix {
    /// Makes a matrix over `data`.
    ///
    /// # Errors
    /// When `data` does not hold exactly `n_rows * n_cols` values.
    pub fn new(n_rows: usize, n_cols: usize, data: impl Into<Buffer<f32>>) -> Result<Self, FormatError> {
        let data = data.into();
        if n_rows.checked_mul(n_cols) != Some(data.len()) {
            return Err(FormatError::invalid(format!(
                "a matrix of {n_rows} rows and {n_cols} columns needs {} values, found {}",
                n_rows as u128 * n_cols as u128,
                data.len()
            )));
        }
        Ok(Self { n_rows, n_cols, data })
    }

    /// Makes a dense matrix of a sparse one; absent entries are zeros.
    #[must_use]
    pub fn from_sparse(csr: &Csr) -> Self {
        let mut data = vec![0.0; csr.n_rows() * csr.n_cols()];
        data.par_chunks_mut(csr.n_cols().max(1)).enumerate().for_each(|(r, row)| {
            csr.row_entries(r).for_each(|(c, value)| row[c as usize] = value);
        });
        Self { n_rows: csr.n_rows(), n_cols: csr.n_cols(), data: data.into() }
    }

    /// Number of rows.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Number of columns.
    #[must_use]
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// All values, row after row.
    #[must_use]
    pub fn data(&self) -> &[f32] {
        &self.data
    }

    /// Buffer of the values, shared.
    #[must_use]
    pub fn buffer(&self) -> &Buffer<f32> {
        &self.data
    }

    /// Row `i`.
    ///
    /// # Panics
    /// When `i >= n_rows`.
    #[must_use]
    pub fn row(&self, i: usize) -> &[f32] {
        &self.data[i * self.n_cols..(i + 1) * self.n_cols]
    }

    /// Slices consecutive rows, which stay shared.
    ///
    /// # Panics
    /// When `rows` ends beyond the rows.
    #[must_use]
    pub fn row_slice(&self, rows: Range<usize>) -> Self {
        let data = self.data.slice(rows.start * self.n_cols..rows.end * self.n_cols);
        Self { n_rows: rows.len(), n_cols: self.n_cols, data }
    }

    /// Refuses NaN and infinities, naming the first one's row and column.
    ///
    /// # Errors
    /// At the first value that is not finite.
    pub fn check_finite(&self) -> Result<(), FormatError> {
        match parallel::position(&self.data, |v| !v.is_finite()) {
            None => Ok(()),
            Some(at) => Err(FormatError::invalid(format!(
                "row {}, column {}: the value is {}; features must be finite, replace or drop it",
                at / self.n_cols,
                at % self.n_cols,
                self.data[at]
            ))),
        }
    }
}
