//! [`LentMatrix`] and [`ForeignRows`]: memory of another library as matrices of the device, and addresses of ours for
//! others.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use cudarc::driver::{DevicePtr, sys};
use girih_compute::scratch::pitch;
use girih_compute::{ComputeError, Dtype, Shape, checks};

use crate::Cuda;
use crate::abi::WIDE;
use crate::buffer::Buffer;
use crate::matrix::{CudaIds, CudaMatrix};
use crate::ops::Strided;

/// Bytes that the widest loads read at once.
const ALIGNMENT: u64 = 16;

/// Matrix in memory of another library, which is not freed with it.
pub struct LentMatrix(ManuallyDrop<CudaMatrix>);

impl Deref for LentMatrix {
    type Target = CudaMatrix;

    fn deref(&self) -> &CudaMatrix {
        &self.0
    }
}

impl DerefMut for LentMatrix {
    fn deref_mut(&mut self) -> &mut CudaMatrix {
        &mut self.0
    }
}

impl Drop for LentMatrix {
    fn drop(&mut self) {
        // SAFETY: the matrix is dropped once, and is not used again.
        let CudaMatrix { data, .. } = unsafe { ManuallyDrop::take(&mut self.0) };
        data.forget();
    }
}

/// Rows in memory of another library.
#[derive(Clone, Copy, Debug)]
pub struct ForeignRows {
    /// Device address of the first element.
    pub address: u64,
    /// Rows and columns.
    pub shape: Shape,
    /// Elements from row to row, at least the number of columns.
    pub stride: usize,
    /// Type of the elements.
    pub dtype: Dtype,
}

impl ForeignRows {
    /// Whether rows begin as those of [`Cuda::lent_matrix`] do.
    #[must_use]
    pub fn is_matrix(&self) -> bool {
        self.stride == pitch(self.shape.cols) && self.address.is_multiple_of(alignment(self.shape, self.dtype))
    }

    fn strided(&self) -> Strided {
        Strided { at: self.address, start: 0, pitch: self.stride as u64, dtype: self.dtype }
    }
}

/// Bytes at whose multiples a matrix begins.
fn alignment(shape: Shape, dtype: Dtype) -> u64 {
    if shape.cols < WIDE { dtype.n_bytes() as u64 } else { ALIGNMENT }
}

impl CudaMatrix {
    /// Rows and columns.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Type of the elements.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Device address of the first element.
    #[must_use]
    pub fn address(&self) -> u64 {
        address(&self.data)
    }
}

impl CudaIds {
    /// Device address of the first id.
    #[must_use]
    pub fn address(&self) -> u64 {
        address(&self.ids)
    }
}

fn address<T>(slice: &Buffer<T>) -> u64 {
    slice.device_ptr(slice.stream()).0
}

impl Cuda {
    /// Matrix at a device address. Its rows begin as those of girih's matrices do: one behind the other if there are
    /// fewer than 8 columns, else at multiples of 8 elements.
    ///
    /// # Safety
    /// The memory has to be on this GPU and hold all rows, padding included, for as long as work of the device uses
    /// the matrix. What is written to the matrix must not be in use elsewhere, and the padding may be overwritten.
    ///
    /// # Errors
    /// When the address is not aligned for the kernels, or no memory holds such a matrix.
    pub unsafe fn lent_matrix(&self, address: u64, shape: Shape, dtype: Dtype) -> Result<LentMatrix, ComputeError> {
        let alignment = alignment(shape, dtype);
        if !address.is_multiple_of(alignment) {
            let what = format!("a tensor begins at {address:#x}, which is no multiple of {alignment} bytes: clone it");
            return Err(ComputeError::argument("lent_matrix", what));
        }
        let padded = Shape::new(shape.rows, pitch(shape.cols));
        checks::allocation(padded, dtype.n_bytes())?;
        let n_bytes = padded.len() * dtype.n_bytes();
        // SAFETY: the caller vouches for the memory; it is never freed.
        let data = unsafe { self.device.stream.upgrade_device_ptr(address, n_bytes.max(1)) }.into();
        Ok(LentMatrix(ManuallyDrop::new(CudaMatrix { shape, dtype, data })))
    }

    /// Copy of foreign rows, rounded to `dtype`.
    ///
    /// # Safety
    /// The rows have to be on this GPU, and to stay unchanged until the device has read them.
    ///
    /// # Errors
    /// When the device's memory does not suffice, or it fails.
    pub unsafe fn copy_of_rows(&self, rows: ForeignRows, dtype: Dtype) -> Result<CudaMatrix, ComputeError> {
        let copy = self.uninitialized(rows.shape, dtype)?;
        if !rows.shape.is_empty() {
            // SAFETY: the caller vouches for the rows, and the copy has their shape.
            unsafe { self.copy_rows("copy_of_rows", rows.shape, rows.strided(), Self::strided(&copy)) }?;
        }
        Ok(copy)
    }

    /// Writes a matrix to foreign rows of its shape, rounded to their type.
    ///
    /// # Safety
    /// The rows have to be on this GPU, and nobody else may use them until the device has written them.
    ///
    /// # Errors
    /// When shapes differ, or the device fails.
    pub unsafe fn copy_to_rows(&self, x: &CudaMatrix, rows: ForeignRows) -> Result<(), ComputeError> {
        if rows.shape != x.shape {
            return Err(ComputeError::shape("copy_to_rows", "rows", rows.shape, x.shape));
        }
        if x.shape.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller vouches for the rows, which have the shape of the matrix.
        unsafe { self.copy_rows("copy_to_rows", x.shape, Self::strided(x), rows.strided()) }
    }

    fn strided(x: &CudaMatrix) -> Strided {
        Strided { at: x.address(), start: 0, pitch: x.pitch() as u64, dtype: x.dtype }
    }

    /// Makes later work of another stream wait for all work of this device so far.
    ///
    /// # Safety
    /// `stream` is the handle of a stream of this GPU that lives.
    ///
    /// # Errors
    /// When the device fails.
    pub unsafe fn let_wait(&self, stream: u64) -> Result<(), ComputeError> {
        let context = self.device.stream.context();
        // SAFETY: the caller vouches.
        let other = unsafe { context.wrap_borrowed_stream(stream as sys::CUstream) };
        other.join(&self.device.stream).map_err(Self::failed("let_wait"))
    }

    /// Waits until the GPU has done all work of this process, on any stream.
    ///
    /// # Errors
    /// When the device fails.
    pub fn wait_for_all(&self) -> Result<(), ComputeError> {
        self.device.stream.context().synchronize().map_err(Self::failed("wait_for_all"))
    }
}
