//! Products and attention. On the CPU, operands are read and results written in memory of the caller's arrays; `cuda` has
//! those on GPUs.

use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;

use girih_compute::cpu::{CpuMatrix, CpuSparse};
use girih_compute::prelude::*;
use girih_compute::{
    Attention, AttentionGrads, ComputeError, Cpu, Dropout, Dtype, Epilogue, HostMatrix, Memory, Shape, Transpose,
};
use girih_random::{Key, purpose};
use numpy::{PyArray2, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;

use super::adjacency;
use super::kind::Kind;
use crate::arrays::matrix;
use crate::errors::{type_error, value_error};
use crate::threads::on_pool;

/// The CPU, for all operators.
pub static CPU: LazyLock<Cpu> = LazyLock::new(Cpu::new);

/// Array of the caller.
type Owned<'py> = Bound<'py, PyArray2<f32>>;
/// Array of the caller, borrowed.
type Array<'a, 'py> = &'a Owned<'py>;

/// Operand of a graph: number of the adjacency, and name of the kind.
pub type Handle = (i64, String);
/// Results of an attention: `out`, `log_sums`.
type Results<'py> = (Owned<'py>, Owned<'py>);
/// Results of an attention, and the gradient of `out`.
type AllResults<'py> = (Owned<'py>, Owned<'py>, Owned<'py>);

/// Memory of an array that a result is written to.
struct Written {
    values: *mut f32,
    len: usize,
    /// Keeps the memory.
    _array: Py<PyArray2<f32>>,
}

// SAFETY: the memory is that of one result, which one operation has for itself; the array is touched only to be released.
unsafe impl Send for Written {}
// SAFETY: as for `Send`.
unsafe impl Sync for Written {}

impl AsRef<[f32]> for Written {
    fn as_ref(&self) -> &[f32] {
        // SAFETY: pointer and length are those of a contiguous array of `f32`, which `_array` keeps.
        unsafe { std::slice::from_raw_parts(self.values, self.len) }
    }
}

impl AsMut<[f32]> for Written {
    fn as_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `as_ref`; `check_apart` has found no other operand in this memory.
        unsafe { std::slice::from_raw_parts_mut(self.values, self.len) }
    }
}

/// Operand in memory of an array.
fn read(what: &str, array: Array<'_, '_>) -> PyResult<CpuMatrix> {
    CPU.upload(&matrix(what, array)?, Dtype::F32).map_err(value_error)
}

/// Result in memory of an array.
fn written(what: &str, array: Array<'_, '_>) -> PyResult<CpuMatrix> {
    if !array.is_c_contiguous() || !array.data().is_aligned() {
        return Err(type_error(format!("{what} is not contiguous")));
    }
    let shape = Shape::new(array.shape()[0], array.shape()[1]);
    let written = Written { values: array.data(), len: shape.len(), _array: array.clone().unbind() };
    CpuMatrix::over(shape, written).map_err(value_error)
}

/// Checks that no result lies in memory of another operand.
fn check_apart(results: &[&CpuMatrix], operands: &[&CpuMatrix]) -> PyResult<()> {
    for (at, result) in results.iter().enumerate() {
        let range = result.bytes().as_ptr_range();
        for other in operands.iter().chain(&results[..at]).map(|other| other.bytes().as_ptr_range()) {
            if range.start < other.end && other.start < range.end {
                return Err(value_error("a result lies in memory of another operand"));
            }
        }
    }
    Ok(())
}

/// Runs `work` on the operand of a kind, without the GIL.
fn on_operand(
    py: Python<'_>,
    (number, kind): (i64, &str),
    work: impl FnOnce(&CpuSparse) -> Result<(), ComputeError> + Send,
) -> PyResult<()> {
    let (found, kind) = (adjacency::find(number)?, kind.parse::<Kind>().map_err(value_error)?);
    let operands = found.on_host().map_err(value_error)?;
    let run = || work(&*operands.of(&CPU, kind)?).map_err(|error| error.to_string());
    on_pool(py, run)?.map_err(value_error)
}

/// Sparse product: `out = op(L·A·R)·x` with the operand `graph`, a number and a kind. `x` is `m × d` and `out` is
/// `n × d`, or the other way round if `transpose`; `weights` (`nnz × 1`) replace the values of `A`.
#[pyfunction]
pub fn nn_spmm(
    py: Python<'_>,
    graph: Handle,
    transpose: bool,
    weights: Option<Array<'_, '_>>,
    x: Array<'_, '_>,
    out: Array<'_, '_>,
) -> PyResult<()> {
    let (x, mut out) = (read("x", x)?, written("out", out)?);
    let weights = weights.map(|weights| read("weights", weights)).transpose()?;
    check_apart(&[&out], &weights.iter().chain([&x]).collect::<Vec<_>>())?;
    let transpose = if transpose { Transpose::Yes } else { Transpose::No };
    on_operand(py, (graph.0, &graph.1), |a| {
        CPU.spmm((a, transpose), weights.as_ref(), &x, Epilogue::default(), &mut out)
    })
}

