//! `CudaLoader` and `CudaEpoch`: batches that a GPU samples and gathers ahead of the step.
//!
//! ```text
//! next(i)   features that take time:  take i+1, request i+2, begin rows of i+1; finish rows of i
//!           else:                     take i, request i+1; rows of i
//! ```
//! What is requested or begun runs beside the step on the batch that `next` returns.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use girih_compute::{ComputeError, Shape};
use girih_graph_format::NodeId;
use girih_kernels::{BatchSampler, SampledBatch};
use girih_sampling::{DrawKey, EpochPlan, LoaderOptions};
use pyo3::prelude::*;

use super::batch::CudaBatch;
use super::features::{CudaFeatures, Gather, Held as HeldFeatures};
use super::graph::{CudaGraph, Held};
use super::guest::{OnGpu, on_gpu};
use crate::errors::{index_error, value_error};
use crate::loader::closed;
use crate::sampler::{Core, Sampler};

/// Batches of an epoch after the other on a GPU; each `iter()` is the next epoch.
#[pyclass(frozen, module = "girih._girih")]
pub struct CudaLoader {
    source: Arc<Source>,
    epoch: AtomicU32,
}

/// Maker of any batch of any epoch.
struct Source {
    graph: Arc<Held>,
    core: Arc<Core>,
    seeds: Vec<NodeId>,
    options: LoaderOptions,
    features: Option<Arc<HeldFeatures>>,
    /// Samplers that no epoch uses; making one takes long.
    spare: OnGpu<Mutex<Vec<BatchSampler>>>,
}

impl Source {
    fn n_batches(&self) -> usize {
        let (n, size) = (self.seeds.len(), self.options.batch_size);
        if self.options.drop_last { n / size } else { n.div_ceil(size) }
    }

    /// Largest number of seeds of a batch.
    fn batch_size(&self) -> usize {
        self.options.batch_size.min(self.seeds.len()).max(1)
    }

    fn spare(&self) -> std::sync::MutexGuard<'_, Vec<BatchSampler>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Positional options of a loader: batch_size, shuffle, drop_last, seed.
type Order = (usize, bool, bool, u64);

#[pymethods]
impl CudaLoader {
    /// Batches of `seeds` by a sampler of neighbors on a graph of the GPU.
    #[new]
    fn new(
        py: Python<'_>,
        graph: &Bound<'_, CudaGraph>,
        sampler: &Bound<'_, Sampler>,
        seeds: &Bound<'_, PyAny>,
        order: Order,
        features: Option<&Bound<'_, CudaFeatures>>,
    ) -> PyResult<Self> {
        let (batch_size, shuffle, drop_last, seed) = order;
        if batch_size == 0 {
            return Err(value_error("batch_size is 0; give at least 1"));
        }
        let (core, graph) = (Arc::clone(&sampler.get().core), Arc::clone(&graph.get().held));
        if (core.csr.n_rows(), core.csr.nnz()) != (graph.csr.n_rows(), graph.csr.nnz()) {
            return Err(value_error("the sampler was made for another graph than the one on the GPU"));
        }
        let features = features.map(|features| Arc::clone(&features.get().held));
        if let Some(features) = &features {
            check_features(features, &graph)?;
        }
        let seeds = sampler.get().seeds("seed", Some(seeds))?;
        let options = LoaderOptions { batch_size, shuffle, drop_last, seed };
        let source = Source { graph, core, seeds, options, features, spare: OnGpu::new(Mutex::default()) };
        // What a GPU does not sample is told now.
        let neighbors = source.core.neighbors().map_err(value_error)?;
        let made = on_gpu(py, || source.graph.sampler(neighbors, source.batch_size()))?;
        source.spare().push(made);
        Ok(Self { source: Arc::new(source), epoch: AtomicU32::new(0) })
    }

