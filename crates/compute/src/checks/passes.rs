//! Checks of the memory-bound passes over matrices: normalisations, copies, scalings, and moves of rows.

use super::{Checked, IdRange, columns, expect};
use crate::{ComputeError, Dtype, Shape};

/// Checks that two operands have one shape: `write`, `dropout`, `add_scaled`, `scale`.
///
/// # Errors
/// When shapes differ.
pub fn same(operation: &'static str, x: Shape, out: Shape) -> Checked {
    expect(operation, "out", out, x)
}

/// Checks that blocks of `shape` lie inside their matrices: at `from` in `x`, and at `to` in `out`.
///
/// # Errors
/// When a block does not lie inside its matrix.
pub fn copy_block(shape: Shape, x: Shape, from: (usize, usize), out: Shape, to: (usize, usize)) -> Checked {
    let fits = |start: usize, n: usize, end: usize| start.checked_add(n).is_some_and(|last| last <= end);
    for (name, whole, at) in [("x", x, from), ("out", out, to)] {
        if !fits(at.0, shape.rows, whole.rows) || !fits(at.1, shape.cols, whole.cols) {
            let what =
                format!("a block of {shape} at ({}, {}) does not lie inside {name}, which is {whole}", at.0, at.1);
            return Err(ComputeError::argument("copy_block", what));
        }
    }
    Ok(())
}

/// Checks `out += factor · x`, on the first rows of `out` if `x` has fewer.
///
/// # Errors
/// When `x` has another number of columns than `out`, or more rows.
pub fn add_scaled(x: Shape, out: Shape) -> Checked {
    expect("add_scaled", "out", out, Shape::new(out.rows.max(x.rows), x.cols))
}

/// Checks `out = diag(factors)·x[:, first..first + w]`, where `out` has `w` columns and `dtype` is the storage of
/// `factors`.
///
/// # Errors
/// When the number of rows of `out` is not that of `x`, the columns do not begin and end as
/// [`COLUMNS`](super::COLUMNS) requires, or `factors` is not `x.rows × 1` of `f32`.
pub fn scale_rows((factors, dtype): (Shape, Dtype), (x, first): (Shape, usize), out: Shape) -> Checked {
    const OPERATION: &str = "scale_rows";
    expect(OPERATION, "out", out, Shape::new(x.rows, out.cols))?;
    columns(OPERATION, first..first + out.cols, x.cols)?;
    row_factors(OPERATION, (factors, dtype), x.rows)
}

/// Checks the row factors of `X = diag(factors)·X`, or of a product with scaled rows.
///
/// # Errors
/// When `factors` (shape and storage) is not `n_rows × 1` of `f32`.
pub fn row_factors(operation: &'static str, (factors, dtype): (Shape, Dtype), n_rows: usize) -> Checked {
    expect(operation, "factors", factors, Shape::new(n_rows, 1))?;
    if dtype == Dtype::F32 {
        return Ok(());
    }
    Err(ComputeError::argument(operation, format!("factors are stored as {}; store them as f32", dtype.name())))
}

/// Checks that each of the named `rows` is `1 × x.cols`.
///
/// # Errors
/// When one has another shape.
pub fn per_column(operation: &'static str, x: Shape, rows: &[(&'static str, Shape)]) -> Checked {
    rows.iter().try_for_each(|&(name, found)| expect(operation, name, found, Shape::new(1, x.cols)))
}

/// Checks a normalisation of rows or its backward pass. In the backward pass, `out` is the shape of the gradient.
/// `moments` is `n × 2`.
///
/// # Errors
/// When `out` is not shaped like `x`, or `moments` does not have two columns and the rows of `x`.
pub fn normalize_rows(x: Shape, out: Shape, moments: Shape) -> Checked {
    expect("normalize_rows", "out", out, x)?;
    expect("normalize_rows", "moments", moments, Shape::new(x.rows, 2))
}

/// Checks a gather: row `i` of `out` becomes row `ids[i]` of `x`.
///
/// # Errors
/// When `out` does not have a row for each id, widths differ, or an id is not a row of `x`.
pub fn gather_rows(x: Shape, ids: IdRange, out: Shape) -> Checked {
    expect("gather_rows", "out", out, Shape::new(ids.len, x.cols))?;
    ids.within("gather_rows", x.rows)
}

/// Checks a scatter: row `i` of `x` is added to row `ids[i]` of `out`.
///
/// # Errors
/// When `x` does not have a row for each id, widths differ, or an id is not a row of `out`.
pub fn scatter_add_rows(x: Shape, ids: IdRange, out: Shape) -> Checked {
    expect("scatter_add_rows", "x", x, Shape::new(ids.len, out.cols))?;
    ids.within("scatter_add_rows", out.rows)
}

/// Checks column sums of `x` into `out`.
///
/// # Errors
/// When `out` is not one row as wide as `x`.
pub fn column_sums(x: Shape, out: Shape) -> Checked {
    expect("column_sums", "out", out, Shape::new(1, x.cols))
}
