//! `Graph`: in-neighbors by node, with the names that the caller gave to edges.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use bytemuck::cast_slice;
use girih_datasets::{Components, LoadOptions};
use girih_graph_format::{Buffer, Coo, Csr, Duplicates, NodeId, Permutation};
use girih_reorder::spy::{self, FILE_SIDE, Spy};
use girih_reorder::{OrderKind, Quality};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::arrays::{Ids, columns, edges, floats, frozen_view, ids_array, node_ids, offsets};
use crate::errors::{of_dataset, of_format, value_error};
use crate::nn::Operands;
use crate::threads::{interruptible, on_pool};

/// PNG of the adjacencies of graphs, side by side on one scale.
#[pyfunction]
pub fn spy_png<'py>(py: Python<'py>, graphs: Vec<Bound<'py, Graph>>) -> PyResult<Bound<'py, PyBytes>> {
    let graphs: Vec<Csr> = graphs.iter().map(|graph| graph.get().csr.clone()).collect();
    let draw = move || spy::side_by_side(&graphs.iter().map(|csr| Spy::of(csr, FILE_SIDE)).collect::<Vec<_>>());
    Ok(PyBytes::new(py, &interruptible(py, draw)?))
}

/// Name of the edge at each position: its column in the caller's `edge_index`. `None`: the position itself.
pub type EdgeNames = Option<Arc<Vec<i64>>>;

/// Positions of edges by their names, made when they are first asked for.
#[derive(Default)]
pub struct EdgePositions(OnceLock<Vec<u64>>);

impl EdgePositions {
    /// Position of a named edge among `n_edges`, if there is one.
    pub fn of(&self, name: u64, names: &EdgeNames, n_edges: usize) -> Option<u64> {
        let Some(names) = names else { return (name < n_edges as u64).then_some(name) };
        let made = || {
            let n_names = names.iter().max().map_or(0, |&name| name as usize + 1);
            let mut positions = vec![u64::MAX; n_names];
            (0..).zip(names.iter()).for_each(|(position, &name)| positions[name as usize] = position);
            positions
        };
        // A name that no edge has is `u64::MAX`.
        self.0.get_or_init(made).get(name as usize).copied().filter(|&position| position != u64::MAX)
    }
}

/// Directed graph. Row `v` of its CSR lists the sources of the edges that end in node `v`.
#[pyclass(frozen, module = "girih")]
pub struct Graph {
    pub csr: Csr,
    pub names: EdgeNames,
    positions: EdgePositions,
    /// SPEC that the graph was loaded from as it is: it pickles as this.
    spec: Option<String>,
    /// Operands of layers, made when they are first asked for.
    pub operands: OnceLock<Arc<Operands>>,
}

impl Graph {
    pub fn new(csr: Csr, names: EdgeNames) -> Self {
        Self { csr, names, positions: EdgePositions::default(), spec: None, operands: OnceLock::new() }
    }

    pub fn of_spec(csr: Csr, spec: String) -> Self {
        Self { spec: csr.is_mapped().then_some(spec), ..Self::new(csr, None) }
    }

    /// Position of a named edge, if there is one.
    pub fn position_of(&self, name: u64) -> Option<u64> {
        self.positions.of(name, &self.names, self.csr.nnz())
    }

    /// Weights by edge name as weights by position.
    pub fn by_position(&self, weights: &[f32]) -> PyResult<Vec<f32>> {
        let Some(names) = &self.names else { return Ok(weights.to_vec()) };
        let n_names = names.iter().max().map_or(0, |&name| name as usize + 1);
        if weights.len() < n_names {
            return Err(value_error(format!("{} weights for edges named up to {}", weights.len(), n_names - 1)));
        }
        Ok(names.iter().map(|&name| weights[name as usize]).collect())
    }

    fn renamed(&self, order: &Permutation) -> Self {
        let (csr, positions) = self.csr.permuted_with_positions(order);
        let name = |&position: &u64| self.names.as_ref().map_or(position as i64, |names| names[position as usize]);
        Self::new(csr, Some(Arc::new(positions.iter().map(name).collect())))
    }
}