    fn __len__(&self) -> usize {
        self.source.n_batches()
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<CudaEpoch> {
        self.epoch(py, self.epoch.fetch_add(1, Ordering::Relaxed), 0)
    }

    /// Batches of an epoch by its number, from batch `first` on.
    #[pyo3(signature = (number, *, first = 0))]
    fn epoch(&self, py: Python<'_>, number: u32, first: usize) -> PyResult<CudaEpoch> {
        let source = &self.source;
        if first > source.n_batches() {
            return Err(index_error(format!("batch {first} of an epoch of {}", source.n_batches())));
        }
        let begin = || Work::begin(source, number, first);
        let work = on_gpu(py, begin)?;
        let work = OnGpu::new(Mutex::new(Some(work)));
        let (is_closed, process) = (AtomicBool::new(false), std::process::id());
        Ok(CudaEpoch { work, is_closed, source: Arc::clone(source), process, first })
    }
}

fn check_features(features: &HeldFeatures, graph: &Held) -> PyResult<()> {
    if features.n_rows != graph.csr.n_rows() {
        return Err(value_error(format!(
            "features of {} rows for a graph of {} nodes",
            features.n_rows,
            graph.csr.n_rows()
        )));
    }
    if features.at == graph.at {
        return Ok(());
    }
    Err(value_error(format!(
        "features were made on cuda:{} and stream {:#x}, the graph on cuda:{} and stream {:#x}; make both under one \
         torch.cuda.stream",
        features.at.0, features.at.1, graph.at.0, graph.at.1
    )))
}

/// Batch whose rows are on their way.
struct Ahead {
    /// Before the batch, whose ids it reads.
    gather: Option<Gather>,
    batch: SampledBatch,
    number: usize,
}

/// Epoch under way.
struct Work {
    ahead: Option<Ahead>,
    sampler: Option<BatchSampler>,
    plan: EpochPlan,
    epoch: u32,
    /// Next batch to take from the sampler, which was asked for it.
    next: usize,
    source: Arc<Source>,
}

impl Work {
    fn begin(source: &Arc<Source>, epoch: u32, first: usize) -> Result<Self, ComputeError> {
        let plan = EpochPlan::new(source.seeds.clone(), source.options, epoch);
        let spare = source.spare().pop();
        let made = || source.graph.sampler(source.core.neighbors()?, source.batch_size());
        let sampler = Some(spare.map_or_else(made, Ok)?);
        let mut work = Self { ahead: None, sampler, plan, epoch, next: first, source: Arc::clone(source) };
        work.request()?;
        Ok(work)
    }

    /// Asks for the next batch, if there is one.
    fn request(&mut self) -> Result<(), ComputeError> {
        if self.next == self.source.n_batches() {
            return Ok(());
        }
        let key = DrawKey::new(self.source.options.seed, self.epoch, self.next as u32);
        let sampler = self.sampler.as_mut().expect("a sampler until the end");
        sampler.request(self.plan.seeds(self.next), key)
    }

    /// Takes the next batch, asks for the one after it, and begins to gather the rows of the taken one.
    fn advance(&mut self) -> Result<Option<Ahead>, ComputeError> {
        if self.next == self.source.n_batches() {
            return Ok(None);
        }
        let (number, sampler) = (self.next, self.sampler.as_mut().expect("a sampler until the end"));
        let batch = sampler.take()?;
        self.next += 1;
        self.request()?;
        let n_nodes = batch.nodes_by_hop().iter().sum();
        let begin = |features: &Arc<HeldFeatures>| features.begin(batch.nodes(), n_nodes);
        let gather = self.source.features.as_ref().map(begin).transpose()?;
        Ok(Some(Ahead { gather, batch, number }))
    }

    fn next(&mut self) -> Result<Option<CudaBatch>, ComputeError> {
        let overlaps = self.source.features.as_ref().is_some_and(|features| features.overlaps());
        let Some(taken) = self.ahead.take().map_or_else(|| self.advance(), |ahead| Ok(Some(ahead)))? else {
            return Ok(None);
        };
        if overlaps {
            self.ahead = self.advance()?;
        }
        let Ahead { gather, batch, number } = taken;
        let rows = gather.map(Gather::finish).transpose()?;
        let n_nodes = batch.nodes_by_hop().iter().sum();
        let x = rows.zip(self.source.features.as_ref());
        let x = x.map(|(rows, features)| (rows, Shape::new(n_nodes, features.width), features.dtype));
        let n_seeds = self.plan.seeds(number).len();
        Ok(Some(CudaBatch::new(batch, &self.source.graph, x, self.source.core.form(), (n_seeds, number))))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.ahead = None;
        self.source.spare().extend(self.sampler.take());
    }
}

/// Batches of one epoch, in order.
#[pyclass(frozen, module = "girih._girih")]
pub struct CudaEpoch {
    /// `None` after the end.
    work: OnGpu<Mutex<Option<Work>>>,
    is_closed: AtomicBool,
    source: Arc<Source>,
    process: u32,
    first: usize,
}

#[pymethods]
impl CudaEpoch {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __len__(&self) -> usize {
        self.source.n_batches() - self.first
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<CudaBatch>> {
        if self.process != std::process::id() {
            return Err(value_error("this epoch was begun before a fork; CUDA does not survive one"));
        }
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(closed());
        }
        on_gpu(py, || {
            let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
            let next = work.as_mut().map_or(Ok(None), Work::next);
            if !matches!(next, Ok(Some(_))) {
                *work = None;
            }
            next
        })
    }

    /// Ends the epoch before its last batch; asking for another one is an error then.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        on_gpu(py, || {
            let ended = self.work.lock().unwrap_or_else(PoisonError::into_inner).take();
            self.is_closed.fetch_or(ended.is_some(), Ordering::Relaxed);
            Ok(())
        })
    }
}
