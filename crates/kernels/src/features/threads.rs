//! [`StagedGather`]: rows that host cores gather and copies bring to a device (Li et al., 2025, pinned and parallel
//! transfer).
//!
//! ```text
//! ids ──▶ host ──▶ each thread: fill a pinned buffer ──▶ copy ──▶ destination rows, or a buffer on the device,
//!                               while the other is copied         from which one launch takes them there
//! ```
//! If GPUs hold some of the rows, the device first lists the missing ones. So pieces of a batch are always full.
//! Copies use no SM, and read pinned memory concurrently. The rows themselves may lie in any memory, also in a mapped
//! file. Dedicated threads take pieces of a batch in turn and wait only for their own copies. A batch is cut into
//! pieces whatever its size. So the pinned memory need not grow with the batch, and the next batch follows without a
//! pause. Events tell when a buffer may be written again.

use std::io;
use std::sync::Arc;

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent, CudaStream, DriverError, PinnedHostSlice, result};
use girih_compute::ComputeError;
use girih_graph_format::NodeId;

use super::pinned::not_pinned;
use super::request::{Spare, Wanted};
use crate::Cuda;
use crate::error::explain;
use crate::nccl::OwnedStream;
use crate::staging::Buffer;
use crate::worker_pool::{Cursor, Gone, Held, Receiver, WorkerPool};

/// Pinned buffers of a thread, and bytes of each. A copy takes longer than its launch, and a core fills a buffer in
/// less time than the others take to copy theirs.
const BUFFERS: usize = 2;
pub(super) const BUFFER_BYTES: usize = 1 << 20;
/// Most threads; more are not needed to saturate a bus.
const THREADS_MAX: usize = 16;
/// Cores that are left to the threads that launch steps.
const CORES_LEFT: usize = 1;
/// Most bytes of a row.
pub(crate) const ROW_BYTES_MAX: usize = BUFFER_BYTES;

/// Threads that gather rows for a device; see the module.
pub(crate) struct StagedGather {
    operation: &'static str,
    workers: WorkerPool<Batch, Brought>,
    /// Stream of copies of ids, which wait for no copy of rows.
    asking: Arc<OwnedStream>,
    /// Pinned memory for ids.
    spare_ids: Arc<Spare<PinnedHostSlice<NodeId>>>,
}

/// Event behind the last copy of a thread's share.
type Brought = Result<CudaEvent, ComputeError>;

/// Batch that threads share.
pub(crate) struct Batch {
    /// Event behind the last use of the destination.
    pub(crate) ready: CudaEvent,
    pub(crate) ids: Ids,
    /// Ids that no thread has taken.
    pub(crate) cursor: Cursor,
    /// Device address with space for a row for each id, in order.
    pub(crate) to: u64,
}

/// Ids of a batch, which are copied to the host.
pub(crate) struct Ids {
    /// Pinned memory; `None` only while it is released.
    memory: Option<PinnedHostSlice<NodeId>>,
    first: *const NodeId,
    wanted: Wanted,
    copied: CudaEvent,
    /// Stream of the copy.
    asking: Arc<OwnedStream>,
    spare: Arc<Spare<PinnedHostSlice<NodeId>>>,
}

// SAFETY: the memory belongs to this; after the event it is only read.
unsafe impl Send for Ids {}
// SAFETY: as above.
unsafe impl Sync for Ids {}

impl Ids {
    /// Waits for the copy and returns the ids.
    pub(crate) fn wait(&self) -> Result<&[NodeId], DriverError> {
        self.copied.synchronize()?;
        // SAFETY: as many words were copied there, and nobody writes them while this lives.
        let words = unsafe { std::slice::from_raw_parts(self.first, self.wanted.words().1) };
        Ok(match self.wanted {
            Wanted::All(..) => words,
            Wanted::Counted(..) => &words[1..=words[0] as usize],
        })
    }
}

impl Drop for Ids {
    /// Returns the memory to the spare buffers, for the next batch.
    fn drop(&mut self) {
        if !matches!(self.copied.try_is_complete(), Ok(true)) {
            self.asking.wait();
        }
        self.spare.give(self.memory.take());
    }
}

