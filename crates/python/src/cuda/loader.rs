//! `CudaLoader` and `CudaEpoch`: batches that a GPU samples and gathers ahead of the step.
//!
//! ```text
//! thread    features that take time:  take i+1, request i+2, begin rows of i+1; finish rows of i
//!           else:                     take i, request i+1; rows of i
//!           then:                     operands of i for layers; hand i over
//! ```
//! A thread of the epoch makes batch `i+1` while the caller launches the step on batch `i`: launches take the host as long
//! as they take the GPU. What is requested or begun runs beside the step.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use girih_compute::{ComputeError, Shape};
use girih_graph_format::NodeId;
use girih_kernels::{BatchSampler, Cuda, SampledBatch};
use girih_sampling::{DrawKey, EpochPlan, LoaderOptions};
use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::batch::CudaBatch;
use super::features::{CudaFeatures, Gather, Held as HeldFeatures};
use super::graph::{CudaGraph, Held};
use super::guest::{OnGpu, of_compute, on_gpu};
use super::prepared::{Prepared, Wanted};
use crate::errors::{index_error, value_error};
use crate::loader::closed;
use crate::sampler::{Core, Sampler};
use crate::threads::{TICK, without_gil};

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
    /// Requests for what batches are to have.
    wanted: Arc<Wanted>,
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
        let (wanted, spare) = (Arc::default(), OnGpu::new(Mutex::default(), &graph.cuda));
        let source = Source { graph, core, seeds, options, features, wanted, spare };
        // What a GPU does not sample is told now.
        let neighbors = source.core.neighbors().map_err(value_error)?;
        let made = on_gpu(py, &source.graph.cuda, || source.graph.sampler(neighbors, source.batch_size()))?;
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
        let work = on_gpu(py, &source.graph.cuda, || Work::begin(source, number, first))?;
        let plan = Arc::clone(&work.plan);
        let feeder = Mutex::new(Some(Feeder::start(work)?));
        let (is_closed, process) = (AtomicBool::new(false), std::process::id());
        Ok(CudaEpoch { feeder, is_closed, source: Arc::clone(source), plan, process, first })
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
    plan: Arc<EpochPlan>,
    epoch: u32,
    /// Next batch to take from the sampler, which was asked for it.
    next: usize,
    source: Arc<Source>,
}

impl Work {
    fn begin(source: &Arc<Source>, epoch: u32, first: usize) -> Result<Self, ComputeError> {
        let plan = Arc::new(EpochPlan::new(source.seeds.clone(), source.options, epoch));
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
        let (n_seeds, form, graph) = (self.plan.seeds(number).len(), self.source.core.form(), &self.source.graph);
        let prepared = Prepared::of(&self.source.wanted, &batch, graph, form)?;
        Ok(Some(CudaBatch::new(batch, graph, x, prepared, form, (n_seeds, number))))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.ahead = None;
        self.source.spare().extend(self.sampler.take());
    }
}

/// A batch; none after the last one.
type NextBatch = Result<Option<CudaBatch>, ComputeError>;

/// Thread that makes the batches of an epoch, one ahead of the caller.
struct Feeder {
    batches: Receiver<NextBatch>,
    thread: JoinHandle<()>,
}

impl Feeder {
    fn start(work: Work) -> PyResult<Self> {
        let (sender, batches) = sync_channel(0);
        let cuda = Arc::clone(&work.source.graph.cuda);
        let work = OnGpu::new(Mutex::new(work), &cuda);
        let feed = move || feed(&work, &cuda, &sender);
        let thread = std::thread::Builder::new().name("girih-batches".to_owned()).spawn(feed);
        let refused = |error| PyRuntimeError::new_err(format!("the system refuses a thread: {error}"));
        Ok(Self { batches, thread: thread.map_err(refused)? })
    }

    /// Drops the batch that waits, and waits for the end of the thread.
    fn end(self) {
        drop(self.batches);
        // What it panicked with was told to the caller as a lost batch.
        let _ = self.thread.join();
    }
}

/// Hands batches over, until there are no more, or nobody takes them.
fn feed(work: &OnGpu<Mutex<Work>>, cuda: &Cuda, taker: &SyncSender<NextBatch>) {
    let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let made = cuda.with_context(|| work.next());
        let is_last = !matches!(made, Ok(Some(_)));
        if taker.send(made).is_err() || is_last {
            return;
        }
    }
}

/// Batches of one epoch, in order.
#[pyclass(frozen, module = "girih._girih")]
pub struct CudaEpoch {
    /// `None` after the end.
    feeder: Mutex<Option<Feeder>>,
    is_closed: AtomicBool,
    source: Arc<Source>,
    plan: Arc<EpochPlan>,
    process: u32,
    first: usize,
}

impl CudaEpoch {
    /// Ends the epoch, and returns whether it had not ended already.
    fn end(&self) -> bool {
        let feeder = self.feeder.lock().unwrap_or_else(PoisonError::into_inner).take();
        feeder.map(Feeder::end).is_some()
    }

    /// The next batch; `None` if none came within a while.
    fn poll(&self) -> Option<Result<NextBatch, RecvTimeoutError>> {
        let feeder = self.feeder.lock().unwrap_or_else(PoisonError::into_inner);
        match feeder.as_ref().map_or(Ok(Ok(None)), |feeder| feeder.batches.recv_timeout(TICK)) {
            Ok(made) => Some(Ok(made)),
            Err(RecvTimeoutError::Timeout) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl Drop for CudaEpoch {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            self.end();
        } else {
            // After a fork there is no such thread here.
            let feeder = self.feeder.get_mut().unwrap_or_else(PoisonError::into_inner).take();
            std::mem::forget(feeder);
        }
    }
}

#[pymethods]
impl CudaEpoch {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __len__(&self) -> usize {
        self.source.n_batches() - self.first
    }

    /// Seeds of the batches, in their order.
    fn seeds<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        let seeds = (self.first..self.source.n_batches()).flat_map(|batch| self.plan.seeds(batch));
        seeds.map(|&seed| i64::from(seed)).collect::<Vec<_>>().into_pyarray(py)
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<CudaBatch>> {
        if self.process != std::process::id() {
            return Err(value_error("this epoch was begun before a fork; CUDA does not survive one"));
        }
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(closed());
        }
        let made = loop {
            match without_gil(py, || self.poll())? {
                Some(made) => break made,
                None => py.check_signals()?,
            }
        };
        let lost = |_| PyRuntimeError::new_err("the thread that makes batches ended unexpectedly");
        let next = made.map_err(lost).and_then(|made| made.map_err(of_compute));
        if !matches!(next, Ok(Some(_))) {
            without_gil(py, || self.end())?;
        }
        next
    }

    /// Ends the epoch before its last batch; asking for another one is an error then.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let had_more = without_gil(py, || self.end())?;
        self.is_closed.fetch_or(had_more, Ordering::Relaxed);
        Ok(())
    }
}
