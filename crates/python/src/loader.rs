//! `BatchLoader` and `Epoch`: batches of seeds, made ahead by threads that never take the GIL.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use girih_datasets::Features;
use girih_graph_format::NodeId;
use girih_pipeline::{Items, Pipeline, Stage, StageError};
use girih_sampling::{DrawKey, EpochPlan, ExcludedEdges, LoaderOptions, SampleError};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::Batch;
use crate::errors::{index_error, of_sampling, value_error};
use crate::features::FeatureStore;
use crate::options::Options;
use crate::sampler::{Arrays, Core, Sampler};
use crate::threads::{TICK, without_gil};

/// Batches of an epoch after the other; each `iter()` is the next epoch.
#[pyclass(frozen, module = "girih")]
pub struct BatchLoader {
    source: Source,
    threads: usize,
    epoch: AtomicU32,
}

/// Maker of any batch of any epoch.
#[derive(Clone)]
struct Source {
    core: Arc<Core>,
    seeds: Arc<Vec<NodeId>>,
    options: LoaderOptions,
    /// Number of batches of an epoch without seeds.
    n_subgraphs: usize,
    features: Option<Arc<Features>>,
}

impl Source {
    fn n_batches(&self) -> usize {
        if !self.core.has_seeds() {
            return self.n_subgraphs;
        }
        let (n, size) = (self.seeds.len(), self.options.batch_size);
        if self.options.drop_last { n / size } else { n.div_ceil(size) }
    }

    fn width(&self) -> usize {
        self.features.as_ref().map_or(0, |features| features.width())
    }

    /// Seeds of an epoch, in order.
    fn plan(&self, epoch: u32) -> EpochPlan {
        EpochPlan::new(self.seeds.to_vec(), self.options, epoch)
    }

    fn make(&self, plan: &EpochPlan, epoch: u32, number: usize) -> Result<Arrays, SampleError> {
        let seeds = if self.core.has_seeds() { plan.seeds(number) } else { &[] };
        let key = DrawKey::new(self.options.seed, epoch, number as u32);
        let mut arrays = self.core.sample(seeds, key, &ExcludedEdges::default())?;
        arrays.number = number;
        if let Some(features) = &self.features {
            self.core.gather(features, &mut arrays)?;
        }
        Ok(arrays)
    }
}

#[pymethods]
impl BatchLoader {
    #[new]
    #[pyo3(signature = (sampler, seeds, **options))]
    fn new(
        sampler: &Bound<'_, Sampler>,
        seeds: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        const MOST_THREADS: usize = 256;
        let core = Arc::clone(&sampler.get().core);
        let seeds = sampler.get().seeds("seed", seeds)?;
        let mut options = Options::new("BatchLoader", options)?;
        let (batch_size, shuffle) = (options.or("batch_size", 1024)?, options.or("shuffle", true)?);
        let (drop_last, seed) = (options.or("drop_last", false)?, options.or("seed", 0)?);
        let (threads, num_batches) = (options.or("threads", 1)?, options.take::<usize>("num_batches")?);
        let features = options.take::<Bound<'_, FeatureStore>>("features")?;
        options.finish()?;
        if batch_size == 0 {
            return Err(value_error("batch_size is 0; give at least 1"));
        }
        if threads > MOST_THREADS {
            return Err(value_error(format!("{threads} threads; give at most {MOST_THREADS}")));
        }
        if num_batches.is_some() == core.has_seeds() {
            return Err(value_error("num_batches is for samplers without seeds, which need it"));
        }
        if let Some(store) = &features
            && store.get().features.n_rows() != core.csr.n_rows()
        {
            return Err(value_error(format!(
                "features of {} rows for a graph of {} nodes",
                store.get().features.n_rows(),
                core.csr.n_rows()
            )));
        }
        let options = LoaderOptions { batch_size, shuffle, drop_last, seed };
        let features = features.map(|store| Arc::clone(&store.get().features));
        let source = Source { core, seeds: Arc::new(seeds), options, n_subgraphs: num_batches.unwrap_or(0), features };
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
        let (source, n_batches) = (self.source.clone(), self.source.n_batches());
        if first > n_batches {
            return Err(index_error(format!("batch {first} of an epoch of {n_batches}")));
        }
        let plan = Arc::new(without_gil(py, || source.plan(number))?);
        let work = if self.threads == 0 {
            Work::Here { source: source.clone(), plan, epoch: number, next: first }
        } else {
            let of = (source.clone(), plan);
            let stage = Stage::new("sample").workers(self.threads).capacity(2 * self.threads);
            let started = Pipeline::new(first..n_batches).stage(stage, move || {
                let (source, plan) = of.clone();
                move |batch| source.make(&plan, number, batch)
            });
            Work::Ahead(started.start().map_err(|error| PyRuntimeError::new_err(error.to_string()))?)
        };
        let (width, process) = (source.width(), std::process::id());
        let work = ManuallyDrop::new(Box::new(Mutex::new(work)));
        Ok(Epoch { work, core: source.core, width, process, first, n_batches })
    }
}

/// Maker of the remaining batches.
enum Work {
    /// All batches were made, or one failed.
    Done,
    /// `close` was called before the end.
    Closed,
    /// On the caller's thread.
    Here { source: Source, plan: Arc<EpochPlan>, epoch: u32, next: usize },
    /// On threads of their own.
    Ahead(Items<'static, Arrays, SampleError>),
}

/// Batches of one epoch, in order. Its threads end when it is dropped.
#[pyclass(frozen, module = "girih")]
pub struct Epoch {
    /// Never dropped in a forked child, which has none of the threads.
    work: ManuallyDrop<Box<Mutex<Work>>>,
    core: Arc<Core>,
    width: usize,
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
    fn next(&self) -> Poll<PyResult<Option<Arrays>>> {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let made = match &mut *work {
            Work::Done => None,
            Work::Closed => return Poll::Ready(Err(closed())),
            Work::Here { next, .. } if *next == self.n_batches => None,
            Work::Here { source, plan, epoch, next } => {
                *next += 1;
                Some(source.make(plan, *epoch, *next - 1).map_err(of_sampling))
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

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        self.check_process()?;
        loop {
            match without_gil(py, || self.next())? {
                Poll::Ready(next) => {
                    return Ok(next?.map(|arrays| Batch::new(arrays, Arc::clone(&self.core), self.width)));
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
