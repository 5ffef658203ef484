//! [`Collective`]: collective operations of ranks on matrices.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};

use girih_compute::Backend;

use crate::CommError;
use crate::transport::Parcel;

/// Bytes of matrices that a rank has exchanged with others, over a communicator and all communicators split from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent to other ranks.
    pub sent: u64,
    /// Bytes received from other ranks.
    pub received: u64,
}

/// Bytes that a rank moves in one call, by the rules of [`Collective`]. `n_ranks` is the size of the communicator.
impl Traffic {
    /// Traffic of a broadcast of `bytes` bytes.
    #[must_use]
    pub fn of_broadcast(bytes: u64, n_ranks: usize, is_root: bool) -> Self {
        match is_root {
            true => Self { sent: (n_ranks as u64 - 1) * bytes, received: 0 },
            false => Self { sent: 0, received: bytes },
        }
    }

    /// Traffic of an all-reduce of `n` elements of `element_bytes` bytes each, at rank `place` of the communicator.
    #[must_use]
    pub fn of_all_reduce(n: usize, element_bytes: usize, place: usize, n_ranks: usize) -> Self {
        let slice = n * (place + 1) / n_ranks - n * place / n_ranks;
        let moved = ((n - slice + (n_ranks - 1) * slice) * element_bytes) as u64;
        Self { sent: moved, received: moved }
    }

    /// Traffic of a reduce-scatter of `all` bytes, of which this rank gets `own`.
    #[must_use]
    pub fn of_reduce_scatter(own: u64, all: u64, n_ranks: usize) -> Self {
        Self { sent: all - own, received: (n_ranks as u64 - 1) * own }
    }

    /// Traffic of an all-gather of `all` bytes, of which this rank contributes `own`.
    #[must_use]
    pub fn of_all_gather(own: u64, all: u64, n_ranks: usize) -> Self {
        Self { sent: (n_ranks as u64 - 1) * own, received: all - own }
    }
}

/// Calls that were [begun](Collective::begin) and may still be running.
#[must_use = "what was begun has to be finished before its operands are used"]
pub struct Pending(Option<Box<dyn Any + Send>>);

impl Pending {
    /// Calls that have completed.
    pub fn done() -> Self {
        Self(None)
    }

    /// Calls that complete when `mark` is reached. Its type, such as an event of a device, is up to the communicator.
    pub fn until(mark: impl Any + Send) -> Self {
        Self(Some(Box::new(mark)))
    }

    /// The mark, if it has type `M`.
    #[must_use]
    pub fn mark<M: Any>(self) -> Option<M> {
        self.0.and_then(|mark| mark.downcast().ok()).map(|mark| *mark)
    }
}

/// Counters of [`Traffic`], for a communicator and all communicators split from it.
#[derive(Default)]
pub struct Counters {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Counters {
    /// Adds bytes sent and received.
    pub fn add(&self, Traffic { sent, received }: Traffic) {
        self.sent.fetch_add(sent, Ordering::Relaxed);
        self.received.fetch_add(received, Ordering::Relaxed);
    }

    /// Total traffic so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic { sent: load(&self.sent), received: load(&self.received) }
    }
}

/// One of [`size`](Self::size) ranks that exchange matrices of backend `B`.
///
/// Every rank of the communicator calls every operation, in the same order and with operands that fit. Rows are
/// divided into consecutive row blocks, one for each rank; some may be empty. If a rank breaks these rules, all ranks
/// get an error, and none hangs.
///
/// # Bytes
/// [`traffic`](Self::traffic) counts the bytes that a rank sends to others by these rules, on which plans rely. In a
/// broadcast of `b` bytes to `g` ranks, the root sends `(g − 1)·b` and each other rank receives `b`. An all-reduce
/// divides the elements into `g` nearly equal ranges, one for each rank. A rank sends its own elements of every other
/// range to the rank of that range, and the sum of its own range to all others. The other operations send each row
/// block directly to its destination. Rows that stay on a rank are not counted, nor are control messages.
pub trait Collective<B: Backend>: Send + Sync {
    /// Number of this rank, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Copies `matrix` of rank `root` to all ranks.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else.
    fn broadcast(&self, root: usize, matrix: &mut B::Matrix) -> Result<(), CommError>;

