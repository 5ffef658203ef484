//! `TypedBatch` and `TypedBlock`: what typed samplers return, as arrays over the memory of the batch.

use std::sync::Arc;

use bytemuck::cast_slice;
use girih_sampling::{RelationRows, TypedBlock as Sampled};
use numpy::IntoPyArray;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::sampler::{TypedArrays, TypedCore};
use crate::arrays::view;
use crate::errors::value_error;

/// Mini-batch of a typed graph. Its arrays are views of its memory, which goes back to the sampler with the last of them.
#[pyclass(frozen, module = "girih")]
pub struct TypedBatch {
    arrays: TypedArrays,
    core: Arc<TypedCore>,
    /// Number of features of a row of each node type; 0 for none, and empty for a batch without features.
    widths: Vec<usize>,
}

impl TypedBatch {
    pub fn new(arrays: TypedArrays, core: Arc<TypedCore>, widths: Vec<usize>) -> Self {
        Self { arrays, core, widths }
    }

    fn check_list(&self) -> PyResult<()> {
        if self.core.is_list() {
            return Ok(());
        }
        Err(value_error(
            "all nodes of the batch drew anew in every hop, so that it is no single list of edges; read blocks(), or make the \
             sampler with expand=\"once\"",
        ))
    }

    /// Dictionary of a value for each node type.
    fn by_node_type<'py, V: IntoPyObject<'py>>(
        &self,
        py: Python<'py>,
        value: impl Fn(usize) -> PyResult<V>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let made = PyDict::new(py);
        for (number, of) in self.core.held.graph.schema().node_types().iter().enumerate() {
            made.set_item(&of.name, value(number)?)?;
        }
        Ok(made)
    }

    /// Dictionary of a value for each edge type.
    fn by_edge_type<'py, V: IntoPyObject<'py>>(
        &self,
        py: Python<'py>,
        value: impl Fn(usize) -> PyResult<V>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let made = PyDict::new(py);
        for number in 0..self.core.held.names.len() {
            made.set_item(self.core.held.edge_type(py, number)?, value(number)?)?;
        }
        Ok(made)
    }
}

impl Drop for TypedBatch {
    fn drop(&mut self) {
        self.core.give_back(std::mem::take(&mut self.arrays));
    }
}

#[pymethods]
impl TypedBatch {
    /// Sources and destinations by local id, 2 × edges, of each edge type.
    #[getter]
    fn edge_index<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let batch = slf.get();
        batch.check_list()?;
        batch.by_edge_type(slf.py(), |number| {
            // SAFETY: the arrays belong to the batch, which is frozen, so that nobody moves them or writes to them.
            let flat = unsafe { view(slf, &batch.arrays.list.edge_index[number]) };
            flat.call_method1("reshape", (2, flat.len()? / 2))
        })
    }

    /// Ids inside the type of the nodes of each type.
    #[getter]
    fn n_id<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let batch = slf.get();
        batch.by_node_type(slf.py(), |number| {
            if batch.core.is_list() {
                // SAFETY: as in `edge_index`.
                return Ok(unsafe { view(slf, &batch.arrays.list.nodes[number]) }.into_any());
            }
            // SAFETY: as in `edge_index`.
            let narrow = unsafe { view::<i32, _>(slf, cast_slice(&batch.arrays.batch.nodes[number])) };
            narrow.call_method1("astype", ("int64",))
        })
    }

    /// Name of each edge inside its type.
    #[getter]
    fn e_id<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let batch = slf.get();
        if !batch.core.keeps_edge_ids() {
            return Ok(None);
        }
        batch.check_list()?;
        let (arrays, names) = (&batch.arrays, &batch.core.held.names);
        let of_type = |number: usize| {
            // SAFETY: as in `edge_index`.
            Ok(unsafe {
                match (&names[number], arrays.batch.blocks.first()) {
                    (None, Some(block)) => view::<i64, _>(slf, cast_slice(&block.relations[number].edge_ids)),
                    _ => view(slf, &arrays.edge_ids[number]),
                }
            })
        };
        batch.by_edge_type(slf.py(), of_type).map(Some)
    }

    /// Feature rows of `n_id`, of the types with features.
    #[getter]
    fn x<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let batch = slf.get();
        let made = PyDict::new(slf.py());
        let types = batch.core.held.graph.schema().node_types().iter().zip(&batch.widths);
        for ((of, &width), rows) in types.zip(&batch.arrays.x) {
            if width > 0 {
                // SAFETY: as in `edge_index`.
                let flat = unsafe { view(slf, rows) };
                made.set_item(&of.name, flat.call_method1("reshape", (-1, width))?)?;
            }
        }
        Ok(made)
    }

    /// Digest of the blocks, as `girih sample` prints it.
    #[getter]
    fn digest(&self) -> u64 {
        self.arrays.batch.digest()
    }

    /// Number of seeds of each type that has some.
    #[getter]
    fn num_seeds<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let made = PyDict::new(py);
        let types = self.core.held.graph.schema().node_types().iter().zip(&self.arrays.n_seeds);
        types.filter(|(_, n)| **n > 0).try_for_each(|(of, n)| made.set_item(&of.name, n))?;
        Ok(made)
    }

    /// Number of seeds of all types.
    #[getter]
    fn batch_size(&self) -> usize {
        self.arrays.n_seeds.iter().sum()
    }

    #[getter]
    fn number(&self) -> usize {
        self.arrays.number
    }

    #[getter]
    fn num_sampled_nodes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.check_list()?;
        self.by_node_type(py, |number| Ok(self.arrays.list.nodes_by_hop[number].clone()))
    }

    #[getter]
    fn num_sampled_edges<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.check_list()?;
        self.by_edge_type(py, |number| Ok(self.arrays.list.edges_by_hop[number].clone()))
    }

    /// Blocks in the order of layers, the inputs first.
    fn blocks(slf: &Bound<'_, Self>) -> Vec<TypedBlock> {
        (0..slf.get().arrays.batch.blocks.len()).map(|at| TypedBlock { batch: slf.clone().unbind(), at }).collect()
    }

    fn __repr__(&self) -> String {
        let n_edges = self.arrays.batch.blocks.first().map_or(0, girih_sampling::TypedBlock::n_edges);
        let n_seeds: usize = self.batch_size();
        format!("girih.TypedBatch(number={}, batch_size={n_seeds}, num_edges={n_edges})", self.arrays.number)
    }
}

