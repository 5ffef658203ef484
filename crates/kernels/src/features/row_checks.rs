//! Checks of outputs and stores of rows by id, before any work is put on a device.

use girih_compute::{ComputeError, Dtype, Shape};

use super::threads::ROW_BYTES_MAX;

/// Name of the operation in errors.
pub(crate) const OPERATION: &str = "rows by id";

/// Fails if the element type of an output differs from that of the rows.
pub(crate) fn check_dtypes(operation: &'static str, read: Dtype, output: Dtype) -> Result<(), ComputeError> {
    if read == output {
        return Ok(());
    }
    let what = format!("rows are read as {}, and the output is {}", read.name(), output.name());
    Err(ComputeError::argument(operation, what))
}

/// Fails if an output for the first of these rows has more rows or another number of columns.
pub(crate) fn check_first(output: Shape, rows: Shape) -> Result<(), ComputeError> {
    if output.rows <= rows.rows && output.cols == rows.cols {
        return Ok(());
    }
    let what = format!("the output is {output}, and there are {} rows of {} columns", rows.rows, rows.cols);
    Err(ComputeError::argument(OPERATION, what))
}

/// Fails if rows do not fit into a store from row `first` on.
pub(crate) fn check_written(
    (rows, dtype): (Shape, Dtype),
    first: usize,
    (store, stored): (Shape, Dtype),
) -> Result<(), ComputeError> {
    if rows.cols == store.cols && dtype == stored && rows.rows <= store.rows.saturating_sub(first) {
        return Ok(());
    }
    let (dtype, stored) = (dtype.name(), stored.name());
    let what = format!("{rows} {dtype} written at row {first} do not fit a store of {store} {stored}");
    Err(ComputeError::argument(OPERATION, what))
}

/// Fails if rows are too long for the buffers of the host's threads.
pub(crate) fn check_brought(row_bytes: usize) -> Result<(), ComputeError> {
    if row_bytes <= ROW_BYTES_MAX {
        return Ok(());
    }
    let what = format!(
        "a decoded row has {row_bytes} bytes, and threads of the host bring rows of at most {ROW_BYTES_MAX}; place all rows \
         on the device"
    );
    Err(ComputeError::argument(OPERATION, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_that_do_not_fit_rows_are_refused() {
        assert!(check_dtypes(OPERATION, Dtype::F32, Dtype::F32).is_ok());
        assert_eq!(
            check_dtypes(OPERATION, Dtype::Bf16, Dtype::F32).unwrap_err().to_string(),
            "rows by id: rows are read as bf16, and the output is f32"
        );
        assert!(check_first(Shape::new(3, 4), Shape::new(5, 4)).is_ok());
        for output in [Shape::new(6, 4), Shape::new(3, 2)] {
            let expected = format!("rows by id: the output is {output}, and there are 5 rows of 4 columns");
            assert_eq!(check_first(output, Shape::new(5, 4)).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn rows_longer_than_a_buffer_are_refused() {
        assert!(check_brought(ROW_BYTES_MAX).is_ok());
        assert_eq!(
            check_brought(ROW_BYTES_MAX + 32).unwrap_err().to_string(),
            "rows by id: a decoded row has 1048608 bytes, and threads of the host bring rows of at most 1048576; place all \
             rows on the device"
        );
    }

    #[test]
    fn rows_that_do_not_fit_a_store_are_refused() {
        let store = (Shape::new(9, 4), Dtype::Bf16);
        assert!(check_written((Shape::new(3, 4), Dtype::Bf16), 6, store).is_ok());
        assert_eq!(
            check_written((Shape::new(3, 4), Dtype::Bf16), 7, store).unwrap_err().to_string(),
            "rows by id: 3 × 4 bf16 written at row 7 do not fit a store of 9 × 4 bf16"
        );
        assert_eq!(
            check_written((Shape::new(3, 5), Dtype::F32), 0, store).unwrap_err().to_string(),
            "rows by id: 3 × 5 f32 written at row 0 do not fit a store of 9 × 4 bf16"
        );
    }
}
