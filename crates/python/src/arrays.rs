//! Arguments from arrays, and arrays over memory of girih.

use std::fmt::Display;

use girih_datasets::UNLABELLED;
use girih_graph_format::{Buffer, Matrix, NodeId};
use numpy::ndarray::{ArrayView1, ArrayView2};
use numpy::{
    Element, PyArray1, PyArray2, PyArrayDescrMethods, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{index_error, type_error, value_error};

/// Argument as an array: a list, an array or a tensor on the CPU, without a copy where possible.
pub fn as_array<'py>(what: &str, argument: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyUntypedArray>> {
    if let Ok(array) = argument.cast::<PyUntypedArray>() {
        return Ok(array.clone());
    }
    let py = argument.py();
    let array = py.import("numpy")?.call_method1("asarray", (argument,)).map_err(|error| {
        let told = type_error(format!(
            "{what} is no array on the CPU: {}; give a NumPy array, a list, or a tensor after .cpu()",
            error.value(py)
        ));
        told.set_cause(py, Some(error));
        told
    })?;
    Ok(array.cast_into::<PyUntypedArray>()?)
}

/// Name of the type of an array's elements.
fn dtype(array: &Bound<'_, PyUntypedArray>) -> String {
    array.dtype().to_string()
}

fn check_dimensions(what: &str, array: &Bound<'_, PyUntypedArray>, expected: usize) -> PyResult<()> {
    if array.ndim() == expected {
        return Ok(());
    }
    Err(value_error(format!("{what} has shape {:?}; give an array of {expected} dimension(s)", array.shape())))
}

/// Runs `$body` for `$array` as a read-only array of each of the integer types; falls through for others.
macro_rules! for_integers {
    ($array:expr, $kind:ident, $name:ident => $body:expr) => {
        for_integers!(@ $array, $kind, $name => $body; i64, i32, u32, u64, i16, u16, i8, u8)
    };
    (@ $array:expr, $kind:ident, $name:ident => $body:expr; $($integer:ty),*) => {
        $(if let Ok($name) = $array.extract::<$kind<'_, $integer>>() {
            return $body;
        })*
    };
}

/// Node ids below `n_nodes` from a list of ids of any integer type, or from a mask of all nodes.
pub fn node_ids(what: &str, argument: &Bound<'_, PyAny>, n_nodes: usize) -> PyResult<Vec<NodeId>> {
    let array = as_array(what, argument)?;
    check_dimensions(what, &array, 1)?;
    if let Ok(mask) = array.extract::<PyReadonlyArray1<'_, bool>>() {
        return masked(what, &mask.as_array(), n_nodes);
    }
    if array.len() == 0 {
        // An empty list is an array of floats.
        return Ok(Vec::new());
    }
    for_integers!(array, PyReadonlyArray1, ids => narrowed(what, ids.as_array(), n_nodes));
    Err(type_error(format!("{what} has elements of type {}; give integers, or a mask of all nodes", dtype(&array))))
}

fn is_integer(array: &Bound<'_, PyUntypedArray>) -> bool {
    matches!(array.dtype().kind(), b'i' | b'u')
}

fn masked(what: &str, mask: &ArrayView1<'_, bool>, n_nodes: usize) -> PyResult<Vec<NodeId>> {
    if mask.len() != n_nodes {
        return Err(value_error(format!("{what} is a mask of {} nodes, but there are {n_nodes}", mask.len())));
    }
    Ok((0..).zip(mask).filter(|&(_, &is_in)| is_in).map(|(id, _)| id).collect())
}

/// Ids as node ids; an `IndexError` at the first one that no node has.
fn narrowed<T: Copy + Display + TryInto<u64>>(
    what: &str,
    ids: ArrayView1<'_, T>,
    n_nodes: usize,
) -> PyResult<Vec<NodeId>> {
    let narrow = |(at, &id): (usize, &T)| match id.try_into() {
        Ok(wide) if wide < n_nodes as u64 => Ok(wide as NodeId),
        _ => Err(index_error(format!("{what} {at} is node {id}, but there are {n_nodes} nodes, counted from 0"))),
    };
    if let Some(ids) = ids.as_slice() {
        ids.iter().enumerate().map(narrow).collect()
    } else {
        ids.iter().enumerate().map(narrow).collect()
    }
}

