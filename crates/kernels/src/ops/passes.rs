//! `cuda/passes.cu`: passes over whole matrices.

use cudarc::driver::{CudaView, LaunchConfig, PushKernelArg};
use girih_compute::{Activation, ActivationGrad, ComputeError, Dropout, Dtype, Shape};

use crate::abi::{BLOCK, ELU, FINISH, IDENTITY, Mask, RELU};
use crate::buffer::Buffer;
use crate::compile::Source;
use crate::cuda::Cuda;
use crate::device::threads_for;
use crate::matrix::CudaMatrix;

/// Most blocks that sum squares.
const SQUARES_BLOCKS: u32 = 1 << 10;

impl Cuda {
    /// `out = diag(factors)·X`, for an `X` at address `from`, of type `dtype`, with `x_pitch` elements from row to
    /// row.
    ///
    /// # Safety
    /// At the address are as many rows as `out` has, each of at least the pitch of `out` in elements, and there is a
    /// factor for each row. The address is that of `out` itself, or the memory overlaps it nowhere.
    pub(super) unsafe fn scale_rows_from(
        &self,
        operation: &'static str,
        factors: &CudaMatrix,
        (from, dtype, x_pitch): (u64, Dtype, usize),
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        if out.shape.is_empty() {
            return Ok(());
        }
        let out_pitch = out.pitch();
        let in_fours = x_pitch.is_multiple_of(4) && out_pitch.is_multiple_of(4);
        let (name, at_once) = if in_fours { ("scale_rows_of_fours", 4) } else { ("scale_rows", 1) };
        let kernel = self.kernel(operation, Source::PASSES, name, &[("X", dtype), ("Y", out.dtype)])?;
        let (rows, cols) = (out.shape.rows, out_pitch / at_once);
        let [x_pitch, n_rows, n_columns] = [x_pitch / at_once, rows, cols].map(|n| n as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&from).arg(&x_pitch).arg(&factors.data).arg(&mut out.data).arg(&n_rows).arg(&n_columns);
        // SAFETY: the caller vouches for the memory that is read and written, of the types that the kernel was
        // compiled for; vectors of four are aligned.
        unsafe { launch.launch(columns_of(Shape::new(rows, cols))) }.map(drop).map_err(Self::failed(operation))
    }

