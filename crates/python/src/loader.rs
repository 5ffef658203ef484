//! `BatchLoader` and `Epoch`: batches of seeds, made ahead by threads that never take the GIL.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use girih_datasets::Features;
use girih_graph_format::NodeId;
use girih_pipeline::{Items, Pipeline, Stage, StageError};
use girih_sampling::{EpochPlan, ExcludedEdges, LoaderOptions, SampleError};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::Batch;
use crate::core::{Arrays, Core, Seeds};
use crate::errors::{index_error, of_sampling, type_error, value_error};
use crate::features::FeatureStore;
use crate::options::Options;
use crate::sampler::Sampler;
use crate::threads::{TICK, without_gil};
use crate::typed::{TypedSampler, TypedSource};

/// Batches of an epoch after the other; each `iter()` is the next epoch.
#[pyclass(frozen, module = "girih")]
pub struct BatchLoader {
    source: Arc<dyn Source>,
    threads: usize,
    epoch: AtomicU32,
}

/// Maker of any batch of any epoch, on any thread.
pub trait Source: Send + Sync {
    /// Number of batches of an epoch.
    fn n_batches(&self) -> usize;

    /// Seeds of an epoch, or their positions, in order.
    fn plan(&self, epoch: u32) -> EpochPlan;

    /// Batch of an epoch by its number.
    ///
    /// # Errors
    /// When the sampler fails, or features cannot be read.
    fn make(&self, plan: &EpochPlan, number: usize) -> Result<Box<dyn ReadyBatch>, SampleError>;
}