/// Both rows of an array of edges, 2 × n, as node ids; `n_nodes` is the largest id plus one if it is not given.
pub fn edges(argument: &Bound<'_, PyAny>, n_nodes: Option<usize>) -> PyResult<([Vec<NodeId>; 2], usize)> {
    fn of<T: Copy + Display + TryInto<u64>>(
        edges: ArrayView2<'_, T>,
        n_nodes: Option<usize>,
    ) -> PyResult<([Vec<NodeId>; 2], usize)> {
        let largest = || edges.iter().filter_map(|&id| id.try_into().ok()).max().map_or(0, |id: u64| id as usize + 1);
        let n_nodes = n_nodes.unwrap_or_else(largest).min(girih_graph_format::MAX_NODES);
        sides("edge", edges, (n_nodes, n_nodes)).map(|sides| (sides, n_nodes))
    }
    let Some(array) = edge_array("edge_index", argument)? else {
        return Ok(([Vec::new(), Vec::new()], n_nodes.unwrap_or(0)));
    };
    for_integers!(array, PyReadonlyArray2, edges => of(edges.as_array(), n_nodes));
    Err(type_error(format!("edge_index has elements of type {}; give integers", dtype(&array))))
}

/// Both rows of an array of edges, 2 × n, from `n_nodes.0` sources to `n_nodes.1` destinations; `what` is the array.
pub fn edges_between(what: &str, argument: &Bound<'_, PyAny>, n_nodes: (usize, usize)) -> PyResult<[Vec<NodeId>; 2]> {
    let Some(array) = edge_array(what, argument)? else { return Ok([Vec::new(), Vec::new()]) };
    for_integers!(array, PyReadonlyArray2, edges => sides(&format!("{what}: edge"), edges.as_array(), n_nodes));
    Err(type_error(format!("{what} has elements of type {}; give integers", dtype(&array))))
}

/// Array of edges, 2 × n; `None` for an empty list, which is an array of floats.
fn edge_array<'py>(what: &str, argument: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyUntypedArray>>> {
    let array = as_array(what, argument)?;
    check_dimensions(what, &array, 2)?;
    if array.shape()[0] != 2 {
        return Err(value_error(format!(
            "{what} has shape {:?}; sources and destinations are two rows, so give (2, number of edges)",
            array.shape()
        )));
    }
    Ok((array.len() > 0 || is_integer(&array)).then_some(array))
}

fn sides<T: Copy + Display + TryInto<u64>>(
    edge: &str,
    edges: ArrayView2<'_, T>,
    (n_sources, n_destinations): (usize, usize),
) -> PyResult<[Vec<NodeId>; 2]> {
    let side = |row: usize, end: &str, n| narrowed(&format!("{end} of {edge}"), edges.row(row), n);
    Ok([side(0, "source", n_sources)?, side(1, "destination", n_destinations)?])
}

/// Class of each node from an array of integers, −1 where it is unknown.
pub fn classes(what: &str, argument: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    fn of<T: Copy + Display + TryInto<i64>>(what: &str, classes: ArrayView1<'_, T>) -> PyResult<Vec<u32>> {
        let class = |(node, &class): (usize, &T)| match class.try_into() {
            Ok(-1) => Ok(UNLABELLED),
            Ok(known @ 0..0x7fff_ffff) => Ok(known as u32),
            _ => Err(value_error(format!("{what} of node {node} is {class}; give classes from 0 on, and -1 for none"))),
        };
        classes.iter().enumerate().map(class).collect()
    }
    let array = as_array(what, argument)?;
    check_dimensions(what, &array, 1)?;
    for_integers!(array, PyReadonlyArray1, classes => of(what, classes.as_array()));
    Err(type_error(format!(
        "{what} has elements of type {}; give integers, or a row of 0 and 1 for each node",
        dtype(&array)
    )))
}

