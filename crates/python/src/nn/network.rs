//! `nn_forward` and `nn_backward`: all layers of a model in one call, on the CPU or on a GPU, in memory of tensors.

use std::sync::Arc;

use girih_compute::{Activation, ComputeError, Cpu, Dropout, Dtype};
use girih_random::{Key, purpose};
use numpy::PyArray1;
use pyo3::intern;
use pyo3::prelude::*;

use super::adjacency::{self, Edges};
#[cfg(feature = "cuda")]
use super::cuda::{operand as operand_on_gpu, with_operands_on};
use super::kind::Kind;
use super::layers::{self, Grads, Layer, Pass};
use super::operators::{CPU, Handle};
use super::registry::{Numbered, Registry};
use super::tensors::{Held, OnTensors, Tensor};
#[cfg(feature = "cuda")]
use crate::cuda::release::Release;
use crate::errors::value_error;
use crate::threads::on_pool;

/// Weight of a layer, bias, and weight of the destinations; or their gradients, where they are wanted.
type Parameters<T> = (T, Option<Tensor>, Option<Tensor>);
/// Whether the weight comes first, whether a ReLU follows, and probability and key of the dropout behind it.
type How = (bool, bool, f32, i64);
/// Operand of a layer, unless it is linear; its parameters, and how they are used.
type GivenLayer = (Option<Handle>, Parameters<Tensor>, How);

/// Graph of a layer, unless it is linear, and the matrix of it that the layer multiplies by.
pub type Graph = Option<(Arc<Edges>, Kind)>;

/// Forward pass, and the tensors that it was given.
struct Kept<B: OnTensors> {
    pass: Pass<B>,
    /// Addresses of the tensors that the layers may lie in: those of x and of the parameters, and of the result if the
    /// backward pass reads it.
    tensors: Vec<u64>,
}

/// Passes of the backends.
enum Passes {
    OnCpu(Kept<Cpu>),
    #[cfg(feature = "cuda")]
    OnGpu(crate::cuda::guest::At, Dtype, Release<Arc<Kept<girih_kernels::Cuda>>>),
}

static LIVE: Registry<Passes> = Registry::new();

/// Forward pass that a backward pass may follow. Its number travels as a tensor over memory of this object.
#[pyclass(frozen, module = "girih._girih")]
pub struct ForwardPass(Numbered<Passes>);

#[pymethods]
impl ForwardPass {
    /// Number of the pass, in memory of this object: one `int64`.
    #[getter]
    fn handle<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyArray1<i64>> {
        // SAFETY: the number belongs to the object, which is frozen.
        unsafe { slf.get().0.handle(slf) }
    }
}

fn addresses(x: &Tensor, out: &Tensor, layers: &[GivenLayer]) -> Vec<u64> {
    let of_layer = |(_, (weight, bias, own), _): &GivenLayer| [Some(*weight), *bias, *own];
    let reads_out = layers.last().is_some_and(|(_, _, (_, is_relu, ..))| *is_relu);
    let tensors = [Some(*x)].into_iter().chain(layers.iter().flat_map(of_layer)).chain([reads_out.then_some(*out)]);
    tensors.flatten().map(|tensor| tensor.address).collect()
}

impl<B: OnTensors> Layer<B> {
    fn of(
        backend: &B,
        a: Option<Arc<B::Sparse>>,
        (weight, bias, own): &Parameters<Tensor>,
        (weight_first, is_relu, p, key): How,
        dtype: Dtype,
    ) -> Result<Self, ComputeError> {
        let read = |tensor: &Tensor| Held::read(backend, tensor, dtype);
        let mask = || Dropout::new(p, Key::new(key.cast_unsigned(), purpose::DROPOUT));
        Ok(Self {
            a,
            weight: read(weight)?,
            bias: bias.as_ref().map(read).transpose()?,
            own: own.as_ref().map(read).transpose()?,
            weight_first,
            activation: if is_relu { Activation::Relu } else { Activation::Identity },
            dropout: (p > 0.0).then(mask),
        })
    }
}

/// Runs layers on `x` into `out`; the result is what the backward pass reads, if it is to be kept.
fn run<B: OnTensors>(
    backend: &B,
    operands: Vec<Option<Arc<B::Sparse>>>,
    given: &[GivenLayer],
    (x, out): (&Tensor, &Tensor),
    keeps: bool,
) -> Result<Option<Kept<B>>, ComputeError> {
    let made = operands.into_iter().zip(given);
    let layers: Vec<Layer<B>> = made
        .map(|(a, (_, parameters, how))| Layer::of(backend, a, parameters, *how, x.dtype))
        .collect::<Result<_, _>>()?;
    let tensors = addresses(x, out, given);
    let (rows, mut held) = (Held::read(backend, x, x.dtype)?, Held::place(backend, out)?);
    let passed = layers::forward(backend, &layers, &rows, &mut held, keeps)?;
    held.deliver(backend, out)?;
    Ok(keeps.then(|| Kept { pass: Pass { layers, x: rows, out: held, passed }, tensors }))
}

