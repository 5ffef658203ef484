//! [`Options`]: keyword arguments of a function with many of them.

use pyo3::conversion::FromPyObjectOwned;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::type_error;

/// Keyword arguments, which are taken one by one; a left one is an error.
pub struct Options<'py> {
    /// Name of the function, for messages.
    of: &'static str,
    given: Option<Bound<'py, PyDict>>,
    /// Names that were asked for.
    known: Vec<&'static str>,
}

impl<'py> Options<'py> {
    /// Keyword arguments of the function `of`; the dictionary is copied.
    pub fn new(of: &'static str, given: Option<&Bound<'py, PyDict>>) -> PyResult<Self> {
        Ok(Self { of, given: given.map(|given| given.copy()).transpose()?, known: Vec::new() })
    }

    /// Argument, unless it is missing or None.
    pub fn take<T: FromPyObjectOwned<'py>>(&mut self, name: &'static str) -> PyResult<Option<T>> {
        self.known.push(name);
        let Some(given) = &self.given else { return Ok(None) };
        let Some(value) = given.get_item(name)? else { return Ok(None) };
        given.del_item(name)?;
        if value.is_none() {
            return Ok(None);
        }
        let converted: Result<T, T::Error> = value.extract();
        converted.map(Some).map_err(|error| {
            let error: PyErr = error.into();
            type_error(format!("{}(): {name}: {}", self.of, error.value(value.py())))
        })
    }

    /// Argument, or `default` if it is missing or None.
    pub fn or<T: FromPyObjectOwned<'py>>(&mut self, name: &'static str, default: T) -> PyResult<T> {
        Ok(self.take(name)?.unwrap_or(default))
    }

    /// Refuses arguments that were not taken.
    pub fn finish(self) -> PyResult<()> {
        let Some(left) = self.given.filter(|given| !given.is_empty()) else { return Ok(()) };
        let names = left.keys().iter().map(|name| name.to_string()).collect::<Vec<_>>().join(", ");
        Err(type_error(format!("{}() has no argument {names}; it has {}", self.of, self.known.join(", "))))
    }
}
