//! Checks of operands of collective operations, for all transports.

use std::ops::Range;

use girih_compute::Shape;

use crate::CommError;

/// Row ranges of the consecutive row blocks of a matrix of `shape`. Rank `i` of `n_ranks` has `rows[i]` rows.
///
/// # Errors
/// When there is not a count for each rank, or the counts do not add up to the rows of the matrix.
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

/// The counts of `rows`, with 0 for `rank`.
#[must_use]
pub fn of_others(rows: &[usize], rank: usize) -> Vec<usize> {
    rows.iter().enumerate().map(|(other, &rows)| if other == rank { 0 } else { rows }).collect()
}

/// Checks the shape of a result.
///
/// # Errors
/// When it is not `expected`.
pub fn check_shape(operation: &'static str, found: Shape, expected: Shape) -> Result<(), CommError> {
    if found == expected {
        return Ok(());
    }
    Err(CommError::Operand { operation, what: format!("out is {found}, expected {expected}") })
}
