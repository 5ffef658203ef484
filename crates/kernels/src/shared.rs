//! [`Shared`]: memory of a card that kernels of other cards of the process read.

use std::any::Any;
use std::sync::Arc;

use girih_compute::ComputeError;

use crate::Cuda;
use crate::nccl::Peers;

/// Memory of a rank's card, which is there for as long as any rank has this.
pub(crate) struct Shared {
    /// Where it begins, for every card.
    pub(crate) address: u64,
    _memory: Arc<dyn Any + Send + Sync>,
}

impl Shared {
    /// What every rank shares, in the order of ranks: of this one `memory`, which begins at `address` and is written
    /// when all is done that the device was asked for. Cards have to be [let read it](Peers::lets_read) before; all
    /// ranks call it together.
    ///
    /// # Errors
    /// When the device or a rank fails.
    pub(crate) fn of_all(
        cuda: &Cuda,
        operation: &'static str,
        peers: &Peers,
        (address, memory): (u64, Arc<dyn Any + Send + Sync>),
    ) -> Result<Vec<Arc<Self>>, ComputeError> {
        // Others may read it as soon as they know of it.
        cuda.device.wait(operation)?;
        let all = peers.hand_out(operation, Arc::new(Self { address, _memory: memory }));
        all.map_err(|error| ComputeError::device(operation, error.to_string()))
    }
}
