//! `cuda/operand.cu`: preparation of the dense operand of a sparse product.

use cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use girih_compute::scratch::pitch;
use girih_compute::{ComputeError, Dtype, Shape, checks};

use super::sparse::Direction;
use crate::abi::{BLOCK, OperandArgument, ROWS_OF_THREAD, SAMPLED, WIDE};
use crate::buffer::Buffer;
use crate::compile::Source;
use crate::cuda::{Cuda, element};
use crate::device::threads_for;
use crate::matrix::CudaMatrix;

/// Bytes of a cache line.
const LINE: usize = 128;
/// Most blocks of a grid in its second dimension.
const GRID_Y_MAX: usize = (1 << 16) - 1;
/// Most blocks of the search for the largest element: enough to fill a device.
const LOOKING_MAX: u32 = 2048;

/// Rows that a sparse product gathers.
pub(crate) struct Operand<'a> {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Shape,
    /// Elements from row to row.
    pub(crate) pitch: usize,
    /// Whether rows are already multiplied by their scales.
    pub(crate) is_scaled: bool,
    data: Data<'a>,
}

enum Data<'a> {
    Given(&'a CudaMatrix),
    Made(Buffer<u8>),
}

/// Operand split into sums of two half-precision numbers, for tensor cores.
pub(crate) struct Halves {
    /// Larger halves of a row, then its smaller ones, row by row; both have the pitch of the operand.
    pub(crate) data: Buffer<u8>,
    /// Factor that undoes the scaling of the halves by a power of two.
    pub(crate) unscale: Buffer<f32>,
}

impl<'a> Operand<'a> {
    fn given(x: &'a CudaMatrix) -> Self {
        Self { dtype: x.dtype, shape: x.shape, pitch: x.pitch(), is_scaled: false, data: Data::Given(x) }
    }

    /// Address of the first element.
    pub(crate) fn address(&self, cuda: &Cuda) -> u64 {
        match &self.data {
            Data::Given(x) => cuda.pointer(Some(&x.data)),
            Data::Made(data) => cuda.pointer(Some(data)),
        }
    }

    /// Kernel argument; valid as long as the operand.
    pub(crate) fn argument(&self, cuda: &Cuda) -> OperandArgument {
        OperandArgument { data: self.address(cuda), row_bytes: (self.pitch * self.dtype.n_bytes()) as u64 }
    }
}

/// Preparation that a product wants of its operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperandRequest {
    /// Whether rows are multiplied by their scales and laid out for gathers; else they are gathered as they are.
    pub(crate) rows: bool,
    /// Whether the rows are split into halves.
    pub(crate) halves: bool,
}

impl Cuda {
    /// Operand of a product, and its halves if they are wanted.
    pub(crate) fn operand<'a>(
        &self,
        operation: &'static str,
        x: &'a CudaMatrix,
        direction: Direction<'_>,
        wanted: OperandRequest,
    ) -> Result<(Operand<'a>, Option<Halves>), ComputeError> {
        if !wanted.rows && !wanted.halves {
            return Ok((Operand::given(x), None));
        }
        let made_pitch = gathered_pitch(x.shape.cols, x.dtype);
        checks::allocation(Shape::new(x.shape.rows, made_pitch), x.dtype.n_bytes())?;
        let made = match wanted.rows {
            true => Some(self.scratch::<u8>(operation, x.shape.rows * made_pitch * x.dtype.n_bytes())?),
            false => None,
        };
        let (halves, found) = match wanted.halves {
            true => {
                let data = self.scratch::<u8>(operation, x.len() * 2 * size_of::<u16>())?;
                let halves = Halves { data, unscale: self.scratch::<f32>(operation, 1)? };
                (Some(halves), Some(self.largest(operation, x)?))
            }
            false => (None, None),
        };
        let kernel = self.operand_kernel(operation, "operand", x.dtype, wanted.halves)?;
        let (rows, cols, out_pitch) = (x.shape.rows as u64, x.shape.cols as u64, made_pitch as u64);
        let (right, made_at) = (self.pointer(direction.right), self.pointer(made.as_ref()));
        let halves_at = self.pointer(halves.as_ref().map(|halves| &halves.data));
        let unscale = self.pointer(halves.as_ref().map(|halves| &halves.unscale));
        let found = self.pointer(found.as_ref());
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&x.data).arg(&right).arg(&rows).arg(&cols).arg(&made_at).arg(&out_pitch).arg(&halves_at).arg(&found);
        launch.arg(&direction.most_right).arg(&unscale);
        // SAFETY: `x` has `rows` × `cols` elements of the type that the kernel was compiled for, and a factor for
        // each row, if there are factors; it has at least eight columns, so that vectors are aligned; rows and halves
        // have space for as many elements, padding included, and live until the kernel is on the stream.
        unsafe { launch.launch(vectors(x.shape.rows, made_pitch.max(x.pitch()))) }.map_err(Self::failed(operation))?;
        let operand = match made {
            Some(data) => {
                let (dtype, shape) = (x.dtype, x.shape);
                Operand { dtype, shape, pitch: made_pitch, is_scaled: true, data: Data::Made(data) }
            }
            None => Operand::given(x),
        };
        Ok((operand, halves))
    }

    fn operand_kernel(
        &self,
        operation: &'static str,
        name: &str,
        dtype: Dtype,
        halves: bool,
    ) -> Result<CudaFunction, ComputeError> {
        let defines = vec![("X", element(dtype).to_owned()), ("HALVES", u32::from(halves).to_string())];
        self.variant(operation, Source::OPERAND, name, &defines)
    }

    /// Largest finite absolute value of the elements, as the bits of an `f32`; of large matrices, one element in
    /// sixteen is read.
    fn largest(&self, operation: &'static str, x: &CudaMatrix) -> Result<Buffer<u32>, ComputeError> {
        let mut found = self.scratch::<u32>(operation, 1)?;
        self.device.stream.memset_zeros(&mut found).map_err(Self::failed(operation))?;
        let kernel = self.operand_kernel(operation, "largest", x.dtype, true)?;
        let (rows, cols) = (x.shape.rows as u64, x.shape.cols as u64);
        let all = threads_for(x.len().div_ceil(4 * SAMPLED));
        let config = LaunchConfig { grid_dim: (all.grid_dim.0.min(LOOKING_MAX), 1, 1), ..all };
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&x.data).arg(&rows).arg(&cols).arg(&mut found);
        // SAFETY: `x` is rows × cols of the type that the kernel was compiled for, and aligned for loads of four
        // elements; `found` is one number.
        unsafe { launch.launch(config) }.map_err(Self::failed(operation))?;
        Ok(found)
    }
}

/// Elements from row to row of rows that are gathered. A row that fits a cache line lies in one line, because the
/// number of lines in flight limits a device.
fn gathered_pitch(cols: usize, dtype: Dtype) -> usize {
    let elements = pitch(cols);
    if elements * dtype.n_bytes() <= LINE { elements.next_power_of_two() } else { elements }
}

/// Launch with a thread for each vector of eight columns. Whole rows lie in one block unless they are very wide.
fn vectors(rows: usize, pitch: usize) -> LaunchConfig {
    let n = pitch / WIDE;
    let wide = (n.next_power_of_two() as u32).clamp(1, BLOCK);
    let tall = BLOCK / wide;
    let blocks = rows.div_ceil(ROWS_OF_THREAD * tall as usize).clamp(1, GRID_Y_MAX) as u32;
    let grid_dim = (n.div_ceil(wide as usize) as u32, blocks, 1);
    LaunchConfig { grid_dim, block_dim: (wide, tall, 1), shared_mem_bytes: 0 }
}
