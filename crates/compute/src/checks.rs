//! Checks of the operands of each operation: pure functions of shapes, shared by all backends.
//!
//! A backend calls the check of an operation before it writes anything. All backends thus refuse the same calls with
//! the same messages.

mod attention;
mod losses;
mod optim;
mod passes;
mod products;
mod segments;

use std::ops::Range;

pub use self::attention::{
    AttentionGradShapes, AttentionShapes, attention, attention_backward, head_dots, head_dots_backward, sddmm,
    segment_softmax,
};
pub use self::losses::{
    argmax_rows, bpr_loss, classes, count_correct, l2_penalty, sigmoid_cross_entropy, softmax_cross_entropy, top_k_rows,
};
pub use self::optim::{adam, sgd};
pub use self::passes::{
    add_scaled, column_sums, copy_block, gather_rows, normalize_rows, per_column, row_factors, same, scale_rows,
    scatter_add_rows,
};
pub use self::products::{activate, epilogue_backward, gemm, gemm_backward, mask, sparse, spmm, spmm_columns};
pub use self::segments::{segment_lstm, segment_lstm_backward, segment_max};
use crate::{ComputeError, Dtype, Shape, Transpose};

/// Result of a check: the error names operation and operand.
type Checked = Result<(), ComputeError>;

/// Shape and storage of an operand.
pub type Kind = (Shape, Dtype);

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
    fn within(self, operation: &'static str, bound: usize) -> Checked {
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
fn expect(operation: &'static str, operand: &'static str, found: Shape, expected: Shape) -> Checked {
    if found == expected { Ok(()) } else { Err(ComputeError::shape(operation, operand, found, expected)) }
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
fn columns(operation: &'static str, some: Range<usize>, cols: usize) -> Checked {
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
fn heads(operation: &'static str, n_heads: usize, width: usize) -> Checked {
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
