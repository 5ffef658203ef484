//! `Checkpoint`: a trained model, its weights by the names of other libraries, and its predictions.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use girih_graph_format::{FormatError, Matrix};
use girih_trainer::{
    Checkpoint as Trained, DataShape, Library, NamedWeight, TrainConfig, TrainError, export_weights, import_weights,
};
use numpy::{IntoPyArray, PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::json;

use crate::arrays::floats;
use crate::dataset::Dataset;
use crate::device::{Backend, Device, on_backend};
use crate::errors::{of_format, of_training, value_error};
use crate::threads::interruptible;
use crate::train::report_json;

/// State of a run of training: parameters, settings and progress.
#[pyclass(frozen, module = "girih")]
pub struct Checkpoint {
    trained: Arc<Trained>,
}

fn library(name: &str) -> PyResult<Library> {
    match name {
        "pyg" => Ok(Library::Pyg),
        "dgl" => Ok(Library::Dgl),
        other => Err(value_error(format!("no library {other:?}; there are \"pyg\" and \"dgl\""))),
    }
}

fn shaped<'py>(py: Python<'py>, values: Vec<f32>, shape: Vec<usize>) -> PyResult<Bound<'py, PyAny>> {
    Ok(values.into_pyarray(py).reshape(shape)?.into_any())
}

fn of_matrix<'py>(py: Python<'py>, matrix: &Matrix) -> PyResult<Bound<'py, PyAny>> {
    shaped(py, matrix.data().to_vec(), vec![matrix.n_rows(), matrix.n_cols()])
}

#[pymethods]
impl Checkpoint {
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        if let Err(error) = std::fs::metadata(&path) {
            return Err(of_format(FormatError::io(error).at(&path)));
        }
        let trained = interruptible(py, move || Trained::load(&path))?.map_err(of_training)?;
        Ok(Self { trained: Arc::new(trained) })
    }

    /// Model of a configuration with the tensors of a state dict of another library.
    #[staticmethod]
    #[pyo3(signature = (config, weights, *, library = "pyg", data = None, multi_label = false))]
    fn from_weights(
        config: &str,
        weights: &Bound<'_, PyDict>,
        library: &str,
        data: Option<&Bound<'_, Dataset>>,
        multi_label: bool,
    ) -> PyResult<Self> {
        let config: TrainConfig = serde_json::from_str(config).map_err(value_error)?;
        let named = weights.iter().map(|(name, tensor)| named_weight(&name.extract::<String>()?, &tensor));
        let named = named.collect::<PyResult<Vec<_>>>()?;
        let shape = data.map(|data| DataShape::of(&data.get().data));
        let weights = (named, self::library(library)?);
        let trained =
            import_weights(Path::new("weights"), weights, config, (shape, multi_label)).map_err(of_training)?;
        Ok(Self { trained: Arc::new(trained) })
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let trained = Arc::clone(&self.trained);
        interruptible(py, move || trained.save(&path))?.map_err(of_training)
    }

    /// Settings as JSON.
    #[getter]
    fn _config(&self) -> PyResult<String> {
        serde_json::to_string(&self.trained.progress.config).map_err(value_error)
    }

    #[getter]
    fn epoch(&self) -> u64 {
        self.trained.progress.epoch
    }

    #[getter]
    fn best_epoch(&self) -> Option<u64> {
        self.trained.progress.best.as_ref().map(|&(epoch, _)| epoch)
    }

    /// Best parameters by girih's names.
    fn parameters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let Trained { params, best_params, .. } = &*self.trained;
        let out = PyDict::new(py);
        for (name, matrix) in if best_params.is_empty() { params } else { best_params } {
            out.set_item(name, of_matrix(py, matrix)?)?;
        }
        Ok(out)
    }

    /// Best parameters as a state dict of another library.
    #[pyo3(signature = (library = "pyg"))]
    fn state_dict<'py>(&self, py: Python<'py>, library: &str) -> PyResult<Bound<'py, PyDict>> {
        let out = PyDict::new(py);
        for NamedWeight { name, shape, values } in
            export_weights(&self.trained, self::library(library)?).map_err(of_training)?
        {
            out.set_item(name, shaped(py, values, shape)?)?;
        }
        Ok(out)
    }

    /// Logits of all nodes of a data set, and its scores as JSON.
    #[pyo3(signature = (data, *, device = "auto"))]
    fn _apply<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, Dataset>,
        device: &str,
    ) -> PyResult<(Bound<'py, PyAny>, String)> {
        let (device, data) = (device.parse::<Device>().map_err(value_error)?, Arc::clone(&data.get().data));
        let trained = Arc::clone(&self.trained);
        let applied = interruptible(py, move || {
            let backend = Backend::open(device, trained.progress.config.precision).map_err(TrainError::invalid)?;
            let data = girih_datasets::Dataset::clone(&data);
            on_backend!(&backend, backend => girih_trainer::apply(backend, data, &trained))
        });
        let (scores, report, logits) = applied?.map_err(of_training)?;
        let told = json!({ "scores": scores, "test": report_json(&report) }).to_string();
        Ok((of_matrix(py, &logits)?, told))
    }

    /// Embedding of every node of a data set.
    #[pyo3(signature = (data, *, device = "auto"))]
    fn embeddings<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, Dataset>,
        device: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (device, data) = (device.parse::<Device>().map_err(value_error)?, Arc::clone(&data.get().data));
        let trained = Arc::clone(&self.trained);
        let rows = interruptible(py, move || {
            let backend = Backend::open(device, trained.progress.config.precision).map_err(TrainError::invalid)?;
            let data = girih_datasets::Dataset::clone(&data);
            on_backend!(&backend, backend => girih_trainer::embeddings(backend, data, &trained))
        });
        of_matrix(py, &rows?.map_err(of_training)?)
    }

    fn __repr__(&self) -> String {
        let progress = &self.trained.progress;
        format!("girih.Checkpoint(model={:?}, epoch={})", progress.config.model.kind.name(), progress.epoch)
    }
}

/// Tensor of any number of dimensions, as `float32`.
fn named_weight(name: &str, tensor: &Bound<'_, PyAny>) -> PyResult<NamedWeight> {
    let array = crate::arrays::as_array(name, tensor)?;
    let shape = numpy::PyUntypedArrayMethods::shape(&array).to_vec();
    let flat = array.call_method1("reshape", (-1,))?;
    let flat = flat.cast::<PyArray1<f32>>().map_or_else(|_| flat.clone(), |flat| flat.clone().into_any());
    Ok(NamedWeight { name: name.to_owned(), shape, values: floats(name, &flat)?.to_vec() })
}
