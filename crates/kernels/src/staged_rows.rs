//! [`StagedRows`]: rows of the host that its cores gather, and copies bring to a device (Li et al., 2025, pinned and parallel transfer).
//!
//! ```text
//! ids ──▶ host ──▶ cores fill a pinned buffer ──▶ copy ──▶ where the rows belong, or a slot of the device,
//!                  while others are copied                 from which a launch takes them there
//! ```
//! Copies take no multiprocessor from a step, and read pinned memory side by side; rows themselves may lie in any memory, also in a mapped
//! file. A batch goes in pieces whatever its size, so that the pinned area need not grow with it, and cores fill a piece while those
//! before it travel. Events say when a buffer may be written again. A thread of its own does all that, one batch after the other: the next one
//! may be begun before the last one is there.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use bitvec::vec::BitVec;
use cudarc::driver::{CudaEvent, CudaSlice, CudaStream, DriverError, PinnedHostSlice, result};
use girih_compute::ComputeError;
use girih_graph_format::NodeId;
use rayon::prelude::*;

use crate::Cuda;
use crate::staging::Buffer;

/// Pinned buffers, and the bytes of each: enough that a copy takes longer than to begin it, and as many as cores fill meanwhile.
const BUFFERS: usize = 4;
const BUFFER_BYTES: usize = 8 << 20;
/// Streams that take turns, so that a launch on one goes on beside a copy on the other.
const STREAMS: usize = 2;
/// Cores that are left to who launches steps and who waits for copies.
const CORES_LEFT: usize = 2;
/// Rows that are asked for before they are copied.
const ROWS_AHEAD: usize = 8;
/// Bytes that a row may take at most, with its place.
pub(crate) const ROW_BYTES_MAX: usize = BUFFER_BYTES - ALIGNMENT - size_of::<u32>();
/// Where what follows rows in a buffer begins.
const ALIGNMENT: usize = 16;

/// Rows of equal size, as devices have them.
pub(crate) trait RowSource: Send + Sync {
    /// Copies a row to as many bytes as it has.
    fn copy(&self, row: usize, to: &mut [u8]);

    /// Asks for a row that is copied soon.
    fn prefetch(&self, _row: usize) {}
}

/// Rows on a device that are to be taken to where they belong.
#[derive(Clone, Copy)]
pub(crate) struct Arrived {
    /// The address of the first.
    pub(crate) rows: u64,
    /// The address of a list with the row of the result for each; zero: one after the other.
    pub(crate) places: u64,
    /// Where the result begins, or the part of it that they are.
    pub(crate) out: u64,
    pub(crate) n: u64,
}

/// Puts what takes rows to where they belong on a stream.
pub(crate) type Land = Box<dyn Fn(&CudaStream, Arrived) -> Result<(), DriverError> + Send>;

/// What rows are brought of, and how.
pub(crate) struct Bringing {
    pub(crate) source: Arc<dyn RowSource>,
    /// Bytes of a row on the host, and of one of the result.
    pub(crate) row_bytes: usize,
    pub(crate) out_row_bytes: usize,
    /// The rows that are on no card; `None`: all of them.
    pub(crate) others: Option<BitVec>,
    /// `None`: rows are as they are wanted.
    pub(crate) land: Option<Land>,
}

/// See the module.
pub(crate) struct StagedRows {
    /// `None` while it ends.
    jobs: Option<Sender<Job>>,
    done: Mutex<Receiver<Result<CudaEvent, DriverError>>>,
    thread: Option<JoinHandle<()>>,
}

/// A batch.
struct Job {
    /// Recorded behind what makes ids, and behind what used the result before.
    ready: CudaEvent,
    /// The address of the ids.
    ids: u64,
    n: usize,
    /// The address of the result.
    out: u64,
}

impl StagedRows {
    /// Begins a thread that brings rows, of [`ROW_BYTES_MAX`] at most, to a device.
    ///
    /// # Errors
    /// When the system pins no buffers or gives no thread, or the device's memory does not suffice.
    pub(crate) fn new(cuda: &Cuda, operation: &'static str, bringing: Bringing) -> Result<Self, ComputeError> {
        let worker = Worker::new(cuda, operation, bringing)?;
        let (jobs, asked) = channel();
        let (tell, done) = channel();
        let thread = Builder::new().name("girih rows".to_owned()).spawn(move || worker.run(&asked, &tell));
        let thread = thread.map_err(|error| ComputeError::device(operation, format!("no thread: {error}")))?;
        Ok(Self { jobs: Some(jobs), done: Mutex::new(done), thread: Some(thread) })
    }

