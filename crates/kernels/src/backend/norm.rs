//! Layer and batch normalisation on a CUDA device.

use girih_compute::{ColumnMoments, ComputeError, NormOps};

use crate::Cuda;
use crate::CudaMatrix;

impl NormOps for Cuda {
    fn normalize_rows(
        &self,
        eps: f32,
        x: &CudaMatrix,
        gain_and_bias: (&CudaMatrix, &CudaMatrix),
        out: &mut CudaMatrix,
        moments: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::normalize_rows(self, eps, x, gain_and_bias, out, moments)
    }

    fn normalize_rows_backward(
        &self,
        x: &CudaMatrix,
        gain: &CudaMatrix,
        moments: &CudaMatrix,
        grad: &mut CudaMatrix,
        grads: (&mut CudaMatrix, &mut CudaMatrix),
    ) -> Result<(), ComputeError> {
        Self::normalize_rows_backward(self, x, gain, moments, grad, grads)
    }

    fn column_squares(&self, x: &CudaMatrix, means: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::column_squares(self, x, means, out)
    }

    fn normalize_columns(
        &self,
        moments: ColumnMoments<'_, CudaMatrix>,
        x: &CudaMatrix,
        gain_and_bias: (&CudaMatrix, &CudaMatrix),
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::normalize_columns(self, &moments, x, gain_and_bias, out)
    }

    fn normalized_products(
        &self,
        moments: ColumnMoments<'_, CudaMatrix>,
        x: &CudaMatrix,
        grad: &CudaMatrix,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::normalized_products(self, &moments, x, grad, out)
    }

    fn normalize_columns_backward(
        &self,
        moments: ColumnMoments<'_, CudaMatrix>,
        x: &CudaMatrix,
        gain: &CudaMatrix,
        means: (&CudaMatrix, &CudaMatrix),
        grad: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::normalize_columns_backward(self, &moments, x, gain, means, grad)
    }
}
