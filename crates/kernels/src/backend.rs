//! [`Cuda`]: a device as a backend.

use cudarc::driver::{CudaFunction, DriverError};
use girih_compute::{ComputeError, Dtype};

use crate::compile::Source;
use crate::device::Device;
use crate::error::KernelError;

/// A CUDA device as a backend.
pub struct Cuda {
    pub(crate) device: Device,
}

impl Cuda {
    /// The backend on a device.
    #[must_use]
    pub fn new(device: Device) -> Self {
        Self { device }
    }

    /// A kernel for elements of some types, each by the name that its source gives it.
    pub(crate) fn kernel(
        &self,
        operation: &'static str,
        source: Source,
        name: &str,
        types: &[(&'static str, Dtype)],
    ) -> Result<CudaFunction, ComputeError> {
        let defines = types.iter().map(|(name, dtype)| (*name, element(*dtype).to_owned())).collect();
        let failed = |error: KernelError| ComputeError::device(operation, error.to_string());
        self.device.kernel(source, name, &defines).map_err(failed)
    }

    /// What the driver reported of an operation.
    pub(crate) fn failed(operation: &'static str) -> impl Fn(DriverError) -> ComputeError {
        move |error| ComputeError::device(operation, error.to_string())
    }
}

/// How sources spell an element.
pub(crate) fn element(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "float",
        Dtype::Bf16 => "bf16",
    }
}
