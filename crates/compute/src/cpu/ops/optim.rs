//! Steps of optimisers on the CPU.

use crate::cpu::{Cpu, CpuMatrix, optim};
use crate::{AdamStep, AdamUpdate, ComputeError, OptimOps, SgdUpdate, checks};

impl OptimOps for Cpu {
    fn adam(&self, step: AdamStep, updates: &mut [AdamUpdate<'_, CpuMatrix>]) -> Result<(), ComputeError> {
        for AdamUpdate { param, grad, first, second, .. } in &*updates {
            checks::adam(step.step, param.kind(), grad.kind(), first.kind(), second.kind())?;
        }
        updates.iter_mut().for_each(|update| optim::adam(step, update));
        Ok(())
    }

    fn sgd(&self, lr: f32, momentum: f32, updates: &mut [SgdUpdate<'_, CpuMatrix>]) -> Result<(), ComputeError> {
        for SgdUpdate { param, grad, velocity, .. } in &*updates {
            checks::sgd(param.kind(), grad.kind(), velocity.kind())?;
        }
        updates.iter_mut().for_each(|update| optim::sgd(lr, momentum, update));
        Ok(())
    }
}
