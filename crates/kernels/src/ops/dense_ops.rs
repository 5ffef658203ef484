//! Operations on dense matrices: short passes stand here, the others beside their kernels.

use girih_compute::{
    Activation, ActivationGrad, ComputeError, DenseOps, Dropout, Epilogue, EpilogueGrad, Fits, Shape, Transpose,
};

use super::passes::Strided;
use crate::cuda::Cuda;
use crate::matrix::{CudaIds, CudaMatrix};

impl DenseOps for Cuda {
    fn run_gemm(
        &self,
        _: Fits,
        a: (&CudaMatrix, Transpose),
        dropout: Option<Dropout>,
        b: (&CudaMatrix, Transpose),
        epilogue: Epilogue<'_, CudaMatrix>,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::run_gemm(self, a, dropout, b, epilogue, out)
    }

    fn run_gemm_pair(
        &self,
        _: Fits,
        first: (&CudaMatrix, &CudaMatrix),
        second: (&CudaMatrix, &CudaMatrix),
        epilogue: Epilogue<'_, CudaMatrix>,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::run_gemm_pair(self, first, second, epilogue, out)
    }

    fn run_gemm_backward(
        &self,
        _: Fits,
        a: (&CudaMatrix, Transpose),
        b: (&CudaMatrix, Transpose),
        epilogue_grad: EpilogueGrad<'_, CudaMatrix>,
        out: &mut CudaMatrix,
        bias_grad: Option<&mut CudaMatrix>,
    ) -> Result<(), ComputeError> {
        Self::run_gemm_backward(self, a, b, epilogue_grad, out, bias_grad)
    }

    fn run_gemm_scaled(
        &self,
        _: Fits,
        factors: &CudaMatrix,
        a: (&CudaMatrix, Transpose),
        b: (&CudaMatrix, Transpose),
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::run_gemm_scaled(self, factors, a, b, out)
    }

    fn run_epilogue_backward(
        &self,
        _: Fits,
        slope: ActivationGrad,
        y: &CudaMatrix,
        grad: &mut CudaMatrix,
        bias_grad: Option<&mut CudaMatrix>,
    ) -> Result<(), ComputeError> {
        match (slope.activation, bias_grad) {
            (Activation::Identity, None) => Ok(()),
            (Activation::Identity, Some(bias_grad)) => self.column_sums(grad, bias_grad),
            (_, None) => self.activation_backward(slope, y, grad),
            (_, Some(bias_grad)) => self.activation_backward_sums(slope, y, grad, bias_grad),
        }
    }

    fn run_dropout(&self, _: Fits, x: &CudaMatrix, dropout: Dropout, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        self.masked(x, self.mask(dropout, x.shape.cols)?, out)
    }

    fn dropout_in_place(&self, dropout: Dropout, x: &mut CudaMatrix) -> Result<(), ComputeError> {
        let mask = self.mask(dropout, x.shape.cols)?;
        // SAFETY: `x` is ours to write, and one thread reads and then writes each element.
        unsafe { self.mask_elements("dropout_in_place", x, mask, x) }
    }

    fn run_convert(&self, _: Fits, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        self.pass("convert", "convert", x, None, out)
    }

    fn run_add_scaled(&self, _: Fits, factor: f32, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        self.pass("add_scaled", "add_scaled", x, Some(factor), out)
    }

    fn run_gather_rows(
        &self,
        _: Fits,
        x: &CudaMatrix,
        ids: &CudaIds,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::run_gather_rows(self, x, ids, out)
    }

    fn run_scatter_add_rows(
        &self,
        _: Fits,
        x: &CudaMatrix,
        ids: &CudaIds,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::run_scatter_add_rows(self, x, ids, out)
    }

    fn run_column_sums(&self, _: Fits, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        Self::run_column_sums(self, x, out)
    }

    fn run_copy_block(
        &self,
        _: Fits,
        shape: Shape,
        x: &CudaMatrix,
        from: (usize, usize),
        out: &mut CudaMatrix,
        to: (usize, usize),
    ) -> Result<(), ComputeError> {
        if shape.is_empty() {
            return Ok(());
        }
        let place = |matrix: &CudaMatrix, (row, col): (usize, usize)| Strided {
            at: self.pointer(Some(&matrix.data)),
            start: (row * matrix.pitch() + col) as u64,
            pitch: matrix.pitch() as u64,
            dtype: matrix.dtype,
        };
        // SAFETY: the block lies inside both matrices, and `out` is ours to write.
        unsafe { self.copy_rows("copy_block", shape, place(x, from), place(out, to)) }
    }

    fn run_activate(
        &self,
        _: Fits,
        activation: Activation,
        bias: Option<&CudaMatrix>,
        x: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::run_activate(self, activation, bias, x)
    }

    fn run_scale(&self, _: Fits, factor: f32, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        self.pass("scale", "scale", x, Some(factor), out)
    }

    fn run_scale_rows(
        &self,
        _: Fits,
        factors: &CudaMatrix,
        (x, first): (&CudaMatrix, usize),
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let from = self.pointer(Some(&x.data)) + (first * x.dtype.n_bytes()) as u64;
        // SAFETY: columns begin and end where rows may, so that as many as lie from row to row of the result lie
        // inside those of `x`; there is a factor for each row, and `out` is ours to write.
        unsafe { self.scale_rows_from("scale_rows", factors, (from, x.dtype, x.pitch()), out) }
    }

    fn run_scale_rows_in_place(&self, _: Fits, factors: &CudaMatrix, x: &mut CudaMatrix) -> Result<(), ComputeError> {
        const OPERATION: &str = "scale_rows_in_place";
        let from = (self.pointer(Some(&x.data)), x.dtype, x.pitch());
        // SAFETY: a matrix with a factor for each row, which is ours to write; one thread reads and then writes each
        // element.
        unsafe { self.scale_rows_from(OPERATION, factors, from, x) }
    }
}
