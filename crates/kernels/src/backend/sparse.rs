//! Products with sparse matrices on a CUDA device.

use girih_compute::{ComputeError, Epilogue, SparseOps, Transpose};

use crate::Cuda;
use crate::{CudaMatrix, CudaSparse};

impl SparseOps for Cuda {
    fn spmm(
        &self,
        a: (&CudaSparse, Transpose),
        weights: Option<&CudaMatrix>,
        x: &CudaMatrix,
        epilogue: Epilogue<'_, CudaMatrix>,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::spmm(self, a, weights, x, epilogue, out)
    }

    fn spmm_columns(
        &self,
        a: (&CudaSparse, Transpose),
        x: &CudaMatrix,
        epilogue: Epilogue<'_, CudaMatrix>,
        out: (&mut CudaMatrix, usize),
    ) -> Result<(), ComputeError> {
        Self::spmm_columns(self, a, x, epilogue, out)
    }

    fn sddmm(&self, a: &CudaSparse, x: &CudaMatrix, y: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::sddmm(self, a, x, y, out)
    }
}