/// Pending gather of rows.
pub(crate) struct PendingGather {
    batch: Held<Batch>,
    told: Receiver<Brought>,
    n_threads: usize,
    operation: &'static str,
    /// Stream of the ids, with the other ranks: the device may wait for one that has failed.
    asking: Arc<OwnedStream>,
}

impl PendingGather {
    /// Waits until all copies are on their streams, and makes `stream` wait for them. Returns the number of rows.
    pub(crate) fn wait_on(self, stream: &CudaStream) -> Result<usize, ComputeError> {
        let failed = Cuda::failed(self.operation);
        for _ in 0..self.n_threads {
            stream.wait(&self.told()??).map_err(&failed)?;
        }
        Ok(self.batch.ids.wait().map_err(&failed)?.len())
    }

    /// Waits for the outcome of a thread. It checks meanwhile whether other ranks have failed, and if so aborts the
    /// wait of the thread.
    fn told(&self) -> Result<Brought, ComputeError> {
        let told = match self.asking.peers() {
            None => self.told.recv().ok(),
            Some(peers) => peers
                .receive(self.operation, &self.told)
                .map_err(|error| ComputeError::device(self.operation, error.to_string()))?,
        };
        told.ok_or_else(|| gone(self.operation))
    }
}

/// Error of a thread that has ended early, which only a panic causes.
fn gone(operation: &'static str) -> ComputeError {
    ComputeError::device(operation, "a thread that brings rows has ended")
}

/// Error of a thread that the system does not start.
fn not_started(operation: &'static str, why: &io::Error) -> ComputeError {
    ComputeError::device(operation, format!("cannot start a thread that gathers rows: {why}"))
}

impl StagedGather {
    /// Number of threads for gathers on this host, by the cores that `n_ranks` ranks, which share them, can spare.
    pub(super) fn n_threads(n_ranks: usize) -> usize {
        (rayon::current_num_threads() / n_ranks).saturating_sub(CORES_LEFT).clamp(1, THREADS_MAX)
    }

    /// Starts `n_threads` threads that bring rows to a device, each with buffers of `buffer_bytes` bytes.
    ///
    /// # Errors
    /// When the system pins no buffers or gives no threads, or the device's memory does not suffice.
    pub(crate) fn new<B: StagedWorker + 'static>(
        cuda: &Cuda,
        operation: &'static str,
        (n_threads, buffer_bytes): (usize, usize),
        mut worker: impl FnMut() -> B,
    ) -> Result<Self, ComputeError> {
        let asking = cuda.ending(&cuda.device.urgent_stream().map_err(Cuda::failed(operation))?);
        let mut staged =
            Self { operation, workers: WorkerPool::new(), asking: Arc::new(asking), spare_ids: Arc::default() };
        let refused = |error: DriverError| {
            let n_bytes = n_threads * BUFFERS * buffer_bytes;
            not_pinned(operation, n_bytes, &explain(error.0), "give --host-reads in-place")
        };
        for _ in 0..n_threads {
            let mut buffers = Buffers::new(cuda, operation, buffer_bytes).map_err(refused)?;
            let mut worker = worker();
            let started = staged.workers.start("girih rows", move |batch| worker.share_of(batch, &mut buffers));
            started.map_err(|error| not_started(operation, &error))?;
        }
        Ok(staged)
    }

    /// Requests rows once `ready` is reached; they are written to `to` in order.
    ///
    /// # Safety
    /// Ids have to be rows. They stay as they are, and the destination has space for them and is used by nobody else,
    /// until the work that follows [`PendingGather::wait_on`].
    pub(crate) unsafe fn ask(&self, ready: CudaEvent, wanted: Wanted, to: u64) -> Result<PendingGather, ComputeError> {
        let operation = self.operation;
        // SAFETY: the caller vouches.
        let ids = unsafe { self.ids(&ready, wanted) }.map_err(Cuda::failed(operation))?;
        let batch = Batch { ready, ids, cursor: Cursor::new(), to };
        let (batch, told) = self.workers.ask(batch).map_err(|Gone| gone(operation))?;
        Ok(PendingGather { batch, told, n_threads: self.workers.len(), operation, asking: Arc::clone(&self.asking) })
    }

    /// Starts the copy of ids to the host.
    ///
    /// # Safety
    /// As [`ask`](Self::ask).
    unsafe fn ids(&self, ready: &CudaEvent, wanted: Wanted) -> Result<Ids, DriverError> {
        let (words, n) = wanted.words();
        let (mut memory, stream) = (self.memory_for(n)?, self.asking.stream());
        let copied = stream.context().new_event(Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC))?;
        let on_host = &mut memory.as_mut_slice()?[..n];
        stream.wait(ready)?;
        if n > 0 {
            // SAFETY: as many words are there, and stay; the memory is read and released only after the event.
            unsafe { result::memcpy_dtoh_async(on_host, words, stream.cu_stream()) }?;
        }
        copied.record(stream)?;
        let first = on_host.as_ptr();
        let (asking, spare) = (Arc::clone(&self.asking), Arc::clone(&self.spare_ids));
        Ok(Ids { memory: Some(memory), first, wanted, copied, asking, spare })
    }

    /// Pinned memory for `n` ids; reuses a spare buffer if there is one.
    fn memory_for(&self, n: usize) -> Result<PinnedHostSlice<NodeId>, DriverError> {
        match self.spare_ids.take(|memory| memory.len() >= n) {
            Some(memory) => Ok(memory),
            // SAFETY: ids are written before they are read.
            None => unsafe { self.asking.stream().context().alloc_pinned_with_flags((n + n / 4).max(1), 0) },
        }
    }
}

