//! `cuda/ranking.cu`: the largest elements of rows.

use cudarc::driver::{LaunchConfig, PushKernelArg};
use girih_compute::ComputeError;

use crate::abi::BLOCK;
use crate::buffer::Buffer;
use crate::compile::Source;
use crate::cuda::Cuda;
use crate::device::{threads_for, warps_for};
use crate::matrix::CudaMatrix;

impl Cuda {
    /// Computes the keys of `n` rows of `x` from row `first` on.
    pub(super) fn rank_keys(
        &self,
        x: &CudaMatrix,
        first: usize,
        n: usize,
        keys: &mut Buffer<u32>,
    ) -> Result<(), ComputeError> {
        let kernel = self.kernel("top_k_rows", Source::RANKING, "rank_keys", &[("X", x.dtype)])?;
        let elements = n * x.pitch();
        let (rows, len) = (x.data.slice(first * x.pitch() * x.dtype.n_bytes()..), elements as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&rows).arg(keys).arg(&len);
        // SAFETY: from row `first` on there are at least `n` rows of the type that the kernel was compiled for, and
        // keys for as many.
        unsafe { launch.launch(threads_for(elements)) }.map(drop).map_err(Self::failed("top_k_rows"))
    }

    /// Clears the keys of the columns that rows exclude.
    pub(super) fn exclude_keys(
        &self,
        (indptr, indices): (&Buffer<u64>, &Buffer<u32>),
        first: usize,
        (n, cols): (usize, usize),
        keys: &mut Buffer<u32>,
    ) -> Result<(), ComputeError> {
        let kernel = self.kernel("top_k_rows", Source::RANKING, "exclude_keys", &[])?;
        let (first, rows, cols) = (first as u64, n as u64, cols as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(indptr).arg(indices).arg(&first).arg(&rows).arg(&cols).arg(keys);
        // SAFETY: the pattern is a `Csr` with at least `first + rows` rows and `cols` columns; there are keys for
        // `rows` rows.
        unsafe { launch.launch(warps_for(n)) }.map(drop).map_err(Self::failed("top_k_rows"))
    }

    /// Writes the columns of the `k` largest keys of `n` rows, from row `first` of the result on.
    pub(super) fn top_k(
        &self,
        (keys, cols): (&Buffer<u32>, usize),
        (first, n): (usize, usize),
        k: usize,
        best: &mut Buffer<u64>,
        found: &mut Buffer<u32>,
    ) -> Result<(), ComputeError> {
        let kernel = self.kernel("top_k_rows", Source::RANKING, "top_k", &[])?;
        let mut found = found.slice_mut(first * k..(first + n) * k);
        let (cols, k) = (cols as u64, k as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(keys).arg(&cols).arg(&k).arg(best).arg(&mut found);
        let config = LaunchConfig { grid_dim: (n as u32, 1, 1), block_dim: (BLOCK, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: there are keys of `n` rows, and space for `k` numbers for each of them; `k` is not zero, and blocks
        // have 256 threads, as the kernel expects.
        unsafe { launch.launch(config) }.map(drop).map_err(Self::failed("top_k_rows"))
    }
}
