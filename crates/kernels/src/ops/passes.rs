//! `kernels/passes.cu`: passes over whole matrices.

use cudarc::driver::PushKernelArg;
use girih_compute::{ComputeError, checks};

use super::super::backend::Cuda;
use super::super::compile::Source;
use super::super::device::threads_for;
use crate::CudaMatrix;

impl Cuda {
    /// [`Backend::convert`](girih_compute::Backend::convert).
    pub(crate) fn convert(&self, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        checks::same("convert", x.shape, out.shape)?;
        self.pass("convert", "convert", x, None, out)
    }

    /// [`Backend::scale`](girih_compute::Backend::scale).
    pub(crate) fn scale(&self, factor: f32, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        checks::same("scale", x.shape, out.shape)?;
        self.pass("scale", "scale", x, Some(factor), out)
    }

    /// [`Backend::add_scaled`](girih_compute::Backend::add_scaled).
    pub(crate) fn add_scaled(&self, factor: f32, x: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), ComputeError> {
        checks::same("add_scaled", x.shape, out.shape)?;
        self.pass("add_scaled", "add_scaled", x, Some(factor), out)
    }

    /// A kernel that takes an element of `x` to the same place of `out`, both of the same shape.
    fn pass(
        &self,
        operation: &'static str,
        kernel: &str,
        x: &CudaMatrix,
        factor: Option<f32>,
        out: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let n = x.shape.len() as u64;
        let kernel = self.kernel(operation, Source::PASSES, kernel, &[("X", x.dtype), ("Y", out.dtype)])?;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&x.data).arg(&mut out.data).arg(&n);
        if let Some(factor) = &factor {
            launch.arg(factor);
        }
        // SAFETY: both matrices hold `n` elements of the types that the kernel was compiled for.
        unsafe { launch.launch(threads_for(x.shape.len())) }.map_err(Self::failed(operation))?;
        Ok(())
    }
}