impl Drop for StagedGather {
    /// Waits until the device no longer reads or writes the memory.
    fn drop(&mut self) {
        // Threads wait for copies on this stream.
        self.workers.end(|| self.asking.wait());
    }
}

/// Pinned buffers, filled in turn, and the stream of their copies.
pub(crate) struct Buffers {
    pub(crate) operation: &'static str,
    pub(crate) stream: Arc<CudaStream>,
    buffers: [Buffer; BUFFERS],
    /// Number of buffers filled so far; it selects the next one.
    turn: usize,
}

impl Buffers {
    /// Allocates buffers of `n_bytes` bytes each.
    fn new(cuda: &Cuda, operation: &'static str, n_bytes: usize) -> Result<Self, DriverError> {
        let waiting = CUevent_flags::CU_EVENT_BLOCKING_SYNC;
        let buffer = || Buffer::new(cuda.device.stream.context(), n_bytes, waiting);
        let (stream, buffers) = (cuda.device.urgent_stream()?, [buffer()?, buffer()?]);
        Ok(Self { operation, stream, buffers, turn: 0 })
    }

    /// Fills the next buffer by `fill`, and puts a copy of its `n_bytes` bytes to an address on the stream. `n_bytes`
    /// is at most the size of a buffer.
    pub(crate) fn bring(&mut self, n_bytes: usize, to: u64, fill: impl FnOnce(&mut [u8])) -> Result<(), DriverError> {
        let buffer = &mut self.buffers[self.turn % BUFFERS];
        self.turn += 1;
        // Waits until its previous contents are on the device.
        buffer.copied.synchronize()?;
        let bytes = &mut buffer.memory.as_mut_slice()?[..n_bytes];
        fill(bytes);
        if !bytes.is_empty() {
            // SAFETY: the caller of `ask` vouches for the space; the buffer is neither written nor freed before the
            // event.
            unsafe { result::memcpy_htod_async(to, bytes, self.stream.cu_stream()) }?;
        }
        buffer.copied.record(&self.stream)
    }
}

impl Drop for Buffers {
    /// Waits until the device no longer copies from the memory.
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
    }
}

/// Work of a thread.
pub(crate) trait StagedWorker: Send {
    /// Brings the thread's share of a batch through `buffers`; returns an event behind it.
    fn share_of(&mut self, batch: &Batch, buffers: &mut Buffers) -> Result<CudaEvent, ComputeError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_does_not_start_is_told_of_with_its_cause() {
        let why = io::Error::other("too many");
        assert_eq!(
            not_started("rows by id", &why).to_string(),
            "rows by id failed on the device: cannot start a thread that gathers rows: too many"
        );
    }
}
