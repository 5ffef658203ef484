//! Sparse matrices in `.npz`, as `SciPy` saves them (`scipy.sparse.save_npz`), or with bare `indptr` and `indices`.

use std::path::Path;

use super::array::Array;
use super::npz::{Npz, NpzWriter};
use crate::coo::check_proportion;
use crate::csr::check_indptr;
use crate::{Buffer, Coo, Csr, Duplicates, FormatError, MAX_NODES, NodeId, rows};

/// Reads a matrix that `SciPy` saved in the formats csr, csc or coo, or an archive of `indptr` and `indices`.
/// Repeated entries add up, as in `SciPy`.
///
/// # Errors
/// As [`sparse_from_npz`].
pub fn read_sparse_npz(path: &Path) -> Result<Csr, FormatError> {
    sparse_from_npz(&mut Npz::open(path)?, "", Duplicates::Sum).map(|(csr, _)| csr)
}

/// Number of rows of the matrix that [`read_sparse_npz`] reads, from its shape or its offsets alone.
///
/// # Errors
/// When the archive has neither, or they are damaged or of another type.
pub fn sparse_npz_rows(path: &Path) -> Result<usize, FormatError> {
    let mut npz = Npz::open(path)?;
    let shape = Source { npz: &mut npz, prefix: "", duplicates: Duplicates::Sum }.shape().map_err(|e| e.at(path))?;
    match shape {
        Some((n_rows, _)) => Ok(n_rows),
        None => Ok(npz.array("indptr")?.into_offsets()?.len().saturating_sub(1)),
    }
}

/// Reads the matrix whose arrays are named `{prefix}indptr`, `{prefix}indices` and so on.
///
/// Rows are those of the stored matrix, and columns are sorted. Weights are rounded to `f32`; when all are one, the
/// matrix has none. Without a `shape` it is square. Also returns the number of entries that were merged into others.
///
/// # Errors
/// When an array is missing, damaged or of another type, or the arrays do not form a matrix.
pub fn sparse_from_npz(npz: &mut Npz, prefix: &str, duplicates: Duplicates) -> Result<(Csr, usize), FormatError> {
    let origin = npz.origin().to_owned();
    let mut source = Source { npz, prefix, duplicates };
    let (csr, n_stored) = source.read().map_err(|e| e.at(&origin))?;
    let n_merged = n_stored - csr.nnz();
    Ok((csr.without_unit_weights(), n_merged))
}

struct Source<'a> {
    npz: &'a mut Npz,
    prefix: &'a str,
    duplicates: Duplicates,
}

/// Refuses an implausible shape, before memory is allocated for its rows.
fn check_shape((n_rows, n_cols): (usize, usize), nnz: usize) -> Result<(), FormatError> {
    check_proportion(n_rows.max(n_cols), nnz, &format!("`shape` says {n_rows} rows and {n_cols} columns"))
}

