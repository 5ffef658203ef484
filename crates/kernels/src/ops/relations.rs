//! Products of rows that have types on the GPU: a product of cuBLASLt for each run, in place.

use girih_compute::{ComputeError, DenseOps, Dtype, Fits, Memory, RelationOps, Shape, Transpose, runs_of};

use super::gemm::{Address, Dense};
use crate::Cuda;
use crate::matrix::CudaMatrix;

impl RelationOps for Cuda {
    fn run_gemm_runs(
        &self,
        _: Fits,
        runs: &[usize],
        x: &CudaMatrix,
        (weights, transpose): (&CudaMatrix, Transpose),
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "gemm_runs";
        if out.shape.is_empty() {
            return Ok(());
        }
        let depth = x.shape.cols;
        if depth == 0 {
            return self.set_zero(out);
        }
        let common = if x.dtype == weights.dtype { x.dtype } else { self.precision };
        if common == Dtype::F32 && out.dtype != common {
            // Libraries round sums only where they round operands, too.
            let mut sums = self.uninitialized(out.shape, common)?;
            self.gemm_runs(runs, x, (weights, transpose), &mut sums)?;
            return self.convert(&sums, out);
        }
        let (x, weights) = (self.converted(x, None, common)?, self.converted(weights, None, common)?);
        let (of_x, of_out) = (self.address(x.get()), self.address(out));
        let pitch = if transpose == Transpose::No { out.shape.cols } else { depth };
        for (run, n, first) in runs_of(runs) {
            let shape = Shape::new(n, out.shape.cols);
            let dense = Dense { shape, depth, transposes: (Transpose::No, transpose), alpha: 1.0, beta: 0.0 };
            let weight = Address { pitch, ..self.address(weights.get()).at_row(run) };
            let addresses = [of_x.at_row(first), weight, of_out.at_row(first)];
            // SAFETY: shapes were checked: runs are rows of `x` and `out`, and a row of `weights` has the elements of a
            // weight; all matrices live until the products are on the stream, and `out` is borrowed alone.
            unsafe { self.dense_rows(OPERATION, dense, addresses) }?;
        }
        Ok(())
    }

    fn run_gemm_runs_backward(
        &self,
        _: Fits,
        runs: &[usize],
        x: &CudaMatrix,
        grad: &CudaMatrix,
        accumulate: bool,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        const OPERATION: &str = "gemm_runs_backward";
        if out.shape.is_empty() {
            return Ok(());
        }
        if !accumulate && runs.windows(2).any(|ends| ends[0] == ends[1]) {
            self.set_zero(out)?;
        }
        let shape = Shape::new(x.shape.cols, grad.shape.cols);
        let common = if x.dtype == grad.dtype { x.dtype } else { self.precision };
        let (x, grad) = (self.converted(x, None, common)?, self.converted(grad, None, common)?);
        let (of_x, of_grad) = (self.address(x.get()), self.address(grad.get()));
        let beta = if accumulate { 1.0 } else { 0.0 };
        for (run, n, first) in runs_of(runs) {
            let transposes = (Transpose::Yes, Transpose::No);
            let dense = Dense { shape, depth: n, transposes, alpha: 1.0, beta };
            let of_weight = Address { pitch: shape.cols, ..self.address(out).at_row(run) };
            let addresses = [of_x.at_row(first), of_grad.at_row(first), of_weight];
            // SAFETY: as for the products of runs; a row of `out` has the elements of a weight, in f32.
            unsafe { self.dense_rows(OPERATION, dense, addresses) }?;
        }
        Ok(())
    }
}
