//! Dense products, and passes over dense matrices on a CUDA device.

use girih_compute::{
    Activation, ActivationGrad, ComputeError, DenseOps, Dropout, Epilogue, EpilogueGrad, Shape, Transpose,
};

use crate::Cuda;
use crate::{CudaIds, CudaMatrix};

impl DenseOps for Cuda {
    fn gemm(
        &self,
        a: (&CudaMatrix, Transpose),
        dropout: Option<Dropout>,
        b: (&CudaMatrix, Transpose),
        epilogue: Epilogue<'_, CudaMatrix>,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::gemm(self, a, dropout, b, epilogue, out)
    }

    fn gemm_pair(
        &self,
        first: (&CudaMatrix, &CudaMatrix),
        second: (&CudaMatrix, &CudaMatrix),
        epilogue: Epilogue<'_, CudaMatrix>,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::gemm_pair(self, first, second, epilogue, out)
    }

    fn gemm_backward(
        &self,
        a: (&CudaMatrix, Transpose),
        b: (&CudaMatrix, Transpose),
        epilogue_grad: EpilogueGrad<'_, CudaMatrix>,
        out: &mut CudaMatrix,
        bias_grad: Option<&mut CudaMatrix>,
    ) -> Result<(), ComputeError> {
        Self::gemm_backward(self, a, b, epilogue_grad, out, bias_grad)
    }

    fn gemm_scaled(
        &self,
        factors: &CudaMatrix,
        a: (&CudaMatrix, Transpose),
        b: (&CudaMatrix, Transpose),
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::gemm_scaled(self, factors, a, b, out)
    }

    fn epilogue_backward(
        &self,
        slope: ActivationGrad,
        y: &CudaMatrix,
        grad: &mut CudaMatrix,
        bias_grad: Option<&mut CudaMatrix>,
    ) -> Result<(), ComputeError> {
        Self::epilogue_backward(self, slope, y, grad, bias_grad)
    }

    fn dropout(&self, x: &CudaMatrix, dropout: Dropout, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::dropout(self, x, dropout, out)
    }

    fn dropout_in_place(&self, dropout: Dropout, x: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::dropout_in_place(self, dropout, x)
    }

    fn convert(&self, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::convert(self, x, out)
    }

    fn add_scaled(&self, factor: f32, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::add_scaled(self, factor, x, out)
    }

    fn gather_rows(&self, x: &CudaMatrix, ids: &CudaIds, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::gather_rows(self, x, ids, out)
    }

    fn scatter_add_rows(&self, x: &CudaMatrix, ids: &CudaIds, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::scatter_add_rows(self, x, ids, out)
    }

    fn column_sums(&self, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::column_sums(self, x, out)
    }

    fn copy_block(
        &self,
        shape: Shape,
        x: &CudaMatrix,
        from: (usize, usize),
        out: &mut CudaMatrix,
        to: (usize, usize),
    ) -> Result<(), ComputeError> {
        Self::copy_block(self, shape, x, from, out, to)
    }

    fn activate(
        &self,
        activation: Activation,
        bias: Option<&CudaMatrix>,
        x: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::activate(self, activation, bias, x)
    }

    fn scale(&self, factor: f32, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::scale(self, factor, x, out)
    }

    fn scale_rows(
        &self,
        factors: &CudaMatrix,
        x: (&CudaMatrix, usize),
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::scale_rows(self, factors, x, out)
    }

    fn scale_rows_in_place(&self, factors: &CudaMatrix, x: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::scale_rows_in_place(self, factors, x)
    }
}
