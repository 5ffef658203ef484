//! Sparse matrices from the arrays that files hold: any integer, columns in any order.

use girih_graph_format::{Coo, Csr, Duplicates, MAX_NODES, NodeId};

use crate::DatasetError;

/// Makes a matrix from CSR arrays of a file. Columns may come in any order, repeated entries add up, and stored zeros
/// stay.
///
/// # Errors
/// As [`coo_from_arrays`].
pub(crate) fn csr_from_arrays(
    n_rows: usize,
    n_cols: usize,
    indptr: &[i64],
    indices: &[i64],
    values: Option<Vec<f32>>,
) -> Result<Csr, DatasetError> {
    Ok(coo_from_arrays(n_rows, n_cols, indptr, indices, values)?.to_csr(Duplicates::Sum)?)
}

/// Entries of CSR arrays of a file, in their order.
///
/// The arrays are checked against the dimensions before anything larger than them is allocated.
///
/// # Errors
/// When offsets or columns break a rule of CSR, naming the row or entry.
pub(crate) fn coo_from_arrays(
    n_rows: usize,
    n_cols: usize,
    indptr: &[i64],
    indices: &[i64],
    values: Option<Vec<f32>>,
) -> Result<Coo, DatasetError> {
    if n_rows.max(n_cols) > MAX_NODES {
        return Err(DatasetError::invalid(format!("{n_rows} × {n_cols} exceeds the limit of {MAX_NODES} nodes")));
    }
    let rows = rows_of_entries(n_rows, indptr, indices.len())?;
    let cols = indices
        .iter()
        .enumerate()
        .map(|(e, &c)| {
            NodeId::try_from(c).map_err(|_| {
                DatasetError::invalid(format!(
                    "entry {e}: column {c} does not exist; there are {n_cols}, numbered from 0"
                ))
            })
        })
        .collect::<Result<Vec<NodeId>, _>>()?;
    Ok(Coo::new(n_rows, n_cols, rows, cols, values)?)
}

/// Row of every entry.
fn rows_of_entries(n_rows: usize, indptr: &[i64], n_entries: usize) -> Result<Vec<NodeId>, DatasetError> {
    if indptr.len() != n_rows + 1 {
        return Err(DatasetError::invalid(format!(
            "indptr has {} offsets; {n_rows} rows need {}",
            indptr.len(),
            n_rows + 1
        )));
    }
    if indptr[0] != 0 || indptr[n_rows] != n_entries as i64 {
        return Err(DatasetError::invalid(format!(
            "indptr runs from {} to {}; it must run from 0 to the number of entries, {n_entries}",
            indptr[0], indptr[n_rows]
        )));
    }
    let mut rows = Vec::with_capacity(n_entries);
    for (row, offsets) in indptr.windows(2).enumerate() {
        let in_range = offsets[0] <= offsets[1] && offsets[1] <= n_entries as i64;
        if !in_range {
            return Err(DatasetError::invalid(format!(
                "indptr goes from {} to {} at row {row}; offsets never decrease and stay within {n_entries} entries",
                offsets[0], offsets[1]
            )));
        }
        rows.resize(offsets[1] as usize, row as NodeId);
    }
    Ok(rows)
}