    /// Launches an elementwise kernel from `x` to `out`, both of the same shape.
    pub(super) fn pass(
        &self,
        operation: &'static str,
        kernel: &str,
        x: &CudaMatrix,
        factor: Option<f32>,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let n = x.len() as u64;
        let kernel = self.kernel(operation, Source::PASSES, kernel, &[("X", x.dtype), ("Y", out.dtype)])?;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&x.data).arg(&mut out.data).arg(&n);
        if let Some(factor) = &factor {
            launch.arg(factor);
        }
        // SAFETY: both matrices hold `n` elements of the types that the kernel was compiled for.
        unsafe { launch.launch(fours_for(x)) }.map(drop).map_err(Self::failed(operation))
    }

    /// `grad ⊙= slope(y)`: gradient of an activation.
    pub(super) fn activation_backward(
        &self,
        slope: ActivationGrad,
        y: &CudaMatrix,
        grad: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "epilogue_backward";
        let types = [("X", y.dtype), ("Y", grad.dtype)];
        let kernel = self.kernel(OPERATION, Source::PASSES, "activation_backward", &types)?;
        let (n, activation) = (y.len() as u64, number(slope.activation));
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&y.data).arg(&mut grad.data).arg(&n).arg(&activation).arg(&slope.kept);
        // SAFETY: both matrices hold `n` elements of the types that the kernel was compiled for.
        unsafe { launch.launch(fours_for(y)) }.map(drop).map_err(Self::failed(OPERATION))
    }

    /// `grad ⊙= slope(y)`, and the column sums of the result.
    pub(super) fn activation_backward_sums(
        &self,
        slope: ActivationGrad,
        y: &CudaMatrix,
        grad: &mut CudaMatrix,
        sums: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "epilogue_backward";
        let types = [("X", y.dtype), ("Y", grad.dtype)];
        let in_fours = y.pitch().is_multiple_of(4);
        let name = if in_fours { "activation_backward_sums_of_fours" } else { "activation_backward_sums" };
        let kernel = self.kernel(OPERATION, Source::PASSES, name, &types)?;
        let (activation, kept) = (number(slope.activation), slope.kept);
        let launch = |rows: &u64, cols: &u64, partials: &mut Buffer<f32>, config: LaunchConfig| {
            let mut launch = self.device.stream.launch_builder(&kernel);
            launch.arg(&y.data).arg(&mut grad.data).arg(rows).arg(cols).arg(&activation).arg(&kept);
            launch.arg(partials);
            // SAFETY: both matrices are rows × cols of the types that the kernel was compiled for, or of vectors of
            // four, aligned, and `sums` is as wide; `partials` has space for one sum of each column and block.
            unsafe { launch.launch(config) }.map(drop).map_err(Self::failed(OPERATION))
        };
        if in_fours {
            return self.reduction_in_fours(OPERATION, y.padded(), sums, launch);
        }
        self.column_reduction(OPERATION, y.shape, [sums], launch)
    }

    /// Sums over the rows of a matrix of `shape`. `launch` gets rows, columns, space for partial sums and the grid.
    /// It starts a kernel that calls `column_partials` of `common.cuh`. The sums go to `outs`, one row each.
    pub(super) fn column_reduction<const N: usize>(
        &self,
        operation: &'static str,
        shape: Shape,
        outs: [&mut CudaMatrix; N],
        launch: impl FnOnce(&u64, &u64, &mut Buffer<f32>, LaunchConfig) -> Result<(), ComputeError>,
    ) -> Result<(), ComputeError> {
        if shape.cols == 0 {
            return Ok(());
        }
        let (config, pieces) = reduction_over(shape);
        let mut partials = self.scratch::<f32>(operation, N * pieces * shape.cols)?;
        launch(&(shape.rows as u64), &(shape.cols as u64), &mut partials, config)?;
        for (k, out) in outs.into_iter().enumerate() {
            let partials = partials.slice(k * pieces * shape.cols..(k + 1) * pieces * shape.cols);
            self.finish_columns(operation, &partials, (pieces, shape.cols, 1), out)?;
        }
        Ok(())
    }

    /// As [`column_reduction`](Self::column_reduction), but each thread sums four columns. `launch` gets a quarter of
    /// the columns, and starts a kernel of four sums. The number of columns is a multiple of four, and may include
    /// padding; `out` has as much.
    pub(super) fn reduction_in_fours(
        &self,
        operation: &'static str,
        shape: Shape,
        out: &mut CudaMatrix,
        launch: impl FnOnce(&u64, &u64, &mut Buffer<f32>, LaunchConfig) -> Result<(), ComputeError>,
    ) -> Result<(), ComputeError> {
        if shape.cols == 0 {
            return Ok(());
        }
        let fours = Shape::new(shape.rows, shape.cols / 4);
        let (config, pieces) = reduction_over(fours);
        let mut partials = self.scratch::<f32>(operation, pieces * shape.cols)?;
        launch(&(fours.rows as u64), &(fours.cols as u64), &mut partials, config)?;
        self.finish_columns(operation, &partials.slice(..), (pieces, fours.cols, 4), out)
    }

    /// Adds up `pieces` partial sums for each of `n_sums` sums of each of `cols` columns.
    pub(super) fn finish_columns(
        &self,
        operation: &'static str,
        partials: &CudaView<'_, f32>,
        (pieces, cols, n_sums): (usize, usize, u32),
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let types = [("X", Dtype::F32), ("Y", out.dtype)];
        let kernel = self.kernel(operation, Source::PASSES, "finish_columns", &types)?;
        let blocks = cols.div_ceil(FINISH as usize) as u32;
        let (pieces, cols) = (pieces as u64, cols as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(partials).arg(&pieces).arg(&cols).arg(&mut out.data);
        let config =
            LaunchConfig { grid_dim: (blocks, n_sums, 1), block_dim: (FINISH, FINISH, 1), shared_mem_bytes: 0 };
        // SAFETY: `partials` holds `pieces` parts of each sum, and `out` is one row of `cols` × `n_sums` elements of
        // type Y.
        unsafe { launch.launch(config) }.map(drop).map_err(Self::failed(operation))
    }

    /// `out = x` where elements are kept, zero where they are dropped. Kept elements are not scaled, so that nothing
    /// is rounded.
    pub(super) fn dropout_unscaled(
        &self,
        x: &CudaMatrix,
        dropout: Dropout,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        self.masked(x, self.mask(dropout, x.shape.cols)?.unscaled(), out)
    }

    /// `out = mask ⊙ x`, for two matrices of one shape.
    pub(super) fn masked(&self, x: &CudaMatrix, mask: Mask, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        // SAFETY: matrices of one shape; `out` is ours to write.
        unsafe { self.mask_elements("dropout", x, mask, out) }
    }

    /// `out = mask ⊙ x`.
    ///
    /// # Safety
    /// Both are of one shape, and the elements of `out` may be written; it may be `x`.
    pub(super) unsafe fn mask_elements(
        &self,
        operation: &'static str,
        x: &CudaMatrix,
        mask: Mask,
        out: &CudaMatrix,
    ) -> Result<(), ComputeError> {
        const EIGHT: usize = 8;
        if x.shape.is_empty() {
            return Ok(());
        }
        let is_narrow = x.shape.cols < EIGHT;
        let name = if is_narrow { "dropout_of_narrow" } else { "dropout" };
        let kernel = self.kernel(operation, Source::PASSES, name, &[("X", x.dtype), ("Y", out.dtype)])?;
        let [n, rows, cols] = [x.shape.len(), x.shape.rows, x.shape.cols].map(|n| n as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&x.data).arg(&out.data);
        let config = if is_narrow {
            launch.arg(&n);
            threads_for(x.shape.len() / EIGHT + 2)
        } else {
            launch.arg(&rows).arg(&cols);
            columns_of(Shape::new(x.shape.rows, x.shape.cols.div_ceil(EIGHT)))
        };
        launch.arg(&mask);
        // SAFETY: both matrices hold `n` elements in rows of `cols`, of the types that the kernel was compiled for,
        // and rows of eight or more columns are padded to a multiple of eight.
        unsafe { launch.launch(config) }.map(drop).map_err(Self::failed(operation))
    }

    /// Copies `shape.rows` rows of `shape.cols` columns.
    ///
    /// # Safety
    /// At `x` there are so many elements of its type, and there is space for them at `out`, which may be written;
    /// they do not overlap.
    pub(crate) unsafe fn copy_rows(
        &self,
        operation: &'static str,
        shape: Shape,
        x: Strided,
        out: Strided,
    ) -> Result<(), ComputeError> {
        let kernel = self.kernel(operation, Source::PASSES, "copy_block", &[("X", x.dtype), ("Y", out.dtype)])?;
        let (rows, cols) = (shape.rows as u64, shape.cols as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&x.at).arg(&x.pitch).arg(&x.start);
        launch.arg(&out.at).arg(&out.pitch).arg(&out.start).arg(&rows).arg(&cols);
        // SAFETY: the caller vouches for the memory that is read and written, of the types that the kernel was
        // compiled for.
        unsafe { launch.launch(columns_of(shape)) }.map(drop).map_err(Self::failed(operation))
    }

    /// `loss += factor · Σ x²`.
    pub(super) fn add_squares(&self, factor: f64, x: &CudaMatrix, loss: &mut CudaMatrix) -> Result<(), ComputeError> {
        const OPERATION: &str = "l2_penalty";
        let mut config = threads_for(x.shape.len());
        config.grid_dim.0 = config.grid_dim.0.min(SQUARES_BLOCKS);
        let mut partials = self.scratch::<f64>(OPERATION, config.grid_dim.0 as usize)?;
        let types = [("X", x.dtype), ("Y", loss.dtype)];
        let squares = self.kernel(OPERATION, Source::PASSES, "squares", &types)?;
        let (rows, cols) = (x.shape.rows as u64, x.shape.cols as u64);
        let mut launch = self.device.stream.launch_builder(&squares);
        launch.arg(&x.data).arg(&rows).arg(&cols).arg(&mut partials);
        // SAFETY: `x` is rows × cols of type X, and there is a partial sum for each block.
        unsafe { launch.launch(config) }.map_err(Self::failed(OPERATION))?;
        let add = self.kernel(OPERATION, Source::PASSES, "add_squares", &types)?;
        let n_partials = u64::from(config.grid_dim.0);
        let mut launch = self.device.stream.launch_builder(&add);
        launch.arg(&partials).arg(&n_partials).arg(&factor).arg(&mut loss.data);
        let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (SQUARES_BLOCKS, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: there are `n_partials` partial sums, and `loss` is one element of type Y.
        unsafe { launch.launch(config) }.map(drop).map_err(Self::failed(OPERATION))
    }
}

/// Rows on the device: address, first element and pitch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strided {
    pub(crate) at: u64,
    pub(crate) start: u64,
    /// Elements from row to row.
    pub(crate) pitch: u64,
    pub(crate) dtype: Dtype,
}

