//! Which error of girih is which exception of Python. Messages stay as they are.

use std::any::Any;
use std::fmt::Display;

use girih_compress::CompressError;
use girih_datasets::DatasetError;
use girih_graph_format::FormatError;
use girih_sampling::SampleError;
use girih_trainer::TrainError;
use pyo3::exceptions::{PyFileNotFoundError, PyIndexError, PyMemoryError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;

/// `ValueError` with the message of an error.
pub fn value_error(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// `TypeError` with a message.
pub fn type_error(message: impl Into<String>) -> PyErr {
    PyTypeError::new_err(message.into())
}

/// `IndexError` with a message.
pub fn index_error(message: impl Into<String>) -> PyErr {
    PyIndexError::new_err(message.into())
}

/// Exception of a failure to sample.
pub fn of_sampling(error: SampleError) -> PyErr {
    if error.is_no_such_node() { index_error(error.to_string()) } else { value_error(error) }
}

/// Exception of a failure to load or save a data set.
pub fn of_dataset(error: DatasetError) -> PyErr {
    let message = error.to_string();
    if error.is_not_found() {
        PyFileNotFoundError::new_err(message)
    } else if error.is_too_large() {
        PyMemoryError::new_err(message)
    } else {
        PyValueError::new_err(message)
    }
}

/// Exception of a failure to make, read or write a matrix.
pub fn of_format(error: FormatError) -> PyErr {
    if error.is_not_found() { PyFileNotFoundError::new_err(error.to_string()) } else { value_error(error) }
}

/// Exception of a failure of features.
pub fn of_features(error: CompressError) -> PyErr {
    of_dataset(error.into())
}

/// Exception of a training that was refused, or failed.
pub fn of_training(error: TrainError) -> PyErr {
    value_error(error)
}

/// `RuntimeError` of a panic. `PanicException` of `PyO3` is no `Exception`, so that `except Exception` would miss it.
pub fn of_panic(panic: &(dyn Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    PyRuntimeError::new_err(format!(
        "girih failed: {}; arrays that change while they are used do this, else it is a bug to report",
        text.unwrap_or("no message")
    ))
}