impl Source<'_> {
    /// Reads the matrix, and returns it with the number of stored entries.
    fn read(&mut self) -> Result<(Csr, usize), FormatError> {
        let format = self.format()?;
        let shape = self.shape()?;
        let weights = self.weights()?;
        match format.as_str() {
            "csr" => {
                let (indptr, indices) = self.compressed()?;
                let n_rows = indptr.len().saturating_sub(1);
                let (n_rows, n_cols) = shape.unwrap_or((n_rows, n_rows));
                let n_stored = indices.len();
                Ok((self.merge_compressed((n_rows, n_cols), &indptr, indices, weights)?, n_stored))
            }
            "csc" => {
                let (indptr, indices) = self.compressed()?;
                let n_cols = indptr.len().saturating_sub(1);
                let (n_rows, n_cols) = shape.unwrap_or((n_cols, n_cols));
                check_shape((n_rows, n_cols), indices.len())?;
                let n_stored = indices.len();
                let columns = self.merge_compressed((n_cols, n_rows), &indptr, indices, weights)?;
                Ok((columns.transposed(), n_stored))
            }
            "coo" => {
                let rows = self.array("row")?.into_ids()?.into_vec();
                let cols = self.array("col")?.into_ids()?.into_vec();
                let (n_rows, n_cols) =
                    shape.ok_or_else(|| FormatError::invalid("a matrix in the format coo needs a `shape`"))?;
                check_shape((n_rows, n_cols), rows.len())?;
                let entries = Coo::new(n_rows, n_cols, rows, cols, weights.map(Buffer::into_vec))?;
                Ok((entries.to_csr(self.duplicates)?, entries.len()))
            }
            other => Err(FormatError::invalid(format!(
                "a sparse matrix in the format {other:?}; expected csr, csc or coo, so save `matrix.tocsr()`"
            ))),
        }
    }

    fn array(&mut self, name: &str) -> Result<Array, FormatError> {
        self.npz.array(&format!("{}{name}", self.prefix))
    }

    fn try_array(&mut self, name: &str) -> Result<Option<Array>, FormatError> {
        self.npz.try_array(&format!("{}{name}", self.prefix))
    }

    /// Name of the format; csr if the archive does not state one.
    fn format(&mut self) -> Result<String, FormatError> {
        let Some(array) = self.try_array("format")? else { return Ok("csr".to_owned()) };
        let text = array.into_text()?;
        text.into_iter().next().ok_or_else(|| FormatError::corrupt("the array `format` is empty"))
    }

    fn shape(&mut self) -> Result<Option<(usize, usize)>, FormatError> {
        let Some(array) = self.try_array("shape")? else { return Ok(None) };
        let shape = array.into_offsets()?;
        match shape[..] {
            [n_rows, n_cols] if n_rows.max(n_cols) <= MAX_NODES as u64 => Ok(Some((n_rows as usize, n_cols as usize))),
            _ => Err(FormatError::invalid(format!(
                "the array `shape` is {shape:?}; expected rows and columns, at most {MAX_NODES} each"
            ))),
        }
    }

    fn weights(&mut self) -> Result<Option<Buffer<f32>>, FormatError> {
        self.try_array("data")?.map(Array::into_f32).transpose()
    }

    fn compressed(&mut self) -> Result<(Buffer<u64>, Buffer<NodeId>), FormatError> {
        Ok((self.array("indptr")?.into_offsets()?, self.array("indices")?.into_ids()?))
    }

    /// Makes a matrix from compressed rows whose columns may be unsorted or repeated.
    fn merge_compressed(
        &self,
        (n_rows, n_cols): (usize, usize),
        indptr: &Buffer<u64>,
        indices: Buffer<NodeId>,
        weights: Option<Buffer<f32>>,
    ) -> Result<Csr, FormatError> {
        check_indptr(indptr, n_rows, indices.len())?;
        if let Ok(csr) = Csr::new(n_rows, n_cols, indptr.clone(), indices.clone(), weights.clone()) {
            return Ok(csr);
        }
        // Columns are unsorted or repeated, or have an error that the list of edges detects as well.
        let (rows, weights) = (rows::row_of_entry(indptr), weights.map(Buffer::into_vec));
        Coo::new(n_rows, n_cols, rows, indices.into_vec(), weights)?.to_csr(self.duplicates)
    }
}

/// Writes a matrix in the format csr, as `scipy.sparse.load_npz` reads it.
///
/// # Errors
/// When the file cannot be written.
pub fn write_sparse_npz(path: &Path, csr: &Csr) -> Result<(), FormatError> {
    write_with_narrow_ids(path, csr, i32::MAX as usize)
}

/// Writes offsets and columns as `i32` if there are at most `narrow_max` entries, else as `i64`. SciPy expects one
/// type for both, the narrower one if possible.
fn write_with_narrow_ids(path: &Path, csr: &Csr, narrow_max: usize) -> Result<(), FormatError> {
    NpzWriter::write_file(path, |npz| {
        npz.ascii("format", "csr")?;
        npz.array("shape", &[2], &[csr.n_rows() as i64, csr.n_cols() as i64])?;
        match csr.values() {
            Some(values) => npz.array("data", &[csr.nnz()], values)?,
            None => npz.array_of("data", std::iter::repeat_n(1.0f32, csr.nnz()))?,
        }
        if csr.nnz() <= narrow_max {
            npz.array_of("indptr", csr.indptr().iter().map(|&offset| offset as i32))?;
            npz.array::<i32>("indices", &[csr.nnz()], bytemuck::cast_slice(csr.indices()))
        } else {
            npz.array::<i64>("indptr", &[csr.indptr().len()], bytemuck::cast_slice(csr.indptr()))?;
            npz.array_of("indices", csr.indices().iter().map(|&column| i64::from(column)))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::array::Values;
    use super::*;

    #[test]
    fn entries_that_a_narrow_type_does_not_number_have_wide_ids() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.npz");
        for weights in [None, Some(vec![0.5, 1.0, 2.0].into())] {
            let csr = Csr::new(2, 9, vec![0_u64, 2, 3], vec![1, 8, 0], weights).unwrap();
            for (narrow_max, is_narrow) in [(3, true), (2, false)] {
                write_with_narrow_ids(&path, &csr, narrow_max).unwrap();
                let mut npz = Npz::open(&path).unwrap();
                for name in ["indptr", "indices"] {
                    assert_eq!(matches!(npz.array(name).unwrap().values(), Values::I32(_)), is_narrow, "{name}");
                }
                assert_eq!(read_sparse_npz(&path).unwrap(), csr);
            }
        }
    }
}
