//! `cuda/edges.cu` and `cuda/edges_wide.cu`: operations with a number for each entry and head, and products of
//! rows with a vector.

use std::ops::Range;

use cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use girih_compute::scratch::pitch;
use girih_compute::{ComputeError, Dtype, Shape, runs_of};

use super::sparse::Direction;
use super::spmm::{knows_heads, lanes};
use crate::abi::{BLOCK, LARGE_BLOCK};
use crate::compile::{Defines, Source};
use crate::cuda::{Cuda, element};
use crate::device::warps_for;
use crate::matrix::{CudaCsr, CudaMatrix};

/// Most blocks of rows in sums over all rows; the number is the same on every device.
const ROW_BLOCKS_MAX: usize = 2048;
/// Fewest rows of a block.
const ROWS_OF_BLOCK_MIN: usize = 64;
/// Columns that a thread of `cuda/head_dots_wide.cu` reads at once.
const WIDE_COLUMNS: usize = 8;

/// Assignment of lanes to rows in `cuda/edges_wide.cu`.
#[derive(Clone, Copy)]
pub(super) struct Wide {
    /// Elements that a lane reads at once.
    vec: usize,
    /// Number of lanes that read a row.
    group: usize,
}

impl Wide {
    /// Layout for rows of `y` and `heads` heads; `None` unless `heads` is a power of two and one read covers all
    /// heads.
    pub(super) fn of(heads: usize, y: &CudaMatrix) -> Option<Self> {
        let (vec, group) = lanes(pitch(y.shape.cols), y.dtype);
        knows_heads((vec, group), heads).then_some(Self { vec, group })
    }

    /// Columns that are read at once.
    pub(super) fn columns(self) -> usize {
        self.vec * self.group
    }

