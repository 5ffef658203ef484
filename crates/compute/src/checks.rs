//! Checks of operands that several operations share, or that stores of rows need.
//!
//! Backends need none of them: each operation checks its operands before a backend runs it, see
//! [`backend`](crate::Backend).

use std::ops::Range;

use crate::{Activation, ComputeError, Epilogue, Shape, Transpose};

/// Result of a check: the error names operation and operand.
pub(crate) type Checked = Result<(), ComputeError>;

/// Length and upper bound of a list of ids, for checks that need not read the list again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// Number of ids.
    pub len: usize,
    /// One more than the largest id; 0 for an empty list.
    pub end: u64,
}

impl IdRange {
    /// Length and upper bound of `ids`.
    #[must_use]
    pub fn of(ids: &[u32]) -> Self {
        Self { len: ids.len(), end: ids.iter().max().map_or(0, |&id| u64::from(id) + 1) }
    }

    /// Checks that all ids are below `bound`.
    pub(crate) fn within(self, operation: &'static str, bound: usize) -> Checked {
        if self.end > bound as u64 {
            return Err(ComputeError::argument(
                operation,
                format!("id {} is out of range: there are {bound} rows", self.end - 1),
            ));
        }
        Ok(())
    }
}

/// Checks that `found` equals `expected`.
pub(crate) fn expect(operation: &'static str, operand: &'static str, found: Shape, expected: Shape) -> Checked {
    if found == expected { Ok(()) } else { Err(ComputeError::shape(operation, operand, found, expected)) }
}

/// As [`expect`], if the operand is given.
pub(crate) fn expect_given(
    operation: &'static str,
    operand: &'static str,
    found: Option<Shape>,
    expected: Shape,
) -> Checked {
    found.map_or(Ok(()), |found| expect(operation, operand, found, expected))
}

/// Shape of `op(x)`, where `x` has `shape`.
#[must_use]
pub fn read(shape: Shape, transpose: Transpose) -> Shape {
    match transpose {
        Transpose::No => shape,
        Transpose::Yes => shape.transposed(),
    }
}

/// Alignment of column ranges. An operation on some columns of a matrix begins and ends at multiples of this number,
/// or with the matrix. Rows are aligned to it on every device.
pub const COLUMNS: usize = 8;

/// Checks that the columns `some` of `cols` begin and end at multiples of [`COLUMNS`] or with the matrix.
pub(crate) fn columns(operation: &'static str, some: Range<usize>, cols: usize) -> Checked {
    let ends_well = some.end == cols || (some.end < cols && some.end.is_multiple_of(COLUMNS));
    if some.start.is_multiple_of(COLUMNS) && ends_well {
        return Ok(());
    }
    let what = format!(
        "columns {} to {} of {cols} neither begin and end at multiples of {COLUMNS} nor with the matrix",
        some.start, some.end
    );
    Err(ComputeError::argument(operation, what))
}

/// Checks that `n_heads` is positive and divides `width`.
pub(crate) fn heads(operation: &'static str, n_heads: usize, width: usize) -> Checked {
    if n_heads == 0 || !width.is_multiple_of(n_heads) {
        let what = format!("{width} columns cannot be shared evenly among {n_heads} heads");
        return Err(ComputeError::argument(operation, what));
    }
    Ok(())
}

/// Checks that a new matrix with elements of `element_bytes` can be addressed.
///
/// # Errors
/// When it has more bytes than the largest possible allocation.
pub fn allocation(shape: Shape, element_bytes: usize) -> Checked {
    let limit = isize::MAX as u64;
    let needed = (shape.rows as u64).checked_mul(shape.cols as u64).and_then(|n| n.checked_mul(element_bytes as u64));
    match needed {
        Some(needed) if needed <= limit => Ok(()),
        _ => Err(ComputeError::memory(format!("a matrix of {shape}"), needed.unwrap_or(u64::MAX), limit)),
    }
}

/// Checks that an epilogue applies dropout only after ReLU. The backward pass needs this, since it sees the result
/// alone.
pub(crate) fn mask<M>(operation: &'static str, epilogue: &Epilogue<'_, M>) -> Checked {
    if epilogue.dropout.is_some() && epilogue.activation != Activation::Relu {
        let what =
            format!("an epilogue masks the result of ReLU, not of {:?}; mask it afterwards", epilogue.activation);
        return Err(ComputeError::argument(operation, what));
    }
    Ok(())
}

/// Checks `out = epilogue(op(L·A·R)·X)`, where `A` has `nnz` entries.
///
/// # Errors
/// When `weights` is not `nnz × heads` for a number of heads that divides the width of `x`, or `x`, `out` or `bias`
/// does not fit.
pub fn spmm(
    a: (Shape, Transpose),
    nnz: usize,
    weights: Option<Shape>,
    x: Shape,
    bias: Option<Shape>,
    out: Shape,
) -> Checked {
    const OPERATION: &str = "spmm";
    let left = read(a.0, a.1);
    if let Some(weights) = weights {
        expect(OPERATION, "weights", weights, Shape::new(nnz, weights.cols))?;
        heads(OPERATION, weights.cols, x.cols)?;
    }
    expect(OPERATION, "x", x, Shape::new(left.cols, x.cols))?;
    expect(OPERATION, "out", out, Shape::new(left.rows, x.cols))?;
    expect_given(OPERATION, "bias", bias, Shape::new(1, out.cols))
}

/// Checks a gather: row `i` of `out` becomes row `ids[i]` of `x`.
///
/// # Errors
/// When `out` does not have a row for each id, widths differ, or an id is not a row of `x`.
pub fn gather_rows(x: Shape, ids: IdRange, out: Shape) -> Checked {
    expect("gather_rows", "out", out, Shape::new(ids.len, x.cols))?;
    ids.within("gather_rows", x.rows)
}

/// Checks that the class of each of `rows` is below `n_columns`. Classes of other rows are not read, so unlabelled
/// nodes may have any.
///
/// # Errors
/// When the class of one of `rows` is `n_columns` or more; the error names the first such row.
///
/// # Panics
/// When one of `rows` has no class; a softmax cross-entropy refuses such rows before.
pub fn classes(classes: &[u32], rows: &[u32], n_columns: usize) -> Checked {
    match rows.iter().find(|&&row| classes[row as usize] as usize >= n_columns) {
        None => Ok(()),
        Some(&row) => Err(ComputeError::argument(
            "softmax_cross_entropy",
            format!(
                "row {row} has class {}, but there are {n_columns} columns of logits; leave unlabelled rows out",
                classes[row as usize]
            ),
        )),
    }
}
