//! [`StagedRows`]: rows of the host that its cores gather, and copies bring to a device (Li et al., 2025, pinned and parallel transfer).
//!
//! ```text
//! ids ──▶ host ──▶ each thread: fill a pinned buffer ──▶ copy ──▶ where the rows belong, or room on the device,
//!                               while the other is copied         from which one launch takes them there
//! ```
//! Copies take no multiprocessor from a step, and read pinned memory side by side; rows themselves may lie in any memory, also in a mapped
//! file. Threads of their own take pieces of a batch in turn and wait for nobody but their own copies: a batch goes in pieces
//! whatever its size, so that the pinned area need not grow with it, and from one batch to the next without a pause. Events say when
//! a buffer may be written again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use bitvec::vec::BitVec;
use cudarc::driver::sys::{CUevent_flags, CUresult};
use cudarc::driver::{CudaEvent, CudaStream, DriverError, PinnedHostSlice, result};
use girih_compute::ComputeError;
use girih_graph_format::NodeId;

use crate::Cuda;
use crate::staging::Buffer;

/// Pinned buffers of a thread, and the bytes of each: a copy takes longer than to begin it, and a core fills one in less time than
/// the others take to copy theirs.
const BUFFERS: usize = 2;
const BUFFER_BYTES: usize = 1 << 20;
/// Threads at most: more than these are not needed to keep a bus busy.
const THREADS_MAX: usize = 16;
/// Cores that are left to who launches steps.
const CORES_LEFT: usize = 1;
/// Rows that are asked for before they are copied.
const ROWS_AHEAD: usize = 8;
/// Bytes that a row may take at most, with its place.
pub(crate) const ROW_BYTES_MAX: usize = BUFFER_BYTES - ALIGNMENT - size_of::<u32>();
/// Where what follows rows in a buffer begins.
const ALIGNMENT: usize = 16;
/// The place of what is not brought; `kernels/rows.cu` says the same.
const NOWHERE: u32 = u32::MAX;

/// Rows of equal size, as devices have them.
pub(crate) trait RowSource: Send + Sync {
    /// Copies a row to as many bytes as it has.
    fn copy(&self, row: usize, to: &mut [u8]);

    /// Asks for a row that is copied soon.
    fn prefetch(&self, _row: usize) {}
}

/// Which rows are brought.
pub(crate) struct Bringing {
    pub(crate) source: Arc<dyn RowSource>,
    /// Bytes of a row.
    pub(crate) row_bytes: usize,
    /// The rows that are on no card; `None`: all of them.
    pub(crate) others: Option<BitVec>,
}

/// Where on a device rows are brought.
#[derive(Clone, Copy)]
pub(crate) struct Destination {
    /// Room for a row for each id. All of them are brought in order; some at the beginning of the room of a piece.
    pub(crate) rows: u64,
    /// Room for the place of each of them, where some are brought: which id it is of.
    pub(crate) places: u64,
}

/// See the module.
pub(crate) struct StagedRows {
    /// A way to each thread.
    asked: Vec<Sender<Arc<Batch>>>,
    threads: Vec<JoinHandle<()>>,
    /// For copies of ids, which wait for no copy of rows.
    asking: Arc<CudaStream>,
    spare_ids: SpareIds,
}

/// Pinned memory for ids that no batch has.
type SpareIds = Arc<Mutex<Vec<PinnedHostSlice<NodeId>>>>;

/// A batch, as threads share it.
struct Batch {
    /// Recorded behind what used the result before.
    ready: CudaEvent,
    ids: Ids,
    /// The first id that no thread has taken.
    next: AtomicUsize,
    to: Destination,
    /// Each thread tells what is recorded behind its last copy.
    tell: Sender<Result<CudaEvent, DriverError>>,
}

/// The ids of a batch on the host, once they are there.
struct Ids {
    /// `None` while it is given back.
    memory: Option<PinnedHostSlice<NodeId>>,
    first: *const NodeId,
    n: usize,
    copied: CudaEvent,
    spare: SpareIds,
}

// SAFETY: the memory belongs to this; after the event it is only read.
unsafe impl Send for Ids {}
// SAFETY: as above.
unsafe impl Sync for Ids {}

impl Ids {
    /// Waits for them.
    fn wait(&self) -> Result<&[NodeId], DriverError> {
        self.copied.synchronize()?;
        // SAFETY: as many were copied there, and nobody writes them while this lives.
        Ok(unsafe { std::slice::from_raw_parts(self.first, self.n) })
    }
}

impl Drop for Ids {
    /// The next batch has the memory.
    fn drop(&mut self) {
        let _ = self.copied.synchronize();
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).extend(self.memory.take());
    }
}

/// Rows that were asked for.
pub(crate) struct Asked {
    told: Receiver<Result<CudaEvent, DriverError>>,
    n_threads: usize,
}