    fn defines(self, heads: usize, types: &[(&'static str, Dtype)]) -> Defines {
        let types = types.iter().map(|(name, dtype)| (*name, element(*dtype).to_owned()));
        let sizes = [("VEC", self.vec), ("GROUP", self.group), ("HEADS", heads)];
        types.chain(sizes.map(|(name, size)| (name, size.to_string()))).collect()
    }
}

impl Cuda {
    /// Computes `X·Yᵀ` at the entries of an untransposed direction. Shapes were checked.
    pub(crate) fn sampled(
        &self,
        operation: &'static str,
        direction: Direction<'_>,
        x: &CudaMatrix,
        y: &CudaMatrix,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        if out.shape.is_empty() {
            return Ok(());
        }
        let (left, right) = (self.pointer(direction.left), self.pointer(direction.right));
        let pattern = self.pattern(direction.csr);
        let heads = out.shape.cols;
        let (n_heads, depth) = (heads as u64, (x.shape.cols / heads) as u64);
        let types = [("X", x.dtype), ("Y", y.dtype), ("Z", out.dtype)];
        let kernel = self.entry_kernel(operation, (Source::EDGES, "sddmm"), (heads, y), &types)?;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&pattern).arg(&n_heads).arg(&depth).arg(&left).arg(&right);
        launch.arg(&x.data).arg(&y.data).arg(&mut out.data);
        // SAFETY: rows of `x` are those of the pattern, rows of `y` its columns, both `heads · depth` wide; `out` has a
        // row of `heads` for each entry, which one warp writes.
        unsafe { launch.launch(warps_for(direction.csr.n_pieces())) }.map(drop).map_err(Self::failed(operation))
    }

    /// Kernel that reads rows of `y` at entries. It comes from `cuda/edges_wide.cu` if that covers `heads`, else
    /// from `source`, which takes any number of heads.
    pub(super) fn entry_kernel(
        &self,
        operation: &'static str,
        (source, name): (Source, &str),
        (heads, y): (usize, &CudaMatrix),
        types: &[(&'static str, Dtype)],
    ) -> Result<CudaFunction, ComputeError> {
        match Wide::of(heads, y) {
            Some(wide) => self.variant(operation, Source::EDGES_WIDE, name, &wide.defines(heads, types)),
            None => self.kernel(operation, source, name, types),
        }
    }

    /// Kernel of dot products of rows of `width` columns with a vector for each head. It comes from
    /// `cuda/head_dots_wide.cu` if that covers them, else from `cuda/edges.cu`.
    pub(super) fn heads_kernel(
        &self,
        (operation, name): (&'static str, &str),
        (heads, width): (usize, usize),
        types: &[(&'static str, Dtype)],
    ) -> Result<CudaFunction, ComputeError> {
        if !width.is_multiple_of(WIDE_COLUMNS) || !WIDE_COLUMNS.is_multiple_of(heads) {
            return self.kernel(operation, Source::EDGES, name, types);
        }
        let types = types.iter().map(|(name, dtype)| (*name, element(*dtype).to_owned()));
        let defines: Defines = types.chain([("HEADS", heads.to_string())]).collect();
        self.variant(operation, Source::HEAD_DOTS_WIDE, name, &defines)
    }

    /// `out[i, h] = Σ entries[e, h]` over the entries `e` of row `i`; `entries` are `f32` in the order of the
    /// untransposed entries.
    pub(crate) fn sum_entries(
        &self,
        operation: &'static str,
        csr: &CudaCsr,
        entries: &CudaMatrix,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        if out.shape.is_empty() {
            return Ok(());
        }
        let (pattern, heads) = (self.pattern(csr), out.shape.cols as u64);
        let kernels = (Source::EDGES, "segment_sums", "segment_sums_hubs");
        for (kernel, config) in self.row_kernels(operation, kernels, csr, &[("Z", out.dtype)])? {
            let mut launch = self.device.stream.launch_builder(&kernel);
            launch.arg(&pattern).arg(&heads).arg(&entries.data).arg(&mut out.data);
            // SAFETY: `entries` has a row of `heads` floats for each entry, `out` one for each row of the pattern.
            unsafe { launch.launch(config) }.map_err(Self::failed(operation))?;
        }
        Ok(())
    }

    /// Kernels for rows and, if there are any, for hubs, with their launches.
    pub(super) fn row_kernels(
        &self,
        operation: &'static str,
        (source, of_rows, of_hubs): (Source, &str, &str),
        csr: &CudaCsr,
        types: &[(&'static str, Dtype)],
    ) -> Result<Vec<(CudaFunction, LaunchConfig)>, ComputeError> {
        let kernel = |name| self.kernel(operation, source, name, types);
        let mut kernels = Vec::with_capacity(2);
        if csr.n_hubs() > 0 {
            let blocks = csr.n_hubs().min(1 << 20) as u32;
            let config = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (LARGE_BLOCK, 1, 1), shared_mem_bytes: 0 };
            kernels.push((kernel(of_hubs)?, config));
        }
        kernels.push((kernel(of_rows)?, warps_for(csr.shape.rows)));
        Ok(kernels)
    }

    /// `x_grad[i, c] += grad[i, h]·vectors[r, c]` for the rows `i` of each run `r`.
    pub(super) fn head_dots_rows(
        &self,
        runs: &[usize],
        vectors: &CudaMatrix,
        grad: &CudaMatrix,
        x_grad: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        if x_grad.shape.is_empty() {
            return Ok(());
        }
        let (heads, width) = (grad.shape.cols as u64, x_grad.shape.cols as u64);
        let types = [("X", grad.dtype), ("V", vectors.dtype), ("Z", x_grad.dtype)];
        let sizes = (grad.shape.cols, x_grad.shape.cols);
        let kernel = self.heads_kernel(("head_dots_backward", "head_dots_rows"), sizes, &types)?;
        let [of_grad, of_vectors, of_out] = [self.address(grad), self.address(vectors), self.address(x_grad)];
        for (run, n, first) in runs_of(runs) {
            let (n_rows, vector) = (n as u64, of_vectors.at_row(run).at);
            let (grad, to) = (of_grad.at_row(first).at, of_out.at_row(first).at);
            let mut launch = self.device.stream.launch_builder(&kernel);
            launch.arg(&grad).arg(&n_rows).arg(&heads).arg(&width).arg(&vector).arg(&to);
            // SAFETY: runs are rows of `grad` (`heads` wide) and of `x_grad` (`width` wide), and `vectors` has a row as wide
            // for each, of the types that the kernel was compiled for.
            unsafe { launch.launch(warps_for(n)) }.map_err(Self::failed("head_dots_backward"))?;
        }
        Ok(())
    }

    /// Row `run` of `vector_grads` becomes `Σ_i grad[i, h]·x[i, c]` over the rows of the run: partial sums over blocks of
    /// rows, then their total.
    pub(super) fn head_dots_vector(
        &self,
        (x, grad): (&CudaMatrix, &CudaMatrix),
        (run, of_run): (usize, Range<usize>),
        vector_grads: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "head_dots_backward";
        let (rows, cols) = (of_run.len(), x.shape.cols);
        let rows_of_block = rows.div_ceil(ROW_BLOCKS_MAX).max(ROWS_OF_BLOCK_MIN);
        let n_blocks = rows.div_ceil(rows_of_block);
        let mut partial = self.uninitialized(Shape::new(n_blocks, cols), Dtype::F32)?;
        if n_blocks > 0 {
            let (n_rows, heads, width) = (rows as u64, grad.shape.cols as u64, cols as u64);
            let rows_of_block = rows_of_block as u64;
            let types = [("X", grad.dtype), ("Y", x.dtype)];
            let kernel = self.heads_kernel((OPERATION, "head_dots_vector"), (grad.shape.cols, cols), &types)?;
            let mut launch = self.device.stream.launch_builder(&kernel);
            let [grad, x] = [grad, x].map(|matrix| self.address(matrix).at_row(of_run.start).at);
            launch.arg(&grad).arg(&x).arg(&n_rows).arg(&heads).arg(&width).arg(&rows_of_block);
            launch.arg(&mut partial.data);
            let grid_dim = (n_blocks as u32, 1, 1);
            // SAFETY: `grad` is `n_rows × heads`, `x` `n_rows × width`; there is a row of partial sums for each block,
            // and the kernel expects blocks of 256 threads.
            unsafe { launch.launch(LaunchConfig { grid_dim, block_dim: (BLOCK, 1, 1), shared_mem_bytes: 0 }) }
                .map_err(Self::failed(OPERATION))?;
        }
        self.total_columns(OPERATION, &partial, (vector_grads, run))
    }

    /// Writes the column sums of `f32` partial sums to a row of `out`.
    pub(crate) fn total_columns(
        &self,
        operation: &'static str,
        partial: &CudaMatrix,
        (out, row): (&mut CudaMatrix, usize),
    ) -> Result<(), ComputeError> {
        if out.shape.is_empty() {
            return Ok(());
        }
        let to = self.address(out).at_row(row).at;
        let (n_rows, width) = (partial.shape.rows as u64, partial.shape.cols as u64);
        let kernel = self.kernel(operation, Source::EDGES, "column_totals", &[("Z", out.dtype)])?;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&partial.data).arg(&n_rows).arg(&width).arg(&to);
        let grid_dim = (partial.shape.cols.div_ceil(32) as u32, 1, 1);
        // SAFETY: `partial` holds `n_rows × width` floats, and `out` has such a row, as wide; the kernel expects large
        // blocks.
        unsafe { launch.launch(LaunchConfig { grid_dim, block_dim: (LARGE_BLOCK, 1, 1), shared_mem_bytes: 0 }) }
            .map(drop)
            .map_err(Self::failed(operation))
    }
}
