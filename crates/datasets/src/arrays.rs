//! Labels and features from arrays as files hold them.

use girih_graph_format::file::Array;

use crate::{DatasetError, Labels, UNLABELLED};

/// Files with larger class numbers hold something else than classes.
pub(crate) const MAX_CLASSES: i64 = 1 << 16;

/// One class per node from one integer per node; negative ones are unlabelled.
///
/// # Errors
/// When the array is not of one dimension and integers, or a class is beyond 2¹⁶.
pub(crate) fn labels(array: Array) -> Result<Labels, DatasetError> {
    let origin = array.origin().to_owned();
    array.expect_1d()?;
    let values = array.into_i64()?;
    let class = |(v, &class): (usize, &i64)| match class {
        ..0 => Ok(UNLABELLED),
        0..MAX_CLASSES => Ok(class as u32),
        _ => Err(DatasetError::invalid(format!("node {v} has class {class}; classes are below {MAX_CLASSES}"))),
    };
    let classes = values.iter().enumerate().map(class).collect::<Result<Vec<u32>, _>>().map_err(|e| e.at(&origin))?;
    Ok(Labels::single(classes))
}
