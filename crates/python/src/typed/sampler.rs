//! `TypedSampler`: neighbors by edge type.

use std::sync::Arc;

use girih_datasets::Features;
use girih_graph_format::NodeId;
use girih_sampling::{
    DrawKey, EpochPlan, Expand, FanOutRules, LoaderOptions, SampleError, TypedBatch as Sampled, TypedEdgeList,
    TypedExcluded, TypedOptions, TypedSampler as Inner,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::batch::TypedBatch;
use super::graph::{HeldGraph, TypedGraph};
use crate::arrays::{node_ids, offsets};
use crate::errors::{index_error, of_sampling, type_error, value_error};
use crate::features::FeatureStore;
use crate::loader::{ReadyBatch, Source, number_of_batches};
use crate::options::Options;
use crate::sampler::expand_of;
use crate::spares::Spares;
use crate::threads::without_gil;

/// Graph, sampler and memory of batches that Python has released. Any number of threads may sample at once.
pub struct TypedCore {
    pub held: Arc<HeldGraph>,
    sampler: Inner,
    spares: Spares<TypedArrays>,
}

/// Memory of one batch.
#[derive(Default)]
pub struct TypedArrays {
    pub batch: Sampled,
    pub list: TypedEdgeList<i64>,
    /// Names of the listed edges of each type, of types whose positions are not their names.
    pub edge_ids: Vec<Vec<i64>>,
    /// Feature rows of the nodes of each type.
    pub x: Vec<Vec<f32>>,
    /// Number of seeds of each type.
    pub n_seeds: Vec<usize>,
    pub number: usize,
}

/// Seeds by the number of their type.
type Seeds = Vec<(usize, Vec<NodeId>)>;

impl TypedCore {
    /// Whether a batch is a list of edges for each type, and not blocks alone.
    pub fn is_list(&self) -> bool {
        self.sampler.options().expand == Expand::Once || self.sampler.fan_out().hops().len() == 1
    }

    pub fn keeps_edge_ids(&self) -> bool {
        self.sampler.options().edge_ids
    }

    pub fn give_back(&self, arrays: TypedArrays) {
        self.spares.give_back(arrays);
    }

    fn sample(
        &self,
        seeds: &[(usize, &[NodeId])],
        key: DrawKey,
        excluded: &TypedExcluded,
    ) -> Result<TypedArrays, SampleError> {
        self.spares.filled(|arrays| self.sample_into(seeds, key, excluded, arrays))
    }

    fn sample_into(
        &self,
        seeds: &[(usize, &[NodeId])],
        key: DrawKey,
        excluded: &TypedExcluded,
        arrays: &mut TypedArrays,
    ) -> Result<(), SampleError> {
        let HeldGraph { graph, names, .. } = &*self.held;
        let TypedArrays { batch, list, edge_ids, n_seeds, .. } = arrays;
        self.sampler.sample_excluding(graph, seeds, key, excluded, batch)?;
        n_seeds.clear();
        n_seeds.resize(graph.schema().node_types().len(), 0);
        seeds.iter().for_each(|&(of, seeds)| n_seeds[of] = seeds.len());
        edge_ids.resize_with(names.len(), Vec::new);
        edge_ids.iter_mut().for_each(Vec::clear);
        if !self.is_list() {
            return Ok(());
        }
        list.fill(batch, Expand::Once)?;
        for ((named, names), rows) in edge_ids.iter_mut().zip(names).zip(&batch.blocks[0].relations) {
            if let Some(names) = names {
                named.extend(rows.edge_ids.iter().map(|&position| names[position as usize]));
            }
        }
        Ok(())
    }

    /// Brings the feature rows of the nodes of each type that has a store.
    fn gather(&self, features: &[Option<Arc<Features>>], arrays: &mut TypedArrays) -> Result<(), SampleError> {
        let TypedArrays { batch, x, .. } = arrays;
        x.resize_with(features.len(), Vec::new);
        for ((rows, features), nodes) in x.iter_mut().zip(features).zip(&batch.nodes) {
            let Some(features) = features else { continue };
            rows.resize(nodes.len() * features.width(), 0.0);
            features.gather(nodes, rows).map_err(|error| SampleError::invalid(error.to_string()))?;
        }
        Ok(())
    }
}

/// Sampler of neighbors by edge type. Equal arguments give equal batches, on any thread of any process.
#[pyclass(frozen, module = "girih")]
pub struct TypedSampler {
    core: Arc<TypedCore>,
    graph: Py<TypedGraph>,
    /// Arguments, for a pickle.
    made_by: Py<PyDict>,
}

/// Fan-outs of an argument: one list for all edge types, or lists by type, relation or `*`.
fn rules(num_neighbors: &Bound<'_, PyAny>) -> PyResult<FanOutRules> {
    let numbers = |of: &Bound<'_, PyAny>| {
        of.extract::<Vec<i64>>().map_err(|_| {
            type_error(format!("num_neighbors: {of} is no list of numbers; give one number a hop, such as [15, 10]"))
        })
    };
    let Ok(by_type) = num_neighbors.cast::<PyDict>() else {
        let all = (FanOutRules::OTHERS.to_owned(), numbers(num_neighbors)?);
        return FanOutRules::new(vec![all]).map_err(of_sampling);
    };
    let rule = |(key, of): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name = match key.extract::<(String, String, String)>() {
            Ok((source, relation, destination)) => format!("{source}.{relation}.{destination}"),
            Err(_) => key.extract::<String>().map_err(|_| {
                type_error(format!("num_neighbors names {key}; give edge types of three names, relations or \"*\""))
            })?,
        };
        Ok((name, numbers(&of)?))
    };
    FanOutRules::new(by_type.iter().map(rule).collect::<PyResult<_>>()?).map_err(of_sampling)
}

