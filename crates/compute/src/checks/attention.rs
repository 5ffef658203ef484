//! Checks of attention, and of the operations on the entries of a pattern that it consists of.

use super::{Checked, expect, heads};
use crate::{ComputeError, Shape};

/// Checks `out[e, h] = Σ_k x[i, c]·y[j, c]` for the `nnz` entries of a pattern of shape `a`.
///
/// # Errors
/// When a shape does not fit, or heads do not divide the width.
pub fn sddmm(a: Shape, nnz: usize, x: Shape, y: Shape, out: Shape) -> Checked {
    expect("sddmm", "x", x, Shape::new(a.rows, x.cols))?;
    expect("sddmm", "y", y, Shape::new(a.cols, x.cols))?;
    expect("sddmm", "out", out, Shape::new(nnz, out.cols))?;
    heads("sddmm", out.cols, x.cols)
}

/// Checks a softmax over `scores` (`nnz × heads`), or its backward pass with `grad`.
///
/// # Errors
/// When `scores` has another number of rows, or `grad` another shape.
pub fn segment_softmax(nnz: usize, scores: Shape, grad: Option<Shape>) -> Checked {
    expect("segment_softmax", "scores", scores, Shape::new(nnz, scores.cols))?;
    grad.map_or(Ok(()), |grad| expect("segment_softmax", "grad", grad, scores))
}

/// Checks `out[r, h] = Σ_k x[r, c]·vector[c]`.
///
/// # Errors
/// When a shape does not fit, or heads do not divide the width.
pub fn head_dots(x: Shape, vector: Shape, out: Shape) -> Checked {
    expect("head_dots", "vector", vector, Shape::new(1, x.cols))?;
    expect("head_dots", "out", out, Shape::new(x.rows, out.cols))?;
    heads("head_dots", out.cols, x.cols)
}

/// Checks the backward pass of [`head_dots`]; `x_grad` is shaped like `x`.
///
/// # Errors
/// When a shape does not fit.
pub fn head_dots_backward(x: Shape, vector: Shape, grad: Shape, x_grad: Option<Shape>, vector_grad: Shape) -> Checked {
    head_dots(x, vector, grad)?;
    expect("head_dots", "vector_grad", vector_grad, vector)?;
    x_grad.map_or(Ok(()), |x_grad| expect("head_dots", "x_grad", x_grad, x))
}

/// Shapes of the operands of an attention over a pattern of shape `graph`.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShapes {
    /// Shape of the pattern (`n × m`).
    pub graph: Shape,
    /// Number of heads.
    pub heads: usize,
    /// Shape of [`Attention::destination`](crate::Attention::destination).
    pub destination: Shape,
    /// See `destination`.
    pub source: Shape,
    /// See `destination`.
    pub vector: Option<Shape>,
    /// See `destination`.
    pub values: Shape,
}

/// Checks an attention and its results.
///
/// # Errors
/// When a shape does not fit, or heads do not divide the width.
pub fn attention(shapes: &AttentionShapes, out: Shape, log_sums: Shape) -> Checked {
    let AttentionShapes { graph, heads: n_heads, values, .. } = *shapes;
    expect("attention", "values", values, Shape::new(graph.cols, values.cols))?;
    heads("attention", n_heads, values.cols)?;
    let score_width = if shapes.vector.is_some() { values.cols } else { n_heads };
    expect("attention", "destination", shapes.destination, Shape::new(graph.rows, score_width))?;
    expect("attention", "source", shapes.source, Shape::new(graph.cols, score_width))?;
    if let Some(vector) = shapes.vector {
        expect("attention", "vector", vector, Shape::new(1, values.cols))?;
    }
    expect("attention", "out", out, Shape::new(graph.rows, values.cols))?;
    expect("attention", "log_sums", log_sums, Shape::new(graph.rows, n_heads))
}

/// Shapes of the gradients of an attention; each is that of its operand.
#[derive(Clone, Copy, Debug)]
pub struct AttentionGradShapes {
    /// Shape of [`AttentionGrads::destination`](crate::AttentionGrads::destination).
    pub destination: Shape,
    /// See `destination`.
    pub source: Shape,
    /// See `destination`.
    pub vector: Option<Shape>,
    /// See `destination`.
    pub values: Shape,
}

/// Checks the backward pass of [`attention`], where each gradient is shaped like its operand.
///
/// # Errors
/// When a shape does not fit, or only one of the vector and its gradient is given.
pub fn attention_backward(
    shapes: &AttentionShapes,
    (out, log_sums): (Shape, Shape),
    grad: Shape,
    grads: AttentionGradShapes,
) -> Checked {
    attention(shapes, out, log_sums)?;
    expect("attention", "grad", grad, out)?;
    expect("attention", "gradient of the destination", grads.destination, shapes.destination)?;
    expect("attention", "gradient of the source", grads.source, shapes.source)?;
    match (shapes.vector, grads.vector) {
        (Some(vector), Some(grad)) => expect("attention", "gradient of the vector", grad, vector)?,
        (None, None) => {}
        _ => return Err(ComputeError::argument("attention", "a vector and its gradient come together or not at all")),
    }
    expect("attention", "gradient of the values", grads.values, shapes.values)
}
