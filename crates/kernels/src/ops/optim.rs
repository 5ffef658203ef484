//! `kernels/optim.cu`: steps of optimisers.

use cudarc::driver::PushKernelArg;
use girih_compute::checks::{self, Kind};
use girih_compute::{AdamStep, ComputeError};

use crate::backend::Cuda;
use crate::compile::Source;
use crate::device::threads_for;
use crate::matrix::CudaMatrix;

/// The numbers of a step of Adam that are the same for every element.
struct AdamFactors {
    /// `lr / (1 - beta1^step)`.
    rate: f32,
    /// `1 / sqrt(1 - beta2^step)`.
    root_correction: f32,
    /// Decay that goes through the gradient.
    coupled: f32,
    /// What AdamW's decay leaves of a weight.
    kept: f32,
}

impl AdamFactors {
    fn new(step: AdamStep) -> Self {
        let correction = |beta: f32| 1.0 - f64::from(beta).powf(step.step as f64);
        let (coupled, kept) =
            if step.decoupled { (0.0, 1.0 - step.lr * step.weight_decay) } else { (step.weight_decay, 1.0) };
        Self {
            rate: (f64::from(step.lr) / correction(step.beta1)) as f32,
            root_correction: correction(step.beta2).sqrt().recip() as f32,
            coupled,
            kept,
        }
    }
}

impl Cuda {
    /// [`Backend::adam`](girih_compute::Backend::adam).
    pub(crate) fn adam(
        &self,
        step: AdamStep,
        grad: &CudaMatrix,
        (first, second): (&mut CudaMatrix, &mut CudaMatrix),
        param: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        checks::adam(step.step, kind(param), kind(grad), kind(first), kind(second))?;
        let kernel = self.kernel("adam", Source::OPTIM, "adam", &[])?;
        let (n, factors) = (param.shape.len() as u64, AdamFactors::new(step));
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&grad.data).arg(&mut first.data).arg(&mut second.data).arg(&mut param.data).arg(&n);
        launch.arg(&step.beta1).arg(&step.beta2).arg(&factors.rate).arg(&factors.root_correction);
        launch.arg(&step.eps).arg(&factors.coupled).arg(&factors.kept);
        // SAFETY: all four matrices hold `n` floats.
        unsafe { launch.launch(threads_for(param.shape.len())) }.map_err(Self::failed("adam"))?;
        Ok(())
    }

    /// [`Backend::sgd`](girih_compute::Backend::sgd).
    pub(crate) fn sgd(
        &self,
        lr: f32,
        momentum: f32,
        weight_decay: f32,
        grad: &CudaMatrix,
        velocity: &mut CudaMatrix,
        param: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        checks::sgd(kind(param), kind(grad), kind(velocity))?;
        let kernel = self.kernel("sgd", Source::OPTIM, "sgd", &[])?;
        let n = param.shape.len() as u64;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&grad.data).arg(&mut velocity.data).arg(&mut param.data).arg(&n);
        launch.arg(&lr).arg(&momentum).arg(&weight_decay);
        // SAFETY: all three matrices hold `n` floats.
        unsafe { launch.launch(threads_for(param.shape.len())) }.map_err(Self::failed("sgd"))?;
        Ok(())
    }
}

/// Shape and storage, as checks take them.
fn kind(matrix: &CudaMatrix) -> Kind {
    (matrix.shape, matrix.dtype)
}
