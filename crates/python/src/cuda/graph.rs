//! `CudaGraph`: a graph from which a GPU samples.

use std::sync::{Arc, OnceLock};

use girih_compute::ComputeError;
use girih_features::{CacheShares, Placement};
use girih_graph_format::{Csr, NodeId};
use girih_kernels::{BatchSampler, Cuda, DeviceTopology, EdgeNames};
use girih_sampling::NeighborSampler;
use pyo3::prelude::*;
use rayon::prelude::*;

use super::guest::{At, OnGpu, guest, of_compute};
use crate::errors::value_error;
use crate::graph::Graph;
use crate::threads::on_pool;

/// Graph on a GPU or in memory of the host that the GPU reads, for any number of loaders.
#[pyclass(frozen, module = "girih._girih")]
pub struct CudaGraph {
    pub held: Arc<Held>,
}

/// Graph with its device.
pub struct Held {
    pub cuda: Arc<Cuda>,
    pub at: At,
    /// The graph on the host.
    pub csr: Csr,
    topology: OnGpu<Arc<DeviceTopology>>,
    names: OnGpu<Option<EdgeNames>>,
    has_loops: OnceLock<bool>,
}

impl Held {
    /// Sampler of batches of the graph.
    pub fn sampler(&self, sampler: &NeighborSampler, batch_size: usize) -> Result<BatchSampler, ComputeError> {
        BatchSampler::new(Arc::clone(&self.cuda), Arc::clone(&self.topology), &self.csr, sampler, batch_size)
    }

    /// Names of edges, if they are not their positions.
    pub fn names(&self) -> Option<&EdgeNames> {
        self.names.as_ref()
    }

    /// Whether the graph stores a self loop.
    pub fn has_loops(&self) -> bool {
        let is_loop = |v: usize| self.csr.row(v).binary_search(&(v as NodeId)).is_ok();
        *self.has_loops.get_or_init(|| (0..self.csr.n_rows()).into_par_iter().with_min_len(1 << 12).any(is_loop))
    }
}

#[pymethods]
impl CudaGraph {
    /// Graph for a GPU and a stream: in its memory, or in that of the host if `on_host`.
    #[new]
    fn new(py: Python<'_>, graph: &Bound<'_, Graph>, at: At, on_host: bool) -> PyResult<Self> {
        let (cuda, graph) = (guest(py, at)?, graph.get());
        let (csr, names) = (graph.csr.clone(), graph.names.clone());
        if csr.n_rows() == 0 {
            return Err(value_error("the graph has no nodes; there is nothing to sample"));
        }
        let upload = || {
            let topology = if on_host {
                let order: Vec<NodeId> = (0..csr.n_rows() as NodeId).collect();
                DeviceTopology::placed(&cuda, &csr, &Placement::of_shares(&order, CacheShares::default(), 1))
            } else {
                DeviceTopology::on_device(&cuda, &csr)
            }?;
            let names = names.map(|names| EdgeNames::upload(&cuda, bytemuck::cast_slice(&names))).transpose()?;
            Ok((Arc::new(topology), names))
        };
        let done = on_pool(py, || cuda.with_context(upload))?;
        let (topology, names) = done.map_err(of_compute)?;
        let (topology, names, has_loops) = (OnGpu::new(topology, &cuda), OnGpu::new(names, &cuda), OnceLock::new());
        Ok(Self { held: Arc::new(Held { cuda, at, csr, topology, names, has_loops }) })
    }

    #[getter]
    fn num_nodes(&self) -> usize {
        self.held.csr.n_rows()
    }

    #[getter]
    fn num_edges(&self) -> usize {
        self.held.csr.nnz()
    }

    /// Ordinal of the GPU.
    #[getter]
    fn device(&self) -> usize {
        self.held.at.0
    }

    fn __repr__(&self) -> String {
        let Held { csr, at, .. } = &*self.held;
        format!("girih.cuda.Graph(num_nodes={}, num_edges={}, device=cuda:{})", csr.n_rows(), csr.nnz(), at.0)
    }
}