/// Runs layers backward from the gradient of their result.
fn run_back<B: OnTensors>(
    backend: &B,
    pass: &Pass<B>,
    grad: &Tensor,
    (of_x, given): (Option<&Tensor>, &[Parameters<Option<Tensor>>]),
) -> Result<(), ComputeError> {
    let place = |tensor: Option<&Tensor>| tensor.map(|tensor| Held::place(backend, tensor)).transpose();
    let places = |(weight, bias, own): &Parameters<Option<Tensor>>| {
        Ok(Grads { weight: place(weight.as_ref())?, bias: place(bias.as_ref())?, own: place(own.as_ref())? })
    };
    let mut grads: Vec<Grads<B>> = given.iter().map(places).collect::<Result<_, ComputeError>>()?;
    let (mut of_rows, grad) = (place(of_x)?, Held::read(backend, grad, grad.dtype)?);
    layers::backward(backend, pass, &grad, &mut grads, of_rows.as_deref_mut())?;
    let deliver = |held: &Option<Held<B>>, tensor: Option<&Tensor>| {
        held.as_ref().zip(tensor).map_or(Ok(()), |(held, tensor)| held.deliver(backend, tensor))
    };
    deliver(&of_rows, of_x)?;
    for (Grads { weight, bias, own }, (of_weight, of_bias, of_own)) in grads.iter().zip(given) {
        deliver(weight, of_weight.as_ref())?;
        deliver(bias, of_bias.as_ref())?;
        deliver(own, of_own.as_ref())?;
    }
    Ok(())
}

fn graph_of(handle: Option<&Handle>) -> PyResult<Graph> {
    let found = |(number, kind): &Handle| Ok((adjacency::find(*number)?, kind.parse().map_err(value_error)?));
    handle.map(found).transpose()
}

fn operand_on_cpu(graph: &Graph) -> Result<Option<Arc<<Cpu as girih_compute::Memory>::Sparse>>, ComputeError> {
    let refused = |what: String| ComputeError::argument("girih.nn", what);
    let Some((edges, kind)) = graph else { return Ok(None) };
    let operands = edges.on_host().map_err(|what| refused(what.to_owned()))?;
    operands.of(&CPU, *kind).map(Some).map_err(refused)
}

/// Device of PyTorch: a GPU and a stream of it, or the CPU.
#[cfg(feature = "cuda")]
type Place = Option<crate::cuda::guest::At>;
#[cfg(not(feature = "cuda"))]
type Place = Option<(usize, u64)>;

/// Layers of a model, one after the other, from `x` into `out`. If `keeps`, the result is what [`nn_backward`] reads.
///
/// Tensors lie on the device, and have rows whose elements follow each other. A layer is: number and kind of its
/// operand, or None where it is linear; weight, bias and weight of the destinations; whether the weight comes first, whether a
/// ReLU follows, and probability and key of the dropout behind that.
#[pyfunction]
pub fn nn_forward(
    py: Python<'_>,
    at: Place,
    x: Tensor,
    layers: Vec<GivenLayer>,
    out: Tensor,
    keeps: bool,
) -> PyResult<Option<ForwardPass>> {
    let graphs: Vec<Graph> = layers.iter().map(|(handle, ..)| graph_of(handle.as_ref())).collect::<PyResult<_>>()?;
    let kept = match at {
        None => {
            let run =
                || run(&*CPU, graphs.iter().map(operand_on_cpu).collect::<Result<_, _>>()?, &layers, (&x, &out), keeps);
            on_pool(py, run)?.map_err(value_error)?.map(Passes::OnCpu)
        }
        #[cfg(feature = "cuda")]
        Some(at) => {
            let run = |cuda: &Arc<girih_kernels::Cuda>| {
                let operands = graphs.iter().map(|graph| operand_on_gpu(cuda, at, graph)).collect::<Result<_, _>>()?;
                let kept = run(&**cuda, operands, &layers, (&x, &out), keeps)?;
                Ok(kept.map(|pass| Release::new(Arc::new(pass), cuda)))
            };
            let kept = with_operands_on(py, (at, x.dtype), run)?;
            kept.map(|pass| Passes::OnGpu(at, x.dtype, pass))
        }
        #[cfg(not(feature = "cuda"))]
        Some(_) => return Err(value_error("this build of girih has no CUDA")),
    };
    Ok(kept.map(|passes| ForwardPass(LIVE.insert(passes))))
}

/// Gradients of x and of the parameters of each layer, into the tensors that are given, from that of the result. `tensors`
/// are x, the parameters and, where a ReLU comes last, the result of the forward pass.
#[pyfunction]
pub fn nn_backward(
    py: Python<'_>,
    number: i64,
    tensors: Vec<Option<Bound<'_, PyAny>>>,
    grad: Tensor,
    of_x: Option<Tensor>,
    grads: Vec<Parameters<Option<Tensor>>>,
) -> PyResult<()> {
    let gone = || value_error("the forward pass is gone; call backward() before its graph is freed");
    let found = LIVE.find(number).ok_or_else(gone)?;
    let address = |tensor: &Bound<'_, PyAny>| tensor.call_method0(intern!(py, "data_ptr"))?.extract::<u64>();
    let now = tensors.iter().flatten().map(address).collect::<PyResult<Vec<u64>>>()?;
    let check = |then: &[u64]| {
        if then == now {
            Ok(())
        } else {
            Err(value_error("x or a parameter has other memory than in the forward pass"))
        }
    };
    let wanted = (of_x.as_ref(), &grads[..]);
    match &*found {
        Passes::OnCpu(kept) => {
            check(&kept.tensors)?;
            on_pool(py, || run_back(&*CPU, &kept.pass, &grad, wanted))?.map_err(value_error)
        }
        #[cfg(feature = "cuda")]
        Passes::OnGpu(at, dtype, kept) => {
            check(&kept.tensors)?;
            with_operands_on(py, (*at, *dtype), |cuda| run_back(&**cuda, &kept.pass, &grad, wanted))
        }
    }
}
