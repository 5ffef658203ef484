//! `FeatureStore`: rows of features, dense, sparse or compressed, in memory or mapped.

use std::path::PathBuf;
use std::sync::Arc;

use girih_compress::{CodecSpec, ErrorReport, SampleOptions, draw_sample};
use girih_datasets::Features;
use girih_graph_format::file::Verify;
use numpy::{PyArray2, PyArrayMethods, PyReadwriteArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::{frozen_view, matrix, node_ids};
use crate::errors::{of_dataset, of_features, type_error, value_error};
use crate::threads::{interruptible, on_pool};

/// Rows of features, one for each node.
#[pyclass(frozen, module = "girih")]
pub struct FeatureStore {
    pub features: Arc<Features>,
    /// File that the store is, which it pickles as.
    path: Option<PathBuf>,
}

impl FeatureStore {
    pub fn of(features: Features) -> Self {
        Self { features: Arc::new(features), path: None }
    }
}

#[pymethods]
impl FeatureStore {
    #[new]
    fn new(rows: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self::of(Features::Dense(matrix("features", rows)?)))
    }

    /// Maps the store of a file; its codes are read when they are needed.
    #[staticmethod]
    #[pyo3(signature = (path, *, verify = false))]
    fn open(py: Python<'_>, path: PathBuf, verify: bool) -> PyResult<Self> {
        let (of, verify) = (path.clone(), if verify { Verify::Full } else { Verify::Structure });
        let open = move || girih_compress::CompressedFeatures::open(&of, verify);
        let store = interruptible(py, open)?.map_err(of_features)?;
        Ok(Self { features: Arc::new(Features::Compressed(store)), path: Some(path) })
    }

    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.features.n_rows(), self.features.width())
    }

    /// Name of the codec; `None` for rows as they are.
    #[getter]
    fn codec(&self) -> Option<String> {
        match &*self.features {
            Features::Compressed(store) => Some(store.codec().spec().to_string()),
            _ => None,
        }
    }

    /// Number of bytes of a stored row; `None` where rows differ.
    #[getter]
    fn row_bytes(&self) -> Option<usize> {
        self.features.stored_rows().map(|(_, row_bytes)| row_bytes)
    }

    /// Compressed copy, by a codec that is fitted to a sample of the rows.
    #[pyo3(signature = (codec, *, seed = 0))]
    fn encode(&self, py: Python<'_>, codec: &str, seed: u64) -> PyResult<Self> {
        let (spec, features): (CodecSpec, _) = (codec.parse().map_err(of_features)?, Arc::clone(&self.features));
        let encoded = interruptible(py, move || Features::clone(&features).encoded(spec, seed))?;
        Ok(Self::of(encoded.map_err(of_dataset)?))
    }

    /// Writes a compressed store to a file, which `open` maps.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let Features::Compressed(store) = &*self.features else {
            return Err(value_error(
                "rows as they are have no file; save the array with numpy.save, or encode it first",
            ));
        };
        let store = store.clone();
        interruptible(py, move || store.save(&path))?.map_err(of_features)
    }

    /// Rows of `ids` as a new array, or in `out`.
    #[pyo3(signature = (ids, out = None))]
    fn gather<'py>(
        &self,
        py: Python<'py>,
        ids: &Bound<'py, PyAny>,
        out: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (n_rows, width) = self.shape();
        let ids = node_ids("id", ids, n_rows)?;
        let out = match out {
            Some(out) => out,
            // SAFETY: every element is written below, or the array is dropped.
            None => unsafe { PyArray2::<f32>::new(py, [ids.len(), width], false) }.into_any(),
        };
        let target = target(py, &out)?;
        if target.shape() != [ids.len(), width] || !target.is_c_contiguous() {
            return Err(value_error(format!(
                "out has shape {:?}{}; it has to be a contiguous array of shape ({}, {width})",
                target.shape(),
                if target.is_c_contiguous() { "" } else { " and strides" },
                ids.len()
            )));
        }
        let mut writable: PyReadwriteArray2<'_, f32> =
            target.try_readwrite().map_err(|error| value_error(format!("out cannot be written to: {error}")))?;
        let rows = writable.as_slice_mut().map_err(|error| value_error(format!("out: {error}")))?;
        on_pool(py, || self.features.gather(&ids, rows))?.map_err(of_dataset)?;
        Ok(out)
    }

    /// All rows as they lie, read only; `None` unless they are dense.
    #[getter]
    pub fn rows<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Features::Dense(matrix) = &*slf.get().features else { return Ok(None) };
        // SAFETY: the values belong to the store, which is frozen.
        let flat = unsafe { frozen_view(slf, matrix.data()) }?;
        flat.call_method1("reshape", (matrix.n_rows(), matrix.n_cols())).map(Some)
    }

    /// Errors of the codec on a sample of `rows`.
    fn errors<'py>(&self, py: Python<'py>, rows: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let rows = matrix("rows", rows)?;
        let Features::Compressed(store) = &*self.features else {
            return Err(value_error("rows as they are have no errors; encode them first"));
        };
        let store = store.clone();
        let measured = interruptible(py, move || {
            let sample = draw_sample(&rows, SampleOptions::default())?;
            ErrorReport::measure(store.codec(), &sample)
        });
        let report = measured?.map_err(of_features)?;
        let out = PyDict::new(py);
        out.set_item("cosine_mean", report.cosine_mean)?;
        out.set_item("relative_error", report.relative_error)?;
        out.set_item("error_max", report.error_max)?;
        Ok(out)
    }

    fn __len__(&self) -> usize {
        self.features.n_rows()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let (py, class) = (slf.py(), slf.py().get_type::<Self>());
        match (&slf.get().path, Self::rows(slf)?) {
            (Some(path), _) => Ok((class.getattr("open")?, (path,).into_pyobject(py)?.into_any())),
            (None, Some(rows)) => Ok((class.into_any(), (rows,).into_pyobject(py)?.into_any())),
            (None, None) => {
                Err(type_error("compressed rows in memory do not pickle; save them to a file, and open that"))
            }
        }
    }

    fn __repr__(&self) -> String {
        let (rows, width) = self.shape();
        format!(
            "girih.FeatureStore(shape=({rows}, {width}), codec={})",
            self.codec().map_or("None".into(), |c| format!("{c:?}"))
        )
    }
}

/// `out` as an array of `float32`: itself, or the memory of a tensor.
fn target<'py>(py: Python<'py>, out: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray2<f32>>> {
    if let Ok(array) = out.cast::<PyArray2<f32>>() {
        return Ok(array.clone());
    }
    let wrong = || type_error("out has to be a 2-dimensional array or CPU tensor of float32");
    if out.cast::<numpy::PyUntypedArray>().is_ok() || !out.hasattr("__array__")? {
        return Err(wrong());
    }
    // A tensor shares its memory with the array that NumPy makes of it.
    let shared = py.import("numpy")?.call_method1("asarray", (out,))?;
    shared.cast_into::<PyArray2<f32>>().map_err(|_| wrong())
}