impl Asked {
    /// Waits until all copies are on their streams, and has `stream` wait for them.
    pub(crate) fn wait_on(self, stream: &CudaStream) -> Result<(), DriverError> {
        for _ in 0..self.n_threads {
            stream.wait(&self.told.recv().map_err(|_| gone())??)?;
        }
        Ok(())
    }
}

/// A thread ended before its time, which only a panic does.
fn gone() -> DriverError {
    DriverError(CUresult::CUDA_ERROR_UNKNOWN)
}

impl StagedRows {
    /// Begins threads that bring rows, of [`ROW_BYTES_MAX`] bytes at most, to a device: as many as cores, shared by `n_ranks`, can spare.
    ///
    /// # Errors
    /// When the system pins no buffers or gives no threads, or the device's memory does not suffice.
    pub(crate) fn new(
        cuda: &Cuda,
        operation: &'static str,
        n_ranks: usize,
        bringing: Bringing,
    ) -> Result<Self, ComputeError> {
        let n_threads = (rayon::current_num_threads() / n_ranks).saturating_sub(CORES_LEFT).clamp(1, THREADS_MAX);
        let asking = cuda.device.urgent_stream().map_err(Cuda::failed(operation))?;
        let mut staged = Self { asked: Vec::new(), threads: Vec::new(), asking, spare_ids: Arc::default() };
        let bringing = Arc::new(bringing);
        for _ in 0..n_threads {
            let filler = Filler::new(cuda, &bringing).map_err(Cuda::failed(operation))?;
            let (ask, asked) = channel();
            let thread = Builder::new().name("girih rows".to_owned()).spawn(move || filler.run(&asked));
            let no_thread = |error| ComputeError::device(operation, format!("no thread that brings rows: {error}"));
            staged.threads.push(thread.map_err(no_thread)?);
            staged.asked.push(ask);
        }
        Ok(staged)
    }

    /// Asks for the rows that `ids` names, `n` of them, after `ready`.
    ///
    /// # Safety
    /// Ids have to be rows. They stay as they are, and the destination has room for them and is used by nobody else, until what follows
    /// [`Asked::wait_on`].
    pub(crate) unsafe fn ask(
        &self,
        ready: CudaEvent,
        (ids, n): (u64, usize),
        to: Destination,
    ) -> Result<Asked, DriverError> {
        let mut memory = self.memory_for(n)?;
        let copied = self.asking.context().new_event(Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC))?;
        let on_host = &mut memory.as_mut_slice()?[..n];
        self.asking.wait(&ready)?;
        // SAFETY: as many ids are there, and stay; the memory is read after the event, and given back after it.
        unsafe { result::memcpy_dtoh_async(on_host, ids, self.asking.cu_stream()) }?;
        copied.record(&self.asking)?;
        let first = on_host.as_ptr();
        let ids = Ids { memory: Some(memory), first, n, copied, spare: Arc::clone(&self.spare_ids) };
        let (tell, told) = channel();
        let batch = Arc::new(Batch { ready, ids, next: AtomicUsize::new(0), to, tell });
        self.asked.iter().try_for_each(|ask| ask.send(Arc::clone(&batch))).map_err(|_| gone())?;
        Ok(Asked { told, n_threads: self.asked.len() })
    }

    /// Pinned memory for so many ids, used before if there is some.
    fn memory_for(&self, n: usize) -> Result<PinnedHostSlice<NodeId>, DriverError> {
        let spare = self.spare_ids.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match spare.filter(|memory| memory.len() >= n) {
            Some(memory) => Ok(memory),
            // SAFETY: ids are written before they are read.
            None => unsafe { self.asking.context().alloc_pinned_with_flags(n + n / 4, 0) },
        }
    }
}

impl Drop for StagedRows {
    /// Nothing is freed while the device reads or writes it.
    fn drop(&mut self) {
        self.asked.clear();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
        let _ = self.asking.synchronize();
    }
}

/// What a thread has.
struct Filler {
    bringing: Arc<Bringing>,
    stream: Arc<CudaStream>,
    buffers: [Buffer; BUFFERS],
    /// The buffer that is filled next.
    turn: usize,
    /// Of a piece, the rows that are brought, and where in the result they belong.
    named: Vec<Named>,
}

/// Where a row of a batch belongs, and which row it is.
type Named = (u32, NodeId);

impl Filler {
    fn new(cuda: &Cuda, bringing: &Arc<Bringing>) -> Result<Self, DriverError> {
        let waiting = CUevent_flags::CU_EVENT_BLOCKING_SYNC;
        let buffer = || Buffer::new(cuda.device.stream.context(), BUFFER_BYTES, waiting);
        let (stream, buffers) = (cuda.device.urgent_stream()?, [buffer()?, buffer()?]);
        Ok(Self { bringing: Arc::clone(bringing), stream, buffers, turn: 0, named: Vec::new() })
    }

