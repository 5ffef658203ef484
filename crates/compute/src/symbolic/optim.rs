//! Steps of optimisers on a symbolic device.

use super::{Symbolic, SymbolicIds, SymbolicMatrix};
use crate::{AdamStep, AdamUpdate, ComputeError, Fits, OptimOps, SgdUpdate};

impl OptimOps for Symbolic {
    fn run_adam(
        &self,
        _: Fits,
        _step: AdamStep,
        updates: &mut [AdamUpdate<'_, SymbolicMatrix>],
    ) -> Result<(), ComputeError> {
        for AdamUpdate { param, grad, first, second, .. } in updates {
            self.pass(&[grad, first, first, second, second, param, param]);
        }
        Ok(())
    }

    fn run_adam_rows(
        &self,
        _: Fits,
        _step: AdamStep,
        _ids: &SymbolicIds,
        update: &mut AdamUpdate<'_, SymbolicMatrix>,
    ) -> Result<(), ComputeError> {
        // Rows of the gradient's size, read and written as those of a whole parameter.
        self.pass(&[update.grad; 7]);
        Ok(())
    }

    fn run_sgd(
        &self,
        _: Fits,
        _lr: f32,
        _momentum: f32,
        updates: &mut [SgdUpdate<'_, SymbolicMatrix>],
    ) -> Result<(), ComputeError> {
        for SgdUpdate { param, grad, velocity, .. } in updates {
            self.pass(&[grad, velocity, velocity, param, param]);
        }
        Ok(())
    }
}
