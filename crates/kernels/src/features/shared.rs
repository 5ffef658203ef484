//! [`Shared`]: memory of a GPU that kernels of other GPUs of the process read.

use std::any::Any;
use std::sync::Arc;

use girih_compute::ComputeError;

use crate::Cuda;
use crate::nccl::Peers;

/// Memory of a rank's GPU. It lives as long as any rank holds this.
pub(crate) struct Shared {
    /// Address of the first byte, valid on every GPU.
    pub(crate) address: u64,
    _memory: Arc<dyn Any + Send + Sync>,
}

impl Shared {
    /// Exchanges shared memory: returns that of every rank, by rank. This rank offers `memory`, which begins at
    /// `address`; all work asked of the device is done before others see it. Other GPUs must be [allowed to read
    /// it](Peers::lets_read) before. All ranks call this together.
    ///
    /// # Errors
    /// When the device or a rank fails.
    pub(crate) fn of_all(
        cuda: &Cuda,
        operation: &'static str,
        peers: &Peers,
        (address, memory): (u64, Arc<dyn Any + Send + Sync>),
    ) -> Result<Vec<Arc<Self>>, ComputeError> {
        // Others may read the memory as soon as they know of it.
        cuda.wait(operation)?;
        let all = peers.hand_out(operation, Arc::new(Self { address, _memory: memory }));
        all.map_err(|error| ComputeError::device(operation, error.to_string()))
    }
}
