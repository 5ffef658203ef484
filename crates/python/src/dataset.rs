//! `load` and `Dataset`: graph, features, labels and splits.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytemuck::cast_slice;
use girih_datasets::{Dataset as Data, Features, Labels, LoadOptions, ReverseEdges, Split, TypeFeatures, TypedParts};
use girih_graph_format::file::ReadTimes;
use girih_graph_format::{NodeId, Permutation};
use girih_reorder::OrderKind;
use numpy::{PyArray1, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::{Ids, as_array, classes, frozen_view, ids_array, matrix, node_ids};
use crate::errors::{of_dataset, of_features, value_error};
use crate::features::FeatureStore;
use crate::graph::Graph;
use crate::options::Options;
use crate::threads::{interruptible, on_pool};
use crate::timed::TimedGraph;
use crate::typed::TypedGraph;

/// Graph, features, labels and splits of one set of nodes.
#[pyclass(frozen, module = "girih")]
pub struct Dataset {
    pub data: Arc<Data>,
    graph: Py<Graph>,
    features: Option<Py<FeatureStore>>,
}

impl Dataset {
    pub fn of(py: Python<'_>, data: Data, spec: Option<String>) -> PyResult<Self> {
        let csr = data.graph.clone();
        let graph = spec.map_or_else(|| Graph::new(csr.clone(), None), |spec| Graph::of_spec(csr.clone(), spec));
        let features = data.features.clone().map(|features| Py::new(py, FeatureStore::of(features))).transpose()?;
        Ok(Self { data: Arc::new(data), graph: Py::new(py, graph)?, features })
    }

    /// Nodes that labels and splits are of: those of the target, or all.
    fn labelled(&self) -> Range<usize> {
        self.data.typed.as_ref().map_or(0..self.data.n_nodes(), |typed| typed.target_ids())
    }
}

/// Reverses of edge types: whether they are added, or a rule of `girih train --reverse`.
#[derive(FromPyObject)]
enum Reverse {
    Flag(bool),
    Rule(String),
}

impl Reverse {
    fn rule(self) -> PyResult<ReverseEdges> {
        match self {
            Self::Flag(true) => Ok(ReverseEdges::Add),
            Self::Flag(false) => Ok(ReverseEdges::No),
            Self::Rule(name) => name.parse().map_err(of_dataset),
        }
    }
}

/// Loads or generates the data set of a SPEC: a path, or `synth:NAME[@SCALE][,key=value…]`.
#[pyfunction]
#[pyo3(signature = (spec, **options))]
pub fn load(py: Python<'_>, spec: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Dataset> {
    let mut given = Options::new("load", options)?;
    let codec = given.take::<String>("codec")?.map(|codec| codec.parse().map_err(of_features)).transpose()?;
    let (symmetrize, split) = (given.take("symmetrize")?, given.take("split")?);
    let (seed, labels, target) = (given.or("seed", 0)?, given.take::<PathBuf>("labels")?, given.take("target")?);
    let reverse = given.take("reverse")?.map(Reverse::rule).transpose()?;
    let columns = given.take::<String>("columns")?.map(|columns| columns.parse().map_err(value_error)).transpose()?;
    let edge_features: Vec<String> = given.or("edge_features", Vec::new())?;
    // Features of edges are read with their times alone.
    let has_times = given.or("times", false)? || !edge_features.is_empty();
    given.finish()?;
    let is_plain = symmetrize.is_none() && seed == 0 && columns.is_none() && !has_times;
    let times = if has_times { ReadTimes::Required } else { ReadTimes::No };
    let of_data = LoadOptions { labels, target, reverse, columns, times, edge_features, ..LoadOptions::default() };
    let options = LoadOptions { codec, symmetrize, split, seed, ..of_data };
    let spec = spec.to_string_lossy().into_owned();
    let of = spec.clone();
    let data = interruptible(py, move || girih_datasets::load(&of, &options))?.map_err(of_dataset)?;
    Dataset::of(py, data, is_plain.then_some(spec))
}

/// Training, validation and test nodes: ids, or masks of all nodes.
type Parts<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Split of `n_nodes` nodes.
fn of_parts((train, val, test): &Parts<'_>, n_nodes: usize) -> PyResult<Split> {
    let part = |what, nodes: &Bound<'_, PyAny>| node_ids(what, nodes, n_nodes);
    Ok(Split {
        train: part("training node", train)?,
        val: part("validation node", val)?,
        test: part("test node", test)?,
    })
}

/// Labels of an array: a class for each node, or a row of 0 and 1.
fn labels(y: &Bound<'_, PyAny>) -> PyResult<Labels> {
    if as_array("y", y)?.ndim() == 1 {
        return Ok(Labels::single(classes("y", y)?));
    }
    let targets = matrix("y", y)?;
    Ok(Labels::Multi { n_classes: targets.n_cols(), targets })
}

#[pymethods]
impl Dataset {
    #[new]
    #[pyo3(signature = (graph, x = None, y = None, split = None, *, name = "data"))]
    fn new(
        graph: &Bound<'_, Graph>,
        x: Option<&Bound<'_, PyAny>>,
        y: Option<&Bound<'_, PyAny>>,
        split: Option<Parts<'_>>,
        name: &str,
    ) -> PyResult<Self> {
        let (py, csr) = (graph.py(), &graph.get().csr);
        let store = match x.map(|x| (x, x.cast::<FeatureStore>())) {
            None => None,
            Some((_, Ok(store))) => Some(store.clone().unbind()),
            Some((rows, Err(_))) => Some(Py::new(py, FeatureStore::of(Features::Dense(matrix("x", rows)?)))?),
        };
        let features = store.as_ref().map(|store| Features::clone(&store.get().features));
        let splits = split.map(|split| of_parts(&split, csr.n_rows())).transpose()?.into_iter().collect();
        let labels = y.map(labels).transpose()?;
        let made = on_pool(py, || Data::new(name, csr.clone(), features, labels, splits))?.map_err(of_dataset)?;
        Ok(Self { data: Arc::new(made), graph: graph.clone().unbind(), features: store })
    }

    /// Data of a graph with types.
    #[staticmethod]
    #[pyo3(signature = (graph, target, x = None, y = None, split = None, *, name = "data"))]
    fn of_types(
        graph: &Bound<'_, TypedGraph>,
        target: &str,
        x: Option<&Bound<'_, PyDict>>,
        y: Option<&Bound<'_, PyAny>>,
        split: Option<Parts<'_>>,
        name: &str,
    ) -> PyResult<Self> {
        let (py, held) = (graph.py(), &graph.get().held);
        let target = held.node_type(target)?;
        let sizes = &held.graph.sizes().node_types;
        let mut features = vec![TypeFeatures::None; sizes.len()];
        for (of, rows) in x.into_iter().flatten() {
            let of: String = of.extract()?;
            let rows = match rows.cast::<FeatureStore>() {
                Ok(store) => Features::clone(&store.get().features),
                Err(_) => Features::Dense(matrix(&format!("x of {of}"), &rows)?),
            };
            features[held.node_type(&of)?] = TypeFeatures::Given(rows);
        }
        let splits = split.map(|split| of_parts(&split, sizes[target])).transpose()?.into_iter().collect();
        let labels = y.map(labels).transpose()?;
        let parts = TypedParts { graph: held.graph.clone(), features, target, labels, splits, names: None };
        let name = name.to_owned();
        let data = on_pool(py, || parts.into_dataset(name))?.map_err(of_dataset)?;
        Self::of(py, data, None)
    }

    /// Graph with types of nodes and edges; `None` if the data has none.
    #[getter]
    fn typed_graph(&self) -> Option<TypedGraph> {
        self.data.typed.as_ref().map(|typed| TypedGraph::of(typed.graph.clone()))
    }

    /// Edges with times; `None` if the data has none.
    #[getter]
    fn timed_graph(&self) -> Option<TimedGraph> {
        self.data.timed.as_ref().map(|rows| TimedGraph::of(Arc::clone(rows)))
    }

    /// Node type with labels and splits; `None` if the data has no types.
    #[getter]
    fn target(&self) -> Option<&str> {
        let typed = self.data.typed.as_ref()?;
        Some(&typed.graph.schema().node_types()[typed.target].name)
    }

    /// Features of each node type that has some.
    #[getter]
    fn type_features<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let made = PyDict::new(py);
        let Some(typed) = &self.data.typed else { return Ok(made) };
        let types = typed.graph.schema().node_types();
        if let [only] = types
            && let Some(rows) = &self.features
        {
            made.set_item(&only.name, rows.clone_ref(py))?;
        }
        for (of, features) in types.iter().zip(&typed.features) {
            if let Some(rows) = features.given() {
                made.set_item(&of.name, Py::new(py, FeatureStore::of(rows.clone()))?)?;
            }
        }
        Ok(made)
    }

    #[getter]
    fn name(&self) -> &str {
        &self.data.name
    }

    #[getter]
    fn graph(&self, py: Python<'_>) -> Py<Graph> {
        self.graph.clone_ref(py)
    }

    #[getter]
    fn features(&self, py: Python<'_>) -> Option<Py<FeatureStore>> {
        self.features.as_ref().map(|features| features.clone_ref(py))
    }

    /// Dense features, read only; `None` if there are none, or they are not dense.
    #[getter]
    fn x<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.features.as_ref().map_or(Ok(None), |features| FeatureStore::rows(features.bind(py)))
    }

    /// Class of each node, −1 if unknown; or a row of 0 and 1 for each node. Of data with types, for the target's nodes.
    #[getter]
    fn y<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match &slf.get().data.labels {
            None => Ok(None),
            Some(Labels::Single { classes, .. }) => {
                let of: &[i32] = &cast_slice(classes)[slf.get().labelled()];
                let classes = PyArray1::from_iter(slf.py(), of.iter().map(|&class| i64::from(class)));
                Ok(Some(classes.into_any()))
            }
            Some(Labels::Multi { targets, .. }) => {
                let nodes = slf.get().labelled();
                let values = nodes.start * targets.n_cols()..nodes.end * targets.n_cols();
                // SAFETY: the values belong to the data set, which is frozen.
                let flat = unsafe { frozen_view(slf, &targets.data()[values]) }?;
                Ok(Some(flat.reshape([nodes.len(), targets.n_cols()])?.into_any()))
            }
        }
    }

    /// Ids of training, validation and test nodes of the first split; `None` without a split. Of data with types, ids
    /// inside the target.
    #[getter]
    fn split<'py>(&self, py: Python<'py>) -> Option<(Ids<'py>, Ids<'py>, Ids<'py>)> {
        let (split, first) = (self.data.splits.first()?, self.labelled().start as NodeId);
        let ids = |nodes: &[NodeId]| ids_array(py, &nodes.iter().map(|node| node - first).collect::<Vec<_>>());
        Some((ids(&split.train), ids(&split.val), ids(&split.test)))
    }

    #[getter]
    fn num_splits(&self) -> usize {
        self.data.splits.len()
    }

    #[getter]
    fn num_classes(&self) -> usize {
        self.data.n_classes()
    }

    /// Notes of the loader: data left out, made up or doubtful.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.data.notes.not_used_line().into_iter().chain(self.data.notes.warnings.iter().cloned()).collect()
    }

    /// Data with nodes renamed, and the new id of each node.
    #[pyo3(signature = (order = "community", *, seed = 0))]
    fn reorder<'py>(&self, py: Python<'py>, order: &str, seed: u64) -> PyResult<(Self, Ids<'py>)> {
        let (kind, data): (OrderKind, _) = (order.parse().map_err(value_error)?, Arc::clone(&self.data));
        let reordered = interruptible(py, move || -> Result<(Data, Permutation), String> {
            let order = kind.order(1, seed).order(&data.graph).map_err(|error| error.to_string())?;
            let data = Data::clone(&data).permuted(&order).map_err(|error| error.to_string())?;
            Ok((data, order))
        });
        let (data, order) = reordered?.map_err(value_error)?;
        Ok((Self::of(py, data, None)?, ids_array(py, order.new_of_old())))
    }

    /// Writes girih's own folder.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let data = Arc::clone(&self.data);
        interruptible(py, move || data.save(&path))?.map_err(of_dataset)
    }

    fn __repr__(&self) -> String {
        format!(
            "girih.Dataset({:?}, num_nodes={}, num_edges={}, num_features={}, num_classes={})",
            self.data.name,
            self.data.n_nodes(),
            self.data.n_edges(),
            self.data.n_features(),
            self.data.n_classes()
        )
    }
}
