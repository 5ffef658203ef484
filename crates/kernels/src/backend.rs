//! [`Cuda`]: the backend on a CUDA device.

mod attention;
mod dense;
mod features;
mod loss;
mod memory;
mod norm;
mod optim;
mod sampling;
mod segment;
mod sparse;

use std::fmt;

use cudarc::driver::sys::CUfunction_attribute;
use cudarc::driver::{CudaFunction, DriverError};
use girih_compute::{Backend, ComputeError, Dtype, StepInputs};

use crate::compile::{Defines, Source};
use crate::device::Device;
use crate::error::{KernelError, Kind, explain};
use crate::ops::{BlockKernel, Tiling};
use crate::recording::{Recorder, Recording};

/// A CUDA device as a backend.
pub struct Cuda {
    pub(crate) device: Device,
    pub(crate) tiling: Tiling,
    pub(crate) block_kernel: BlockKernel,
    /// Element type of stored activations and of the operands of dense products.
    pub(crate) precision: Dtype,
    pub(crate) recorder: Recorder,
}

impl Cuda {
    /// Creates the backend on a device.
    #[must_use]
    pub fn new(device: Device) -> Self {
        let block_kernel = BlockKernel::of(device.capability());
        let (tiling, recorder) = (Tiling::default(), Recorder::default());
        Self { device, tiling, block_kernel, precision: Dtype::F32, recorder }
    }

    /// Creates a second backend on the same GPU for concurrent work, with a stream of its own. Steps are captured as
    /// graphs if they are here.
    pub(crate) fn beside(&self, operation: &'static str) -> Result<Self, ComputeError> {
        let device = self.device.beside().map_err(Self::failed(operation))?;
        Ok(Self::new(device).recording(self.recorder.is_enabled()))
    }

    /// Sets the type in which activations and their gradients are stored. In bf16, a dense product with one bf16
    /// operand rounds the other one to bf16, too, so that tensor cores take both. Sums are `f32` throughout.
    #[must_use]
    pub fn storing(self, precision: Dtype) -> Self {
        Self { precision, ..self }
    }

    /// Sets the choice of adjacency blocks that tensor cores multiply.
    #[must_use]
    pub fn tiling(self, tiling: Tiling) -> Self {
        Self { tiling, ..self }
    }

    /// Sets the kernel that multiplies blocks, instead of the fastest that the GPU has.
    ///
    /// # Errors
    /// When the GPU lacks its instructions.
    pub fn multiplying_blocks_by(self, block_kernel: BlockKernel) -> Result<Self, KernelError> {
        let capability = self.device.capability();
        if !block_kernel.runs_on(capability) {
            let instead = BlockKernel::of(capability);
            let (block_kernel, instead) = (block_kernel.to_string(), instead.to_string());
            return Err(Kind::BlockKernel { block_kernel, card: self.device.name(), capability, instead }.into());
        }
        Ok(Self { block_kernel, ..self })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Kernel compiled for element types, each under the macro name that its source uses.
    pub(crate) fn kernel(
        &self,
        operation: &'static str,
        source: Source,
        name: &str,
        types: &[(&'static str, Dtype)],
    ) -> Result<CudaFunction, ComputeError> {
        let defines = types.iter().map(|(name, dtype)| (*name, element(*dtype).to_owned())).collect();
        self.variant(operation, source, name, &defines)
    }

    /// Kernel compiled with the given macros.
    pub(crate) fn variant(
        &self,
        operation: &'static str,
        source: Source,
        name: &str,
        defines: &Defines,
    ) -> Result<CudaFunction, ComputeError> {
        let kernel = self.device.kernel(source, name, defines);
        kernel.map_err(|error| ComputeError::device(operation, error.to_string()))
    }

    /// Raises a kernel's limit of dynamic shared memory to `bytes`, above the default.
    pub(crate) fn allow_shared(operation: &'static str, kernel: &CudaFunction, bytes: u32) -> Result<(), ComputeError> {
        let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        kernel.set_attribute(most, bytes as i32).map_err(Self::failed(operation))
    }

    /// Converts an error of the driver to that of an operation.
    pub(crate) fn failed(operation: &'static str) -> impl Fn(DriverError) -> ComputeError {
        move |error| ComputeError::device(operation, explain(error.0))
    }
}

/// Spelling of an element type in the sources.
pub(crate) fn element(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "float",
        Dtype::Bf16 => "bf16",
    }
}

impl Backend for Cuda {
    type Recording = Recording;

    fn repeat<E: From<ComputeError> + fmt::Display>(
        &self,
        recording: &mut Recording,
        inputs: &StepInputs,
        step: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        self.repeat_step(recording, inputs, step)
    }
}
