//! Checks of losses, and of the passes that judge scores: largest elements and correct classes.

use super::{Checked, IdRange, expect};
use crate::{ComputeError, Shape};

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

/// Checks a search for the largest elements of the rows of `x`, without those that `excluded` lists.
///
/// # Errors
/// When the two differ in shape.
pub fn top_k_rows(x: Shape, excluded: Shape) -> Checked {
    expect("top_k_rows", "excluded", excluded, x)
}
