//! `DeviceArray`: memory on a GPU that other libraries take over without a copy.

use std::sync::Arc;

use girih_compute::Dtype;
use girih_kernels::{Cuda, CudaMatrix};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use super::dlpack::{self, DataType, Lent};
use super::guest::{At, OnGpu, on_gpu};

/// Owner of the memory of an array.
pub type Keeper = Arc<dyn Send + Sync>;

/// Array on a GPU. `torch.from_dlpack` and its like take it over; the memory is freed with the last taker.
#[pyclass(frozen, module = "girih._girih")]
pub struct DeviceArray {
    keeper: OnGpu<Keeper>,
    cuda: Arc<Cuda>,
    at: At,
    address: u64,
    dtype: DataType,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

/// Memory that another library took over.
struct Taken {
    _keeper: OnGpu<Keeper>,
    /// Device to wait for before the memory is freed, where another stream uses it.
    used_by_others: Option<Arc<Cuda>>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(cuda) = &self.used_by_others {
            // Memory is freed in the order of the stream that made it, which knows nothing of the other.
            let _ = cuda.with_context(|| cuda.wait_for_all());
        }
    }
}

impl DeviceArray {
    /// Array of elements that follow each other.
    pub fn new(keeper: Keeper, (cuda, at): (&Arc<Cuda>, At), address: u64, dtype: DataType, shape: &[usize]) -> Self {
        let shape: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
        let strides = (0..shape.len()).map(|axis| shape[axis + 1..].iter().product()).collect();
        Self { keeper: OnGpu::new(keeper, cuda), cuda: Arc::clone(cuda), at, address, dtype, shape, strides }
    }

    /// Array of a matrix, whose rows are as wide as those of its memory.
    pub fn of_matrix(matrix: &Arc<CudaMatrix>, rows: usize, dtype: Dtype, device: (&Arc<Cuda>, At)) -> Self {
        let dtype = if dtype == Dtype::F32 { DataType::F32 } else { DataType::BF16 };
        let keeper: Keeper = matrix.clone();
        Self::new(keeper, device, matrix.address(), dtype, &[rows, matrix.pitch()])
    }
}

/// Streams of PyTorch and of the driver that mean the legacy default stream.
fn canonical(stream: u64) -> u64 {
    if stream == 1 { 0 } else { stream }
}

#[pymethods]
impl DeviceArray {
    #[getter]
    fn shape(&self) -> Vec<i64> {
        self.shape.clone()
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    fn __dlpack_device__(&self) -> (i32, usize) {
        (dlpack::CUDA, self.at.0)
    }

    /// Capsule of DLPack. Work of `stream` may use the array from now on; None is the default stream, -1 any.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, usize)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(true) || dl_device.is_some_and(|asked| asked != self.__dlpack_device__()) {
            return Err(PyBufferError::new_err(
                "the array is handed over where it lies, without a copy; copy it afterwards",
            ));
        }
        let taker = canonical(u64::try_from(stream.unwrap_or(0)).unwrap_or(self.at.1));
        let is_own = taker == canonical(self.at.1);
        if !is_own {
            // SAFETY: the taker names a stream of its own, on the GPU of the array.
            on_gpu(py, &self.cuda, || unsafe { self.cuda.let_wait(taker) })?;
        }
        let used_by_others = (!is_own).then(|| Arc::clone(&self.cuda));
        let lent = Lent {
            address: self.address,
            ordinal: self.at.0,
            dtype: self.dtype,
            shape: self.shape.clone(),
            strides: self.strides.clone(),
            _keeper: Box::new(Taken { _keeper: self.keeper.clone(), used_by_others }),
        };
        lent.into_capsule(py, max_version.is_some_and(|version| version >= (1, 0)))
    }

    fn __repr__(&self) -> String {
        format!("girih.DeviceArray(shape={:?}, dtype={}, device=cuda:{})", self.shape, self.dtype.name(), self.at.0)
    }
}