#[pymethods]
impl TypedSampler {
    #[new]
    #[pyo3(signature = (graph, num_neighbors, **options))]
    fn new(
        graph: &Bound<'_, TypedGraph>,
        num_neighbors: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let py = graph.py();
        let made_by = options.map_or_else(|| Ok(PyDict::new(py)), |options| options.copy())?;
        made_by.set_item("num_neighbors", num_neighbors)?;
        let mut options = Options::new("TypedSampler", options)?;
        let (replace, edge_ids) = (options.or("replace", false)?, options.or("edge_ids", true)?);
        let expand = expand_of(&options.or("expand", "once".to_owned())?)?;
        options.finish()?;
        let held = Arc::clone(&graph.get().held);
        let fan_out = rules(num_neighbors)?.of_schema(held.graph.schema()).map_err(of_sampling)?;
        let sampler = Inner::new(fan_out, TypedOptions { replace, expand, edge_ids });
        let core = TypedCore { held, sampler, spares: Spares::default() };
        Ok(Self { core: Arc::new(core), graph: graph.clone().unbind(), made_by: made_by.unbind() })
    }

    #[getter]
    fn graph(&self, py: Python<'_>) -> Py<TypedGraph> {
        self.graph.clone_ref(py)
    }

    #[pyo3(signature = (seeds, *, seed = 0, epoch = 0, batch = 0, exclude = None))]
    fn sample(
        &self,
        py: Python<'_>,
        seeds: &Bound<'_, PyAny>,
        seed: u64,
        epoch: u32,
        batch: u32,
        exclude: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<TypedBatch> {
        let seeds = self.seeds(seeds)?;
        let excluded = exclude.map(|exclude| self.excluded(exclude)).transpose()?.unwrap_or_default();
        let (core, key) = (&self.core, DrawKey::new(seed, epoch, batch));
        let lent: Vec<(usize, &[NodeId])> = seeds.iter().map(|(of, seeds)| (*of, &seeds[..])).collect();
        let mut arrays = without_gil(py, || core.sample(&lent, key, &excluded))?.map_err(of_sampling)?;
        arrays.number = batch as usize;
        Ok(TypedBatch::new(arrays, Arc::clone(core), Vec::new()))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let (py, sampler) = (slf.py(), slf.get());
        let rebuild = py.get_type::<Self>().getattr("_rebuild")?;
        let state = (sampler.graph.clone_ref(py), sampler.made_by.clone_ref(py)).into_pyobject(py)?;
        Ok((rebuild, state.into_any()))
    }

    #[staticmethod]
    fn _rebuild<'py>(graph: Bound<'py, TypedGraph>, arguments: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
        graph.py().get_type::<Self>().call((graph,), Some(arguments))
    }
}

