//! Steps of optimisers on the CPU.

use crate::cpu::{Cpu, CpuIds, CpuMatrix, optim};
use crate::{AdamStep, AdamUpdate, ComputeError, Fits, OptimOps, SgdUpdate};

impl OptimOps for Cpu {
    fn run_adam(&self, _: Fits, step: AdamStep, updates: &mut [AdamUpdate<'_, CpuMatrix>]) -> Result<(), ComputeError> {
        updates.iter_mut().for_each(|update| optim::adam(step, update));
        Ok(())
    }

    fn run_adam_rows(
        &self,
        _: Fits,
        step: AdamStep,
        ids: &CpuIds,
        update: &mut AdamUpdate<'_, CpuMatrix>,
    ) -> Result<(), ComputeError> {
        optim::adam_rows(step, &ids.ids, update);
        Ok(())
    }

    fn run_sgd(
        &self,
        _: Fits,
        lr: f32,
        momentum: f32,
        updates: &mut [SgdUpdate<'_, CpuMatrix>],
    ) -> Result<(), ComputeError> {
        updates.iter_mut().for_each(|update| optim::sgd(lr, momentum, update));
        Ok(())
    }
}
