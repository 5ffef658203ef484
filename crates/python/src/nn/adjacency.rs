//! `Adjacency`: a graph, a block or a list of edges as operators know it, by a number.

use std::sync::Arc;

use bytemuck::cast_vec;
use girih_graph_format::{Coo, Csr, Duplicates, NodeId};
use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;
use rayon::prelude::*;

#[cfg(feature = "cuda")]
use super::block::BlockOperands;
use super::operand::{Operands, Values, Whole};
use super::registry::{Numbered, Registry};
use crate::arrays::edges;
use crate::batch::Block;
#[cfg(feature = "cuda")]
use crate::cuda::batch::CudaBlock;
use crate::errors::{of_format, value_error};
use crate::graph::Graph;
use crate::threads::on_pool;

/// Edges of an adjacency, and the operands that were made of them.
pub enum Edges {
    OnHost(Arc<Operands>),
    /// Edges of a block on a GPU.
    #[cfg(feature = "cuda")]
    OnGpu(BlockOperands),
}

impl Edges {
    /// Operands in memory of the host.
    pub fn on_host(&self) -> Result<&Arc<Operands>, &'static str> {
        match self {
            Self::OnHost(operands) => Ok(operands),
            #[cfg(feature = "cuda")]
            Self::OnGpu(_) => Err("the block is on a GPU, and x on the CPU; move x to the GPU"),
        }
    }

    /// Numbers of sources, of destinations and of edges that the caller gave.
    fn sizes(&self) -> (usize, usize, usize) {
        match self {
            Self::OnHost(operands) => (operands.csr().n_cols(), operands.csr().n_rows(), operands.n_edges),
            #[cfg(feature = "cuda")]
            Self::OnGpu(block) => block.sizes(),
        }
    }

    fn ends(&self, loops: bool) -> Result<(Vec<i64>, Vec<i64>), String> {
        match self {
            Self::OnHost(operands) => operands.ends(loops),
            #[cfg(feature = "cuda")]
            Self::OnGpu(block) => block.ends(loops),
        }
    }

    fn edges(&self, loops: bool) -> Result<Vec<i64>, String> {
        match self {
            Self::OnHost(operands) => operands.edges(loops),
            #[cfg(feature = "cuda")]
            Self::OnGpu(block) => block.edges(loops),
        }
    }
}

/// Sources and destinations of edges.
type Ends<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>);

static LIVE: Registry<Edges> = Registry::new();

/// Edges of the adjacency with a number.
pub fn find(number: i64) -> PyResult<Arc<Edges>> {
    LIVE.find(number).ok_or_else(|| {
        value_error("the graph of this operand is gone; keep the tensor `handle` of its Adjacency itself")
    })
}

/// Edges from sources to destinations, for the layers of `girih.nn`.
///
/// Its number travels as a tensor over memory of this object, so that it lives as long as that tensor.
#[pyclass(frozen, module = "girih._girih")]
pub struct Adjacency {
    edges: Numbered<Edges>,
}

impl Adjacency {
    fn new(operands: Arc<Operands>) -> Self {
        Self::of(Edges::OnHost(operands))
    }

    fn of(edges: Edges) -> Self {
        Self { edges: LIVE.insert(edges) }
    }

    fn edges(&self) -> &Edges {
        &self.edges.object
    }
}

#[pymethods]
impl Adjacency {
    /// Adjacency of a graph, which keeps what is made for it.
    #[staticmethod]
    fn of_graph(py: Python<'_>, graph: &Bound<'_, Graph>) -> PyResult<Self> {
        let graph = graph.get();
        if let Some(operands) = graph.operands.get() {
            return Ok(Self::new(Arc::clone(operands)));
        }
        let csr = on_pool(py, || graph.csr.in_memory())?.map_err(of_format)?;
        let names = graph.names.clone().unwrap_or_default();
        let n_edges = names.iter().max().map_or(csr.nnz(), |&last| last as usize + 1);
        let values = if csr.values().is_some() { Values::Weights } else { Values::Ones };
        let made = Arc::new(Operands::new(csr, values, names, n_edges, true));
        Ok(Self::new(Arc::clone(graph.operands.get_or_init(|| made))))
    }

    /// Adjacency of a block of a sampled batch.
    #[staticmethod]
    fn of_block(py: Python<'_>, block: &Bound<'_, Block>) -> PyResult<Self> {
        let (block, graph) = (block.get().block(), block.get().graph());
        if !block.weights.is_empty() {
            return Err(PyNotImplementedError::new_err(
                "girih.nn has no blocks with weights of their own, as layer-wise samplers make them; sample by neighbors",
            ));
        }
        on_pool(py, || {
            let operands = sorted_rows(block)?;
            let whole = graph.filter(|graph| graph.values().is_none());
            let whole = whole.map(|graph| Whole { graph: graph.clone(), nodes: block.nodes.clone() });
            Ok(Self::new(Arc::new(operands.of_block(whole))))
        })?
    }

    /// Adjacency of a list of edges, 2 × E: sources, then destinations.
    #[staticmethod]
    fn of_edges(edge_index: &Bound<'_, PyAny>, num_src: usize, num_dst: usize) -> PyResult<Self> {
        let ([sources, destinations], _) = edges(edge_index, Some(num_src.max(num_dst)))?;
        on_pool(edge_index.py(), || {
            of_list((num_dst, num_src), destinations, sources).map(|operands| Self::new(Arc::new(operands)))
        })?
    }