    /// Replaces `matrix` by its sum over all ranks, with the same bits on every rank. Sums are `f32` in the order of
    /// ranks. On devices, NCCL chooses an order by their links, which is the same each time.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else.
    fn all_reduce(&self, matrix: &mut B::Matrix) -> Result<(), CommError>;

    /// As [`all_reduce`](Self::all_reduce) of each matrix, but in one exchange where that is faster.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else.
    fn all_reduce_each(&self, matrices: &mut [&mut B::Matrix]) -> Result<(), CommError> {
        matrices.iter_mut().try_for_each(|matrix| self.all_reduce(matrix))
    }

    /// Whether calls that are [begun](Self::begin) overlap with later work of the backend.
    fn overlaps(&self) -> bool {
        false
    }

    /// Makes calls that may overlap with later work of the backend until they are [finished](Self::finish). Until
    /// then, no other code may read their results or write their operands. Where nothing overlaps, they have
    /// completed when this returns.
    ///
    /// # Errors
    /// Errors of the calls.
    fn begin(&self, calls: &mut dyn FnMut() -> Result<(), CommError>) -> Result<Pending, CommError> {
        calls()?;
        Ok(Pending::done())
    }

    /// Orders later work of the backend after the pending calls.
    ///
    /// # Errors
    /// When the device fails.
    fn finish(&self, _pending: Pending) -> Result<(), CommError> {
        Ok(())
    }

    /// Sums `input` over all ranks. Rank `i` gets the `i`-th row block of the sum, of `rows[i]` rows.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else; on pieces that do not fit.
    fn reduce_scatter(&self, rows: &[usize], input: &B::Matrix, out: &mut B::Matrix) -> Result<(), CommError>;

    /// Stacks the row blocks of all ranks on every rank. `rows[i]`: rows that rank `i` contributes.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else; on pieces that do not fit.
    fn all_gather(&self, rows: &[usize], input: &B::Matrix, out: &mut B::Matrix) -> Result<(), CommError>;

    /// As [`all_gather`](Self::all_gather), but a rank receives only the row blocks of other ranks. `rows` includes
    /// the rank's own count, because it sends these rows.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else; on pieces that do not fit.
    fn gather_others(&self, rows: &[usize], input: &B::Matrix, out: &mut B::Matrix) -> Result<(), CommError>;

    /// Sends the `i`-th row block of `input`, of `send_rows[i]` rows, to rank `i`. Stacks the rows received,
    /// `receive_rows[i]` from rank `i`, in the order of ranks.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else; on pieces that do not fit.
    fn all_to_all(
        &self,
        send_rows: &[usize],
        input: &B::Matrix,
        receive_rows: &[usize],
        out: &mut B::Matrix,
    ) -> Result<(), CommError>;

    /// All-gather of messages of any length, in the order of ranks, for decisions and checks.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else.
    fn all_gather_bytes(&self, message: &[u8]) -> Result<Vec<Vec<u8>>, CommError>;

    /// All-to-all of messages of any length: sends the `i`-th message to rank `i`. Returns the messages for this
    /// rank, in the order of the senders.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else; when the number of messages is not that of ranks.
    fn all_to_all_bytes(&self, messages: Vec<Parcel>) -> Result<Vec<Parcel>, CommError>;

    /// Communicator of the ranks with the same `colour`, ordered by key and then by rank.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else.
    fn split(&self, colour: usize, key: usize) -> Result<Box<dyn Collective<B>>, CommError>;

    /// Barrier: waits until all ranks have called it.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else.
    fn barrier(&self) -> Result<(), CommError>;

    /// Failure of a rank that is known now, without waiting. Useful while waiting for something else, such as a
    /// device. `None` under MPI, where a failing rank ends all processes.
    fn failure(&self) -> Option<CommError>;

    /// Bytes of matrices exchanged so far.
    fn traffic(&self) -> Traffic;
}
