//! Products with sparse matrices on the CPU.

use crate::cpu::matrix::as_f32;
use crate::cpu::{Cpu, CpuMatrix, CpuSparse, entries, spmm};
use crate::{ComputeError, Epilogue, Fits, SparseOps, Transpose};

impl SparseOps for Cpu {
    fn run_spmm(
        &self,
        _: Fits,
        (a, ta): (&CpuSparse, Transpose),
        weights: Option<&CpuMatrix>,
        x: &CpuMatrix,
        epilogue: Epilogue<'_, CpuMatrix>,
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        spmm::multiply(&self.machine, (a, ta), weights, x, &epilogue, out);
        Ok(())
    }

    fn run_spmm_columns(
        &self,
        _: Fits,
        (a, ta): (&CpuSparse, Transpose),
        x: &CpuMatrix,
        epilogue: Epilogue<'_, CpuMatrix>,
        (out, first): (&mut CpuMatrix, usize),
    ) -> Result<(), ComputeError> {
        spmm::multiply_columns(&self.machine, (a, ta), x, &epilogue, (out, first));
        Ok(())
    }

    fn run_spmm_in_place(
        &self,
        _: Fits,
        (a, ta): (&CpuSparse, Transpose),
        x: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        spmm::multiply_in_place(&self.machine, (a, ta), x);
        Ok(())
    }

    fn run_sddmm(
        &self,
        _: Fits,
        a: &CpuSparse,
        x: &CpuMatrix,
        y: &CpuMatrix,
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let (direction, width, heads) = (a.direction(Transpose::No, false), x.shape().cols, out.shape().cols);
        out.write_with(|out| entries::sddmm(direction, &as_f32(x), &as_f32(y), width, heads, out));
        Ok(())
    }
}
