//! Checks of the operands of each operation: pure functions of shapes, shared by all backends.
//!
//! A backend calls the check of an operation before it writes anything. All backends thus refuse the same calls with
//! the same messages.

use std::ops::Range;

use crate::{Activation, ComputeError, Dtype, Epilogue, Shape, SparseOperand, Transpose};

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

/// Checks that the bias of an epilogue is `1 × out.cols`.
fn bias(operation: &'static str, bias: Option<Shape>, out: Shape) -> Checked {
    bias.map_or(Ok(()), |bias| expect(operation, "bias", bias, Shape::new(1, out.cols)))
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
/// As [`spmm`], and when the columns do not begin and end as [`COLUMNS`] requires.
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

/// Checks the backward pass of [`attention`]. `grads` are the gradients of destination, source, vector and values, in
/// this order, each shaped like its operand.
///
/// # Errors
/// When a shape does not fit, or only one of the vector and its gradient is given.
pub fn attention_backward(
    shapes: &AttentionShapes,
    (out, log_sums): (Shape, Shape),
    grad: Shape,
    grads: (Shape, Shape, Option<Shape>, Shape),
) -> Checked {
    attention(shapes, out, log_sums)?;
    expect("attention", "grad", grad, out)?;
    expect("attention", "gradient of the destination", grads.0, shapes.destination)?;
    expect("attention", "gradient of the source", grads.1, shapes.source)?;
    match (shapes.vector, grads.2) {
        (Some(vector), Some(grad)) => expect("attention", "gradient of the vector", grad, vector)?,
        (None, None) => {}
        _ => return Err(ComputeError::argument("attention", "a vector and its gradient come together or not at all")),
    }
    expect("attention", "gradient of the values", grads.3, shapes.values)
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

/// Checks `x = activation(x + bias)`.
///
/// # Errors
/// When `bias_shape` is not one row as wide as `x`.
pub fn activate(bias_shape: Option<Shape>, x: Shape) -> Checked {
    bias("activate", bias_shape, x)
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

/// Checks that two operands have one shape: `write`, `dropout`, `add_scaled`, `scale`.
///
/// # Errors
/// When shapes differ.
pub fn same(operation: &'static str, x: Shape, out: Shape) -> Checked {
    expect(operation, "out", out, x)
}

/// Checks `out = diag(factors)·x[:, first..first + w]`, where `out` has `w` columns and `dtype` is the storage of
/// `factors`.
///
/// # Errors
/// When the number of rows of `out` is not that of `x`, the columns do not begin and end as [`COLUMNS`] requires, or
/// `factors` is not `x.rows × 1` of `f32`.
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

/// Checks a dense product with the backward pass of an epilogue, for the columns of its result `y` from `first` on.
///
/// # Errors
/// When the number of rows of `out` is not that of `y`, the columns do not begin and end as [`COLUMNS`] requires, or
/// `factors` (shape and storage) is not `y.rows × 1` of `f32`.
pub fn gemm_backward((y, first): (Shape, usize), factors: Option<(Shape, Dtype)>, out: Shape) -> Checked {
    const OPERATION: &str = "gemm_backward";
    expect(OPERATION, "out", out, Shape::new(y.rows, out.cols))?;
    columns(OPERATION, first..first + out.cols, y.cols)?;
    factors.map_or(Ok(()), |factors| row_factors(OPERATION, factors, y.rows))
}

/// Checks `out += factor · x`, on the first rows of `out` if `x` has fewer.
///
/// # Errors
/// When `x` has another number of columns than `out`, or more rows.
pub fn add_scaled(x: Shape, out: Shape) -> Checked {
    expect("add_scaled", "out", out, Shape::new(out.rows.max(x.rows), x.cols))
}

/// Checks `grad ⊙= activation'(y)` and the gradient of the bias.
///
/// # Errors
/// When `grad` is not shaped like `y`, or `bias_grad` is not one row as wide.
pub fn epilogue_backward(y: Shape, grad: Shape, bias_grad: Option<Shape>) -> Checked {
    expect("epilogue_backward", "grad", grad, y)?;
    bias_grad.map_or(Ok(()), |bias_grad| expect("epilogue_backward", "bias_grad", bias_grad, Shape::new(1, y.cols)))
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

/// Checks common to both cross-entropies: `grad` is shaped like the logits, `loss` is `1 × 1`, and `rows` is not
/// empty and in range.
fn loss(operation: &'static str, logits: Shape, rows: IdRange, grad: Option<Shape>, loss: Shape) -> Checked {
    if let Some(grad) = grad {
        expect(operation, "grad", grad, logits)?;
    }
    expect(operation, "loss", loss, Shape::new(1, 1))?;
    if rows.len == 0 || logits.cols == 0 {
        return Err(ComputeError::argument(
            operation,
            format!("a mean over {} rows of {} columns is not defined; name at least one row", rows.len, logits.cols),
        ));
    }
    rows.within(operation, logits.rows)
}

/// Checks the shapes of a softmax cross-entropy over `rows` of `logits`; [`classes`] checks the classes themselves.
///
/// # Errors
/// When there is no class for each row of `logits`, another shape does not fit, or `rows` is empty or out of range.
pub fn softmax_cross_entropy(
    logits: Shape,
    n_classes: usize,
    rows: IdRange,
    grad: Option<Shape>,
    out: Shape,
) -> Checked {
    expect("softmax_cross_entropy", "classes", Shape::new(n_classes, 1), Shape::new(logits.rows, 1))?;
    loss("softmax_cross_entropy", logits, rows, grad, out)
}

/// Checks that the class of each of `rows` is below `n_columns`. Classes of other rows are not read, so unlabelled
/// nodes may have any.
///
/// # Errors
/// When the class of one of `rows` is `n_columns` or more; the error names the first such row.
///
/// # Panics
/// When one of `rows` has no class; [`softmax_cross_entropy`] refuses such rows.
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

/// Checks a sigmoid cross-entropy over `rows` of `logits`.
///
/// # Errors
/// When a shape does not fit, or `rows` is empty or out of range.
pub fn sigmoid_cross_entropy(logits: Shape, targets: Shape, rows: IdRange, grad: Option<Shape>, out: Shape) -> Checked {
    expect("sigmoid_cross_entropy", "targets", targets, logits)?;
    loss("sigmoid_cross_entropy", logits, rows, grad, out)
}

/// Checks that rows have a largest element: that there are columns.
///
/// # Errors
/// When there are no columns.
pub fn argmax_rows(x: Shape) -> Checked {
    if x.cols == 0 {
        return Err(ComputeError::argument("argmax_rows", "rows without columns have no largest element"));
    }
    Ok(())
}

/// Checks a comparison of `rows` of `x` with their classes.
///
/// # Errors
/// When there are no columns, the number of classes is not `x.rows`, or `rows` is out of range.
pub fn count_correct(x: Shape, n_classes: usize, rows: IdRange) -> Checked {
    const OPERATION: &str = "count_correct";
    if x.cols == 0 {
        return Err(ComputeError::argument(OPERATION, "rows without columns have no largest element"));
    }
    expect(OPERATION, "classes", Shape::new(n_classes, 1), Shape::new(x.rows, 1))?;
    rows.within(OPERATION, x.rows)
}

/// Checks one step of Adam on `param`.
///
/// # Errors
/// When a shape differs from that of `param`, an operand is not `f32`, or `step` is 0, since the bias correction
/// would divide by zero.
pub fn adam(step: u64, param: Kind, grad: Kind, first: Kind, second: Kind) -> Checked {
    if step == 0 {
        return Err(ComputeError::argument("adam", "step 0; steps count from 1"));
    }
    optimizer("adam", param, &[("grad", grad), ("first moment", first), ("second moment", second)])
}

/// Checks one step of stochastic gradient descent on `param`.
///
/// # Errors
/// When a shape differs from that of `param`, or an operand is not `f32`.
pub fn sgd(param: Kind, grad: Kind, velocity: Kind) -> Checked {
    optimizer("sgd", param, &[("grad", grad), ("velocity", velocity)])
}

/// Checks that parameter, gradient and state have one shape and are `f32`. An update is often smaller than the
/// spacing of 16-bit numbers.
fn optimizer(operation: &'static str, param: Kind, others: &[(&'static str, Kind)]) -> Checked {
    for &(operand, (shape, _)) in others {
        expect(operation, operand, shape, param.0)?;
    }
    match others.iter().chain([&("param", param)]).find(|(_, (_, dtype))| *dtype != Dtype::F32) {
        None => Ok(()),
        Some((operand, (_, dtype))) => {
            Err(ComputeError::argument(operation, format!("{operand} is stored as {dtype:?}; optimisers update f32")))
        }
    }
}

/// Checks a ranking loss of `b` triples, `3b × d`.
///
/// # Errors
/// When there are no triples, a triple is incomplete, or `grad` or `out` does not fit.
pub fn bpr_loss(triples: Shape, grad: Option<Shape>, out: Shape) -> Checked {
    if triples.rows == 0 || !triples.rows.is_multiple_of(3) {
        let what = format!("{} rows are no triples of user, item met and item not met", triples.rows);
        return Err(ComputeError::argument("bpr_loss", what));
    }
    grad.map_or(Ok(()), |grad| expect("bpr_loss", "grad", grad, triples))?;
    expect("bpr_loss", "loss", out, Shape::new(1, 1))
}

/// Checks a penalty on the elements of `x` that is added to a loss.
///
/// # Errors
/// When `grad` is not shaped like `x`, or the loss is not one element.
pub fn l2_penalty(x: Shape, grad: Option<Shape>, out: Shape) -> Checked {
    grad.map_or(Ok(()), |grad| expect("l2_penalty", "grad", grad, x))?;
    expect("l2_penalty", "loss", out, Shape::new(1, 1))
}

/// Checks a search for the largest elements of the rows of `x`, without those that `excluded` lists.
///
/// # Errors
/// When the two differ in shape.
pub fn top_k_rows(x: Shape, excluded: Shape) -> Checked {
    expect("top_k_rows", "excluded", excluded, x)
}

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
