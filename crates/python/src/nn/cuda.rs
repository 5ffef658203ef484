//! Products, layers and attention on GPUs, in memory of the caller's tensors.

use girih_compute::prelude::*;
use girih_compute::{Activation, ComputeError, Dtype, Epilogue, Shape, Transpose};
use girih_kernels::{Cuda, CudaMatrix, CudaSparse, LentMatrix};
use pyo3::prelude::*;

use super::adjacency::{self, Edges};
use super::kind::Kind;
use super::operators::{Given, Handle, Operands, Options, check_dropout};
use super::uploaded::refused;
use crate::cuda::guest::{At, guest_storing, on_gpu};
use crate::errors::value_error;

/// Tensor on a GPU: address, rows, columns, and whether elements are `bfloat16` instead of `float32`. Rows begin as
/// those of [`Cuda::lent_matrix`] do.
type Tensor = (u64, usize, usize, bool);
/// Whether the weight of a layer comes first, and whether a ReLU follows.
type How = (bool, bool);
/// Weight of a layer, bias, and weight of the destinations.
type Parameters = (Tensor, Option<Tensor>, Option<Tensor>);
/// Sums `A·x` and result of a layer.
type LayerResults = (Option<Tensor>, Tensor);
/// Operands of the backward pass of a layer: x, sums `A·x`, weight, and weight of the destinations.
type LayerOperands = (Tensor, Option<Tensor>, Tensor, Option<Tensor>);
/// Gradients of x, weight, bias and weight of the destinations.
type LayerGrads = (Option<Tensor>, Option<Tensor>, Option<Tensor>, Option<Tensor>);

/// Results of an attention, and the gradient of the first of them.
type AllResults = (Tensor, Tensor, Tensor);

