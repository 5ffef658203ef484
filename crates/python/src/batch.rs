//! `Batch` and `Block`: what samplers return, as arrays over the memory of the batch.

use std::sync::Arc;

use bytemuck::cast_slice;
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use crate::arrays::{Ids, view};
use crate::core::{Arrays, BlockArrays, Core};
use crate::errors::value_error;

/// Mini-batch. Its arrays are views of its memory, which goes back to the sampler with the last of them.
#[pyclass(frozen, module = "girih")]
pub struct Batch {
    arrays: Arrays,
    core: Arc<Core>,
    /// Number of features of a row; 0 without features.
    width: usize,
}

impl Batch {
    pub fn new(arrays: Arrays, core: Arc<Core>, width: usize) -> Self {
        Self { arrays, core, width }
    }

    fn check_list(&self) -> PyResult<()> {
        if self.core.form().is_list {
            return Ok(());
        }
        Err(value_error(
            "all nodes of the batch drew anew in every hop, so that it is no single list of edges; read blocks(), or make the \
             sampler with expand=\"once\"",
        ))
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.core.give_back(std::mem::take(&mut self.arrays));
    }
}

/// Array over ids of the batch, of the type that the sampler was made for.
macro_rules! ids {
    ($slf:expr, $field:ident) => {{
        let Batch { arrays, core, .. } = $slf.get();
        // SAFETY: the arrays belong to the batch, which is frozen, so that nobody moves them or writes to them.
        unsafe {
            if core.form().wide {
                view($slf, &arrays.wide.$field).into_any()
            } else {
                view($slf, &arrays.narrow.$field).into_any()
            }
        }
    }};
}

#[pymethods]
impl Batch {
    #[getter]
    fn edge_index<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().check_list()?;
        ids!(slf, edge_index).call_method1("reshape", (2, -1))
    }

    #[getter]
    fn n_id<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let Self { arrays, core, .. } = slf.get();
        if core.form().is_list {
            return Ok(ids!(slf, nodes));
        }
        // SAFETY: as in `ids!`.
        let narrow = unsafe { view::<i32, _>(slf, cast_slice(arrays.batch.blocks.inputs())) };
        if core.form().wide { narrow.call_method1("astype", ("int64",)) } else { Ok(narrow.into_any()) }
    }

    #[getter]
    fn e_id<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Ids<'py>>> {
        let Self { arrays, core, .. } = slf.get();
        if !core.form().edge_ids {
            return Ok(None);
        }
        slf.get().check_list()?;
        let block = arrays.batch.blocks.blocks.first().unwrap_or(&arrays.subgraph.block);
        let has_own = core.has_names() || !arrays.edge_ids.is_empty();
        // SAFETY: as in `ids!`.
        Ok(Some(unsafe { if has_own { view(slf, &arrays.edge_ids) } else { view(slf, cast_slice(&block.edge_ids)) } }))
    }

    #[getter]
    fn weights<'py>(slf: &Bound<'py, Self>) -> Option<Bound<'py, PyArray1<f32>>> {
        let arrays = &slf.get().arrays;
        // SAFETY: as in `ids!`.
        (!arrays.weights.is_empty()).then(|| unsafe { view(slf, &arrays.weights) })
    }

    #[getter]
    fn loss_weights<'py>(slf: &Bound<'py, Self>) -> Option<Bound<'py, PyArray1<f32>>> {
        let weights = &slf.get().arrays.subgraph.loss_weights;
        // SAFETY: as in `ids!`.
        (!weights.is_empty()).then(|| unsafe { view(slf, weights) })
    }

    #[getter]
    fn x<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Self { arrays, width, .. } = slf.get();
        if *width == 0 {
            return Ok(None);
        }
        // SAFETY: as in `ids!`.
        let flat = unsafe { view(slf, &arrays.x) };
        flat.call_method1("reshape", (-1, *width)).map(Some)
    }

    /// Position of the seed whose tree each node is in, of batches in time.
    #[getter]
    fn batch<'py>(slf: &Bound<'py, Self>) -> Option<Ids<'py>> {
        let trees = &slf.get().arrays.trees;
        // SAFETY: as in `ids!`.
        (!trees.is_empty()).then(|| unsafe { view(slf, trees) })
    }

    /// Digest of the blocks or of the subgraph, as `girih sample` prints it.
    #[getter]
    fn digest(&self) -> u64 {
        let Arrays { batch, subgraph, .. } = &self.arrays;
        if self.core.has_times() {
            batch.digest()
        } else if batch.blocks.blocks.is_empty() {
            subgraph.digest()
        } else {
            batch.blocks.digest()
        }
    }

    #[getter]
    fn batch_size(&self) -> usize {
        self.arrays.n_seeds
    }

    #[getter]
    fn number(&self) -> usize {
        self.arrays.number
    }

    #[getter]
    fn num_sampled_nodes(&self) -> PyResult<Vec<usize>> {
        self.check_list()?;
        let Arrays { wide, narrow, .. } = &self.arrays;
        Ok(if self.core.form().wide { wide.nodes_by_hop.clone() } else { narrow.nodes_by_hop.clone() })
    }

    #[getter]
    fn num_sampled_edges(&self) -> PyResult<Vec<usize>> {
        self.check_list()?;
        let Arrays { wide, narrow, .. } = &self.arrays;
        Ok(if self.core.form().wide { wide.edges_by_hop.clone() } else { narrow.edges_by_hop.clone() })
    }

    /// Blocks in the order of layers, the inputs first.
    fn blocks(slf: &Bound<'_, Self>) -> PyResult<Vec<Block>> {
        let batch = &slf.get().arrays.batch.blocks;
        if batch.blocks.is_empty() || (slf.get().core.form().is_list && batch.seeds().len() != slf.get().arrays.n_seeds)
        {
            return Err(value_error(
                "the batch is one list of edges: of a subgraph, or of seeds that are listed repeatedly",
            ));
        }
        Ok((0..batch.blocks.len()).map(|at| Block { batch: slf.clone().unbind(), at }).collect())
    }

    fn __repr__(&self) -> String {
        let n_edges =
            self.arrays.batch.blocks.blocks.first().map_or(self.arrays.subgraph.block.n_edges(), |b| b.n_edges());
        format!("girih.Batch(number={}, batch_size={}, num_edges={n_edges})", self.arrays.number, self.arrays.n_seeds)
    }
}

