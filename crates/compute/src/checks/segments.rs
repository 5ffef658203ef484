//! Checks of the aggregations over neighbors other than sums.

use super::{Checked, expect};
use crate::{ComputeError, Shape};

/// Checks a maximum over neighbors on a pattern of shape `a`, or its backward pass. In the backward pass, `x` and
/// `out` are the shapes of the gradients.
///
/// # Errors
/// When `x` is not `a.cols × d`, `out` is not `a.rows × d`, or `n_winners` is not the number of elements of `out`.
pub fn segment_max(operation: &'static str, a: Shape, x: Shape, out: Shape, n_winners: Option<usize>) -> Checked {
    expect(operation, "x", x, Shape::new(a.cols, x.cols))?;
    expect(operation, "out", out, Shape::new(a.rows, x.cols))?;
    n_winners.map_or(Ok(()), |n| expect(operation, "winners", Shape::new(n, 1), Shape::new(out.len(), 1)))
}

/// Checks an LSTM over neighbors on a pattern of shape `a`, with states of `h` columns.
///
/// # Errors
/// When `weight` is not `h × 4h` with a positive `h`, `inputs` is not `a.cols × 4h`, or `out` is not `a.rows × h`.
pub fn segment_lstm(operation: &'static str, a: Shape, inputs: Shape, weight: Shape, out: Shape) -> Checked {
    let width = weight.rows;
    if width == 0 {
        return Err(ComputeError::argument(operation, "states without columns; give the weight at least one row"));
    }
    expect(operation, "weight", weight, Shape::new(width, 4 * width))?;
    expect(operation, "inputs", inputs, Shape::new(a.cols, 4 * width))?;
    expect(operation, "out", out, Shape::new(a.rows, width))
}

/// Checks the backward pass of [`segment_lstm`]. Each gradient is shaped like its operand.
///
/// # Errors
/// As [`segment_lstm`], and when a gradient has another shape.
pub fn segment_lstm_backward(
    a: Shape,
    (inputs, weight): (Shape, Shape),
    grad: Shape,
    (inputs_grad, weight_grad): (Shape, Shape),
) -> Checked {
    const OPERATION: &str = "segment_lstm_backward";
    segment_lstm(OPERATION, a, inputs, weight, grad)?;
    expect(OPERATION, "inputs_grad", inputs_grad, inputs)?;
    expect(OPERATION, "weight_grad", weight_grad, weight)
}
