//! [`ListExchange`]: lists of numbers on GPUs, from each rank to each, for collective sampling and reads.
//!
//! ```text
//! tell   lengths of the lists             host to host
//! swap   the lists, in one group          GPU to GPU, on any stream of the device
//! ```
//! Lists have a communicator of their own, so that a swap beside a step need not wait for the reductions of that
//! step.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use girih_comm::{CommError, Parcel, Transport, all_to_all};

use super::library::Comm;
use super::peers::Peers;

type Tell = dyn Fn(&'static str, Vec<Parcel>) -> Result<Vec<Parcel>, CommError> + Send + Sync;

/// All-to-all exchange of lists for one purpose; all ranks use it together.
pub(crate) struct ListExchange {
    /// Number of this rank.
    pub(crate) rank: usize,
    /// Number of ranks.
    pub(crate) size: usize,
    tell: Box<Tell>,
    /// Communicator; `None` for a single rank.
    comm: Option<Arc<Comm>>,
    peers: Arc<Peers>,
}

/// List for another rank, or from it, as bytes.
pub(crate) struct ReceivedList {
    pub(crate) rank: usize,
    pub(crate) address: u64,
    pub(crate) n_bytes: u64,
}

impl ReceivedList {
    fn bytes(&self) -> (u64, usize) {
        (self.address, self.n_bytes as usize)
    }
}

impl ListExchange {
    pub(super) fn new<T: Transport>(transport: Arc<T>, comm: Option<Arc<Comm>>, peers: Arc<Peers>) -> Self {
        let (rank, size) = (transport.rank(), transport.size());
        let tell = Box::new(move |operation, messages| all_to_all(&*transport, operation, messages));
        Self { rank, size, tell, comm, peers }
    }

    /// Values of `of` for each other rank, in order.
    pub(crate) fn of_others<T>(&self, of: impl Fn(usize) -> T) -> impl Iterator<Item = T> {
        let rank = self.rank;
        (0..self.size).filter(move |&other| other != rank).map(of)
    }

    /// Sends numbers to each rank; returns those that each rank sent to this one, by rank.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else.
    pub(crate) fn tell<const N: usize>(
        &self,
        operation: &'static str,
        numbers: &[[u64; N]],
    ) -> Result<Vec<[u64; N]>, CommError> {
        let messages = numbers.iter().map(|numbers| Parcel::from(bytemuck::cast_slice::<u64, u8>(numbers))).collect();
        let told = (self.tell)(operation, messages)?;
        let numbers = |(rank, message): (usize, &Parcel)| {
            let mut numbers = [0; N];
            let into = bytemuck::cast_slice_mut::<u64, u8>(&mut numbers);
            if message.len() != into.len() {
                let what = format!("rank {rank} tells {} bytes, expected {}", message.len(), into.len());
                return Err(CommError::Operand { operation, what });
            }
            into.copy_from_slice(message);
            Ok(numbers)
        };
        told.iter().enumerate().map(numbers).collect()
    }

    /// Sends and receives lists of other ranks on a stream; empty ones are skipped.
    ///
    /// # Errors
    /// When a rank or a link fails.
    ///
    /// # Safety
    /// Lists lie on the stream's device, nobody else uses the received ones, and all live until the stream is done
    /// with them. Between two ranks, one sends as many lists as the other receives, of the same lengths in the same
    /// order.
    pub(crate) unsafe fn swap(
        &self,
        operation: &'static str,
        stream: &CudaStream,
        sent: &[ReceivedList],
        received: &[ReceivedList],
    ) -> Result<(), CommError> {
        let Some(comm) = &self.comm else { return Ok(()) };
        if self.peers.shares_context {
            (self.tell)(operation, vec![Parcel::from([]); self.size])?;
        }
        let bound = stream.context().bind_to_thread().map_err(|error| error.to_string());
        let swapped = bound.and_then(|()| {
            comm.group(stream, |calls| {
                // SAFETY: the caller vouches.
                travelling(sent).try_for_each(|swapped| unsafe { calls.send_bytes(swapped.rank, swapped.bytes()) })?;
                // SAFETY: as above.
                travelling(received)
                    .try_for_each(|swapped| unsafe { calls.receive_bytes(swapped.rank, swapped.bytes()) })
            })
        });
        swapped.map_err(|message| self.peers.blame(operation, message))?;
        self.peers.settle(operation, comm)
    }
}

/// Lists that are not empty.
fn travelling(lists: &[ReceivedList]) -> impl Iterator<Item = &ReceivedList> {
    lists.iter().filter(|swapped| swapped.n_bytes > 0)
}
