//! Layer and batch normalisation on a symbolic device.

use super::{Symbolic, SymbolicMatrix, cuda};
use crate::{ColumnMoments, ComputeError, Fits, NormOps};

impl NormOps for Symbolic {
    fn run_normalize_rows(
        &self,
        _: Fits,
        _eps: f32,
        x: &SymbolicMatrix,
        _gain_and_bias: (&SymbolicMatrix, &SymbolicMatrix),
        out: &mut SymbolicMatrix,
        moments: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.scratch(|| moments.shape.len() * size_of::<f32>());
        self.pass(&[x, out]);
        Ok(())
    }

    fn run_normalize_rows_backward(
        &self,
        _: Fits,
        x: &SymbolicMatrix,
        _gain: &SymbolicMatrix,
        moments: &SymbolicMatrix,
        grad: &mut SymbolicMatrix,
        _grads: (&mut SymbolicMatrix, &mut SymbolicMatrix),
    ) -> Result<(), ComputeError> {
        self.scratch(|| moments.shape.len() * size_of::<f32>() + cuda::columns(x.shape));
        self.pass(&[x, grad, grad]);
        Ok(())
    }

    fn run_column_squares(
        &self,
        _: Fits,
        x: &SymbolicMatrix,
        _means: &SymbolicMatrix,
        _out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.scratch(|| cuda::columns(x.shape));
        self.pass(&[x]);
        Ok(())
    }

    fn run_normalize_columns(
        &self,
        _: Fits,
        _moments: ColumnMoments<'_, SymbolicMatrix>,
        x: &SymbolicMatrix,
        _gain_and_bias: (&SymbolicMatrix, &SymbolicMatrix),
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[x, out]);
        Ok(())
    }

    fn run_normalized_products(
        &self,
        _: Fits,
        _moments: ColumnMoments<'_, SymbolicMatrix>,
        x: &SymbolicMatrix,
        grad: &SymbolicMatrix,
        _out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.scratch(|| cuda::columns(x.shape));
        self.pass(&[x, grad]);
        Ok(())
    }

    fn run_normalize_columns_backward(
        &self,
        _: Fits,
        _moments: ColumnMoments<'_, SymbolicMatrix>,
        x: &SymbolicMatrix,
        _gain: &SymbolicMatrix,
        _means: (&SymbolicMatrix, &SymbolicMatrix),
        grad: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[x, grad, grad]);
        Ok(())
    }
}
