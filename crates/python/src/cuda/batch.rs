//! `CudaBatch` and `CudaBlock`: a sampled batch on a GPU.

use std::sync::{Arc, OnceLock};

use girih_compute::{Dtype, Shape};
use girih_kernels::{CudaMatrix, DeviceEdgeList, IndexWidth, SampledBatch};
use pyo3::prelude::*;

use super::array::DeviceArray;
use super::dlpack::DataType;
use super::graph::Held;
use super::guest::{OnGpu, on_gpu};
use crate::errors::value_error;
use crate::sampler::Form;

/// Mini-batch on a GPU, in memory of its own.
#[pyclass(frozen, module = "girih._girih")]
pub struct CudaBatch {
    pub batch: OnGpu<Arc<SampledBatch>>,
    pub graph: Arc<Held>,
    x: OnGpu<Option<Arc<CudaMatrix>>>,
    /// Shape and type of `x`.
    rows: (Shape, Dtype),
    /// Made when it is first asked for.
    list: OnGpu<OnceLock<Arc<DeviceEdgeList>>>,
    pub form: Form,
    n_seeds: usize,
    number: usize,
}

impl CudaBatch {
    pub fn new(
        batch: SampledBatch,
        graph: &Arc<Held>,
        x: Option<(CudaMatrix, Shape, Dtype)>,
        form: Form,
        (n_seeds, number): (usize, usize),
    ) -> Self {
        let rows = x.as_ref().map_or((Shape::new(0, 0), Dtype::F32), |(_, shape, dtype)| (*shape, *dtype));
        Self {
            batch: OnGpu::new(Arc::new(batch)),
            graph: Arc::clone(graph),
            x: OnGpu::new(x.map(|(rows, ..)| Arc::new(rows))),
            rows,
            list: OnGpu::new(OnceLock::new()),
            form,
            n_seeds,
            number,
        }
    }

    fn list(&self, py: Python<'_>) -> PyResult<&Arc<DeviceEdgeList>> {
        if let Some(list) = self.list.get() {
            return Ok(list);
        }
        if !self.batch.is_list() {
            return Err(value_error(
                "all nodes of the batch drew anew in every hop, so that it is no single list of edges; read blocks(), or make \
                 the sampler with expand=\"once\"",
            ));
        }
        let width = if self.form.wide { IndexWidth::Wide } else { IndexWidth::Narrow };
        let made = on_gpu(py, || self.batch.edge_list(&self.graph.cuda, self.graph.names(), width))?;
        Ok(self.list.get_or_init(|| Arc::new(made)))
    }

    fn ids(&self) -> DataType {
        if self.form.wide { DataType::I64 } else { DataType::I32 }
    }

    fn array(&self, list: &Arc<DeviceEdgeList>, offset: usize, dtype: DataType, shape: &[usize]) -> DeviceArray {
        let (at, keeper) = (list.address() + offset as u64, Arc::clone(list));
        DeviceArray::new(keeper, (&self.graph.cuda, self.graph.at), at, dtype, shape)
    }

    /// The first `n` nodes, as `int32`.
    fn first_nodes(&self, n: usize) -> DeviceArray {
        let (address, keeper) = (self.batch.nodes().address(), Arc::clone(&*self.batch));
        DeviceArray::new(keeper, (&self.graph.cuda, self.graph.at), address, DataType::I32, &[n])
    }
}

#[pymethods]
impl CudaBatch {
    /// Sources and destinations of edges, (2, E): positions in `n_id`.
    #[getter]
    fn edge_index(&self, py: Python<'_>) -> PyResult<DeviceArray> {
        let list = self.list(py)?;
        Ok(self.array(list, 0, self.ids(), &[2, list.n_edges]))
    }

    /// Global ids of the nodes: the seeds first.
    #[getter]
    fn n_id(&self, py: Python<'_>) -> PyResult<DeviceArray> {
        let list = self.list(py)?;
        Ok(self.array(list, list.nodes_at, self.ids(), &[list.n_nodes]))
    }

    /// Global ids of the nodes as `int32`, of any batch.
    #[getter]
    fn nodes(&self) -> DeviceArray {
        self.first_nodes(self.batch.nodes_by_hop().iter().sum())
    }

    /// Names of edges, (E,); None if the sampler keeps none.
    #[getter]
    fn e_id(&self, py: Python<'_>) -> PyResult<Option<DeviceArray>> {
        if !self.form.edge_ids {
            return Ok(None);
        }
        let list = self.list(py)?;
        Ok(list.edges_at.map(|at| self.array(list, at, DataType::I64, &[list.n_edges])))
    }

    /// Feature rows of the nodes; None without features.
    #[getter]
    fn x(&self) -> Option<DeviceArray> {
        let x = self.x.as_ref()?;
        Some(DeviceArray::of_matrix(x, self.rows.0, self.rows.1, (&self.graph.cuda, self.graph.at)))
    }

    #[getter]
    fn is_list(&self) -> bool {
        self.batch.is_list()
    }

    #[getter]
    fn batch_size(&self) -> usize {
        self.n_seeds
    }

    #[getter]
    fn number(&self) -> usize {
        self.number
    }

    #[getter]
    fn num_sampled_nodes(&self) -> Vec<usize> {
        self.batch.nodes_by_hop()
    }

    #[getter]
    fn num_sampled_edges(&self) -> Vec<usize> {
        self.batch.edges_by_hop()
    }

    /// Digest of the blocks, as `girih sample` prints it. The batch is downloaded for it.
    #[getter]
    fn digest(&self, py: Python<'_>) -> PyResult<u64> {
        on_gpu(py, || self.batch.to_host(&self.graph.cuda)).map(|batch| batch.digest())
    }

    /// Blocks in the order of layers, the inputs first.
    fn blocks(slf: &Bound<'_, Self>) -> Vec<CudaBlock> {
        let n_hops = slf.get().batch.n_hops();
        (0..n_hops).rev().map(|hop| CudaBlock { batch: slf.clone().unbind(), hop }).collect()
    }

    fn __repr__(&self) -> String {
        let n_edges: usize = self.batch.edges_by_hop().iter().sum();
        format!("girih.cuda.Batch(number={}, batch_size={}, num_edges={n_edges})", self.number, self.n_seeds)
    }
}

/// Bipartite graph of one layer on a GPU: destinations are the first of the sources.
#[pyclass(frozen, module = "girih._girih")]
pub struct CudaBlock {
    pub batch: Py<CudaBatch>,
    /// Distance from the seeds.
    pub hop: usize,
}

#[pymethods]
impl CudaBlock {
    #[getter]
    fn num_src(&self) -> usize {
        self.batch.get().batch.block_sizes(self.hop).0
    }

    #[getter]
    fn num_dst(&self) -> usize {
        self.batch.get().batch.block_sizes(self.hop).1
    }

    #[getter]
    fn num_edges(&self) -> usize {
        self.batch.get().batch.block_sizes(self.hop).2
    }

    /// Global ids of the sources as `int32`, the destinations first.
    #[getter]
    fn nodes(&self) -> DeviceArray {
        self.batch.get().first_nodes(self.num_src())
    }

    fn __repr__(&self) -> String {
        let (n_src, n_dst, n_edges) = self.batch.get().batch.block_sizes(self.hop);
        format!("girih.cuda.Block(num_src={n_src}, num_dst={n_dst}, num_edges={n_edges})")
    }
}
