//! `cuda/ranking.cu`: the largest elements of rows.

use cudarc::driver::{CudaSlice, LaunchConfig, PushKernelArg};
use girih_compute::{ComputeError, Shape, checks};
use girih_graph_format::Csr;

use crate::abi::BLOCK;
use crate::compile::Source;
use crate::cuda::Cuda;
use crate::device::{threads_for, warps_for};
use crate::matrix::{CudaIds, CudaMatrix};

/// Elements that are ranked at a time, unless a single row has more; a key takes four bytes.
const CHUNK: usize = 1 << 26;

impl Cuda {
    /// [`LossOps::argmax_rows`](girih_compute::LossOps::argmax_rows).
    pub(crate) fn run_argmax_rows(&self, x: &CudaMatrix) -> Result<Vec<u32>, ComputeError> {
        const OPERATION: &str = "argmax_rows";
        let mut found = self.scratch::<u32>(OPERATION, x.shape.rows)?;
        let kernel = self.kernel(OPERATION, Source::RANKING, OPERATION, &[("X", x.dtype)])?;
        let (rows, cols) = (x.shape.rows as u64, x.shape.cols as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&x.data).arg(&rows).arg(&cols).arg(&mut found);
        // SAFETY: `x` is rows × cols of the type that the kernel was compiled for, with at least one column, and
        // `found` has a number for each row.
        unsafe { launch.launch(warps_for(x.shape.rows)) }.map_err(Self::failed(OPERATION))?;
        self.read(OPERATION, &found.slice(..x.shape.rows))
    }

    /// [`LossOps::count_correct`](girih_compute::LossOps::count_correct).
    pub(crate) fn run_count_correct(
        &self,
        x: &CudaMatrix,
        classes: &CudaIds,
        rows: &CudaIds,
    ) -> Result<u64, ComputeError> {
        const OPERATION: &str = "count_correct";
        let mut n_correct = self.scratch::<u64>(OPERATION, 1)?;
        self.device.stream.memset_zeros(&mut n_correct).map_err(Self::failed(OPERATION))?;
        let kernel = self.kernel(OPERATION, Source::RANKING, OPERATION, &[("X", x.dtype)])?;
        let (cols, n) = (x.shape.cols as u64, rows.range.len as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&x.data).arg(&cols).arg(&classes.ids).arg(&rows.ids).arg(&n).arg(&mut n_correct);
        // SAFETY: there are `n` rows, each one of `x`, which has at least one column and is of the type that the
        // kernel was compiled for; there is a class for each row of `x`; the kernel writes one number.
        unsafe { launch.launch(warps_for(rows.range.len)) }.map_err(Self::failed(OPERATION))?;
        Ok(self.read(OPERATION, &n_correct.as_view())?[0])
    }

    /// [`LossOps::top_k_rows`](girih_compute::LossOps::top_k_rows).
    pub(crate) fn run_top_k_rows(&self, x: &CudaMatrix, k: usize, excluded: &Csr) -> Result<Vec<u32>, ComputeError> {
        const OPERATION: &str = "top_k_rows";
        let Shape { rows, cols } = x.shape;
        checks::allocation(Shape::new(rows, k), size_of::<u64>())?;
        if rows * k == 0 || cols == 0 {
            return Ok(vec![girih_compute::NO_COLUMN; rows * k]);
        }
        // Kernels index by columns without checks.
        let excluded = excluded.in_memory().map_err(|error| ComputeError::device(OPERATION, error.to_string()))?;
        let indptr = self.upload_list(OPERATION, excluded.indptr())?;
        let indices = match excluded.indices() {
            [] => None,
            indices => Some(self.upload_list(OPERATION, indices)?),
        };
        let chunk = (CHUNK / cols.max(k)).clamp(1, rows);
        let mut keys = self.scratch::<u32>(OPERATION, chunk * x.pitch())?;
        let mut best = self.scratch::<u64>(OPERATION, chunk * k)?;
        let mut found = self.scratch::<u32>(OPERATION, rows * k)?;
        for first in (0..rows).step_by(chunk) {
            let n = chunk.min(rows - first);
            self.rank_keys(x, first, n, &mut keys)?;
            if let Some(indices) = &indices {
                self.exclude_keys((&indptr, indices), first, (n, cols), &mut keys)?;
            }
            self.top_k((&keys, cols), (first, n), k, &mut best, &mut found)?;
        }
        self.read(OPERATION, &found.as_view())
    }

    /// Computes the keys of `n` rows of `x` from row `first` on.
    fn rank_keys(&self, x: &CudaMatrix, first: usize, n: usize, keys: &mut CudaSlice<u32>) -> Result<(), ComputeError> {
        let kernel = self.kernel("top_k_rows", Source::RANKING, "rank_keys", &[("X", x.dtype)])?;
        let elements = n * x.pitch();
        let (rows, len) = (x.data.slice(first * x.pitch() * x.dtype.n_bytes()..), elements as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&rows).arg(keys).arg(&len);
        // SAFETY: from row `first` on there are at least `n` rows of the type that the kernel was compiled for, and
        // keys for as many.
        unsafe { launch.launch(threads_for(elements)) }.map_err(Self::failed("top_k_rows"))?;
        Ok(())
    }

    /// Clears the keys of the columns that rows exclude.
    fn exclude_keys(
        &self,
        (indptr, indices): (&CudaSlice<u64>, &CudaSlice<u32>),
        first: usize,
        (n, cols): (usize, usize),
        keys: &mut CudaSlice<u32>,
    ) -> Result<(), ComputeError> {
        let kernel = self.kernel("top_k_rows", Source::RANKING, "exclude_keys", &[])?;
        let (first, rows, cols) = (first as u64, n as u64, cols as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(indptr).arg(indices).arg(&first).arg(&rows).arg(&cols).arg(keys);
        // SAFETY: the pattern is a `Csr` with at least `first + rows` rows and `cols` columns; there are keys for
        // `rows` rows.
        unsafe { launch.launch(warps_for(n)) }.map_err(Self::failed("top_k_rows"))?;
        Ok(())
    }

    /// Writes the columns of the `k` largest keys of `n` rows, from row `first` of the result on.
    fn top_k(
        &self,
        (keys, cols): (&CudaSlice<u32>, usize),
        (first, n): (usize, usize),
        k: usize,
        best: &mut CudaSlice<u64>,
        found: &mut CudaSlice<u32>,
    ) -> Result<(), ComputeError> {
        let kernel = self.kernel("top_k_rows", Source::RANKING, "top_k", &[])?;
        let mut found = found.slice_mut(first * k..(first + n) * k);
        let (cols, k) = (cols as u64, k as u64);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(keys).arg(&cols).arg(&k).arg(best).arg(&mut found);
        let config = LaunchConfig { grid_dim: (n as u32, 1, 1), block_dim: (BLOCK, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: there are keys of `n` rows, and space for `k` numbers for each of them; `k` is not zero, and blocks
        // have 256 threads, as the kernel expects.
        unsafe { launch.launch(config) }.map_err(Self::failed("top_k_rows"))?;
        Ok(())
    }
}
