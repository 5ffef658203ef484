//! [`Group`]: ranks of a process that share rows, and [`SharedPinned`], host memory that they share.

use std::sync::Arc;

use girih_compute::ComputeError;
use girih_features::{Holder, Placement};

use super::pinned::Pinned;
use crate::Cuda;
use crate::nccl::OwnedStream;
use crate::nccl::Peers;

/// Pinned memory that the ranks of a process share.
pub(crate) struct SharedPinned {
    of_first: Arc<Option<Pinned>>,
    uses: OwnedStream,
    /// Whether several ranks have it.
    pub(super) is_shared: bool,
}

/// Ranks whose GPUs read each other's rows, or that share host memory.
pub(crate) struct Group<'c> {
    pub(super) rank: usize,
    pub(super) size: usize,
    /// Connections to the other ranks; `None` for a single GPU.
    peers: Option<&'c Peers>,
}

impl SharedPinned {
    /// The shared memory.
    pub(crate) fn memory(&self) -> &Pinned {
        self.of_first.as_ref().as_ref().expect("the first rank has it")
    }
}

impl Drop for SharedPinned {
    /// Waits until the device no longer reads the memory.
    fn drop(&mut self) {
        self.uses.wait();
    }
}

impl<'c> Group<'c> {
    /// This rank.
    pub(super) fn alone() -> Self {
        Self { rank: 0, size: 1, peers: None }
    }

    /// The ranks of this process.
    pub(crate) fn of_process(cuda: &'c Cuda) -> Self {
        let peers = cuda.peers().filter(|peers| peers.is_one_process);
        peers.map_or(Self::alone(), |peers| Self { rank: peers.rank, size: peers.size, peers: Some(peers) })
    }

    /// The ranks of this process; fails if the placement shards rows over another number of GPUs.
    pub(crate) fn of(cuda: &'c Cuda, operation: &'static str, placement: &Placement) -> Result<Self, ComputeError> {
        let group = Self::of_process(cuda);
        let is_spread = placement.spans().iter().any(|span| matches!(span.holder, Holder::Gpu(_) | Holder::Gpus));
        if is_spread {
            check_gpus(operation, placement.n_gpus(), group.size)?;
        }
        Ok(group)
    }

    /// Pinned memory of the first rank, shared with all ranks.
    ///
    /// # Errors
    /// When the host pins no such memory, or a rank fails.
    pub(crate) fn pinned(
        &self,
        cuda: &Cuda,
        operation: &'static str,
        n_bytes: usize,
    ) -> Result<SharedPinned, ComputeError> {
        let mine = (self.rank == 0).then(|| Pinned::new(cuda, n_bytes, operation)).transpose()?;
        let of_first = self.hand_out(operation, mine)?.swap_remove(0);
        Ok(SharedPinned { of_first, uses: cuda.ending(&cuda.device.stream), is_shared: self.size > 1 })
    }

    /// Exchanges a value with the other ranks; returns those of all ranks, by rank.
    pub(super) fn hand_out<T: Send + Sync + 'static>(
        &self,
        operation: &'static str,
        mine: T,
    ) -> Result<Vec<Arc<T>>, ComputeError> {
        match self.peers {
            None => Ok(vec![Arc::new(mine)]),
            Some(peers) => peers
                .hand_out(operation, Arc::new(mine))
                .map_err(|error| ComputeError::device(operation, error.to_string())),
        }
    }

    /// Lets the other GPUs read the memory of this one.
    pub(super) fn open_memory(&self, cuda: &Cuda, operation: &'static str) -> Result<(), ComputeError> {
        let Some(peers) = self.peers else { return Ok(()) };
        let opened = peers.open_memory(operation, cuda.device.stream.context());
        opened.map_err(|error| ComputeError::device(operation, error.to_string()))
    }
}

/// Fails if rows are sharded over other GPUs than those of this process.
fn check_gpus(operation: &'static str, n_gpus: usize, n_here: usize) -> Result<(), ComputeError> {
    if n_gpus == n_here {
        return Ok(());
    }
    let what = format!(
        "rows are cached on {n_gpus} GPUs that read each other's, and this process has {n_here} GPU(s): give `--gpus N`, or a \
         cache with one share (the same rows on every GPU)"
    );
    Err(ComputeError::argument(operation, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_on_gpus_of_other_processes_are_refused() {
        assert!(check_gpus("rows by id", 2, 2).is_ok());
        assert_eq!(
            check_gpus("rows by id", 4, 1).unwrap_err().to_string(),
            "rows by id: rows are cached on 4 GPUs that read each other's, and this process has 1 GPU(s): give `--gpus N`, or \
             a cache with one share (the same rows on every GPU)"
        );
    }
}
