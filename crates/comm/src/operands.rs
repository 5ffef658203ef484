//! What operands of collective operations must be like, whoever carries them out.

use std::ops::Range;

use girih_compute::Shape;

use crate::CommError;

/// The rows of consecutive pieces of a matrix of `shape`, `rows[i]` of them for the `i`-th of `n_ranks` ranks.
///
/// # Errors
/// When there is not a piece for each rank, or they do not make up the matrix.
pub fn check_pieces(
    operation: &'static str,
    rows: &[usize],
    n_ranks: usize,
    shape: Shape,
) -> Result<Vec<Range<usize>>, CommError> {
    if rows.len() != n_ranks || rows.iter().sum::<usize>() != shape.rows {
        let what = format!("pieces of {rows:?} rows for {n_ranks} ranks do not make up a matrix of {shape}");
        return Err(CommError::Operand { operation, what });
    }
    let ends = rows.iter().scan(0, |end, rows| {
        *end += rows;
        Some(*end)
    });
    Ok(ends.zip(rows).map(|(end, rows)| end - rows..end).collect())
}

/// The same numbers of rows, but none from this rank itself.
#[must_use]
pub fn of_others(rows: &[usize], rank: usize) -> Vec<usize> {
    rows.iter().enumerate().map(|(other, &rows)| if other == rank { 0 } else { rows }).collect()
}

/// Refuses a result of another shape than `expected`.
///
/// # Errors
/// When it is.
pub fn check_shape(operation: &'static str, found: Shape, expected: Shape) -> Result<(), CommError> {
    if found == expected {
        return Ok(());
    }
    Err(CommError::Operand { operation, what: format!("out is {found}, expected {expected}") })
}
