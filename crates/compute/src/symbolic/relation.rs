//! Products of rows that have types, on a symbolic device.

use super::{Symbolic, SymbolicMatrix};
use crate::{BasisOperands, ComputeError, Fits, RelationOps, Transpose};

impl RelationOps for Symbolic {
    fn run_gemm_runs(
        &self,
        _: Fits,
        _runs: &[usize],
        x: &SymbolicMatrix,
        (weights, _): (&SymbolicMatrix, Transpose),
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        let bytes = x.n_bytes() + weights.n_bytes() + out.n_bytes();
        self.operation(bytes as f64, 2.0 * x.shape.cols as f64 * out.shape.len() as f64, x.dtype);
        Ok(())
    }

    fn run_gemm_runs_backward(
        &self,
        _: Fits,
        _runs: &[usize],
        x: &SymbolicMatrix,
        grad: &SymbolicMatrix,
        _accumulate: bool,
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        let bytes = x.n_bytes() + grad.n_bytes() + out.n_bytes();
        self.operation(bytes as f64, 2.0 * x.shape.cols as f64 * grad.shape.len() as f64, x.dtype);
        Ok(())
    }

    fn run_basis_rows(
        &self,
        _: Fits,
        &BasisOperands { coefficients, x, .. }: &BasisOperands<'_, Self>,
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        let flops = 2.0 * coefficients.shape.cols as f64 * out.shape.len() as f64;
        self.operation((x.n_bytes() + out.n_bytes()) as f64, flops, x.dtype);
        Ok(())
    }

    fn run_basis_rows_backward(
        &self,
        _: Fits,
        &BasisOperands { coefficients, x, .. }: &BasisOperands<'_, Self>,
        grad: &SymbolicMatrix,
        _coefficients_grad: (&mut SymbolicMatrix, bool),
        x_grad: (&mut SymbolicMatrix, bool),
    ) -> Result<(), ComputeError> {
        let flops = 4.0 * coefficients.shape.cols as f64 * grad.shape.len() as f64;
        self.operation((x.n_bytes() + grad.n_bytes() + x_grad.0.n_bytes()) as f64, flops, x.dtype);
        Ok(())
    }
}
