//! `Sampler`: mini-batches of a graph, by any of girih's samplers.

use std::sync::Arc;

use girih_graph_format::NodeId;
use girih_sampling::{
    Admits, Bias, Bound as TimeBound, ClusterSampler, DrawKey, Draws, ExcludedEdges, Expand, FanOut, LayerSampler,
    NeighborOptions, NeighborSampler, Neighbors, SaintSampler, TimeRule, TimedOptions, TimedSampler,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::{floats, node_ids, offsets, times_of};
use crate::batch::Batch;
use crate::core::{Core, Drawing, Form, Method, Seeds};
use crate::errors::{index_error, of_sampling, type_error, value_error};
use crate::graph::Graph;
use crate::options::Options;
use crate::threads::{interruptible, on_pool, without_gil};
use crate::timed::TimedGraph;

/// Sampler of mini-batches. Equal arguments give equal batches, on any thread of any process.
#[pyclass(frozen, module = "girih")]
pub struct Sampler {
    pub core: Arc<Core>,
    /// A `Graph` or a `TimedGraph`.
    graph: Py<PyAny>,
    /// Constructor and arguments, for a pickle.
    made_by: (&'static str, Py<PyDict>),
}

fn fan_out(num_neighbors: &[i64]) -> PyResult<FanOut> {
    let hop = |(at, &n): (usize, &i64)| match n {
        -1 => Ok(Neighbors::All),
        1..=0x7fff_ffff => Ok(Neighbors::Count(n as u32)),
        _ => Err(value_error(format!("hop {at} of num_neighbors is {n}; give a number from 1 on, or -1 for all"))),
    };
    FanOut::new(num_neighbors.iter().enumerate().map(hop).collect::<PyResult<Vec<_>>>()?).map_err(of_sampling)
}

fn is_wide(index_dtype: &str) -> PyResult<bool> {
    match index_dtype {
        "int64" => Ok(true),
        "int32" => Ok(false),
        other => Err(value_error(format!("no index_dtype {other:?}; there are \"int64\" and \"int32\""))),
    }
}

fn draws_of(name: &str) -> PyResult<Draws> {
    match name {
        "node" => Ok(Draws::PerNode),
        "layer" => Ok(Draws::PerLayer),
        "labor" => Ok(Draws::Labor),
        other => Err(value_error(format!("no draws {other:?}; there are \"node\", \"layer\" and \"labor\""))),
    }
}

pub fn expand_of(name: &str) -> PyResult<Expand> {
    match name {
        "once" => Ok(Expand::Once),
        "per-layer" => Ok(Expand::PerLayer),
        other => Err(value_error(format!("no expand {other:?}; there are \"once\" (PyG) and \"per-layer\" (DGL)"))),
    }
}

/// Dictionary of constructor arguments.
macro_rules! arguments {
    ($py:expr, $($name:ident),*) => {{
        let arguments = PyDict::new($py);
        $(arguments.set_item(stringify!($name), &$name)?;)*
        arguments.unbind()
    }};
}

#[pymethods]
impl Sampler {
    #[new]
    #[pyo3(signature = (graph, num_neighbors, **options))]
    fn new(graph: &Bound<'_, Graph>, num_neighbors: Vec<i64>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let py = graph.py();
        let made_by = options.map_or_else(|| Ok(PyDict::new(py)), |options| options.copy())?;
        made_by.set_item("num_neighbors", &num_neighbors)?;
        let mut options = Options::new("Sampler", options)?;
        let (replace, edge_ids) = (options.or("replace", false)?, options.or("edge_ids", true)?);
        let weights = options.take::<Bound<'_, PyAny>>("weights")?;
        let expand = expand_of(&options.or("expand", "once".to_owned())?)?;
        let draws = draws_of(&options.or("draws", "node".to_owned())?)?;
        let wide = is_wide(&options.or("index_dtype", "int64".to_owned())?)?;
        options.finish()?;
        let options = NeighborOptions { replace, expand, draws, edge_ids, ..Default::default() };
        let is_list = expand == Expand::Once || num_neighbors.len() == 1;
        let mut sampler = NeighborSampler::new(fan_out(&num_neighbors)?, options).map_err(of_sampling)?;
        if let Some(weights) = weights {
            if options.draws == Draws::Labor {
                return Err(value_error("draws=\"labor\" has no weights of edges; leave weights out, or draw by node"));
            }
            let by_position = graph.get().by_position(&floats("weights", &weights)?)?;
            let csr = &graph.get().csr;
            sampler = sampler.weighted(on_pool(py, || Bias::new(csr, &by_position))?.map_err(of_sampling)?);
        }
        let form = Form { wide, edge_ids, is_list, has_repeats: options.replace };
        Ok(Self::of(graph, Method::Neighbors(sampler), form, ("Sampler", made_by.unbind())))
    }

    #[staticmethod]
    #[pyo3(signature = (graph, sizes, *, method = "ladies", replace = false, index_dtype = "int64"))]
    fn layerwise(
        graph: &Bound<'_, Graph>,
        sizes: Vec<i64>,
        method: &str,
        replace: bool,
        index_dtype: &str,
    ) -> PyResult<Self> {
        let made_by = arguments!(graph.py(), sizes, method, replace, index_dtype);
        let sizes = fan_out(&sizes)?;
        let sampler = match method {
            "ladies" => LayerSampler::ladies(sizes, replace),
            "fastgcn" => LayerSampler::fast_gcn(&graph.get().csr, sizes, replace).map_err(of_sampling)?,
            other => return Err(value_error(format!("no method {other:?}; there are \"ladies\" and \"fastgcn\""))),
        };
        let form = Form { wide: is_wide(index_dtype)?, edge_ids: true, is_list: false, has_repeats: false };
        Ok(Self::of(graph, Method::Layers(sampler), form, ("layerwise", made_by)))
    }

    #[staticmethod]
    #[pyo3(signature = (graph, cluster_of, *, clusters_per_batch = 1, index_dtype = "int64"))]
    fn clusters(
        graph: &Bound<'_, Graph>,
        cluster_of: &Bound<'_, PyAny>,
        clusters_per_batch: usize,
        index_dtype: &str,
    ) -> PyResult<Self> {
        let made_by = arguments!(graph.py(), cluster_of, clusters_per_batch, index_dtype);
        let cluster_of = offsets("cluster_of", cluster_of)?;
        let n_clusters = cluster_of.iter().max().map_or(0, |&largest| largest as usize + 1);
        let of_node: Vec<u32> = cluster_of.iter().map(|&cluster| cluster as u32).collect();
        if n_clusters > of_node.len() || of_node.len() != graph.get().csr.n_rows() {
            return Err(value_error(format!(
                "cluster_of has {} entries up to cluster {}, for {} nodes; give each node a cluster, counted from 0",
                of_node.len(),
                n_clusters.saturating_sub(1),
                graph.get().csr.n_rows()
            )));
        }
        let sampler = ClusterSampler::new(&of_node, n_clusters, clusters_per_batch).map_err(of_sampling)?;
        let form = Form { wide: is_wide(index_dtype)?, edge_ids: true, is_list: true, has_repeats: false };
        Ok(Self::of(graph, Method::Subgraphs(Box::new(sampler)), form, ("clusters", made_by)))
    }

    #[staticmethod]
    #[pyo3(signature = (graph, size, *, method = "walks", walk_length = 2, num_presampled = 50, seed = 0,
        index_dtype = "int64"))]
    fn saint(
        graph: &Bound<'_, Graph>,
        size: u32,
        method: &str,
        walk_length: u32,
        num_presampled: u32,
        seed: u64,
        index_dtype: &str,
    ) -> PyResult<Self> {
        let py = graph.py();
        let made_by = arguments!(py, size, method, walk_length, num_presampled, seed, index_dtype);
        let csr = graph.get().csr.clone();
        let sampler = match method {
            "nodes" => interruptible(py, move || SaintSampler::nodes(&csr, size))?,
            "edges" => interruptible(py, move || SaintSampler::edges(&csr, size))?,
            "walks" => interruptible(py, move || SaintSampler::walks(&csr, size, walk_length, num_presampled, seed))?,
            other => {
                return Err(value_error(format!("no method {other:?}; there are \"nodes\", \"edges\" and \"walks\"")));
            }
        };
        let form = Form { wide: is_wide(index_dtype)?, edge_ids: true, is_list: true, has_repeats: false };
        let method = Method::Subgraphs(Box::new(sampler.map_err(of_sampling)?));
        Ok(Self::of(graph, method, form, ("saint", made_by)))
    }

    #[staticmethod]
    #[pyo3(signature = (graph, num_neighbors, **options))]
    fn timed(
        graph: &Bound<'_, TimedGraph>,
        num_neighbors: Vec<i64>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let py = graph.py();
        let made_by = options.map_or_else(|| Ok(PyDict::new(py)), |options| options.copy())?;
        made_by.set_item("num_neighbors", &num_neighbors)?;
        let mut options = Options::new("Sampler.timed", options)?;
        let rule = time_rule(&mut options)?;
        let (replace, edge_ids) = (options.or("replace", false)?, options.or("edge_ids", true)?);
        let expand = expand_of(&options.or("expand", "once".to_owned())?)?;
        let wide = is_wide(&options.or("index_dtype", "int64".to_owned())?)?;
        options.finish()?;
        let is_list = expand == Expand::Once || num_neighbors.len() == 1;
        let options = TimedOptions { rule, replace, expand, edge_ids };
        let sampler = TimedSampler::new(fan_out(&num_neighbors)?, options).map_err(of_sampling)?;
        // One edge may be drawn for several trees.
        let form = Form { wide, edge_ids, is_list, has_repeats: true };
        let of = graph.get();
        let names = on_pool(py, || of.names())?;
        let core = Core::new(Drawing::Timed(Arc::clone(&of.rows), sampler), Some(names), form);
        Ok(Self {
            core: Arc::new(core),
            graph: graph.clone().unbind().into_any(),
            made_by: ("timed", made_by.unbind()),
        })
    }

    #[getter]
    fn graph(&self, py: Python<'_>) -> Py<PyAny> {
        self.graph.clone_ref(py)
    }

    #[getter]
    fn has_seeds(&self) -> bool {
        self.core.has_seeds()
    }

    #[pyo3(signature = (seeds = None, *, times = None, seed = 0, epoch = 0, batch = 0, exclude = None))]
    fn sample(
        &self,
        py: Python<'_>,
        seeds: Option<&Bound<'_, PyAny>>,
        times: Option<&Bound<'_, PyAny>>,
        seed: u64,
        epoch: u32,
        batch: u32,
        exclude: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Batch> {
        let (nodes, times) = self.seeds("seed", seeds, times)?;
        let excluded = exclude.map(|exclude| self.excluded(py, exclude)).transpose()?.unwrap_or_default();
        let (core, key) = (&self.core, DrawKey::new(seed, epoch, batch));
        let seeds = Seeds { nodes: &nodes, times: &times };
        let mut arrays = without_gil(py, || core.sample(seeds, key, &excluded))?.map_err(of_sampling)?;
        arrays.number = batch as usize;
        Ok(Batch::new(arrays, Arc::clone(core), 0))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let (py, sampler) = (slf.py(), slf.get());
        let (by, arguments) = &sampler.made_by;
        let rebuild = py.get_type::<Self>().getattr("_rebuild")?;
        let state = (by, sampler.graph.clone_ref(py), arguments.clone_ref(py)).into_pyobject(py)?;
        Ok((rebuild, state.into_any()))
    }

    #[staticmethod]
    fn _rebuild<'py>(
        by: &str,
        graph: Bound<'py, PyAny>,
        arguments: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let class = graph.py().get_type::<Self>();
        let make = if by == "Sampler" { class.into_any() } else { class.getattr(by)? };
        make.call((graph,), Some(arguments))
    }
}