/// Rows of a list, with the names of the edges; a message why there are none.
pub fn named_rows(coo: &Coo, duplicates: Duplicates) -> Result<(Csr, EdgeNames), String> {
    let (csr, positions) = coo.to_csr_with_positions(duplicates).map_err(|error| match duplicates {
        Duplicates::Refuse => format!("{error}; duplicates=\"merge\" keeps the first, \"sum\" adds them up"),
        _ => error.to_string(),
    })?;
    // Edges that are listed in the order of rows are named by their positions.
    let is_in_order = csr.nnz() == coo.len() && positions.is_sorted();
    Ok((csr, (!is_in_order).then(|| Arc::new(bytemuck::cast_vec(positions)))))
}

fn of_list(coo: &Coo, duplicates: Duplicates) -> PyResult<Graph> {
    named_rows(coo, duplicates).map(|(csr, names)| Graph::new(csr, names)).map_err(value_error)
}

/// Sources, then destinations, of the edges of a matrix in the order of its rows.
pub fn listed(csr: &Csr) -> Vec<i64> {
    let mut flat = Vec::with_capacity(2 * csr.nnz());
    flat.extend(csr.indices().iter().map(|&source| i64::from(source)));
    (0..csr.n_rows()).for_each(|v| flat.extend(std::iter::repeat_n(v as i64, csr.degree(v))));
    flat
}

fn rule(duplicates: &str) -> PyResult<Duplicates> {
    duplicates.parse().map_err(value_error)
}

#[pymethods]
impl Graph {
    /// See the stub.
    #[staticmethod]
    #[pyo3(signature = (edge_index, num_nodes = None, *, weights = None, duplicates = "refuse"))]
    fn from_edge_index(
        edge_index: &Bound<'_, PyAny>,
        num_nodes: Option<usize>,
        weights: Option<&Bound<'_, PyAny>>,
        duplicates: &str,
    ) -> PyResult<Self> {
        let rule = rule(duplicates)?;
        let ([sources, destinations], n_nodes) = edges(edge_index, num_nodes)?;
        let weights = weights.map(|weights| floats("weights", weights)).transpose()?;
        on_pool(edge_index.py(), || {
            let weights = weights.map(|weights| weights.to_vec());
            of_list(&Coo::new(n_nodes, n_nodes, destinations, sources, weights).map_err(value_error)?, rule)
        })?
    }

