//! Generic code of the trainer for CUDA devices, compiled once for test builds.

use girih_kernels::Cuda;
use girih_trainer::instances::instantiate;

/// Instances for CUDA devices.
pub fn on_cuda() {
    instantiate::<Cuda>();
}
