//! [`Tensor`]: a tensor of PyTorch, and [`OnTensors`]: backends that compute in its memory.

use std::ops::{Deref, DerefMut};

use girih_compute::cpu::CpuMatrix;
use girih_compute::{Backend, ComputeError, Cpu, Dtype, HostMatrix, Shape, checks};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::spare::Spare;
use crate::errors::value_error;

/// Matrix in memory of PyTorch, which Python keeps for the call.
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    pub address: u64,
    pub shape: Shape,
    /// Elements from row to row.
    pub stride: usize,
    pub dtype: Dtype,
}

impl<'a, 'py> FromPyObject<'a, 'py> for Tensor {
    type Error = PyErr;

    /// From a `torch.Tensor` of `float32` or `bfloat16`: a matrix, or a vector as its only row.
    fn extract(tensor: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let py = tensor.py();
        let address = tensor.call_method0(intern!(py, "data_ptr"))?.extract::<u64>()?;
        let dtype = match tensor.call_method0(intern!(py, "element_size"))?.extract::<usize>()? {
            2 => Dtype::Bf16,
            _ => Dtype::F32,
        };
        let shape = tensor.getattr(intern!(py, "shape"))?.cast_into::<PyTuple>()?;
        let cols = shape.get_item(shape.len().saturating_sub(1))?.extract()?;
        let rows = if shape.len() == 1 { 1 } else { shape.get_item(0)?.extract()? };
        let stride = if rows > 1 { tensor.call_method1(intern!(py, "stride"), (0,))?.extract()? } else { cols };
        let shape = Shape::new(rows, cols);
        if address == 0 && !shape.is_empty() {
            return Err(value_error(format!("a tensor of {shape} has no memory; materialise it first")));
        }
        Ok(Self { address, shape, stride, dtype })
    }
}

/// Backend that computes in memory of tensors.
///
/// Tensors lie in the backend's memory, have the shape that they name, and stay until the work on them is done. Those that
/// are written are in use by nobody else. `girih.nn` vouches for it.
pub trait OnTensors: Backend {
    /// Matrix in memory of a tensor, or of another matrix.
    type Lent: DerefMut<Target = Self::Matrix> + Send + Sync;

    /// Matrix that is written whole before it is read.
    fn space(&self, shape: Shape, dtype: Dtype) -> Result<Self::Matrix, ComputeError>;

    /// Tensor as a matrix; `None` where rows are laid out otherwise than those of the backend.
    fn lend(&self, tensor: &Tensor) -> Result<Option<Self::Lent>, ComputeError>;

    /// Copy of a tensor, rounded to `dtype`.
    fn copied(&self, tensor: &Tensor, dtype: Dtype) -> Result<Self::Matrix, ComputeError>;

    /// Writes a matrix to a tensor of its shape and type.
    fn copy_to(&self, x: &Self::Matrix, tensor: &Tensor) -> Result<(), ComputeError>;

    /// The first `rows` rows of a matrix, which outlives them and nobody writes to.
    fn first_rows(&self, x: &Self::Matrix, rows: usize) -> Result<Self::Lent, ComputeError>;

    /// As [`first_rows`](Self::first_rows), to be written. Nobody else uses the matrix meanwhile.
    fn first_rows_mut(&self, x: &mut Self::Matrix, rows: usize) -> Result<Self::Lent, ComputeError>;
}

/// Matrix of the backend's own, or in memory of a tensor.
pub enum Held<B: OnTensors> {
    Own(B::Matrix),
    Lent(B::Lent),
}

impl<B: OnTensors> Deref for Held<B> {
    type Target = B::Matrix;

    fn deref(&self) -> &B::Matrix {
        match self {
            Self::Own(matrix) => matrix,
            Self::Lent(matrix) => matrix,
        }
    }
}

impl<B: OnTensors> DerefMut for Held<B> {
    fn deref_mut(&mut self) -> &mut B::Matrix {
        match self {
            Self::Own(matrix) => matrix,
            Self::Lent(matrix) => matrix,
        }
    }
}

impl<B: OnTensors> Held<B> {
    /// Tensor to read in a type: in its own memory, or a copy.
    pub fn read(backend: &B, tensor: &Tensor, dtype: Dtype) -> Result<Self, ComputeError> {
        let lent = if tensor.dtype == dtype { backend.lend(tensor)? } else { None };
        lent.map_or_else(|| backend.copied(tensor, dtype).map(Self::Own), |lent| Ok(Self::Lent(lent)))
    }

    /// Result for a tensor, in its own memory or beside it.
    pub fn place(backend: &B, tensor: &Tensor) -> Result<Self, ComputeError> {
        let lent = backend.lend(tensor)?;
        lent.map_or_else(|| backend.space(tensor.shape, tensor.dtype).map(Self::Own), |lent| Ok(Self::Lent(lent)))
    }

