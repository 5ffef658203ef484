//! Layer and batch normalisation on a symbolic device.

use super::{Symbolic, SymbolicMatrix, cuda};
use crate::{ColumnMoments, ComputeError, NormOps};

impl NormOps for Symbolic {
    fn normalize_rows(
        &self,
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

    fn normalize_rows_backward(
        &self,
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

    fn column_squares(
        &self,
        x: &SymbolicMatrix,
        _means: &SymbolicMatrix,
        _out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.scratch(|| cuda::columns(x.shape));
        self.pass(&[x]);
        Ok(())
    }

    fn normalize_columns(
        &self,
        _moments: ColumnMoments<'_, SymbolicMatrix>,
        x: &SymbolicMatrix,
        _gain_and_bias: (&SymbolicMatrix, &SymbolicMatrix),
        out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.pass(&[x, out]);
        Ok(())
    }

    fn normalized_products(
        &self,
        _moments: ColumnMoments<'_, SymbolicMatrix>,
        x: &SymbolicMatrix,
        grad: &SymbolicMatrix,
        _out: &mut SymbolicMatrix,
    ) -> Result<(), ComputeError> {
        self.scratch(|| cuda::columns(x.shape));
        self.pass(&[x, grad]);
        Ok(())
    }

    fn normalize_columns_backward(
        &self,
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
