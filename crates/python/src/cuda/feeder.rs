//! [`Batches`]: batches that a thread samples and gathers ahead of the step.
//!
//! ```text
//! thread    features that take time:  take i+1, request i+2, begin rows of i+1; finish rows of i
//!           else:                     take i, request i+1; rows of i
//!           then:                     operands of i for layers; hand i over
//! ```
//! The thread makes batch `i+1` while the caller launches the step on batch `i`: launches take the host as long as they
//! take the GPU. What is requested or begun runs beside the step.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use girih_compute::{ComputeError, Shape};
use girih_graph_format::NodeId;
use girih_kernels::{BatchSampler, Cuda, SampledBatch};
use girih_sampling::DrawKey;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::batch::CudaBatch;
use super::features::{Gather, Held as HeldFeatures};
use super::graph::Held;
use super::guest::{OnGpu, of_compute, on_gpu};
use super::prepared::{Prepared, Wanted};
use crate::core::Core;
use crate::errors::value_error;
use crate::loader::closed;
use crate::threads::{TICK, without_gil};

/// Batch to make.
pub struct Planned {
    pub seeds: Vec<NodeId>,
    pub key: DrawKey,
    pub number: usize,
}

/// Batches to make, in order. The thread waits for the next one.
type Plan = Box<dyn Iterator<Item = Planned> + Send>;

/// Maker of any batch of a loader.
pub struct Source {
    pub graph: Arc<Held>,
    pub core: Arc<Core>,
    features: Option<Arc<HeldFeatures>>,
    /// Largest number of seeds of a batch.
    batch_size: usize,
    /// Requests for what batches are to have.
    wanted: Arc<Wanted>,
    /// Samplers that no epoch uses; making one takes long.
    spare: OnGpu<Mutex<Vec<BatchSampler>>>,
}

impl Source {
    /// Maker of batches of at most `batch_size` seeds. It refuses a sampler of what GPUs do not sample.
    pub fn new(
        py: Python<'_>,
        graph: Arc<Held>,
        core: Arc<Core>,
        features: Option<Arc<HeldFeatures>>,
        batch_size: usize,
    ) -> PyResult<Arc<Self>> {
        let (wanted, spare) = (Arc::default(), OnGpu::new(Mutex::default(), &graph.cuda));
        let source = Self { graph, core, features, batch_size, wanted, spare };
        let made = on_gpu(py, &source.graph.cuda, || source.sampler())?;
        source.spare().push(made);
        Ok(Arc::new(source))
    }

    fn sampler(&self) -> Result<BatchSampler, ComputeError> {
        self.graph.sampler(self.core.neighbors()?, self.batch_size)
    }

    fn spare(&self) -> MutexGuard<'_, Vec<BatchSampler>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Batch whose rows are on their way.
struct Ahead {
    /// Before the batch, whose ids it reads.
    gather: Option<Gather>,
    batch: SampledBatch,
    /// Number of seeds, and number of the batch.
    of_plan: (usize, usize),
}

/// Batches under way.
struct Work {
    ahead: Option<Ahead>,
    sampler: Option<BatchSampler>,
    plan: Plan,
    /// Number of seeds and number of the batch that the sampler was asked for.
    asked: Option<(usize, usize)>,
    source: Arc<Source>,
}

impl Work {
    fn new(source: &Arc<Source>, plan: Plan) -> Result<Self, ComputeError> {
        let spare = source.spare().pop();
        let sampler = Some(spare.map_or_else(|| source.sampler(), Ok)?);
        Ok(Self { ahead: None, sampler, plan, asked: None, source: Arc::clone(source) })
    }

    /// Asks for the next batch, if there is one.
    fn request(&mut self) -> Result<(), ComputeError> {
        let Some(Planned { seeds, key, number }) = self.plan.next() else { return Ok(()) };
        self.sampler.as_mut().expect("a sampler until the end").request(&seeds, key)?;
        self.asked = Some((seeds.len(), number));
        Ok(())
    }

    /// Takes the next batch, asks for the one after it, and begins to gather the rows of the taken one.
    fn advance(&mut self) -> Result<Option<Ahead>, ComputeError> {
        if self.asked.is_none() {
            // The first batch; none follows the last one.
            self.request()?;
        }
        let Some(of_plan) = self.asked.take() else { return Ok(None) };
        let batch = self.sampler.as_mut().expect("a sampler until the end").take()?;
        self.request()?;
        let n_nodes = batch.nodes_by_hop().iter().sum();
        let begin = |features: &Arc<HeldFeatures>| features.begin(batch.nodes(), n_nodes);
        let gather = self.source.features.as_ref().map(begin).transpose()?;
        Ok(Some(Ahead { gather, batch, of_plan }))
    }

    fn next(&mut self) -> Result<Option<CudaBatch>, ComputeError> {
        let overlaps = self.source.features.as_ref().is_some_and(|features| features.overlaps());
        let Some(taken) = self.ahead.take().map_or_else(|| self.advance(), |ahead| Ok(Some(ahead)))? else {
            return Ok(None);
        };
        if overlaps {
            self.ahead = self.advance()?;
        }
        let Ahead { gather, batch, of_plan } = taken;
        let rows = gather.map(Gather::finish).transpose()?;
        let n_nodes = batch.nodes_by_hop().iter().sum();
        let x = rows.zip(self.source.features.as_ref());
        let x = x.map(|(rows, features)| (rows, Shape::new(n_nodes, features.width), features.dtype));
        let (form, graph) = (self.source.core.form(), &self.source.graph);
        let prepared = Prepared::of(&self.source.wanted, &batch, graph, form)?;
        Ok(Some(CudaBatch::new(batch, graph, x, prepared, form, of_plan)))
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

/// Thread that makes batches, one ahead of the caller.
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

/// Batches of a plan, in order.
pub struct Batches {
    /// `None` after the end.
    feeder: Mutex<Option<Feeder>>,
    is_closed: AtomicBool,
    process: u32,
}

impl Batches {
    /// Starts to make the batches of a plan, on a thread that waits for each entry of it.
    pub fn start(
        py: Python<'_>,
        source: &Arc<Source>,
        plan: impl Iterator<Item = Planned> + Send + 'static,
    ) -> PyResult<Self> {
        let work = on_gpu(py, &source.graph.cuda, || Work::new(source, Box::new(plan.fuse())))?;
        let feeder = Mutex::new(Some(Feeder::start(work)?));
        Ok(Self { feeder, is_closed: AtomicBool::new(false), process: std::process::id() })
    }

    /// Whether this process is a child of the one that started the thread.
    pub fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Ends the thread, and returns whether it had not ended already.
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

    /// Waits for the next batch, with an eye on Ctrl-C.
    pub fn next(&self, py: Python<'_>) -> PyResult<Option<CudaBatch>> {
        if self.is_forked() {
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

    /// Ends before the last batch; asking for another one is an error then.
    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        let had_more = without_gil(py, || self.end())?;
        self.is_closed.fetch_or(had_more, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        if self.is_forked() {
            // There is no such thread here.
            let feeder = self.feeder.get_mut().unwrap_or_else(PoisonError::into_inner).take();
            std::mem::forget(feeder);
        } else {
            self.end();
        }
    }
}
