//! `load` and `Dataset`: graph, features, labels and splits.

use std::path::PathBuf;
use std::sync::Arc;

use bytemuck::cast_slice;
use girih_datasets::{Dataset as Data, Features, Labels, LoadOptions, Split};
use girih_graph_format::{NodeId, Permutation};
use girih_reorder::OrderKind;
use numpy::{PyArray1, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::arrays::{Ids, as_array, classes, frozen_view, ids_array, matrix, node_ids};
use crate::errors::{of_dataset, of_features, value_error};
use crate::features::FeatureStore;
use crate::graph::Graph;
use crate::threads::{interruptible, on_pool};

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
}

/// Loads or generates the data set of a SPEC: a path, or `synth:NAME[@SCALE][,key=value…]`.
#[pyfunction]
#[pyo3(signature = (spec, *, codec = None, symmetrize = None, split = None, seed = 0))]
pub fn load(
    py: Python<'_>,
    spec: PathBuf,
    codec: Option<&str>,
    symmetrize: Option<bool>,
    split: Option<usize>,
    seed: u64,
) -> PyResult<Dataset> {
    let codec = codec.map(|codec| codec.parse().map_err(of_features)).transpose()?;
    let options = LoadOptions { codec, symmetrize, split, seed, ..LoadOptions::default() };
    let is_plain = symmetrize.is_none() && seed == 0;
    let spec = spec.to_string_lossy().into_owned();
    let of = spec.clone();
    let data = interruptible(py, move || girih_datasets::load(&of, &options))?.map_err(of_dataset)?;
    Dataset::of(py, data, is_plain.then_some(spec))
}

/// Training, validation and test nodes: ids, or masks of all nodes.
type Parts<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>);

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
        let part = |what, nodes: &Bound<'_, PyAny>| node_ids(what, nodes, csr.n_rows());
        let split = split.map(|(train, val, test)| {
            let (train, val) = (part("training node", &train)?, part("validation node", &val)?);
            Ok::<_, PyErr>(Split { train, val, test: part("test node", &test)? })
        });
        let splits = split.transpose()?.into_iter().collect();
        let labels = y.map(labels).transpose()?;
        let made = on_pool(py, || Data::new(name, csr.clone(), features, labels, splits))?.map_err(of_dataset)?;
        Ok(Self { data: Arc::new(made), graph: graph.clone().unbind(), features: store })
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

    /// Class of each node, −1 if unknown; or a row of 0 and 1 for each node.
    #[getter]
    fn y<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match &slf.get().data.labels {
            None => Ok(None),
            Some(Labels::Single { classes, .. }) => {
                let of: &[i32] = cast_slice(classes);
                let classes = PyArray1::from_iter(slf.py(), of.iter().map(|&class| i64::from(class)));
                Ok(Some(classes.into_any()))
            }
            Some(Labels::Multi { targets, .. }) => {
                // SAFETY: the values belong to the data set, which is frozen.
                let flat = unsafe { frozen_view(slf, targets.data()) }?;
                Ok(Some(flat.reshape([targets.n_rows(), targets.n_cols()])?.into_any()))
            }
        }
    }

    /// Ids of training, validation and test nodes of the first split; `None` without a split.
    #[getter]
    fn split<'py>(&self, py: Python<'py>) -> Option<(Ids<'py>, Ids<'py>, Ids<'py>)> {
        let split = self.data.splits.first()?;
        let ids = |nodes: &[NodeId]| ids_array(py, nodes);
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