/// Array whose memory girih reads in place, for as long as it needs it.
struct Lent<T> {
    values: *const T,
    len: usize,
    /// Keeps the memory.
    _array: Py<PyUntypedArray>,
}

// SAFETY: the memory is only read, and the array, which is not touched but to be released, is safe to send.
unsafe impl<T: Sync> Send for Lent<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Sync> Sync for Lent<T> {}

impl<T> AsRef<[T]> for Lent<T> {
    fn as_ref(&self) -> &[T] {
        // SAFETY: pointer and length are those of a contiguous array of `T`, which `_array` keeps. Its owner may write
        // to it meanwhile: girih checks ids again where it reads them from memory that others own.
        unsafe { std::slice::from_raw_parts(self.values, self.len) }
    }
}

/// Values of a contiguous array of `Stored` as a buffer of `T`, which has the same bits, without a copy; `None` for
/// arrays of other types or strides.
fn lent<Stored: Element, T: bytemuck::Pod + Send + Sync>(array: &Bound<'_, PyUntypedArray>) -> Option<Buffer<T>> {
    const { assert!(size_of::<Stored>() == size_of::<T>() && align_of::<Stored>() == align_of::<T>()) };
    let typed = array.cast::<PyArray1<Stored>>().ok()?;
    let is_aligned = typed.data().cast::<T>().is_aligned();
    if !typed.is_c_contiguous() || !is_aligned {
        return None;
    }
    let lent = Lent { values: typed.data().cast::<T>().cast_const(), len: typed.len(), _array: array.clone().unbind() };
    Some(Buffer::from_owner(lent))
}

/// Offsets of rows from an array of integers: in place where they are 64-bit.
pub fn offsets(what: &str, argument: &Bound<'_, PyAny>) -> PyResult<Buffer<u64>> {
    fn widened<T: Copy + Display + TryInto<u64>>(what: &str, values: ArrayView1<'_, T>) -> PyResult<Buffer<u64>> {
        let widen = |(at, &value): (usize, &T)| {
            value.try_into().map_err(|_| value_error(format!("{what} {at} is {value}; offsets are not negative")))
        };
        Ok(values.iter().enumerate().map(widen).collect::<PyResult<Vec<u64>>>()?.into())
    }
    let array = as_array(what, argument)?;
    check_dimensions(what, &array, 1)?;
    if array.len() == 0 {
        return Ok(Vec::new().into());
    }
    if let Some(buffer) = lent::<i64, u64>(&array).or_else(|| lent::<u64, u64>(&array)) {
        return Ok(buffer);
    }
    for_integers!(array, PyReadonlyArray1, values => widened(what, values.as_array()));
    Err(type_error(format!("{what} has elements of type {}; give integers", dtype(&array))))
}

/// Times in ticks, one for each of `n` things, from an array of integers.
pub fn times_of(what: &str, argument: &Bound<'_, PyAny>, n: usize) -> PyResult<Vec<i64>> {
    fn of<T: Copy + Display + TryInto<i64>>(what: &str, times: ArrayView1<'_, T>) -> PyResult<Vec<i64>> {
        let time = |(at, &time): (usize, &T)| {
            time.try_into().map_err(|_| value_error(format!("{what}: time {at} is {time}, which is no 64-bit integer")))
        };
        times.iter().enumerate().map(time).collect()
    }
    let array = as_array(what, argument)?;
    check_dimensions(what, &array, 1)?;
    if array.len() != n {
        return Err(value_error(format!("{what}: {} times for {n}; give one for each", array.len())));
    }
    if n == 0 {
        return Ok(Vec::new());
    }
    for_integers!(array, PyReadonlyArray1, times => of(what, times.as_array()));
    Err(type_error(format!(
        "{what} has elements of type {}; give integers, such as seconds, or multiply decimals by a power of ten",
        dtype(&array)
    )))
}