    /// Adjacency of a block of a batch on a GPU, which has to keep it.
    #[cfg(feature = "cuda")]
    #[staticmethod]
    fn of_cuda_block(block: &Bound<'_, CudaBlock>) -> Self {
        Self::of(Edges::OnGpu(BlockOperands::of(block.get())))
    }

    /// Numbers of sources and of destinations.
    #[getter]
    fn sizes(&self) -> (usize, usize) {
        let (n_sources, n_destinations, _) = self.edges().sizes();
        (n_sources, n_destinations)
    }

    #[getter]
    fn num_src(&self) -> usize {
        self.edges().sizes().0
    }

    #[getter]
    fn num_dst(&self) -> usize {
        self.edges().sizes().1
    }

    /// Number of edges that the caller gave.
    #[getter]
    fn num_edges(&self) -> usize {
        self.edges().sizes().2
    }

    /// Number of the adjacency.
    #[getter]
    fn number(&self) -> i64 {
        self.edges.number()
    }

    /// Number of the adjacency, in memory of this object: one `int64`.
    #[getter]
    fn handle<'py>(slf: &Bound<'py, Self>) -> Bound<'py, PyArray1<i64>> {
        // SAFETY: the number belongs to the object, which is frozen.
        unsafe { slf.get().edges.handle(slf) }
    }

    /// Sources and destinations of the entries of the pattern, in the order of rows.
    #[pyo3(name = "ends")]
    fn entry_ends<'py>(&self, py: Python<'py>, loops: bool) -> PyResult<Ends<'py>> {
        let (sources, destinations) = on_pool(py, || self.edges().ends(loops))?.map_err(value_error)?;
        Ok((sources.into_pyarray(py), destinations.into_pyarray(py)))
    }

    /// For each entry of the pattern, the position of its edge in the caller's order; see [`Operands::edges`].
    #[pyo3(name = "edges")]
    fn edge_names<'py>(&self, py: Python<'py>, loops: bool) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let edges = on_pool(py, || self.edges().edges(loops))?.map_err(value_error)?;
        Ok(edges.into_pyarray(py))
    }
}

/// Operands of a list of edges; parallel ones are counted.
fn of_list(shape: (usize, usize), rows: Vec<NodeId>, cols: Vec<NodeId>) -> PyResult<Operands> {
    let n_edges = rows.len();
    let coo = Coo::new(shape.0, shape.1, rows, cols, None).map_err(value_error)?;
    let (csr, positions) = coo.to_csr_with_positions(Duplicates::Keep).map_err(value_error)?;
    let values = if csr.values().is_some() { Values::Counts } else { Values::Ones };
    Ok(Operands::new(csr, values, Arc::new(cast_vec(positions)), n_edges, false))
}

/// Operands of a block, whose edges lie row after row but in the order of the draws.
pub fn sorted_rows(block: &girih_sampling::Block) -> PyResult<Operands> {
    /// Number of rows that one task sorts.
    const ROWS: usize = 1 << 10;
    let (indptr, n_edges) = (&block.indptr, block.n_edges());
    if n_edges > u32::MAX as usize {
        return Err(value_error("the block has more than 2³² edges"));
    }
    let mut keys: Vec<u64> = vec![0; n_edges];
    let (mut tasks, mut rest) = (Vec::new(), &mut keys[..]);
    for first in (0..block.n_destinations).step_by(ROWS) {
        let offsets = &indptr[first..=(first + ROWS).min(block.n_destinations)];
        let (part, others) = rest.split_at_mut((offsets[offsets.len() - 1] - offsets[0]) as usize);
        tasks.push((offsets, part));
        rest = others;
    }
    tasks.into_par_iter().for_each(|(offsets, part)| {
        for ends in offsets.windows(2) {
            let row = &mut part[(ends[0] - offsets[0]) as usize..(ends[1] - offsets[0]) as usize];
            row.iter_mut()
                .zip(ends[0]..)
                .for_each(|(key, edge)| *key = u64::from(block.indices[edge as usize]) << 32 | edge);
            row.sort_unstable();
        }
    });
    let is_merged = indptr.windows(2).any(|ends| {
        let row = &keys[ends[0] as usize..ends[1] as usize];
        row.windows(2).any(|pair| pair[0] >> 32 == pair[1] >> 32)
    });
    if is_merged {
        let counts = indptr.windows(2).map(|ends| (ends[1] - ends[0]) as usize);
        let rows = (0..).zip(counts).flat_map(|(v, n): (NodeId, usize)| std::iter::repeat_n(v, n)).collect();
        return of_list((block.n_destinations, block.n_columns), rows, block.indices.clone());
    }
    let indices: Vec<NodeId> = keys.iter().map(|&key| (key >> 32) as NodeId).collect();
    let names = keys.into_iter().map(|key| i64::from(key as u32)).collect();
    let csr = Csr::new(block.n_destinations, block.n_columns, indptr.clone(), indices, None).map_err(of_format)?;
    Ok(Operands::new(csr, Values::Ones, Arc::new(names), n_edges, false))
}
