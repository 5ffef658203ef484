//! `kernels/operand.cu`: the dense operand of a sparse product, as its kernels want it.

use cudarc::driver::{CudaSlice, DeviceRepr, LaunchConfig, PushKernelArg};
use girih_compute::{ComputeError, Dtype, Shape, checks};

use crate::backend::{Cuda, element};
use crate::compile::Source;
use crate::device::BLOCK;
use crate::matrix::CudaMatrix;

/// Elements that begin at 16 bytes in every storage.
const WIDE: usize = 8;

/// How the elements of an operand are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    Plain(Dtype),
    /// Two numbers in half precision, whose sum holds 22 bits: what tensor cores take in the place of an `f32`.
    Halves,
}

impl Storage {
    /// As sources spell it.
    pub(crate) fn element(self) -> &'static str {
        match self {
            Self::Plain(dtype) => element(dtype),
            Self::Halves => "halves",
        }
    }

    /// Elements of 16 bytes.
    pub(crate) fn widest(self) -> usize {
        match self {
            Self::Plain(dtype) => 16 / dtype.n_bytes(),
            Self::Halves => WIDE,
        }
    }

    /// Bytes of an element; of halves, of both.
    fn n_bytes(self) -> usize {
        match self {
            Self::Plain(dtype) => dtype.n_bytes(),
            Self::Halves => 2 * size_of::<u16>(),
        }
    }
}

/// Where the elements are.
enum Data<'a> {
    Given(&'a CudaMatrix),
    Made(CudaSlice<u8>),
}

/// A matrix that a sparse product multiplies.
pub(crate) struct Operand<'a> {
    pub(crate) storage: Storage,
    data: Data<'a>,
    /// Rows, and columns with padding.
    pub(crate) shape: Shape,
    /// What undoes the power of two that halves are multiplied by.
    unscale: Option<CudaSlice<f32>>,
}

/// `Operand` of `kernels/spmm.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OperandArgument {
    data: u64,
    pitch: u64,
    low: u64,
    unscale: u64,
}

// SAFETY: plain 64-bit words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for OperandArgument {}

impl<'a> Operand<'a> {
    /// A matrix as it is.
    pub(crate) fn given(x: &'a CudaMatrix) -> Self {
        Self { storage: Storage::Plain(x.dtype), data: Data::Given(x), shape: x.shape, unscale: None }
    }

    /// Whether it was made for the product, with factors of rows in its elements.
    pub(crate) fn is_made(&self) -> bool {
        matches!(self.data, Data::Made(_))
    }

    /// Elements from the larger halves of a row to the smaller ones.
    pub(crate) fn low(&self) -> usize {
        if self.storage == Storage::Halves { self.shape.cols } else { 0 }
    }

    /// Elements from row to row.
    pub(crate) fn pitch(&self) -> usize {
        self.shape.cols + self.low()
    }

    /// The address of the first element.
    pub(crate) fn address(&self, cuda: &Cuda) -> u64 {
        match &self.data {
            Data::Given(x) => cuda.pointer(Some(&x.data)),
            Data::Made(data) => cuda.pointer(Some(data)),
        }
    }

    /// What kernels are handed of it; as valid as the operand.
    pub(crate) fn argument(&self, cuda: &Cuda) -> OperandArgument {
        OperandArgument {
            data: self.address(cuda),
            pitch: self.pitch() as u64,
            low: self.low() as u64,
            unscale: cuda.pointer(self.unscale.as_ref()),
        }
    }
}

impl Cuda {
    /// A copy of `x` in another storage: rows multiplied by their factors and padded with zeros to a multiple of eight.
    pub(crate) fn made_operand<'a>(
        &self,
        operation: &'static str,
        x: &CudaMatrix,
        right: Option<&CudaSlice<f32>>,
        storage: Storage,
    ) -> Result<Operand<'a>, ComputeError> {
        let shape = Shape::new(x.shape.rows, x.shape.cols.next_multiple_of(WIDE));
        checks::allocation(shape, storage.n_bytes())?;
        let mut data = self.scratch::<u8>(operation, shape.len() * storage.n_bytes())?;
        let (found, mut unscale) = if storage == Storage::Halves {
            (Some(self.largest(operation, x, right)?), Some(self.scratch::<f32>(operation, 1)?))
        } else {
            (None, None)
        };
        let types = vec![("X", element(x.dtype).to_owned()), ("OUT", storage.element().to_owned())];
        let kernel = self.device.kernel(Source::OPERAND, "operand", &types);
        let kernel = kernel.map_err(|error| ComputeError::device(operation, error.to_string()))?;
        let (rows, cols, pitch) = (x.shape.rows as u64, x.shape.cols as u64, shape.cols as u64);
        let stride = if storage == Storage::Halves { 2 * pitch } else { pitch };
        let (right, found) = (self.pointer(right), self.pointer(found.as_ref()));
        let unscale_at = self.pointer(unscale.as_mut().map(|unscale| &*unscale));
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&x.data).arg(&right).arg(&rows).arg(&cols).arg(&pitch).arg(&mut data).arg(&stride);
        launch.arg(&found).arg(&unscale_at);
        // SAFETY: `x` has `rows` × `cols` elements of the type that the kernel was compiled for, `data` room for `rows` of
        // `stride` elements, and there is a factor for each row, if there are factors.
        unsafe { launch.launch(vectors(shape)) }.map_err(Self::failed(operation))?;
        Ok(Operand { storage, data: Data::Made(data), shape, unscale })
    }

    /// The largest finite size of any element of `x` times the factors of its rows, as the bits of an `f32`.
    fn largest(
        &self,
        operation: &'static str,
        x: &CudaMatrix,
        right: Option<&CudaSlice<f32>>,
    ) -> Result<CudaSlice<u32>, ComputeError> {
        let mut found = self.scratch::<u32>(operation, 1)?;
        self.device.stream.memset_zeros(&mut found).map_err(Self::failed(operation))?;
        let types = vec![("X", element(x.dtype).to_owned()), ("OUT", Storage::Halves.element().to_owned())];
        let kernel = self.device.kernel(Source::OPERAND, "largest", &types);
        let kernel = kernel.map_err(|error| ComputeError::device(operation, error.to_string()))?;
        let padded = Shape::new(x.shape.rows, x.shape.cols.next_multiple_of(WIDE));
        let (rows, cols, pitch) = (x.shape.rows as u64, x.shape.cols as u64, padded.cols as u64);
        let right = self.pointer(right);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&x.data).arg(&right).arg(&rows).arg(&cols).arg(&pitch).arg(&mut found);
        // SAFETY: as in `made_operand`; `found` is one number.
        unsafe { launch.launch(vectors(padded)) }.map_err(Self::failed(operation))?;
        Ok(found)
    }
}

/// A thread for each vector of eight columns, whole rows side by side in a block; at most as many blocks as fill a device a
/// few times, so that what each leaves is little.
fn vectors(padded: Shape) -> LaunchConfig {
    let wide = ((padded.cols / WIDE).next_power_of_two() as u32).clamp(1, BLOCK);
    let rows = BLOCK / wide;
    let blocks = padded.rows.div_ceil(rows as usize).clamp(1, 1 << 14) as u32;
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (wide, rows, 1), shared_mem_bytes: 0 }
}