/// Sampled product: `out` (`nnz × 1`) becomes the gradient of the weights of a sparse product, from the rows of `x`
/// (`n × d`) and `y` (`m × d`).
#[pyfunction]
pub fn nn_sddmm(py: Python<'_>, graph: Handle, x: Array<'_, '_>, y: Array<'_, '_>, out: Array<'_, '_>) -> PyResult<()> {
    let (x, y, mut out) = (read("x", x)?, read("y", y)?, written("out", out)?);
    check_apart(&[&out], &[&x, &y])?;
    on_operand(py, (graph.0, &graph.1), |a| CPU.sddmm(a, &x, &y, &mut out))
}

/// Options of an attention: number of heads, slope of the leaky ReLU, probability and key of the dropout.
pub type Options = (usize, f32, f32, i64);

/// Operands of an attention, or their gradients, in memory of one kind. See [`Attention`].
pub struct Operands<M> {
    pub destination: M,
    pub source: M,
    pub vector: Option<M>,
    pub values: M,
}

/// Operands of an attention, as Python has them: destination, source, vector, values.
pub type Given<T> = (T, T, Option<T>, T);

impl<M> Operands<M> {
    /// Operands of what Python gives, each under its name.
    pub fn of<T>(
        (destination, source, vector, values): &Given<T>,
        convert: impl Fn(&str, &T) -> PyResult<M>,
    ) -> PyResult<Self> {
        Ok(Self {
            destination: convert("destination", destination)?,
            source: convert("source", source)?,
            vector: vector.as_ref().map(|vector| convert("vector", vector)).transpose()?,
            values: convert("values", values)?,
        })
    }

    fn all(&self) -> Vec<&M> {
        [&self.destination, &self.source, &self.values].into_iter().chain(&self.vector).collect()
    }

    /// Attention over a graph.
    pub fn attention<'a, B: Memory>(&'a self, graph: &'a B::Sparse, options: Options) -> Attention<'a, B>
    where
        M: Deref<Target = B::Matrix>,
    {
        let (heads, slope, p, key) = options;
        let Self { destination, source, vector, values } = self;
        let dropout = (p > 0.0).then(|| Dropout::new(p, Key::new(key.cast_unsigned(), purpose::DROPOUT)));
        Attention { graph, heads, slope, dropout, destination, source, vector: vector.as_deref(), values }
    }

    /// Gradients to be written.
    pub fn grads<X>(&mut self) -> AttentionGrads<'_, X>
    where
        M: DerefMut<Target = X>,
    {
        let Self { destination, source, vector, values } = self;
        AttentionGrads { destination, source, vector: vector.as_deref_mut(), values }
    }
}

/// Refuses a dropout that is no probability.
pub fn check_dropout((_, _, p, _): Options) -> PyResult<()> {
    if (0.0..1.0).contains(&p) {
        return Ok(());
    }
    Err(value_error(format!("dropout is {p}; a probability of attention's dropout lies from 0 to below 1")))
}

/// Attention into `out` (`n × width`) and `log_sums` (`n × heads`). Heads are interleaved.
#[pyfunction]
pub fn nn_attention(
    py: Python<'_>,
    graph: Handle,
    options: Options,
    operands: Given<Owned<'_>>,
    results: Results<'_>,
) -> PyResult<()> {
    check_dropout(options)?;
    let operands = Operands::of(&operands, |what, array| read(what, array).map(Box::new))?;
    let (mut out, mut log_sums) = (written("out", &results.0)?, written("log_sums", &results.1)?);
    check_apart(&[&out, &log_sums], &operands.all().into_iter().map(|operand| &**operand).collect::<Vec<_>>())?;
    on_operand(py, (graph.0, &graph.1), |a| {
        CPU.attention(&operands.attention::<Cpu>(a, options), &mut out, &mut log_sums)
    })
}

/// Gradients of an attention, shaped like `operands`, from its results and the gradient of the first of them:
/// `results` is (out, log_sums, grad).
#[pyfunction]
pub fn nn_attention_backward<'py>(
    py: Python<'py>,
    graph: Handle,
    options: Options,
    operands: Given<Owned<'py>>,
    results: AllResults<'py>,
    grads: Given<Owned<'py>>,
) -> PyResult<()> {
    check_dropout(options)?;
    let operands = Operands::of(&operands, |what, array| read(what, array).map(Box::new))?;
    let (out, log_sums, grad) = (read("out", &results.0)?, read("log_sums", &results.1)?, read("grad", &results.2)?);
    let gradient = |what: &str, array: &Owned<'_>| written(&format!("gradient of the {what}"), array).map(Box::new);
    let mut grads = Operands::of(&grads, gradient)?;
    let read_only = operands.all().into_iter().map(|operand| &**operand).chain([&out, &log_sums, &grad]);
    let results: Vec<_> = grads.all().into_iter().map(|grad| &**grad).collect();
    check_apart(&results, &read_only.collect::<Vec<_>>())?;
    on_operand(py, (graph.0, &graph.1), |a| {
        CPU.attention_backward(&operands.attention::<Cpu>(a, options), (&out, &log_sums), &grad, grads.grads())
    })
}
