//! `CudaLoader` and `CudaEpoch`: batches of seeds on a GPU, epoch by epoch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use girih_graph_format::{Csr, NodeId};
use girih_sampling::{EpochPlan, LoaderOptions};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use super::batch::CudaBatch;
use super::features::{CudaFeatures, Held as HeldFeatures};
use super::feeder::{Batches, Planned, Source};
use super::graph::{CudaGraph, Held};
use super::requests::CudaRequests;
use crate::errors::{index_error, value_error};
use crate::sampler::Sampler;

/// Batches of an epoch after the other on a GPU; each `iter()` is the next epoch.
#[pyclass(frozen, module = "girih._girih")]
pub struct CudaLoader {
    source: Arc<Source>,
    seeds: Vec<NodeId>,
    options: LoaderOptions,
    epoch: AtomicU32,
}

/// Positional options of a loader: batch_size, shuffle, drop_last, seed.
type Order = (usize, bool, bool, u64);

#[pymethods]
impl CudaLoader {
    /// Batches of `seeds` by a sampler of neighbors on a graph of the GPU. Without seeds there are only batches that are
    /// requested, of at most batch_size seeds.
    #[new]
    fn new(
        py: Python<'_>,
        graph: &Bound<'_, CudaGraph>,
        sampler: &Bound<'_, Sampler>,
        seeds: Option<&Bound<'_, PyAny>>,
        order: Order,
        features: Option<&Bound<'_, CudaFeatures>>,
    ) -> PyResult<Self> {
        let (batch_size, shuffle, drop_last, seed) = order;
        if batch_size == 0 {
            return Err(value_error("batch_size is 0; give at least 1"));
        }
        let (core, graph) = (Arc::clone(&sampler.get().core), Arc::clone(&graph.get().held));
        let size_of = |csr: &Csr| (csr.n_rows(), csr.nnz());
        if core.csr().map(size_of) != Some(size_of(&graph.csr)) {
            return Err(value_error("the sampler was made for another graph than the one on the GPU"));
        }
        let features = features.map(|features| Arc::clone(&features.get().held));
        if let Some(features) = &features {
            check_features(features, &graph)?;
        }
        let (seeds, most) = match seeds {
            Some(seeds) => {
                let (seeds, _) = sampler.get().seeds("seed", Some(seeds), None)?;
                let most = batch_size.min(seeds.len()).max(1);
                (seeds, most)
            }
            None => (Vec::new(), batch_size),
        };
        let options = LoaderOptions { batch_size, shuffle, drop_last, seed };
        let source = Source::new(py, graph, core, features, most)?;
        Ok(Self { source, seeds, options, epoch: AtomicU32::new(0) })
    }

    fn __len__(&self) -> usize {
        let (n, size) = (self.seeds.len(), self.options.batch_size);
        if self.options.drop_last { n / size } else { n.div_ceil(size) }
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<CudaEpoch> {
        self.epoch(py, self.epoch.fetch_add(1, Ordering::Relaxed), 0)
    }

    /// Batches of an epoch by its number, from batch `first` on.
    #[pyo3(signature = (number, *, first = 0))]
    fn epoch(&self, py: Python<'_>, number: u32, first: usize) -> PyResult<CudaEpoch> {
        let n_batches = self.__len__();
        if first > n_batches {
            return Err(index_error(format!("batch {first} of an epoch of {n_batches}")));
        }
        let plan = Arc::new(EpochPlan::new(self.seeds.clone(), self.options, number));
        let planned = Arc::clone(&plan);
        let batch = move |number| {
            let (seeds, key) = (planned.seeds(number).to_vec(), planned.key(number));
            Planned { seeds, key, number }
        };
        let batches = Batches::start(py, &self.source, (first..n_batches).map(batch))?;
        Ok(CudaEpoch { batches, plan, first })
    }

    /// Batches that are requested one by one.
    fn requests(&self, py: Python<'_>) -> PyResult<CudaRequests> {
        CudaRequests::start(py, &self.source)
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

/// Batches of one epoch, in order.
#[pyclass(frozen, module = "girih._girih")]
pub struct CudaEpoch {
    batches: Batches,
    plan: Arc<EpochPlan>,
    first: usize,
}

#[pymethods]
impl CudaEpoch {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __len__(&self) -> usize {
        self.plan.n_batches() - self.first
    }

    /// Seeds of the batches, in their order.
    fn seeds<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        let seeds = (self.first..self.plan.n_batches()).flat_map(|batch| self.plan.seeds(batch));
        seeds.map(|&seed| i64::from(seed)).collect::<Vec<_>>().into_pyarray(py)
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<CudaBatch>> {
        self.batches.next(py)
    }

    /// Ends the epoch before its last batch; asking for another one is an error then.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.batches.close(py)
    }
}
