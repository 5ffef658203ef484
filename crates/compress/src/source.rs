//! [`RowSource`]: source of features, read a few rows at a time.

use std::fmt;

use girih_graph_format::file::NpyRows;
use girih_graph_format::{Csr, Matrix};

use crate::CompressError;

/// Rows of features that need not be in memory all at once. Any thread may read any of them, and repeated reads of a
/// row are equal.
pub trait RowSource: Sync {
    /// Number of rows.
    fn n_rows(&self) -> usize;

    /// Number of features of a row.
    fn width(&self) -> usize;

    /// Reads whole rows from `first_row` on, until `rows` is full.
    ///
    /// # Errors
    /// When the rows cannot be read.
    ///
    /// # Panics
    /// When the source has fewer rows, or `rows` ends within a row.
    fn read_rows(&self, first_row: usize, rows: &mut [f32]) -> Result<(), CompressError>;

    /// Fingerprint that differs between sources of different rows: an interrupted encoding resumes only with an equal
    /// one.
    ///
    /// # Errors
    /// When the fingerprint cannot be determined.
    fn fingerprint(&self) -> Result<u64, CompressError>;
}

impl RowSource for Matrix {
    fn n_rows(&self) -> usize {
        Matrix::n_rows(self)
    }

    fn width(&self) -> usize {
        self.n_cols()
    }

    fn read_rows(&self, first_row: usize, rows: &mut [f32]) -> Result<(), CompressError> {
        let start = first_row * self.n_cols();
        rows.copy_from_slice(&self.data()[start..start + rows.len()]);
        Ok(())
    }

    fn fingerprint(&self) -> Result<u64, CompressError> {
        let checksum = u64::from(crc32fast::hash(bytemuck::cast_slice(self.data())));
        Ok(checksum << 32 | self.n_rows() as u64 & 0xffff_ffff)
    }
}

/// Sparse features, whose missing entries are zeros; entries without values are ones.
impl RowSource for Csr {
    fn n_rows(&self) -> usize {
        Csr::n_rows(self)
    }

    fn width(&self) -> usize {
        self.n_cols()
    }

    fn read_rows(&self, first_row: usize, rows: &mut [f32]) -> Result<(), CompressError> {
        rows.fill(0.0);
        for (i, row) in rows.chunks_exact_mut(self.n_cols()).enumerate() {
            self.row_entries(first_row + i).for_each(|(column, value)| row[column as usize] = value);
        }
        Ok(())
    }

    fn fingerprint(&self) -> Result<u64, CompressError> {
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(bytemuck::cast_slice(self.indptr()));
        checksum.update(bytemuck::cast_slice(self.indices()));
        checksum.update(bytemuck::cast_slice(self.values().unwrap_or_default()));
        Ok(u64::from(checksum.finalize()) << 32 | self.nnz() as u64 & 0xffff_ffff)
    }
}

impl RowSource for NpyRows {
    fn n_rows(&self) -> usize {
        self.n_rows()
    }

    fn width(&self) -> usize {
        self.width()
    }

    fn read_rows(&self, first_row: usize, rows: &mut [f32]) -> Result<(), CompressError> {
        Ok(self.read(first_row, rows)?)
    }

    fn fingerprint(&self) -> Result<u64, CompressError> {
        Ok(self.fingerprint()?)
    }
}

/// Rows that a function makes from their numbers.
///
/// ```
/// use girih_compress::{GeneratedRows, RowSource};
///
/// let source = GeneratedRows::new(1_000_000, 3, 7, |row, values| values.fill(row as f32));
/// let mut rows = [0.0; 6];
/// source.read_rows(10, &mut rows)?;
/// assert_eq!(rows, [10.0, 10.0, 10.0, 11.0, 11.0, 11.0]);
/// # Ok::<(), girih_compress::CompressError>(())
/// ```
pub struct GeneratedRows<F> {
    n_rows: usize,
    width: usize,
    fingerprint: u64,
    generate: F,
}

impl<F: Fn(usize, &mut [f32]) + Sync> GeneratedRows<F> {
    /// Makes a source. `generate` fills the row of a given number, always with equal values; `fingerprint` identifies
    /// the function, for example by its random seed.
    #[must_use]
    pub fn new(n_rows: usize, width: usize, fingerprint: u64, generate: F) -> Self {
        Self { n_rows, width, fingerprint, generate }
    }
}

impl<F: Fn(usize, &mut [f32]) + Sync> RowSource for GeneratedRows<F> {
    fn n_rows(&self) -> usize {
        self.n_rows
    }

    fn width(&self) -> usize {
        self.width
    }

    fn read_rows(&self, first_row: usize, rows: &mut [f32]) -> Result<(), CompressError> {
        for (i, row) in rows.chunks_exact_mut(self.width).enumerate() {
            (self.generate)(first_row + i, row);
        }
        Ok(())
    }

    fn fingerprint(&self) -> Result<u64, CompressError> {
        Ok(self.fingerprint)
    }
}

impl<F> fmt::Debug for GeneratedRows<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n_rows, width, fingerprint, .. } = self;
        write!(f, "GeneratedRows({n_rows} × {width}, fingerprint {fingerprint:#x})")
    }
}
