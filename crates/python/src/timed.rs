//! `TimedGraph`: edges with their times, for sampling that reads nothing later than a seed.

use std::sync::{Arc, OnceLock};

use girih_graph_format::{TimedEdge, TimedRows, Times};
use numpy::IntoPyArray;
use pyo3::prelude::*;

use crate::arrays::{Ids, edges, times_of};
use crate::errors::of_format;
use crate::threads::on_pool;

/// Directed graph whose edges have times, and may repeat. Edges are named by their columns in the caller's `edge_index`.
#[pyclass(frozen, module = "girih")]
pub struct TimedGraph {
    pub rows: Arc<TimedRows>,
    /// Name of the edge of each entry; made when it is first asked for.
    names: OnceLock<Arc<Vec<i64>>>,
}

#[pymethods]
impl TimedGraph {
    #[staticmethod]
    #[pyo3(signature = (edge_index, times, num_nodes = None, symmetrize = false))]
    fn from_edge_index(
        edge_index: &Bound<'_, PyAny>,
        times: &Bound<'_, PyAny>,
        num_nodes: Option<usize>,
        symmetrize: bool,
    ) -> PyResult<Self> {
        let ([sources, destinations], n_nodes) = edges(edge_index, num_nodes)?;
        let times = Times { values: times_of("times", times, sources.len())?, ..Times::default() };
        let made = on_pool(edge_index.py(), || TimedRows::new(n_nodes, &sources, &destinations, &times, symmetrize))?;
        Ok(Self::of(Arc::new(made.map_err(of_format)?)))
    }

    #[getter]
    fn num_nodes(&self) -> usize {
        self.rows.n_nodes()
    }

    #[getter]
    fn num_edges(&self) -> usize {
        self.rows.n_edges()
    }

    /// Earliest and latest time; `None` without edges.
    #[getter]
    fn span(&self) -> Option<(i64, i64)> {
        self.rows.span()
    }

    /// Sources and destinations, by the numbers of edges.
    fn edge_index<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let flat = on_pool(py, || self.by_number(|edge| [i64::from(edge.source), i64::from(edge.destination)]))?;
        let flat: Vec<i64> = [0, 1].into_iter().flat_map(|side| flat.iter().map(move |ends| ends[side])).collect();
        flat.into_pyarray(py).call_method1("reshape", (2, self.rows.n_edges()))
    }

    /// Time of each edge, by the numbers of edges.
    fn times<'py>(&self, py: Python<'py>) -> PyResult<Ids<'py>> {
        Ok(on_pool(py, || self.by_number(|edge| edge.time))?.into_pyarray(py))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let (py, graph) = (slf.py(), slf.get());
        let both_ways = graph.rows.goes_both_ways();
        let state = (graph.edge_index(py)?, graph.times(py)?, graph.num_nodes(), both_ways).into_pyobject(py)?;
        Ok((py.get_type::<Self>().getattr("from_edge_index")?, state.into_any()))
    }

    fn __repr__(&self) -> String {
        format!("girih.TimedGraph(num_nodes={}, num_edges={})", self.rows.n_nodes(), self.rows.n_edges())
    }
}

impl TimedGraph {
    pub fn of(rows: Arc<TimedRows>) -> Self {
        Self { rows, names: OnceLock::new() }
    }

    /// Name of the edge of each entry, which all samplers of the graph share.
    pub fn names(&self) -> Arc<Vec<i64>> {
        let made = || Arc::new(self.rows.edge_numbers().iter().map(|&edge| i64::from(edge)).collect());
        Arc::clone(self.names.get_or_init(made))
    }

    /// Values of all edges, by the numbers of edges.
    fn by_number<V: Copy + Default>(&self, value: impl Fn(&TimedEdge) -> V) -> Vec<V> {
        let mut values = vec![V::default(); self.rows.n_edges()];
        self.rows.edges_in_time().iter().for_each(|edge| values[edge.edge as usize] = value(edge));
        values
    }
}
