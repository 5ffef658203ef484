//! Steps of optimisers on a CUDA device.

use girih_compute::{AdamStep, AdamUpdate, ComputeError, OptimOps, SgdUpdate};

use crate::Cuda;
use crate::CudaMatrix;

impl OptimOps for Cuda {
    fn adam(&self, step: AdamStep, updates: &mut [AdamUpdate<'_, CudaMatrix>]) -> Result<(), ComputeError> {
        Self::adam(self, step, updates)
    }

    fn sgd(&self, lr: f32, momentum: f32, updates: &mut [SgdUpdate<'_, CudaMatrix>]) -> Result<(), ComputeError> {
        Self::sgd(self, lr, momentum, updates)
    }
}