impl Sampler {
    fn of(graph: &Bound<'_, Graph>, method: Method, form: Form, made_by: (&'static str, Py<PyDict>)) -> Self {
        let Graph { csr, names, .. } = graph.get();
        let core = Core::new(Drawing::Plain(csr.clone(), method), names.clone(), form);
        Self { core: Arc::new(core), graph: graph.clone().unbind().into_any(), made_by }
    }

    /// Seeds of the arguments, where the sampler has seeds, and their times, where it follows time.
    pub fn seeds(
        &self,
        what: &str,
        seeds: Option<&Bound<'_, PyAny>>,
        times: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(Vec<NodeId>, Vec<i64>)> {
        let nodes = match (seeds, self.core.has_seeds()) {
            (Some(seeds), true) => node_ids(what, seeds, self.core.n_nodes())?,
            (None, false) => Vec::new(),
            (None, true) => return Err(type_error("the sampler needs seeds: ids of nodes, or a mask of all nodes")),
            (Some(_), false) => return Err(type_error("the sampler draws subgraphs, and takes no seeds")),
        };
        match (times, self.core.has_times()) {
            (Some(times), true) => times_of("times", times, nodes.len()).map(|times| (nodes, times)),
            (None, false) => Ok((nodes, Vec::new())),
            (None, true) => Err(type_error("the sampler follows time: give the times of the seeds, one each")),
            (Some(_), false) => Err(type_error(
                "times are for samplers of a TimedGraph; make one by TimedGraph.from_edge_index, or leave times out",
            )),
        }
    }

    /// Edges by name as edges by position.
    fn excluded(&self, py: Python<'_>, names: &Bound<'_, PyAny>) -> PyResult<ExcludedEdges> {
        let graph = self.graph.bind(py).cast::<Graph>().ok().filter(|_| self.core.can_exclude());
        let graph = graph.ok_or_else(|| value_error("exclude is for samplers of neighbors without times"))?;
        let graph = graph.get();
        let names = offsets("exclude", names)?;
        let position = |&name: &u64| {
            let found = graph.position_of(name);
            found.ok_or_else(|| index_error(format!("exclude names edge {name}, which the graph does not have")))
        };
        Ok(ExcludedEdges::new(names.iter().map(position).collect::<PyResult<_>>()?))
    }
}

/// Rule of the options `until`, `before`, `window` and `strategy`.
fn time_rule(options: &mut Options<'_>) -> PyResult<TimeRule> {
    let (until, before) = (options.take::<String>("until")?, options.take::<String>("before")?);
    let (window, strategy) = (options.take::<u64>("window")?, options.or("strategy", "uniform".to_owned())?);
    let (admits, bound) = match (until, before) {
        (Some(_), Some(_)) => return Err(value_error("until and before exclude each other; give one of both")),
        (until, None) => (Admits::Until, until),
        (None, before) => (Admits::Before, before),
    };
    let bound: TimeBound = bound.map_or(Ok(TimeBound::Seed), |bound| bound.parse()).map_err(of_sampling)?;
    Ok(TimeRule { bound, admits, window, strategy: strategy.parse().map_err(of_sampling)? })
}