    /// Brings a result beside its tensor into it.
    pub fn deliver(&self, backend: &B, tensor: &Tensor) -> Result<(), ComputeError> {
        match self {
            Self::Own(matrix) => backend.copy_to(matrix, tensor),
            Self::Lent(_) => Ok(()),
        }
    }
}

/// Floats in memory of another owner.
struct Floats {
    first: *mut f32,
    len: usize,
}

// SAFETY: floats are plain numbers; who may use them is the matter of `OnTensors`.
unsafe impl Send for Floats {}
// SAFETY: as for `Send`.
unsafe impl Sync for Floats {}

impl AsRef<[f32]> for Floats {
    fn as_ref(&self) -> &[f32] {
        // SAFETY: the memory holds so many floats, as `OnTensors` asks of tensors and matrices; there is none for zero.
        if self.len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(self.first, self.len) } }
    }
}

impl AsMut<[f32]> for Floats {
    fn as_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `as_ref`; nobody else uses memory that is written.
        if self.len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(self.first, self.len) } }
    }
}

fn over(first: *mut f32, shape: Shape) -> Result<Box<CpuMatrix>, ComputeError> {
    CpuMatrix::over(shape, Floats { first, len: shape.len() }).map(Box::new)
}

impl OnTensors for Cpu {
    type Lent = Box<CpuMatrix>;

    fn space(&self, shape: Shape, _: Dtype) -> Result<CpuMatrix, ComputeError> {
        checks::allocation(shape, size_of::<f32>())?;
        CpuMatrix::over(shape, Spare::of(shape.len()))
    }

    fn lend(&self, tensor: &Tensor) -> Result<Option<Box<CpuMatrix>>, ComputeError> {
        let is_matrix = tensor.stride == tensor.shape.cols && tensor.dtype == Dtype::F32;
        is_matrix.then(|| over(tensor.address as *mut f32, tensor.shape)).transpose()
    }

    fn copied(&self, _: &Tensor, _: Dtype) -> Result<CpuMatrix, ComputeError> {
        Err(ComputeError::argument("girih.nn", "tensors on the CPU are contiguous and float32"))
    }

    fn copy_to(&self, _: &CpuMatrix, _: &Tensor) -> Result<(), ComputeError> {
        Err(ComputeError::argument("girih.nn", "results on the CPU are contiguous and float32"))
    }

    fn first_rows(&self, x: &CpuMatrix, rows: usize) -> Result<Box<CpuMatrix>, ComputeError> {
        // Not written to: see the trait.
        over(x.bytes().as_ptr().cast_mut().cast(), Shape::new(rows, HostMatrix::shape(x).cols))
    }

    fn first_rows_mut(&self, x: &mut CpuMatrix, rows: usize) -> Result<Box<CpuMatrix>, ComputeError> {
        let cols = HostMatrix::shape(x).cols;
        over(x.bytes_mut().as_mut_ptr().cast(), Shape::new(rows, cols))
    }
}

#[cfg(feature = "cuda")]
mod cuda {
    use girih_kernels::{Cuda, CudaMatrix, ForeignRows, LentMatrix};

    use super::{ComputeError, Dtype, OnTensors, Shape, Tensor};

    impl Tensor {
        fn rows(&self) -> ForeignRows {
            let Self { address, shape, stride, dtype } = *self;
            ForeignRows { address, shape, stride, dtype }
        }
    }

    impl OnTensors for Cuda {
        type Lent = LentMatrix;

        fn space(&self, shape: Shape, dtype: Dtype) -> Result<CudaMatrix, ComputeError> {
            self.uninitialized(shape, dtype)
        }

        fn lend(&self, tensor: &Tensor) -> Result<Option<LentMatrix>, ComputeError> {
            let is_matrix = tensor.rows().is_matrix();
            // SAFETY: tensors live and are free to use, as the trait asks; PyTorch frees memory in the order of the
            // stream of the device.
            is_matrix.then(|| unsafe { self.lent_matrix(tensor.address, tensor.shape, tensor.dtype) }).transpose()
        }

        fn copied(&self, tensor: &Tensor, dtype: Dtype) -> Result<CudaMatrix, ComputeError> {
            // SAFETY: as above.
            unsafe { self.copy_of_rows(tensor.rows(), dtype) }
        }

        fn copy_to(&self, x: &CudaMatrix, tensor: &Tensor) -> Result<(), ComputeError> {
            // SAFETY: as above.
            unsafe { self.copy_to_rows(x, tensor.rows()) }
        }

        fn first_rows(&self, x: &CudaMatrix, rows: usize) -> Result<LentMatrix, ComputeError> {
            // SAFETY: the rows are those of a matrix that outlives them; it is freed in the order of the stream.
            unsafe { self.lent_matrix(x.address(), Shape::new(rows, x.shape().cols), x.dtype()) }
        }

        fn first_rows_mut(&self, x: &mut CudaMatrix, rows: usize) -> Result<LentMatrix, ComputeError> {
            self.first_rows(x, rows)
        }
    }
}