/// Columns below `n_nodes` from an array of integers: in place where they are 32-bit, and then not checked here.
pub fn columns(what: &str, argument: &Bound<'_, PyAny>, n_nodes: usize) -> PyResult<Buffer<NodeId>> {
    let array = as_array(what, argument)?;
    check_dimensions(what, &array, 1)?;
    if let Some(buffer) = lent::<i32, NodeId>(&array).or_else(|| lent::<u32, NodeId>(&array)) {
        return Ok(buffer);
    }
    node_ids(what, argument, n_nodes).map(Into::into)
}

/// Numbers from an array of `float32`, in place, or of another numeric type, converted.
pub fn floats(what: &str, argument: &Bound<'_, PyAny>) -> PyResult<Buffer<f32>> {
    let array = as_array(what, argument)?;
    check_dimensions(what, &array, 1)?;
    if let Some(buffer) = lent::<f32, f32>(&array) {
        return Ok(buffer);
    }
    let converted = converted(what, &array)?;
    let converted = converted.cast::<PyArray1<f32>>()?;
    Ok(converted.to_vec()?.into())
}

/// Rows of features, n × width, from an array of `float32`, in place, or of another numeric type, converted.
pub fn matrix(what: &str, argument: &Bound<'_, PyAny>) -> PyResult<Matrix> {
    let array = as_array(what, argument)?;
    check_dimensions(what, &array, 2)?;
    let (n_rows, n_cols) = (array.shape()[0], array.shape()[1]);
    let is_plain = array.cast::<PyArray2<f32>>().is_ok() && array.is_c_contiguous();
    let plain = if is_plain { array } else { converted(what, &array)? };
    let flat = plain.call_method1("reshape", (-1,))?.cast_into::<PyUntypedArray>()?;
    let data = lent::<f32, f32>(&flat).ok_or_else(|| value_error(format!("{what} is not aligned; copy it")))?;
    Matrix::new(n_rows, n_cols, data).map_err(value_error)
}

/// Array of numbers as a contiguous one of `float32`.
fn converted<'py>(what: &str, array: &Bound<'py, PyUntypedArray>) -> PyResult<Bound<'py, PyUntypedArray>> {
    if !matches!(array.dtype().kind(), b'f' | b'i' | b'u' | b'b') {
        return Err(type_error(format!("{what} has elements of type {}; give numbers", dtype(array))));
    }
    let kwargs = PyDict::new(array.py());
    kwargs.set_item("dtype", "float32")?;
    let made = array.py().import("numpy")?.call_method("ascontiguousarray", (array,), Some(&kwargs))?;
    Ok(made.cast_into::<PyUntypedArray>()?)
}

/// Array over memory of `owner`, which the array keeps.
///
/// # Safety
/// `values` belong to `owner`, and are neither moved nor written to while it lives, but through the array.
pub unsafe fn view<'py, T: Element, O>(owner: &Bound<'py, O>, values: &[T]) -> Bound<'py, PyArray1<T>> {
    // SAFETY: as the caller promises.
    unsafe { PyArray1::borrow_from_array(&ArrayView1::from(values), owner.clone().into_any()) }
}

/// As [`view`], but nobody may write through the array.
///
/// # Safety
/// As for [`view`].
pub unsafe fn frozen_view<'py, T: Element, O>(
    owner: &Bound<'py, O>,
    values: &[T],
) -> PyResult<Bound<'py, PyArray1<T>>> {
    // SAFETY: as the caller promises.
    let array = unsafe { view(owner, values) };
    let flags = PyDict::new(owner.py());
    flags.set_item("write", false)?;
    array.call_method("setflags", (), Some(&flags))?;
    Ok(array)
}

/// Array of `int64`.
pub type Ids<'py> = Bound<'py, PyArray1<i64>>;

/// New array of ids as `int64`.
pub fn ids_array<'py>(py: Python<'py>, ids: &[NodeId]) -> Ids<'py> {
    PyArray1::from_iter(py, ids.iter().map(|&id| i64::from(id)))
}