/// Bipartite graph of one layer: destinations are the first of the sources.
#[pyclass(frozen, module = "girih")]
pub struct Block {
    batch: Py<Batch>,
    at: usize,
}

impl Block {
    /// As `csc`, of a batch that is a list: arrays that the batch does not have are made.
    fn csc_of_list<'py>(&self, py: Python<'py>) -> (Bound<'py, PyAny>, Bound<'py, PyAny>, Option<Ids<'py>>) {
        let (batch, block, form) = (self.batch.get(), self.block(), self.batch.get().core.form());
        let mut made = BlockArrays::default();
        batch.core.fill(&mut made, block);
        let names = form.edge_ids.then(|| made.edge_ids.into_pyarray(py));
        let owner = self.batch.bind(py);
        // SAFETY: the arrays belong to the batch, which is frozen.
        let (indptr, indices) = unsafe {
            (view::<i64, _>(owner, cast_slice(&block.indptr)), view::<i32, _>(owner, cast_slice(&block.indices)))
        };
        if form.wide {
            (indptr.into_any(), made.indices.into_pyarray(py).into_any(), names)
        } else {
            (made.indptr.into_pyarray(py).into_any(), indices.into_any(), names)
        }
    }

    pub fn block(&self) -> &girih_sampling::Block {
        &self.batch.get().arrays.batch.blocks.blocks[self.at]
    }

    /// Graph that the block was sampled from; `None` if its edges have times.
    pub fn graph(&self) -> Option<&girih_graph_format::Csr> {
        self.batch.get().core.csr()
    }
}

#[pymethods]
impl Block {
    #[getter]
    fn num_src(&self) -> usize {
        self.block().nodes.len()
    }

    #[getter]
    fn num_dst(&self) -> usize {
        self.block().n_destinations
    }

    #[getter]
    fn num_edges(&self) -> usize {
        self.block().n_edges()
    }

    /// Offsets of rows of destinations, sources of edges by local id, and names of edges.
    fn csc<'py>(&self, py: Python<'py>) -> (Bound<'py, PyAny>, Bound<'py, PyAny>, Option<Ids<'py>>) {
        let (batch, block, form) = (self.batch.get(), self.block(), self.batch.get().core.form());
        let owner = self.batch.bind(py);
        let Some(made) = batch.arrays.blocks.get(self.at).filter(|_| !form.is_list) else {
            return self.csc_of_list(py);
        };
        // SAFETY: the arrays belong to the batch, which is frozen.
        unsafe {
            let names = form.edge_ids.then(|| view(owner, &made.edge_ids));
            if form.wide {
                let indptr = view::<i64, _>(owner, cast_slice(&block.indptr));
                (indptr.into_any(), view(owner, &made.indices).into_any(), names)
            } else {
                let indices = view::<i32, _>(owner, cast_slice(&block.indices));
                (view(owner, &made.indptr).into_any(), indices.into_any(), names)
            }
        }
    }

    #[getter]
    fn weights<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<f32>>> {
        let weights = &self.block().weights;
        // SAFETY: as in `csc`.
        (!weights.is_empty()).then(|| unsafe { view(self.batch.bind(py), weights) })
    }

    /// Global ids of the sources, the destinations first.
    #[getter]
    fn n_id<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: as in `csc`.
        let narrow = unsafe { view::<i32, _>(self.batch.bind(py), cast_slice(&self.block().nodes)) };
        if self.batch.get().core.form().wide {
            narrow.call_method1("astype", ("int64",))
        } else {
            Ok(narrow.into_any())
        }
    }

    fn __repr__(&self) -> String {
        let block = self.block();
        format!(
            "girih.Block(num_src={}, num_dst={}, num_edges={})",
            block.nodes.len(),
            block.n_destinations,
            block.n_edges()
        )
    }
}
