//! Products and attention on GPUs, in memory of the caller's tensors, and operands there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use girih_compute::prelude::*;
use girih_compute::{ComputeError, Dtype, Epilogue, Shape, Transpose};
use girih_kernels::{Cuda, CudaSparse, LentMatrix, SampledBatch, Scaling};
use pyo3::prelude::*;

use super::adjacency::{self, Edges, sorted_rows};
use super::operand::{Kind, Operands as OnHost, Whole};
use super::operators::{Given, Handle, Operands, Options, check_dropout};
use crate::cuda::batch::CudaBlock;
use crate::cuda::graph::Held;
use crate::cuda::guest::{At, OnGpu, guest, on_gpu};
use crate::errors::value_error;

/// Tensor on a GPU: address, rows, columns, and whether elements are `bfloat16` instead of `float32`. Rows begin as
/// those of [`Cuda::lent_matrix`] do.
type Tensor = (u64, usize, usize, bool);

type Operand = OnGpu<Arc<CudaSparse>>;

/// Operands on GPUs, made when they are first asked for, by kind, GPU and stream.
#[derive(Default)]
pub struct Uploaded(Mutex<HashMap<(Kind, At), Operand>>);

impl Uploaded {
    fn get(
        &self,
        key: (Kind, At),
        make: impl FnOnce() -> Result<CudaSparse, ComputeError>,
    ) -> Result<Arc<CudaSparse>, ComputeError> {
        let uploaded = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = uploaded().get(&key) {
            return Ok(Arc::clone(found));
        }
        // Made outside the lock: it may run on all threads.
        let made = OnGpu::new(Arc::new(make()?));
        Ok(Arc::clone(uploaded().entry(key).or_insert(made)))
    }
}

fn refused(what: String) -> ComputeError {
    ComputeError::argument("girih.nn", what)
}

/// Block of a batch on a GPU, and the operands that were made of it.
pub struct BlockOperands {
    batch: OnGpu<Arc<SampledBatch>>,
    graph: Arc<Held>,
    hop: usize,
    /// Whether an edge may be drawn repeatedly.
    has_repeats: bool,
    made: Uploaded,
    /// Edges on the host, for operands that the GPU does not make.
    on_host: OnceLock<Arc<OnHost>>,
}

impl BlockOperands {
    pub fn of(block: &CudaBlock) -> Self {
        let batch = block.batch.get();
        Self {
            batch: batch.batch.clone(),
            graph: Arc::clone(&batch.graph),
            hop: block.hop,
            has_repeats: batch.form.has_repeats,
            made: Uploaded::default(),
            on_host: OnceLock::new(),
        }
    }

    /// Numbers of sources, of destinations and of edges.
    pub fn sizes(&self) -> (usize, usize, usize) {
        self.batch.block_sizes(self.hop)
    }

    /// Scaling and loops by which the GPU makes a kind; `None` if the host makes it.
    fn on_device(&self, kind: Kind) -> Option<(Scaling, bool)> {
        let of_kind = match kind {
            Kind::Sum | Kind::Weights => (Scaling::Ones, false),
            Kind::Mean => (Scaling::Mean, false),
            Kind::Pattern { loops } => (Scaling::Ones, loops),
            Kind::Gcn { loops, estimated: false, .. } => (Scaling::Sampled, loops),
            Kind::Gcn { loops, .. } if self.graph.csr.values().is_none() => (Scaling::Estimated, loops),
            Kind::Gcn { .. } => return None,
        };
        // A loop that the graph stores may be drawn, and counts as the node's own.
        let is_merged = self.has_repeats || of_kind.1 && self.graph.has_loops();
        (!is_merged).then_some(of_kind)
    }

    fn operand(&self, cuda: &Cuda, at: At, kind: Kind) -> Result<Arc<CudaSparse>, ComputeError> {
        self.made.get((kind, at), || match self.on_device(kind) {
            Some((scaling, loops)) => {
                if at != self.graph.at {
                    // SAFETY: both streams are of this process and live as long; PyTorch has one context a GPU.
                    unsafe { self.graph.cuda.let_wait(at.1) }?;
                }
                self.batch.operand(cuda, self.hop, scaling, loops)
            }
            None => self.on_host()?.upload(cuda, kind).map_err(refused),
        })
    }

