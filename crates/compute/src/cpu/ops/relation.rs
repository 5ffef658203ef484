//! Products of rows that have types, on the CPU.

use crate::cpu::matrix::as_f32;
use crate::cpu::relations::{self, PairsWithBases};
use crate::cpu::{Cpu, CpuMatrix};
use crate::{BasisOperands, ComputeError, Fits, Memory, RelationOps, RelationRows, Transpose};

impl RelationOps for Cpu {
    fn run_gemm_runs(
        &self,
        _: Fits,
        runs: &[usize],
        x: &CpuMatrix,
        (weights, transpose): (&CpuMatrix, Transpose),
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let (of_x, of_out) = (x.shape().cols, out.shape().cols);
        let (x, weights) = (as_f32(x), as_f32(weights));
        out.write_with(|out| relations::multiply(runs, (&x, of_x), (&weights, transpose), (out, of_out)));
        Ok(())
    }

    fn run_gemm_runs_backward(
        &self,
        _: Fits,
        runs: &[usize],
        x: &CpuMatrix,
        grad: &CpuMatrix,
        accumulate: bool,
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        if !accumulate {
            self.set_zero(out)?;
        }
        let (k, d) = (x.shape().cols, grad.shape().cols);
        let (x, grad) = (as_f32(x), as_f32(grad));
        out.write_with(|out| relations::add_weight_grads(runs, (&x, k), (&grad, d), out));
        Ok(())
    }

    fn run_basis_rows(
        &self,
        _: Fits,
        &BasisOperands { pairs, coefficients, x }: &BasisOperands<'_, Self>,
        out: &mut CpuMatrix,
    ) -> Result<(), ComputeError> {
        let (values, width) = (as_f32(coefficients), out.shape().cols);
        let with_bases = self.with_bases(pairs, (&values, coefficients.shape().cols), width);
        let x = as_f32(x);
        out.write_with(|out| with_bases.sums(&x, out));
        Ok(())
    }

    fn run_basis_rows_backward(
        &self,
        _: Fits,
        &BasisOperands { pairs, coefficients, x }: &BasisOperands<'_, Self>,
        grad: &CpuMatrix,
        (coefficients_grad, adds): (&mut CpuMatrix, bool),
        (x_grad, x_adds): (&mut CpuMatrix, bool),
    ) -> Result<(), ComputeError> {
        if !adds {
            self.set_zero(coefficients_grad)?;
        }
        let (values, width) = (as_f32(coefficients), grad.shape().cols);
        let with_bases = self.with_bases(pairs, (&values, coefficients.shape().cols), width);
        let (x, grad) = (as_f32(x), as_f32(grad));
        coefficients_grad.write_with(|coefficients_grad| {
            x_grad.write_with(|x_grad| with_bases.grads((&x, &grad), coefficients_grad, (x_grad, x_adds)));
        });
        Ok(())
    }
}

impl Cpu {
    fn with_bases<'a>(
        &self,
        pairs: &'a RelationRows<Self>,
        (coefficients, n_bases): (&'a [f32], usize),
        width: usize,
    ) -> PairsWithBases<'a> {
        let (rows, relations) = (&pairs.rows.ids[..], &pairs.relations.ids[..]);
        PairsWithBases { rows, relations, coefficients, n_bases, width, isa: self.machine.isa }
    }
}
