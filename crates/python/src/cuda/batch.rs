//! `CudaBatch` and `CudaBlock`: a sampled batch on a GPU.

use std::sync::Arc;

use girih_compute::{Dtype, Shape};
use girih_kernels::{CudaMatrix, DeviceEdgeList, SampledBatch};
use pyo3::prelude::*;

use super::array::DeviceArray;
use super::dlpack::DataType;
use super::graph::Held;
use super::guest::on_gpu;
use super::prepared::{Prepared, list_of};
use super::release::Release;
use crate::core::Form;
use crate::errors::value_error;

/// Mini-batch on a GPU, in memory of its own.
#[pyclass(frozen, module = "girih._girih")]
pub struct CudaBatch {
    pub batch: Release<Arc<SampledBatch>>,
    pub graph: Arc<Held>,
    x: Release<Option<Arc<CudaMatrix>>>,
    /// Shape and type of `x`.
    rows: (Shape, Dtype),
    /// Operands of layers, and the list of edges.
    pub prepared: Release<Arc<Prepared>>,
    pub form: Form,
    n_seeds: usize,
    number: usize,
}

impl CudaBatch {
    pub fn new(
        batch: SampledBatch,
        graph: &Arc<Held>,
        x: Option<(CudaMatrix, Shape, Dtype)>,
        prepared: Prepared,
        form: Form,
        (n_seeds, number): (usize, usize),
    ) -> Self {
        let rows = x.as_ref().map_or((Shape::new(0, 0), Dtype::F32), |(_, shape, dtype)| (*shape, *dtype));
        Self {
            batch: Release::new(Arc::new(batch), &graph.cuda),
            graph: Arc::clone(graph),
            x: Release::new(x.map(|(rows, ..)| Arc::new(rows)), &graph.cuda),
            rows,
            prepared: Release::new(Arc::new(prepared), &graph.cuda),
            form,
            n_seeds,
            number,
        }
    }

    fn list(&self, py: Python<'_>) -> PyResult<&Arc<DeviceEdgeList>> {
        if !self.batch.is_list() {
            return Err(value_error(
                "all nodes of the batch drew anew in every hop, so that it is no single list of edges; read blocks(), or make \
                 the sampler with expand=\"once\"",
            ));
        }
        self.prepared.list(|| on_gpu(py, &self.graph.cuda, || list_of(&self.batch, &self.graph, self.form)))
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

    /// Whether the list of edges has been made.
    #[getter]
    fn has_list(&self) -> bool {
        self.prepared.has_list()
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

    /// Feature rows of the nodes, and their number of columns, behind which the array has a gap; None without features.
    #[getter]
    fn x(&self) -> Option<(DeviceArray, usize)> {
        let (x, (shape, dtype)) = (self.x.as_ref()?, self.rows);
        Some((DeviceArray::of_matrix(x, shape.rows, dtype, (&self.graph.cuda, self.graph.at)), shape.cols))
    }

    /// Whether ids of the list are `int64`.
    #[getter]
    fn is_wide(&self) -> bool {
        self.form.wide
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
        on_gpu(py, &self.graph.cuda, || self.batch.to_host(&self.graph.cuda)).map(|batch| batch.digest())
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
