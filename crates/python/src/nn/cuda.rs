//! Products and attention on GPUs, in memory of the caller's tensors, and operands of layers there.

use std::sync::Arc;

use girih_compute::prelude::*;
use girih_compute::{ComputeError, Dtype, Epilogue, Shape, Transpose};
use girih_kernels::{Cuda, CudaSparse, LentMatrix};
use pyo3::prelude::*;

use super::adjacency::{self, Edges};
use super::network::Graph;
use super::operators::{Given, Handle, Operands, Options, check_dropout};
use super::uploaded::refused;
use crate::cuda::guest::{At, guest_storing, on_gpu};
use crate::errors::value_error;

/// Tensor on a GPU: address, rows, columns, and whether elements are `bfloat16` instead of `float32`. Rows begin as
/// those of [`Cuda::lent_matrix`] do.
type Tensor = (u64, usize, usize, bool);
/// Results of an attention, and the gradient of the first of them.
type AllResults = (Tensor, Tensor, Tensor);

/// Runs `work` on a device, which stores as `dtype`, without the GIL.
pub fn with_operands_on<T: Send>(
    py: Python<'_>,
    (at, dtype): (At, Dtype),
    work: impl FnOnce(&Arc<Cuda>) -> Result<T, ComputeError> + Send,
) -> PyResult<T> {
    let cuda = guest_storing(py, at, dtype)?;
    on_gpu(py, &cuda, || work(&cuda))
}

/// Operand of a graph on a device; `None` without a graph.
pub fn operand(cuda: &Arc<Cuda>, at: At, graph: &Graph) -> Result<Option<Arc<CudaSparse>>, ComputeError> {
    let Some((edges, kind)) = graph else { return Ok(None) };
    let operand = match &**edges {
        Edges::OnHost(operands) => {
            operands.on_gpus.get((*kind, at), cuda, || operands.upload(&**cuda, *kind).map_err(refused))
        }
        Edges::OnGpu(block) => block.operand(cuda, at, *kind),
    };
    operand.map(Some)
}

/// Runs `work` on a device, which stores as `dtype`, and the operand of a kind there, without the GIL.
fn on_operand(
    py: Python<'_>,
    (at, dtype): (At, Dtype),
    (number, kind): &Handle,
    work: impl FnOnce(&Cuda, &CudaSparse) -> Result<(), ComputeError> + Send,
) -> PyResult<()> {
    let graph = Some((adjacency::find(*number)?, kind.parse().map_err(value_error)?));
    with_operands_on(py, (at, dtype), |cuda| {
        let operand = operand(cuda, at, &graph)?.expect("there is a graph");
        work(cuda, &operand)
    })
}

fn dtype_of((_, _, _, is_bf16): Tensor) -> Dtype {
    if is_bf16 { Dtype::Bf16 } else { Dtype::F32 }
}

fn lent(cuda: &Cuda, tensor: Tensor) -> Result<LentMatrix, ComputeError> {
    let ((address, rows, cols, _), dtype) = (tensor, dtype_of(tensor));
    // SAFETY: `girih.nn` hands over tensors that it keeps for the call, whose memory PyTorch frees in the order of the
    // stream of the device; results are fresh.
    unsafe { cuda.lent_matrix(address, Shape::new(rows, cols), dtype) }
}

/// As `nn_spmm`, on a GPU and a stream of it.
#[pyfunction]
pub fn cuda_nn_spmm(
    py: Python<'_>,
    at: At,
    graph: Handle,
    transpose: bool,
    weights: Option<Tensor>,
    x: Tensor,
    out: Tensor,
) -> PyResult<()> {
    let transpose = if transpose { Transpose::Yes } else { Transpose::No };
    on_operand(py, (at, Dtype::F32), &graph, |cuda, a| {
        let weights = weights.map(|weights| lent(cuda, weights)).transpose()?;
        let (x, mut out) = (lent(cuda, x)?, lent(cuda, out)?);
        cuda.spmm((a, transpose), weights.as_deref(), &x, Epilogue::default(), &mut out)
    })
}

/// As `nn_sddmm`, on a GPU and a stream of it.
#[pyfunction]
pub fn cuda_nn_sddmm(py: Python<'_>, at: At, graph: Handle, x: Tensor, y: Tensor, out: Tensor) -> PyResult<()> {
    on_operand(py, (at, Dtype::F32), &graph, |cuda, a| {
        let (x, y, mut out) = (lent(cuda, x)?, lent(cuda, y)?, lent(cuda, out)?);
        cuda.sddmm(a, &x, &y, &mut out)
    })
}

/// Operands of an attention in memory of tensors.
fn operands(cuda: &Cuda, given: &Given<Tensor>) -> Result<Operands<LentMatrix>, ComputeError> {
    let (destination, source, vector, values) = *given;
    Ok(Operands {
        destination: lent(cuda, destination)?,
        source: lent(cuda, source)?,
        vector: vector.map(|vector| lent(cuda, vector)).transpose()?,
        values: lent(cuda, values)?,
    })
}

/// As `nn_attention`, on a GPU and a stream of it.
#[pyfunction]
pub fn cuda_nn_attention(
    py: Python<'_>,
    at: At,
    graph: Handle,
    options: Options,
    given: Given<Tensor>,
    results: (Tensor, Tensor),
) -> PyResult<()> {
    check_dropout(options)?;
    on_operand(py, (at, Dtype::F32), &graph, |cuda, a| {
        let operands = operands(cuda, &given)?;
        let (mut out, mut log_sums) = (lent(cuda, results.0)?, lent(cuda, results.1)?);
        cuda.attention(&operands.attention::<Cuda>(a, options), &mut out, &mut log_sums)
    })
}

/// As `nn_attention_backward`, on a GPU and a stream of it.
#[pyfunction]
pub fn cuda_nn_attention_backward(
    py: Python<'_>,
    at: At,
    graph: Handle,
    options: Options,
    given: Given<Tensor>,
    results: AllResults,
    grads: Given<Tensor>,
) -> PyResult<()> {
    check_dropout(options)?;
    on_operand(py, (at, Dtype::F32), &graph, |cuda, a| {
        let (read, mut grads) = (operands(cuda, &given)?, operands(cuda, &grads)?);
        let (out, log_sums, grad) = (lent(cuda, results.0)?, lent(cuda, results.1)?, lent(cuda, results.2)?);
        cuda.attention_backward(&read.attention::<Cuda>(a, options), (&out, &log_sums), &grad, grads.grads())
    })
}