/// Null pointer argument of kernels.
pub(super) const NULL: u64 = 0;

/// Number of an activation, as kernels know it.
pub(super) fn number(activation: Activation) -> u32 {
    match activation {
        Activation::Identity => IDENTITY,
        Activation::Relu => RELU,
        Activation::Elu => ELU,
    }
}

/// Launch with a thread for every four elements of a matrix.
pub(super) fn fours_for(x: &CudaMatrix) -> LaunchConfig {
    threads_for(x.len().div_ceil(4))
}

/// Columns and rows of a thread block on a matrix of `cols` columns. A block has as many columns as a warp has
/// threads, or fewer for narrow matrices, and powers of two.
fn block_over(cols: usize) -> (u32, u32) {
    let x = cols.clamp(1, 32).next_power_of_two() as u32;
    (x, BLOCK / x)
}

/// Grid on a matrix, where each thread stays in one column and processes four rows or more: `my_column` and its
/// neighbors in `common.cuh`.
pub(super) fn columns_of(shape: Shape) -> LaunchConfig {
    let (x, y) = block_over(shape.cols);
    let pieces = shape.rows.div_ceil(4 * y as usize).clamp(1, usize::from(u16::MAX)) as u32;
    let blocks = shape.cols.div_ceil(x as usize).max(1) as u32;
    LaunchConfig { grid_dim: (blocks, pieces, 1), block_dim: (x, y, 1), shared_mem_bytes: 0 }
}

/// Grid for sums over rows, and the number of partial sums per column. Both depend on the shape alone and not on the
/// GPU, so that sums are the same on all GPUs.
fn reduction_over(shape: Shape) -> (LaunchConfig, usize) {
    let (x, y) = block_over(shape.cols);
    let blocks = shape.cols.div_ceil(x as usize).max(1);
    let most = (2048 / blocks).max(64);
    let pieces = (shape.rows / (16 * y as usize)).clamp(1, most);
    let config =
        LaunchConfig { grid_dim: (blocks as u32, pieces as u32, 1), block_dim: (x, y, 1), shared_mem_bytes: 0 };
    (config, pieces)
}