/// Bipartite graphs of one layer, one for each edge type: destinations of a type are the first of its sources.
#[pyclass(frozen, module = "girih")]
pub struct TypedBlock {
    batch: Py<TypedBatch>,
    at: usize,
}

impl TypedBlock {
    fn block(&self) -> &Sampled {
        &self.batch.get().arrays.batch.blocks[self.at]
    }
}

#[pymethods]
impl TypedBlock {
    #[getter]
    fn num_src<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.batch.get().by_node_type(py, |number| Ok(self.block().n_sources[number]))
    }

    #[getter]
    fn num_dst<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.batch.get().by_node_type(py, |number| Ok(self.block().n_destinations[number]))
    }

    #[getter]
    fn num_edges<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.batch.get().by_edge_type(py, |number| Ok(self.block().relations[number].indices.len()))
    }

    /// Ids inside the type of the sources of each type, the destinations first.
    #[getter]
    fn n_id<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (batch, block) = (self.batch.get(), self.block());
        batch.by_node_type(py, |number| {
            let nodes = &batch.arrays.batch.nodes[number][..block.n_sources[number]];
            // SAFETY: the arrays belong to the batch, which is frozen.
            unsafe { view::<i32, _>(self.batch.bind(py), cast_slice(nodes)) }.call_method1("astype", ("int64",))
        })
    }

    /// Offsets of rows of destinations, sources of edges by local id, and names of edges, of each edge type.
    fn csc<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let batch = self.batch.get();
        batch.by_edge_type(py, |number| {
            let RelationRows { indptr, indices, edge_ids } = &self.block().relations[number];
            let sources: Vec<i64> = indices.iter().map(|&id| i64::from(id)).collect();
            let name = |&at: &u64| match &batch.core.held.names[number] {
                Some(names) => names[at as usize],
                None => at.cast_signed(),
            };
            let named: Option<Vec<i64>> = batch.core.keeps_edge_ids().then(|| edge_ids.iter().map(name).collect());
            // SAFETY: the arrays belong to the batch, which is frozen.
            let offsets = unsafe { view::<i64, _>(self.batch.bind(py), cast_slice(indptr)) };
            Ok((offsets, sources.into_pyarray(py), named.map(|named| named.into_pyarray(py))))
        })
    }

    fn __repr__(&self) -> String {
        format!("girih.TypedBlock(num_edges={})", self.block().n_edges())
    }
}
