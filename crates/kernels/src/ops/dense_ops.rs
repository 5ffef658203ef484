//! Operations on dense matrices: short passes stand here, the others beside their kernels.

use girih_compute::{
    Activation, ActivationGrad, ComputeError, DenseOps, Dropout, Epilogue, EpilogueGrad, Shape, Transpose, checks,
};

use super::passes::Strided;
use crate::cuda::Cuda;
use crate::matrix::{CudaIds, CudaMatrix};

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
        checks::epilogue_backward(y.shape, grad.shape, bias_grad.as_deref().map(|bias_grad| bias_grad.shape))?;
        match (slope.activation, bias_grad) {
            (Activation::Identity, None) => Ok(()),
            (Activation::Identity, Some(bias_grad)) => self.column_sums(grad, bias_grad),
            (_, None) => self.activation_backward(slope, y, grad),
            (_, Some(bias_grad)) => self.activation_backward_sums(slope, y, grad, bias_grad),
        }
    }

    fn dropout(&self, x: &CudaMatrix, dropout: Dropout, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        checks::same("dropout", x.shape, out.shape)?;
        self.masked(x, self.mask(dropout, x.shape.cols)?, out)
    }

    fn dropout_in_place(&self, dropout: Dropout, x: &mut CudaMatrix) -> Result<(), ComputeError> {
        let mask = self.mask(dropout, x.shape.cols)?;
        // SAFETY: `x` is ours to write, and one thread reads and then writes each element.
        unsafe { self.mask_elements("dropout_in_place", x, mask, x) }
    }

    fn convert(&self, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        checks::same("convert", x.shape, out.shape)?;
        self.pass("convert", "convert", x, None, out)
    }

    fn add_scaled(&self, factor: f32, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        checks::add_scaled(x.shape, out.shape)?;
        self.pass("add_scaled", "add_scaled", x, Some(factor), out)
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
        checks::copy_block(shape, x.shape, from, out.shape, to)?;
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

    fn activate(
        &self,
        activation: Activation,
        bias: Option<&CudaMatrix>,
        x: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        Self::activate(self, activation, bias, x)
    }

    fn scale(&self, factor: f32, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        checks::same("scale", x.shape, out.shape)?;
        self.pass("scale", "scale", x, Some(factor), out)
    }

    fn scale_rows(
        &self,
        factors: &CudaMatrix,
        (x, first): (&CudaMatrix, usize),
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        checks::scale_rows((factors.shape, factors.dtype), (x.shape, first), out.shape)?;
        let from = self.pointer(Some(&x.data)) + (first * x.dtype.n_bytes()) as u64;
        // SAFETY: columns begin and end where rows may, so that as many as lie from row to row of the result lie
        // inside those of `x`; there is a factor for each row, and `out` is ours to write.
        unsafe { self.scale_rows_from("scale_rows", factors, (from, x.dtype, x.pitch()), out) }
    }

    fn scale_rows_in_place(&self, factors: &CudaMatrix, x: &mut CudaMatrix) -> Result<(), ComputeError> {
        const OPERATION: &str = "scale_rows_in_place";
        checks::row_factors(OPERATION, (factors.shape, factors.dtype), x.shape.rows)?;
        let from = (self.pointer(Some(&x.data)), x.dtype, x.pitch());
        // SAFETY: a matrix with a factor for each row, which is ours to write; one thread reads and then writes each
        // element.
        unsafe { self.scale_rows_from(OPERATION, factors, from, x) }
    }
}
