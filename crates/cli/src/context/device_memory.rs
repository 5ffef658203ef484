//! [`DeviceMemory`]: free memory of a device.

use girih_kernels::Cuda;

use crate::error::CliError;

/// Memory of a device.
#[derive(Clone, Debug)]
pub struct DeviceMemory {
    /// Name of the device.
    pub device: String,
    /// Free bytes.
    pub free: u64,
}

impl DeviceMemory {
    /// Memory of a device that need not be present.
    pub fn told(free: u64) -> Self {
        Self { device: "a CUDA device as given by --memory".to_owned(), free }
    }

    /// Memory of a device that is present.
    pub fn of(cuda: &Cuda) -> Result<Self, CliError> {
        let (free, _) = cuda.device().memory().map_err(|error| CliError::Other(error.to_string()))?;
        Ok(Self { device: cuda.device().name(), free: free as u64 })
    }

    /// Memory that each of `n_ranks` ranks on the device has.
    pub fn shared_by(self, n_ranks: u16) -> Self {
        match n_ranks {
            1 => self,
            n => Self { device: format!("each of {n} ranks on {}", self.device), free: self.free / u64::from(n) },
        }
    }
}