    /// Brings its share of what is asked for until nobody asks any more.
    fn run(mut self, asked: &Receiver<Arc<Batch>>) {
        for batch in asked {
            let outcome = self.share_of(&batch);
            // Whoever gave up waiting is not told.
            let _ = batch.tell.send(outcome);
        }
        let _ = self.stream.synchronize();
    }

    /// Brings pieces of a batch until others have the rest.
    fn share_of(&mut self, batch: &Batch) -> Result<CudaEvent, DriverError> {
        self.stream.wait(&batch.ready)?;
        let (ids, at_once) = (batch.ids.wait()?, self.bringing.rows_at_once());
        loop {
            let first = batch.next.fetch_add(at_once, Ordering::Relaxed);
            if first >= ids.len() {
                return self.stream.record_event(None);
            }
            self.bring(first, &ids[first..ids.len().min(first + at_once)], batch.to)?;
        }
    }

    /// Brings the rows of ids that follow each other in a batch.
    fn bring(&mut self, first: usize, ids: &[NodeId], to: Destination) -> Result<(), DriverError> {
        let Bringing { source, row_bytes, others } = &*self.bringing;
        self.named.clear();
        let is_asked = |&(_, id): &Named| others.as_ref().is_none_or(|others| others[id as usize]);
        self.named.extend((first as u32..).zip(ids.iter().copied()).filter(is_asked));
        let buffer = &mut self.buffers[self.turn % BUFFERS];
        self.turn += 1;
        // Until what it held before is on the device.
        buffer.copied.synchronize()?;
        let memory = buffer.memory.as_mut_slice()?;
        let (rows, list) = memory.split_at_mut((self.named.len() * row_bytes).next_multiple_of(ALIGNMENT));
        let rows = &mut rows[..self.named.len() * row_bytes];
        fill(source.as_ref(), *row_bytes, &self.named, rows);
        let stream = self.stream.cu_stream();
        if !rows.is_empty() {
            // SAFETY: the caller of `ask` vouches for the room; the buffer is neither written nor freed before the event.
            unsafe { result::memcpy_htod_async(to.rows + (first * row_bytes) as u64, rows, stream) }?;
        }
        if others.is_some() {
            let list = &mut list[..size_of_val(ids)];
            let places = self.named.iter().map(|&(place, _)| place).chain(std::iter::repeat(NOWHERE));
            list.chunks_exact_mut(size_of::<u32>())
                .zip(places)
                .for_each(|(to, place)| to.copy_from_slice(&place.to_le_bytes()));
            // SAFETY: as above.
            unsafe { result::memcpy_htod_async(to.places + (first * size_of::<u32>()) as u64, list, stream) }?;
        }
        buffer.copied.record(&self.stream)
    }
}

impl Bringing {
    /// Rows of a piece, with their places.
    fn rows_at_once(&self) -> usize {
        (BUFFER_BYTES - ALIGNMENT) / (self.row_bytes + size_of::<u32>()).max(1)
    }
}

/// Copies rows side by side.
fn fill(source: &dyn RowSource, row_bytes: usize, rows: &[Named], to: &mut [u8]) {
    if row_bytes == 0 {
        return;
    }
    for (at, (to, &(_, id))) in to.chunks_exact_mut(row_bytes).zip(rows).enumerate() {
        if let Some(&(_, soon)) = rows.get(at + ROWS_AHEAD) {
            source.prefetch(soon as usize);
        }
        source.copy(id as usize, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows whose bytes tell which they are.
    struct Numbered;

    impl RowSource for Numbered {
        fn copy(&self, row: usize, to: &mut [u8]) {
            to.iter_mut().enumerate().for_each(|(at, byte)| *byte = (row * 31 + at) as u8);
        }
    }

    fn bringing(row_bytes: usize) -> Bringing {
        Bringing { source: Arc::new(Numbered), row_bytes, others: None }
    }

    #[test]
    fn pieces_have_room_for_rows_and_their_places() {
        for row_bytes in [0, 1, 3, 16, 200, 2408, ROW_BYTES_MAX] {
            let n = bringing(row_bytes).rows_at_once();
            let bytes = (n * row_bytes).next_multiple_of(ALIGNMENT) + n * size_of::<u32>();
            assert!(n > 0 && bytes <= BUFFER_BYTES, "{n} rows of {row_bytes}");
        }
    }

    #[test]
    fn rows_fill_a_buffer_in_order() {
        for n in [0_usize, 1, 2, 17, 1000] {
            let rows: Vec<Named> = (0..n).map(|i| (i as u32, (i * 7919 % 251) as NodeId)).collect();
            let mut memory = vec![0; 13 * n];
            fill(&Numbered, 13, &rows, &mut memory);
            let mut row = [0; 13];
            for (bytes, &(_, id)) in memory.chunks_exact(13).zip(&rows) {
                Numbered.copy(id as usize, &mut row);
                assert_eq!(bytes, row);
            }
        }
    }
}