    fn on_host(&self) -> Result<&Arc<OnHost>, ComputeError> {
        if let Some(operands) = self.on_host.get() {
            return Ok(operands);
        }
        let batch = self.batch.to_host(&self.graph.cuda)?;
        let block = &batch.blocks[batch.blocks.len() - 1 - self.hop];
        let operands = sorted_rows(block).map_err(|error| refused(error.to_string()))?;
        let graph = &self.graph.csr;
        let whole = graph.values().is_none().then(|| Whole { graph: graph.clone(), nodes: block.nodes.clone() });
        Ok(self.on_host.get_or_init(|| Arc::new(operands.of_block(whole))))
    }

    /// As [`OnHost::edges`], of the pattern that the GPU makes.
    pub fn edges(&self, loops: bool) -> Result<Vec<i64>, String> {
        let text = |error: ComputeError| error.to_string();
        if self.on_device(Kind::Pattern { loops }).is_none() {
            return girih_kernels::keeping_context(|| self.on_host().map_err(text)?.edges(loops));
        }
        let (_, n_rows, n_edges) = self.sizes();
        if !loops {
            return Ok((0..n_edges as i64).collect());
        }
        let batch = girih_kernels::keeping_context(|| self.batch.to_host(&self.graph.cuda)).map_err(text)?;
        let block = &batch.blocks[batch.blocks.len() - 1 - self.hop];
        let of_row = |row: usize| {
            let edges = block.indptr[row].cast_signed()..block.indptr[row + 1].cast_signed();
            edges.chain(std::iter::once((n_edges + row) as i64))
        };
        Ok((0..n_rows).flat_map(of_row).collect())
    }
}

/// Runs `work` on a device and the operand of a kind there, without the GIL.
fn on_operand(
    py: Python<'_>,
    at: At,
    (number, kind): (i64, &str),
    work: impl FnOnce(&Cuda, &CudaSparse) -> Result<(), ComputeError> + Send,
) -> PyResult<()> {
    let (found, kind) = (adjacency::find(number)?, kind.parse::<Kind>().map_err(value_error)?);
    let cuda = guest(py, at)?;
    on_gpu(py, || {
        let operand = match &*found {
            Edges::OnHost(operands) => {
                operands.on_gpus.get((kind, at), || operands.upload(&*cuda, kind).map_err(refused))
            }
            Edges::OnGpu(block) if block.graph.at.0 != at.0 => {
                Err(refused(format!("the block is on cuda:{}, and x on cuda:{}", block.graph.at.0, at.0)))
            }
            Edges::OnGpu(block) => block.operand(&cuda, at, kind),
        }?;
        work(&cuda, &operand)
    })
}

fn lent(cuda: &Cuda, (address, rows, cols, is_bf16): Tensor) -> Result<LentMatrix, ComputeError> {
    let dtype = if is_bf16 { Dtype::Bf16 } else { Dtype::F32 };
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
    on_operand(py, at, (graph.0, &graph.1), |cuda, a| {
        let weights = weights.map(|weights| lent(cuda, weights)).transpose()?;
        let (x, mut out) = (lent(cuda, x)?, lent(cuda, out)?);
        cuda.spmm((a, transpose), weights.as_deref(), &x, Epilogue::default(), &mut out)
    })
}

/// As `nn_sddmm`, on a GPU and a stream of it.
#[pyfunction]
pub fn cuda_nn_sddmm(py: Python<'_>, at: At, graph: Handle, x: Tensor, y: Tensor, out: Tensor) -> PyResult<()> {
    on_operand(py, at, (graph.0, &graph.1), |cuda, a| {
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
    on_operand(py, at, (graph.0, &graph.1), |cuda, a| {
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
    results: (Tensor, Tensor, Tensor),
    grads: Given<Tensor>,
) -> PyResult<()> {
    check_dropout(options)?;
    on_operand(py, at, (graph.0, &graph.1), |cuda, a| {
        let (read, mut grads) = (operands(cuda, &given)?, operands(cuda, &grads)?);
        let (out, log_sums, grad) = (lent(cuda, results.0)?, lent(cuda, results.1)?, lent(cuda, results.2)?);
        cuda.attention_backward(&read.attention::<Cuda>(a, options), (&out, &log_sums), &grad, grads.grads())
    })
}