impl TypedSampler {
    /// Seeds of the argument: a pair of a node type and ids, or a dictionary of ids by node type.
    fn seeds(&self, seeds: &Bound<'_, PyAny>) -> PyResult<Seeds> {
        let of_type = |name: &str, ids: &Bound<'_, PyAny>| {
            let number = self.core.held.node_type(name)?;
            let n_nodes = self.core.held.graph.sizes().node_types[number];
            Ok((number, node_ids(&format!("{name} seed"), ids, n_nodes)?))
        };
        if let Ok(by_type) = seeds.cast::<PyDict>() {
            return by_type.iter().map(|(name, ids)| of_type(&name.extract::<String>()?, &ids)).collect();
        }
        let told = || type_error("seeds of a typed graph are (\"paper\", ids), or {\"paper\": ids, …}");
        let (name, ids) = seeds.extract::<(Bound<'_, PyString>, Bound<'_, PyAny>)>().map_err(|_| told())?;
        Ok(vec![of_type(&name.to_cow()?, &ids)?])
    }

    /// Edges by type and name as edges by position, with their reverses.
    fn excluded(&self, by_type: &Bound<'_, PyDict>) -> PyResult<TypedExcluded> {
        let (held, mut positions) = (&self.core.held, Vec::new());
        for (key, named) in by_type {
            let number = held.edge_number(&key)?;
            let position = |&name: &u64| {
                held.position_of(number, name).ok_or_else(|| {
                    let of = held.graph.schema().edge_name(number);
                    index_error(format!("exclude names edge {name} of {of}, which the graph does not have"))
                })
            };
            let of_type = offsets("exclude", &named)?.iter().map(position).collect::<PyResult<Vec<u64>>>()?;
            positions.push((number, of_type));
        }
        let lent: Vec<(usize, &[u64])> = positions.iter().map(|(number, at)| (*number, &at[..])).collect();
        TypedExcluded::new(&held.graph, &lent).map_err(of_sampling)
    }
}

/// Source of the batches of a [`TypedCore`], whose seeds are of one type.
pub struct TypedSource {
    core: Arc<TypedCore>,
    target: usize,
    seeds: Vec<NodeId>,
    options: LoaderOptions,
    /// Features of each node type that has some.
    features: Vec<Option<Arc<Features>>>,
}

impl TypedSource {
    pub fn new(
        sampler: &TypedSampler,
        seeds: Option<&Bound<'_, PyAny>>,
        features: Option<&Bound<'_, PyDict>>,
        options: LoaderOptions,
    ) -> PyResult<Self> {
        let core = Arc::clone(&sampler.core);
        let given = seeds.ok_or_else(|| type_error("the loader needs seeds, such as (\"paper\", ids)"))?;
        let mut of_types = sampler.seeds(given)?;
        let (Some((target, seeds)), true) = (of_types.pop(), of_types.is_empty()) else {
            return Err(value_error("seeds of a loader are of one node type; sample several types by sample()"));
        };
        let mut stores: Vec<Option<Arc<Features>>> = vec![None; core.held.graph.schema().node_types().len()];
        for (name, store) in features.into_iter().flatten() {
            let name: String = name.extract()?;
            let number = core.held.node_type(&name)?;
            let store = Arc::clone(&store.cast::<FeatureStore>()?.get().features);
            let n_nodes = core.held.graph.sizes().node_types[number];
            if store.n_rows() != n_nodes {
                return Err(value_error(format!("features of {name}: {} rows for {n_nodes} nodes", store.n_rows())));
            }
            stores[number] = Some(store);
        }
        Ok(Self { core, target, seeds, options, features: stores })
    }
}

impl Source for TypedSource {
    fn n_batches(&self) -> usize {
        number_of_batches(self.seeds.len(), self.options)
    }

    fn plan(&self, epoch: u32) -> EpochPlan {
        EpochPlan::new(self.seeds.clone(), self.options, epoch)
    }

    fn make(&self, plan: &EpochPlan, number: usize) -> Result<Box<dyn ReadyBatch>, SampleError> {
        let seeds = [(self.target, plan.seeds(number))];
        let mut arrays = self.core.sample(&seeds, plan.key(number), &TypedExcluded::default())?;
        arrays.number = number;
        self.core.gather(&self.features, &mut arrays)?;
        let widths = self.features.iter().map(|of| of.as_ref().map_or(0, |of| of.width())).collect();
        Ok(Box::new(MadeTyped { arrays, core: Arc::clone(&self.core), widths }))
    }
}

struct MadeTyped {
    arrays: TypedArrays,
    core: Arc<TypedCore>,
    widths: Vec<usize>,
}

impl ReadyBatch for MadeTyped {
    fn into_object(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Self { arrays, core, widths } = *self;
        Ok(Py::new(py, TypedBatch::new(arrays, core, widths))?.into_any())
    }
}