    #[staticmethod]
    #[pyo3(signature = (indptr, indices, *, weights = None, duplicates = "refuse"))]
    fn from_csr(
        indptr: &Bound<'_, PyAny>,
        indices: &Bound<'_, PyAny>,
        weights: Option<&Bound<'_, PyAny>>,
        duplicates: &str,
    ) -> PyResult<Self> {
        let (py, rule) = (indptr.py(), rule(duplicates)?);
        let indptr = offsets("indptr", indptr)?;
        let Some(n_nodes) = indptr.len().checked_sub(1) else {
            return Err(value_error("indptr is empty; a graph of n nodes has n + 1 offsets"));
        };
        let indices = columns("indices", indices, n_nodes)?;
        let weights = weights.map(|weights| floats("weights", weights)).transpose()?;
        on_pool(py, || of_rows(n_nodes, indptr, indices, weights, rule))?
    }

    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let spec = path.to_string_lossy().into_owned();
        let of = spec.clone();
        let data =
            interruptible(py, move || girih_datasets::load(&of, &LoadOptions::default()))?.map_err(of_dataset)?;
        Ok(Self::of_spec(data.graph, spec))
    }

    #[getter]
    fn num_nodes(&self) -> usize {
        self.csr.n_rows()
    }

    #[getter]
    fn num_edges(&self) -> usize {
        self.csr.nnz()
    }

    #[getter]
    fn is_mapped(&self) -> bool {
        self.csr.is_mapped()
    }

    /// Offsets and sources, as they lie: read only, no copy.
    #[getter]
    fn csr<'py>(slf: &Bound<'py, Self>) -> PyResult<(Ids<'py>, Bound<'py, PyArray1<i32>>)> {
        let csr = &slf.get().csr;
        // SAFETY: both arrays belong to the graph, which is frozen.
        unsafe { Ok((frozen_view(slf, cast_slice(csr.indptr()))?, frozen_view(slf, cast_slice(csr.indices()))?)) }
    }

    #[getter]
    fn weights<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyArray1<f32>>>> {
        // SAFETY: as for `csr`.
        slf.get().csr.values().map(|values| unsafe { frozen_view(slf, values) }).transpose()
    }

    #[getter]
    fn edge_ids<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Ids<'py>>> {
        // SAFETY: as for `csr`.
        slf.get().names.as_ref().map(|names| unsafe { frozen_view(slf, &names[..]) }).transpose()
    }

    /// Sources and destinations, in the order of rows.
    fn edge_index<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let flat = on_pool(py, || listed(&self.csr))?;
        flat.into_pyarray(py).call_method1("reshape", (2, self.csr.nnz()))
    }

    #[pyo3(signature = (order = "community", *, seed = 0, blocks = 1))]
    fn reorder<'py>(&self, py: Python<'py>, order: &str, seed: u64, blocks: usize) -> PyResult<(Self, Ids<'py>)> {
        let (kind, csr): (OrderKind, _) = (order.parse().map_err(value_error)?, self.csr.clone());
        let order = interruptible(py, move || kind.order(blocks, seed).order(&csr))?.map_err(value_error)?;
        let renamed = on_pool(py, || self.renamed(&order))?;
        Ok((renamed, ids_array(py, order.new_of_old())))
    }

    /// The graph whose node `new_ids[v]` is node `v` of this one.
    fn permute(&self, new_ids: &Bound<'_, PyAny>) -> PyResult<Self> {
        let n_nodes = self.csr.n_rows();
        let new_of_old = node_ids("new_ids", new_ids, n_nodes)?;
        if new_of_old.len() != n_nodes {
            return Err(value_error(format!("{} new ids for {n_nodes} nodes; give one for each", new_of_old.len())));
        }
        let order = Permutation::from_new_of_old(new_of_old).map_err(value_error)?;
        on_pool(new_ids.py(), || self.renamed(&order))
    }

    fn symmetrized(&self, py: Python<'_>) -> PyResult<Self> {
        Ok(Self::new(on_pool(py, || self.csr.symmetrized())?, None))
    }

    fn is_symmetric(&self, py: Python<'_>) -> PyResult<bool> {
        on_pool(py, || self.csr.is_symmetric())
    }

    #[pyo3(signature = (num_parts, *, method = "metis"))]
    fn partition<'py>(&self, py: Python<'py>, num_parts: usize, method: &str) -> PyResult<Ids<'py>> {
        if num_parts == 0 {
            return Err(value_error("0 parts; give at least 1"));
        }
        let csr = self.csr.clone();
        let parts = match method {
            "metis" => interruptible(py, move || girih_reorder::clusters(&csr, num_parts))?.map_err(value_error)?,
            "streaming" => interruptible(py, move || girih_reorder::streaming_clusters(&csr, num_parts))?,
            other => return Err(value_error(format!("no method {other:?}; there are \"metis\" and \"streaming\""))),
        };
        Ok(ids_array(py, &parts))
    }

    fn quality<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let csr = self.csr.clone();
        let quality = interruptible(py, move || Quality::of(&csr))?;
        let out = PyDict::new(py);
        out.set_item("bandwidth", quality.gaps.bandwidth)?;
        out.set_item("mean_log2_gap", quality.gaps.mean_log2)?;
        out.set_item("window_reuse", quality.window_reuse)?;
        out.set_item("dense_tile_share", quality.dense_tile_share)?;
        out.set_item("coverage_128", quality.coverage_128)?;
        out.set_item("coverage_256", quality.coverage_256)?;
        out.set_item("lru_hit_rate", quality.lru_hit_rate)?;
        Ok(out)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let csr = self.csr.clone();
        let stats = interruptible(py, move || Stats::of(&csr))?;
        let out = PyDict::new(py);
        out.set_item("num_nodes", self.csr.n_rows())?;
        out.set_item("num_edges", self.csr.nnz())?;
        out.set_item("num_self_loops", stats.n_self_loops)?;
        out.set_item("num_isolated", stats.n_isolated)?;
        out.set_item("num_components", stats.n_components)?;
        out.set_item("is_symmetric", stats.is_symmetric)?;
        out.set_item("max_in_degree", stats.max_in_degree)?;
        out.set_item("mean_degree", self.csr.nnz() as f64 / self.csr.n_rows().max(1) as f64)?;
        Ok(out)
    }

    /// Arrays for a pickle, or the SPEC of a mapped graph.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let (py, graph) = (slf.py(), slf.get());
        let class = py.get_type::<Self>();
        if let Some(spec) = &graph.spec {
            return Ok((class.getattr("open")?, (spec,).into_pyobject(py)?.into_any()));
        }
        let (indptr, indices) = Self::csr(slf)?;
        let state = (indptr, indices, Self::weights(slf)?, Self::edge_ids(slf)?).into_pyobject(py)?.into_any();
        Ok((class.getattr("_from_state")?, state))
    }

    #[staticmethod]
    fn _from_state(
        indptr: &Bound<'_, PyAny>,
        indices: &Bound<'_, PyAny>,
        weights: Option<&Bound<'_, PyAny>>,
        edge_ids: Option<Vec<i64>>,
    ) -> PyResult<Self> {
        let mut graph = Self::from_csr(indptr, indices, weights, "refuse")?;
        if let Some(names) = edge_ids {
            if names.len() != graph.csr.nnz() || names.iter().any(|&name| name < 0) {
                return Err(value_error("the pickled names of edges are not those of its edges"));
            }
            graph.names = Some(Arc::new(names));
        }
        Ok(graph)
    }

    fn __repr__(&self) -> String {
        format!("girih.Graph(num_nodes={}, num_edges={})", self.csr.n_rows(), self.csr.nnz())
    }
}

