//! Checks of dense and sparse products, with their operands and epilogues.

use super::{Checked, columns, expect, heads, read, row_factors};
use crate::{Activation, ComputeError, Dtype, Epilogue, Shape, SparseOperand, Transpose};

/// Checks that an epilogue applies dropout only after ReLU. The backward pass needs this, since it sees the result
/// alone.
///
/// # Errors
/// When dropout follows another activation.
pub fn mask<M>(operation: &'static str, epilogue: &Epilogue<'_, M>) -> Checked {
    if epilogue.dropout.is_some() && epilogue.activation != Activation::Relu {
        let what =
            format!("an epilogue masks the result of ReLU, not of {:?}; mask it afterwards", epilogue.activation);
        return Err(ComputeError::argument(operation, what));
    }
    Ok(())
}

/// Checks `out = epilogue(op(A)·op(B))`.
///
/// # Errors
/// When inner dimensions differ, `out` or `bias_shape` does not fit, or both operands are transposed.
pub fn gemm(a: (Shape, Transpose), b: (Shape, Transpose), bias_shape: Option<Shape>, out: Shape) -> Checked {
    if (a.1, b.1) == (Transpose::Yes, Transpose::Yes) {
        return Err(ComputeError::argument(
            "gemm",
            "both operands are transposed; exchange them and transpose the result",
        ));
    }
    let (left, right) = (read(a.0, a.1), read(b.0, b.1));
    expect("gemm", "op(b)", right, Shape::new(left.cols, right.cols))?;
    expect("gemm", "out", out, Shape::new(left.rows, right.cols))?;
    bias("gemm", bias_shape, out)
}

/// Checks `out = epilogue(op(L·A·R)·X)`, where `A` has `nnz` entries.
///
/// # Errors
/// When `weights` is not `nnz × heads` for a number of heads that divides the width of `x`, or `x`, `out` or
/// `bias_shape` does not fit.
pub fn spmm(
    a: (Shape, Transpose),
    nnz: usize,
    weights: Option<Shape>,
    x: Shape,
    bias_shape: Option<Shape>,
    out: Shape,
) -> Checked {
    let left = read(a.0, a.1);
    if let Some(weights) = weights {
        expect("spmm", "weights", weights, Shape::new(nnz, weights.cols))?;
        heads("spmm", weights.cols, x.cols)?;
    }
    expect("spmm", "x", x, Shape::new(left.cols, x.cols))?;
    expect("spmm", "out", out, Shape::new(left.rows, x.cols))?;
    bias("spmm", bias_shape, out)
}

/// Checks `out[:, first..first + w] = epilogue(op(L·A·R)·X)`, where `X` has `w` columns.
///
/// # Errors
/// As [`spmm`], and when the columns do not begin and end as [`COLUMNS`](super::COLUMNS) requires.
pub fn spmm_columns(
    a: (Shape, Transpose),
    x: Shape,
    bias_shape: Option<Shape>,
    (out, first): (Shape, usize),
) -> Checked {
    const OPERATION: &str = "spmm_columns";
    let left = read(a.0, a.1);
    expect(OPERATION, "x", x, Shape::new(left.cols, x.cols))?;
    expect(OPERATION, "out", out, Shape::new(left.rows, out.cols))?;
    columns(OPERATION, first..first + x.cols, out.cols)?;
    bias(OPERATION, bias_shape, out)
}

/// Checks a dense product with the backward pass of an epilogue, for the columns of its result `y` from `first` on.
///
/// # Errors
/// When the number of rows of `out` is not that of `y`, the columns do not begin and end as
/// [`COLUMNS`](super::COLUMNS) requires, or `factors` (shape and storage) is not `y.rows × 1` of `f32`.
pub fn gemm_backward((y, first): (Shape, usize), factors: Option<(Shape, Dtype)>, out: Shape) -> Checked {
    const OPERATION: &str = "gemm_backward";
    expect(OPERATION, "out", out, Shape::new(y.rows, out.cols))?;
    columns(OPERATION, first..first + out.cols, y.cols)?;
    factors.map_or(Ok(()), |factors| row_factors(OPERATION, factors, y.rows))
}

/// Checks `x = activation(x + bias)`.
///
/// # Errors
/// When `bias_shape` is not one row as wide as `x`.
pub fn activate(bias_shape: Option<Shape>, x: Shape) -> Checked {
    bias("activate", bias_shape, x)
}

/// Checks `grad ⊙= activation'(y)` and the gradient of the bias.
///
/// # Errors
/// When `grad` is not shaped like `y`, or `bias_grad` is not one row as wide.
pub fn epilogue_backward(y: Shape, grad: Shape, bias_grad: Option<Shape>) -> Checked {
    expect("epilogue_backward", "grad", grad, y)?;
    bias_grad.map_or(Ok(()), |bias_grad| expect("epilogue_backward", "bias_grad", bias_grad, Shape::new(1, y.cols)))
}

/// Checks that the bias of an epilogue is `1 × out.cols`.
fn bias(operation: &'static str, bias: Option<Shape>, out: Shape) -> Checked {
    bias.map_or(Ok(()), |bias| expect(operation, "bias", bias, Shape::new(1, out.cols)))
}

/// Checks a sparse operand: scales and global ids have the lengths of its rows and columns, and a symmetric operand
/// is square.
///
/// # Errors
/// When a scale vector or the list of column ids has the wrong length, or a symmetric operand is not square.
pub fn sparse(operand: &SparseOperand<'_>) -> Checked {
    let SparseOperand { csr, scales, symmetric, names } = operand;
    let column = |len| Shape::new(len, 1);
    for (name, scale, len) in [("left scale", &scales.left, csr.n_rows()), ("right scale", &scales.right, csr.n_cols())]
    {
        if let Some(scale) = scale {
            expect("upload_sparse", name, column(scale.len()), column(len))?;
        }
    }
    if *symmetric && !csr.is_square() {
        let shape = Shape::new(csr.n_rows(), csr.n_cols());
        return Err(ComputeError::argument("upload_sparse", format!("a {shape} matrix cannot equal its transpose")));
    }
    if let Some(names) = names {
        expect("upload_sparse", "names of columns", column(names.columns.len()), column(csr.n_cols()))?;
    }
    Ok(())
}