    /// Asks for the rows that `ids` names, `n` of them, after `ready`.
    ///
    /// # Safety
    /// Ids have to be rows. They stay as they are, and the result at `out` has room for their rows and is used by nobody else, until
    /// what follows [`take`](Self::take).
    pub(crate) unsafe fn ask(&self, ready: CudaEvent, (ids, n): (u64, usize), out: u64) -> Result<(), DriverError> {
        let gone = || DriverError(cudarc::driver::sys::CUresult::CUDA_ERROR_UNKNOWN);
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        jobs.send(Job { ready, ids, n, out }).map_err(|_| gone())
    }

    /// Waits until the last copy of what was asked for first is on its stream, and says what is recorded behind it.
    pub(crate) fn take(&self) -> Result<CudaEvent, DriverError> {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.recv().map_err(|_| DriverError(cudarc::driver::sys::CUresult::CUDA_ERROR_UNKNOWN))?
    }
}

impl Drop for StagedRows {
    /// Nothing is freed while the device reads or writes it.
    fn drop(&mut self) {
        drop(self.jobs.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What the thread has.
struct Worker {
    bringing: Bringing,
    /// For copies of ids, which wait for no copy of rows.
    asking: Arc<CudaStream>,
    streams: [Arc<CudaStream>; STREAMS],
    buffers: Vec<Buffer>,
    /// The buffer that is filled next.
    turn: usize,
    ids: PinnedHostSlice<NodeId>,
    /// Room on the device for a piece of each buffer, where rows do not go where they belong at once.
    slots: Option<CudaSlice<u8>>,
}

/// Where a row of a batch belongs, and which row it is.
type Named = (u32, NodeId);

impl Worker {
    fn new(cuda: &Cuda, operation: &'static str, bringing: Bringing) -> Result<Self, ComputeError> {
        let context = cuda.device.stream.context();
        let slots = bringing.needs_slots().then(|| cuda.scratch(operation, BUFFERS * BUFFER_BYTES)).transpose()?;
        // Slots are there before other streams use them.
        cuda.device.wait(operation)?;
        let make = || {
            let streams = [cuda.device.urgent_stream()?, cuda.device.urgent_stream()?];
            let buffers: Result<Vec<Buffer>, DriverError> =
                (0..BUFFERS).map(|_| Buffer::new(context, BUFFER_BYTES)).collect();
            // SAFETY: ids are written before they are read.
            let ids = unsafe { context.alloc_pinned_with_flags(1, 0) }?;
            let asking = cuda.device.urgent_stream()?;
            Ok((asking, streams, buffers?, ids))
        };
        let (asking, streams, buffers, ids) = make().map_err(Cuda::failed(operation))?;
        Ok(Self { bringing, asking, streams, buffers, turn: 0, ids, slots })
    }

    /// Brings what is asked for until nobody asks any more.
    fn run(mut self, asked: &Receiver<Job>, tell: &Sender<Result<CudaEvent, DriverError>>) {
        for job in asked {
            let outcome = self.bring(&job);
            if tell.send(outcome).is_err() {
                break;
            }
        }
        for stream in self.streams.iter().chain([&self.asking]) {
            let _ = stream.synchronize();
        }
    }

    fn bring(&mut self, job: &Job) -> Result<CudaEvent, DriverError> {
        self.streams.iter().try_for_each(|stream| stream.wait(&job.ready))?;
        self.read_ids(job)?;
        // The memory of ids is written by the next batch only.
        let ids = unsafe { std::slice::from_raw_parts(self.ids.as_ptr()?, job.n) };
        if let Some(others) = &self.bringing.others {
            let is_asked = |&(_, id): &Named| others[id as usize];
            let named: Vec<Named> =
                ids.par_iter().enumerate().map(|(at, &id)| (at as u32, id)).filter(is_asked).collect();
            let at_once = self.bringing.rows_at_once();
            named.chunks(at_once).try_for_each(|piece| self.bring_piece(piece, None, job.out))?;
        } else {
            let at_once = self.bringing.rows_at_once();
            for (i, piece) in ids.chunks(at_once).enumerate() {
                let named: Vec<Named> = piece.iter().map(|&id| (0, id)).collect();
                self.bring_piece(&named, Some(i * at_once), job.out)?;
            }
        }
        let [first, others @ ..] = &self.streams;
        others.iter().try_for_each(|stream| first.join(stream))?;
        first.record_event(None)
    }

    /// Copies the ids of a batch to the host, and waits for them.
    fn read_ids(&mut self, job: &Job) -> Result<(), DriverError> {
        if self.ids.len() < job.n {
            // SAFETY: ids are written before they are read.
            self.ids = unsafe { self.asking.context().alloc_pinned_with_flags(job.n + job.n / 4, 0) }?;
        }
        self.asking.wait(&job.ready)?;
        let to = &mut self.ids.as_mut_slice()?[..job.n];
        // SAFETY: as many ids are there, and stay until the copy is done, for which the next line waits.
        unsafe { result::memcpy_dtoh_async(to, job.ids, self.asking.cu_stream()) }?;
        self.asking.synchronize()
    }

    /// Brings some rows, which follow each other in the result from a row on, or belong where their names say.
    fn bring_piece(&mut self, rows: &[Named], first: Option<usize>, out: u64) -> Result<(), DriverError> {
        let Bringing { source, row_bytes, out_row_bytes, .. } = &self.bringing;
        let (at, stream) = (self.turn % BUFFERS, &self.streams[self.turn % STREAMS]);
        self.turn += 1;
        let buffer = &mut self.buffers[at];
        // Until what it held before is on the device.
        buffer.copied.synchronize()?;
        let memory = buffer.memory.as_mut_slice()?;
        let of_rows = rows.len() * row_bytes;
        fill(source.as_ref(), *row_bytes, rows, &mut memory[..of_rows]);
        let out = out + (first.unwrap_or(0) * out_row_bytes) as u64;
        let (Some(slots), Some(land)) = (&self.slots, &self.bringing.land) else {
            // SAFETY: the caller of `ask` vouches for the room; the buffer is neither written nor freed before the event.
            unsafe { result::memcpy_htod_async(out, &memory[..of_rows], stream.cu_stream()) }?;
            return buffer.copied.record(stream);
        };
        let places = of_rows.next_multiple_of(ALIGNMENT);
        let n_bytes = if first.is_some() {
            of_rows
        } else {
            let list = &mut memory[places..places + rows.len() * size_of::<u32>()];
            list.chunks_exact_mut(size_of::<u32>())
                .zip(rows)
                .for_each(|(to, (place, _))| to.copy_from_slice(&place.to_ne_bytes()));
            places + list.len()
        };
        let slot = address_of(slots, stream) + (at * BUFFER_BYTES) as u64;
        // SAFETY: a slot has room for a buffer, and is used on this stream only; the rest is as above.
        unsafe { result::memcpy_htod_async(slot, &memory[..n_bytes], stream.cu_stream()) }?;
        buffer.copied.record(stream)?;
        let places = if first.is_some() { 0 } else { slot + places as u64 };
        land(stream, Arrived { rows: slot, places, out, n: rows.len() as u64 })
    }
}

impl Bringing {
    /// Whether rows are taken to where they belong by a launch.
    fn needs_slots(&self) -> bool {
        self.land.is_some()
    }

    /// Rows of a piece, with their places.
    fn rows_at_once(&self) -> usize {
        (BUFFER_BYTES - ALIGNMENT) / (self.row_bytes + size_of::<u32>()).max(1)
    }
}

/// Where memory of the device begins, which no event follows.
fn address_of(memory: &CudaSlice<u8>, stream: &CudaStream) -> u64 {
    use cudarc::driver::DevicePtr;
    memory.device_ptr(stream).0
}

/// Copies rows side by side, on all cores but a few.
fn fill(source: &dyn RowSource, row_bytes: usize, rows: &[Named], to: &mut [u8]) {
    if row_bytes == 0 {
        return;
    }
    let cores = rayon::current_num_threads().saturating_sub(CORES_LEFT).max(1);
    let of_core = rows.len().div_ceil(cores).max(1);
    rows.par_chunks(of_core).zip(to.par_chunks_mut(of_core * row_bytes)).for_each(|(rows, to)| {
        for (at, (to, &(_, id))) in to.chunks_exact_mut(row_bytes).zip(rows).enumerate() {
            if let Some(&(_, soon)) = rows.get(at + ROWS_AHEAD) {
                source.prefetch(soon as usize);
            }
            source.copy(id as usize, to);
        }
    });
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
        Bringing { source: Arc::new(Numbered), row_bytes, out_row_bytes: row_bytes, others: None, land: None }
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
    fn cores_fill_a_buffer_in_order() {
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