/// Graph of a CSR whose rows may be in any order: in place where they ascend, else sorted, with positions as names.
fn of_rows(
    n_nodes: usize,
    indptr: Buffer<u64>,
    indices: Buffer<NodeId>,
    weights: Option<Buffer<f32>>,
    rule: Duplicates,
) -> PyResult<Graph> {
    let ascend = |v: usize| -> Option<bool> {
        let row = indices.get(indptr[v] as usize..indptr[v + 1] as usize)?;
        Some(row.is_sorted_by(|a, b| a < b))
    };
    if (0..n_nodes).all(|v| ascend(v) != Some(false)) {
        let csr = Csr::new(n_nodes, n_nodes, indptr, indices, weights).map_err(of_format)?;
        return Ok(Graph::new(csr, None));
    }
    let counts_fit = indptr[0] == 0 && indptr.is_sorted() && indptr[n_nodes] == indices.len() as u64;
    if !counts_fit {
        return Err(value_error(format!(
            "indptr does not divide the {} entries of indices into {n_nodes} rows; it starts at 0, never falls, and ends there",
            indices.len()
        )));
    }
    let lengths = indptr.windows(2).map(|ends| (ends[1] - ends[0]) as usize);
    let rows = (0..).zip(lengths).flat_map(|(v, n): (NodeId, usize)| std::iter::repeat_n(v, n)).collect();
    let coo = Coo::new(n_nodes, n_nodes, rows, indices.to_vec(), weights.map(|weights| weights.to_vec()));
    of_list(&coo.map_err(value_error)?, rule)
}

/// Numbers that describe a graph.
struct Stats {
    n_self_loops: usize,
    n_isolated: usize,
    n_components: usize,
    is_symmetric: bool,
    max_in_degree: usize,
}

impl Stats {
    fn of(csr: &Csr) -> Self {
        let n = csr.n_rows();
        let mut has_edge = vec![false; n];
        csr.indices().iter().for_each(|&source| has_edge[source as usize] = true);
        (0..n).filter(|&v| csr.degree(v) > 0).for_each(|v| has_edge[v] = true);
        Self {
            n_self_loops: (0..n).filter(|&v| csr.row(v).binary_search(&(v as NodeId)).is_ok()).count(),
            n_isolated: has_edge.iter().filter(|has| !**has).count(),
            n_components: Components::of(csr).count(),
            is_symmetric: csr.is_symmetric(),
            max_in_degree: (0..n).map(|v| csr.degree(v)).max().unwrap_or(0),
        }
    }
}