/// Runs `work` on a device, which stores as `dtype`, and the operand of a kind there, without the GIL.
fn on_operand(
    py: Python<'_>,
    (at, dtype): (At, Dtype),
    (number, kind): &Handle,
    work: impl FnOnce(&Cuda, &CudaSparse) -> Result<(), ComputeError> + Send,
) -> PyResult<()> {
    let (found, kind) = (adjacency::find(*number)?, kind.parse::<Kind>().map_err(value_error)?);
    let cuda = guest_storing(py, at, dtype)?;
    on_gpu(py, || {
        let operand = match &*found {
            Edges::OnHost(operands) => {
                operands.on_gpus.get((kind, at), || operands.upload(&*cuda, kind).map_err(refused))
            }
            Edges::OnGpu(block) => block.operand(&cuda, at, kind),
        }?;
        work(&cuda, &operand)
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

fn lent_if(cuda: &Cuda, tensor: Option<Tensor>) -> Result<Option<LentMatrix>, ComputeError> {
    tensor.map(|tensor| lent(cuda, tensor)).transpose()
}

/// The first rows of a tensor.
fn first_rows(cuda: &Cuda, (address, _, cols, is_bf16): Tensor, rows: usize) -> Result<LentMatrix, ComputeError> {
    lent(cuda, (address, rows, cols, is_bf16))
}

const NO: Transpose = Transpose::No;
const YES: Transpose = Transpose::Yes;

/// Epilogue that adds to the result.
fn adding<'a>(accumulate: bool) -> Epilogue<'a, CudaMatrix> {
    Epilogue { accumulate, ..Epilogue::default() }
}

/// Layer: `out = activation(A·x·Wᵀ + b + x[:rows]·Vᵀ)` for the operand `A` of a graph, on a GPU and a stream of it.
///
/// `how` says whether W comes first, and whether the activation is a ReLU. `parameters` are W (`d × k`), b (`1 × d`) and V
/// (`d × k`); `results` are `A·x`, unless W comes first, and `out`.
#[pyfunction]
pub fn cuda_nn_layer(
    py: Python<'_>,
    at: At,
    graph: Handle,
    how: How,
    x: Tensor,
    parameters: Parameters,
    results: LayerResults,
) -> PyResult<()> {
    on_operand(py, (at, dtype_of(x)), &graph, |cuda, a| {
        let (weight, bias) = (lent(cuda, parameters.0)?, lent_if(cuda, parameters.1)?);
        let (own, mut out) = (lent_if(cuda, parameters.2)?, lent(cuda, results.1)?);
        let (destinations, x) = (first_rows(cuda, x, results.1.1)?, lent(cuda, x)?);
        let activation = if how.1 { Activation::Relu } else { Activation::Identity };
        let last = |accumulate| Epilogue { accumulate, bias: bias.as_deref(), activation, ..Epilogue::default() };
        if how.0 {
            let mut product = cuda.uninitialized(Shape::new(x.shape().rows, out.shape().cols), x.dtype())?;
            cuda.gemm((&x, NO), None, (&weight, YES), adding(false), &mut product)?;
            if let Some(own) = &own {
                cuda.gemm((&destinations, NO), None, (own, YES), adding(false), &mut out)?;
            }
            return cuda.spmm((a, NO), None, &product, last(own.is_some()), &mut out);
        }
        let sums = results.0.ok_or_else(|| refused("A·x has no place".to_owned()))?;
        let mut sums = lent(cuda, sums)?;
        cuda.spmm((a, NO), None, &x, adding(false), &mut sums)?;
        let Some(own) = &own else { return cuda.gemm((&sums, NO), None, (&weight, YES), last(false), &mut out) };
        cuda.gemm((&sums, NO), None, (&weight, YES), adding(false), &mut out)?;
        cuda.gemm((&destinations, NO), None, (own, YES), last(true), &mut out)
    })
}

/// Gradients of a layer without its activation. `read` are x, `A·x` unless W came first, W and V; `grads` are places for
/// the gradients of x, W, b and V, where they are wanted.
#[pyfunction]
pub fn cuda_nn_layer_backward(
    py: Python<'_>,
    at: At,
    graph: Handle,
    read: LayerOperands,
    grad: Tensor,
    grads: LayerGrads,
) -> PyResult<()> {
    on_operand(py, (at, dtype_of(read.0)), &graph, |cuda, a| {
        let (sums, weight, own) = (lent_if(cuda, read.1)?, lent(cuda, read.2)?, lent_if(cuda, read.3)?);
        let (destinations, x) = (first_rows(cuda, read.0, grad.1)?, lent(cuda, read.0)?);
        let (grad, mut of_x, mut of_weight) = (lent(cuda, grad)?, lent_if(cuda, grads.0)?, lent_if(cuda, grads.1)?);
        if let Some(mut of_bias) = lent_if(cuda, grads.2)? {
            cuda.column_sums(&grad, &mut of_bias)?;
        }
        if let Some(mut of_own) = lent_if(cuda, grads.3)? {
            cuda.gemm((&grad, YES), None, (&destinations, NO), adding(false), &mut of_own)?;
        }
        if let Some(sums) = &sums {
            if let Some(of_weight) = &mut of_weight {
                cuda.gemm((&grad, YES), None, (sums, NO), adding(false), of_weight)?;
            }
            if let Some(of_x) = &mut of_x {
                let mut of_sums = cuda.uninitialized(sums.shape(), sums.dtype())?;
                cuda.gemm((&grad, NO), None, (&weight, NO), adding(false), &mut of_sums)?;
                cuda.spmm((a, YES), None, &of_sums, adding(false), of_x)?;
            }
        } else if of_x.is_some() || of_weight.is_some() {
            let mut of_product = cuda.uninitialized(Shape::new(x.shape().rows, grad.shape().cols), x.dtype())?;
            cuda.spmm((a, YES), None, &grad, adding(false), &mut of_product)?;
            if let Some(of_weight) = &mut of_weight {
                cuda.gemm((&of_product, YES), None, (&x, NO), adding(false), of_weight)?;
            }
            if let Some(of_x) = &mut of_x {
                cuda.gemm((&of_product, NO), None, (&weight, NO), adding(false), of_x)?;
            }
        }
        let (Some(own), Some(_), Some(of_x)) = (&own, &of_x, grads.0) else { return Ok(()) };
        let mut of_destinations = first_rows(cuda, of_x, grad.shape().rows)?;
        cuda.gemm((&grad, NO), None, (own, NO), adding(true), &mut of_destinations)
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
