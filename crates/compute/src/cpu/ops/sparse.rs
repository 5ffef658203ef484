//! Products with sparse matrices on the CPU.

use crate::cpu::matrix::as_f32;
use crate::cpu::{Cpu, CpuMatrix, CpuSparse, entries, spmm};
use crate::{ComputeError, Epilogue, SparseOps, Transpose, checks};

impl SparseOps for Cpu {
    fn spmm(
        &self,
        (a, ta): (&CpuSparse, Transpose),
        weights: Option<&CpuMatrix>,
        x: &CpuMatrix,
        epilogue: Epilogue<'_, CpuMatrix>,
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let (weights_shape, bias_shape) = (weights.map(CpuMatrix::shape), epilogue.bias.map(CpuMatrix::shape));
        checks::spmm((a.shape(), ta), a.nnz(), weights_shape, x.shape(), bias_shape, out.shape())?;
        checks::mask("spmm", &epilogue)?;
        spmm::multiply(&self.machine, (a, ta), weights, x, &epilogue, out);
        Ok(())
    }

    fn spmm_columns(
        &self,
        (a, ta): (&CpuSparse, Transpose),
        x: &CpuMatrix,
        epilogue: Epilogue<'_, CpuMatrix>,
        (out, first): (&mut CpuMatrix, usize),
    ) -> Result<(), ComputeError> {
        let bias_shape = epilogue.bias.map(CpuMatrix::shape);
        checks::spmm_columns((a.shape(), ta), x.shape(), bias_shape, (out.shape(), first))?;
        checks::mask("spmm_columns", &epilogue)?;
        spmm::multiply_columns(&self.machine, (a, ta), x, &epilogue, (out, first));
        Ok(())
    }

    fn spmm_in_place(&self, (a, ta): (&CpuSparse, Transpose), x: &mut CpuMatrix) -> Result<(), ComputeError> {
        checks::spmm((a.shape(), ta), a.nnz(), None, x.shape(), None, x.shape())?;
        spmm::multiply_in_place(&self.machine, (a, ta), x);
        Ok(())
    }

    fn sddmm(&self, a: &CpuSparse, x: &CpuMatrix, y: &CpuMatrix, out: &mut CpuMatrix) -> Result<(), ComputeError> {
        checks::sddmm(a.shape(), a.nnz(), x.shape(), y.shape(), out.shape())?;
        let (direction, width, heads) = (a.direction(Transpose::No, false), x.shape().cols, out.shape().cols);
        out.write_with(|out| entries::sddmm(direction, &as_f32(x), &as_f32(y), width, heads, out));
        Ok(())
    }
}
