//! Labels from arrays and tables as files hold them.

use std::path::Path;

use girih_graph_format::Matrix;
use girih_graph_format::file::{Array, Values};

use crate::{DatasetError, Labels, UNLABELLED};

/// Files with larger class numbers hold something else than classes.
pub(crate) const MAX_CLASSES: i64 = 1 << 16;

/// Labels from integers: one class a node (`n`, or `n × 1`), negative where unknown; or a row of 0 and 1 a node.
///
/// # Errors
/// When the array has another shape or holds no integers, or a class is beyond 2¹⁶.
pub(crate) fn labels(array: Array) -> Result<Labels, DatasetError> {
    let origin = array.origin().to_owned();
    if is_table(&array)? {
        return labels_of_table(array.into_matrix()?, &origin);
    }
    let values = array.into_i64()?;
    let class = |(v, &class): (usize, &i64)| match class {
        ..0 => Ok(UNLABELLED),
        0..MAX_CLASSES => Ok(class as u32),
        _ => Err(DatasetError::invalid(format!("node {v} has class {class}; classes are below {MAX_CLASSES}"))),
    };
    let classes = values.iter().enumerate().map(class).collect::<Result<Vec<u32>, _>>().map_err(|e| e.at(&origin))?;
    Ok(Labels::single(classes))
}

/// [`labels`] of files that may store classes as floats, where NaN is a class that is not known.
///
/// # Errors
/// As [`labels`], and when a float is no whole number.
pub(crate) fn labels_or_nan(array: Array) -> Result<Labels, DatasetError> {
    let is_float = matches!(array.values(), Values::F16(_) | Values::F32(_) | Values::F64(_));
    if !is_float || is_table(&array)? {
        return labels(array);
    }
    let origin = array.origin().to_owned();
    let values = array.into_f32()?;
    labels_of_table(Matrix::new(values.len(), 1, values)?, &origin)
}

/// Labels from a table of numbers, one row a node: a column of classes, NaN or negative where unknown; or several
/// columns of 0 and 1.
///
/// # Errors
/// When a class is no whole number or beyond 2¹⁶, or a row of several columns has a NaN, naming the row.
pub(crate) fn labels_of_table(table: Matrix, origin: &Path) -> Result<Labels, DatasetError> {
    let n_classes = table.n_cols();
    if n_classes != 1 {
        return match table.data().iter().position(|value| value.is_nan()) {
            None => Ok(Labels::Multi { n_classes, targets: table }),
            Some(at) => Err(DatasetError::invalid(format!(
                "row {}, column {}: no target; with several columns each must be 0 or 1",
                at / n_classes,
                at % n_classes
            ))
            .at(origin)),
        };
    }
    let class = |(v, &class): (usize, &f32)| {
        if class.is_nan() || class < 0.0 {
            Ok(UNLABELLED)
        } else if class.fract() == 0.0 && class < MAX_CLASSES as f32 {
            Ok(class as u32)
        } else {
            let expected = format!("classes are whole numbers below {MAX_CLASSES}");
            Err(DatasetError::invalid(format!("node {v} has class {class}; {expected}")).at(origin))
        }
    };
    Ok(Labels::single(table.data().iter().enumerate().map(class).collect::<Result<_, _>>()?))
}

/// Whether an array has a row of several values a node.
fn is_table(array: &Array) -> Result<bool, DatasetError> {
    match array.shape() {
        [_] | [_, 1] => Ok(false),
        [_, _] => Ok(true),
        shape => Err(DatasetError::invalid(format!(
            "labels of shape {shape:?}; expected one class a node, or a row of 0 and 1 a node"
        ))
        .at(array.origin())),
    }
}