/// Batch that waits for Python.
pub trait ReadyBatch: Send {
    /// Object of the batch.
    ///
    /// # Errors
    /// When Python has no memory.
    fn into_object(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

/// Source of the batches of a [`Core`].
struct PlainSource {
    core: Arc<Core>,
    seeds: Vec<NodeId>,
    /// Times of the seeds, where sampling follows time; plans have positions then.
    times: Vec<i64>,
    options: LoaderOptions,
    /// Number of batches of an epoch without seeds.
    n_subgraphs: usize,
    features: Option<Arc<Features>>,
}

impl Source for PlainSource {
    fn n_batches(&self) -> usize {
        if self.core.has_seeds() { number_of_batches(self.seeds.len(), self.options) } else { self.n_subgraphs }
    }

    fn plan(&self, epoch: u32) -> EpochPlan {
        let listed = if self.core.has_times() { (0..self.seeds.len() as NodeId).collect() } else { self.seeds.clone() };
        EpochPlan::new(listed, self.options, epoch)
    }

    fn make(&self, plan: &EpochPlan, number: usize) -> Result<Box<dyn ReadyBatch>, SampleError> {
        let listed = if self.core.has_seeds() { plan.seeds(number) } else { &[] };
        let key = plan.key(number);
        let mut arrays = if self.core.has_times() {
            let nodes: Vec<NodeId> = listed.iter().map(|&at| self.seeds[at as usize]).collect();
            let times: Vec<i64> = listed.iter().map(|&at| self.times[at as usize]).collect();
            self.core.sample(Seeds { nodes: &nodes, times: &times }, key, &ExcludedEdges::default())?
        } else {
            self.core.sample(Seeds { nodes: listed, times: &[] }, key, &ExcludedEdges::default())?
        };
        arrays.number = number;
        let mut width = 0;
        if let Some(features) = &self.features {
            width = features.width();
            self.core.gather(features, &mut arrays)?;
        }
        Ok(Box::new(MadePlain { arrays, core: Arc::clone(&self.core), width }))
    }
}

struct MadePlain {
    arrays: Arrays,
    core: Arc<Core>,
    width: usize,
}

impl ReadyBatch for MadePlain {
    fn into_object(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Self { arrays, core, width } = *self;
        Ok(Py::new(py, Batch::new(arrays, core, width))?.into_any())
    }
}

/// Number of batches of so many seeds.
pub fn number_of_batches(n_seeds: usize, options: LoaderOptions) -> usize {
    let size = options.batch_size;
    if options.drop_last { n_seeds / size } else { n_seeds.div_ceil(size) }
}

/// Source of a sampler, its seeds and the options of a loader.
fn source_of(
    sampler: &Bound<'_, PyAny>,
    seeds: Option<&Bound<'_, PyAny>>,
    mut options: Options<'_>,
    of_loader: LoaderOptions,
) -> PyResult<Arc<dyn Source>> {
    let (times, num_batches) = (options.take::<Bound<'_, PyAny>>("times")?, options.take::<usize>("num_batches")?);
    if let Ok(sampler) = sampler.cast::<TypedSampler>() {
        let features = options.take::<Bound<'_, PyDict>>("features")?;
        options.finish()?;
        if times.is_some() || num_batches.is_some() {
            return Err(type_error(
                "a typed graph has no times, and its batches have seeds; leave times and num_batches out",
            ));
        }
        return Ok(Arc::new(TypedSource::new(sampler.get(), seeds, features.as_ref(), of_loader)?));
    }
    let sampler = sampler.cast::<Sampler>()?.get();
    let core = Arc::clone(&sampler.core);
    let features = options.take::<Bound<'_, FeatureStore>>("features")?;
    options.finish()?;
    let (seeds, times) = sampler.seeds("seed", seeds, times.as_ref())?;
    if num_batches.is_some() == core.has_seeds() {
        return Err(value_error("num_batches is for samplers without seeds, which need it"));
    }
    if let Some(store) = &features
        && store.get().features.n_rows() != core.n_nodes()
    {
        return Err(value_error(format!(
            "features of {} rows for a graph of {} nodes",
            store.get().features.n_rows(),
            core.n_nodes()
        )));
    }
    let features = features.map(|store| Arc::clone(&store.get().features));
    let n_subgraphs = num_batches.unwrap_or(0);
    Ok(Arc::new(PlainSource { core, seeds, times, options: of_loader, n_subgraphs, features }))
}

#[pymethods]
impl BatchLoader {
    #[new]
    #[pyo3(signature = (sampler, seeds, **options))]
    fn new(
        sampler: &Bound<'_, PyAny>,
        seeds: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        const MOST_THREADS: usize = 256;
        let mut options = Options::new("BatchLoader", options)?;
        let (batch_size, shuffle) = (options.or("batch_size", 1024)?, options.or("shuffle", true)?);
        let (drop_last, seed) = (options.or("drop_last", false)?, options.or("seed", 0)?);
        let threads = options.or("threads", 1)?;
        if batch_size == 0 {
            return Err(value_error("batch_size is 0; give at least 1"));
        }
        if threads > MOST_THREADS {
            return Err(value_error(format!("{threads} threads; give at most {MOST_THREADS}")));
        }
        let of_loader = LoaderOptions { batch_size, shuffle, drop_last, seed };
        let source = source_of(sampler, seeds, options, of_loader)?;
        Ok(Self { source, threads, epoch: AtomicU32::new(0) })
    }

    fn __len__(&self) -> usize {
        self.source.n_batches()
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Epoch> {
        self.epoch(py, self.epoch.fetch_add(1, Ordering::Relaxed), 0)
    }

    /// Batches of an epoch by its number, from batch `first` on.
    #[pyo3(signature = (number, *, first = 0))]
    fn epoch(&self, py: Python<'_>, number: u32, first: usize) -> PyResult<Epoch> {
        let (source, n_batches) = (Arc::clone(&self.source), self.source.n_batches());
        if first > n_batches {
            return Err(index_error(format!("batch {first} of an epoch of {n_batches}")));
        }
        let plan = Arc::new(without_gil(py, || source.plan(number))?);
        let work = if self.threads == 0 {
            Work::Here { source, plan, next: first }
        } else {
            let of = (source, plan);
            let stage = Stage::new("sample").workers(self.threads).capacity(2 * self.threads);
            let started = Pipeline::new(first..n_batches).stage(stage, move || {
                let (source, plan) = of.clone();
                move |batch| source.make(&plan, batch)
            });
            let items = started.start().map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
            Work::Ahead(Box::new(items))
        };
        let work = ManuallyDrop::new(Box::new(Mutex::new(work)));
        Ok(Epoch { work, process: std::process::id(), first, n_batches })
    }
}

/// Maker of the remaining batches.
enum Work {
    /// All batches were made, or one failed.
    Done,
    /// `close` was called before the end.
    Closed,
    /// On the caller's thread.
    Here { source: Arc<dyn Source>, plan: Arc<EpochPlan>, next: usize },
    /// On threads of their own.
    Ahead(Box<Items<'static, Box<dyn ReadyBatch>, SampleError>>),
}

/// Batches of one epoch, in order. Its threads end when it is dropped.
#[pyclass(frozen, module = "girih")]
pub struct Epoch {
    /// Never dropped in a forked child, which has none of the threads.
    work: ManuallyDrop<Box<Mutex<Work>>>,
    process: u32,
    first: usize,
    n_batches: usize,
}

/// Error of an epoch that was closed.
pub fn closed() -> PyErr {
    value_error("the epoch was closed; iterate the loader for another one")
}

impl Epoch {
    /// Next batch, within about a tick.
    fn next(&self) -> Poll<PyResult<Option<Box<dyn ReadyBatch>>>> {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let made = match &mut *work {
            Work::Done => None,
            Work::Closed => return Poll::Ready(Err(closed())),
            Work::Here { next, .. } if *next == self.n_batches => None,
            Work::Here { source, plan, next } => {
                *next += 1;
                Some(source.make(plan, *next - 1).map_err(of_sampling))
            }
            Work::Ahead(items) => match items.next_within(TICK) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(item) => item.map(|item| item.map_err(|error| self.of_stage(error))),
            },
        };
        if !matches!(made, Some(Ok(_))) {
            *work = Work::Done;
        }
        Poll::Ready(made.transpose())
    }

    fn of_stage(&self, error: StageError<SampleError>) -> PyErr {
        match error {
            StageError::Failed { source, .. } => of_sampling(source),
            panicked => PyRuntimeError::new_err(format!(
                "{panicked}; a graph that changes while it is sampled does this, else it is a bug to report"
            )),
        }
    }

    fn check_process(&self) -> PyResult<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(PyRuntimeError::new_err("this epoch was begun before a fork; iterate the loader in this process"))
    }
}

#[pymethods]
impl Epoch {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __len__(&self) -> usize {
        self.n_batches - self.first
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.check_process()?;
        loop {
            match without_gil(py, || self.next())? {
                Poll::Ready(next) => {
                    return next?.map(|made| made.into_object(py)).transpose();
                }
                Poll::Pending => py.check_signals()?,
            }
        }
    }

    /// Ends the epoch and its threads before its last batch; asking for another one is an error then.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.check_process()?;
        without_gil(py, || {
            let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
            if !matches!(*work, Work::Done) {
                *work = Work::Closed;
            }
        })
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // SAFETY: the epoch is being dropped, and `work` is not used again.
            unsafe { ManuallyDrop::drop(&mut self.work) }
        }
    }
}
