//! [`Staging`]: uploads of pageable host memory through pinned buffers.
//!
//! The driver stages pageable memory itself: at 21 GB/s, where an H200 takes 51. Here all cores fill one pinned
//! buffer while the device empties the other. It also waits until the stream reaches the copy, so that the host could not
//! prepare a mini-batch during the step before; uploads of that size go through a ring of pinned memory.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{CUDA_MEMCPY2D, CUevent_flags, CUmemorytype, cuMemcpy2DAsync_v2};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, PinnedHostSlice, result};
use rayon::prelude::*;

/// Bytes of a buffer: enough to hide the fixed cost of a copy.
const BUFFER_BYTES: usize = 32 << 20;
/// Fewest bytes that are staged; smaller copies are faster than allocating buffers.
const STAGED_MIN: usize = 4 * BUFFER_BYTES;
/// Bytes that a core copies at a time.
const CORE_BYTES: usize = 1 << 20;

/// Destination rows on a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    /// Address of the first row.
    pub(crate) address: u64,
    pub(crate) row_bytes: usize,
    /// Bytes from the start of a row to that of the next; at least `row_bytes`.
    pub(crate) pitch_bytes: usize,
}

/// Bytes of the ring: several mini-batches.
const RING_BYTES: usize = 256 << 20;
/// Uploads of a size for the ring after which it is made: short runs do without.
const BEFORE_RING: usize = 64;
/// Alignment of an upload in the ring.
const RING_ALIGNMENT: usize = 256;

/// Upload buffers of a device; created by the first large upload, or by many smaller ones.
#[derive(Default)]
pub(crate) struct Staging {
    pair: Mutex<Option<BufferPair>>,
    ring: Mutex<RingState>,
}

/// Pinned memory of uploads that do not wait for the device.
enum RingState {
    /// Number of uploads so far.
    Before(usize),
    Made(Ring),
    /// The system has no memory to pin.
    Refused,
}

impl Default for RingState {
    fn default() -> Self {
        Self::Before(0)
    }
}

/// Ring of pinned memory: an upload takes the bytes behind the one before it, or begins anew at the start.
struct Ring {
    /// Dropped first: its events are recorded behind all copies.
    copies: VecDeque<(Range<usize>, CudaEvent)>,
    memory: PinnedHostSlice<u8>,
    head: usize,
}

/// Pair of pinned buffers.
struct BufferPair([Buffer; 2]);

/// Pinned memory, with an event after which it may be written again. cudarc's own event for such memory is not
/// recorded, because a [`Device`](crate::Device) disables event tracking.
pub(crate) struct Buffer {
    pub(crate) memory: PinnedHostSlice<u8>,
    /// Event recorded behind each copy from the memory.
    pub(crate) copied: CudaEvent,
}

impl Buffer {
    /// Allocates uninitialised pinned memory; `waiting` sets how threads wait for its event.
    pub(crate) fn new(context: &Arc<CudaContext>, n_bytes: usize, waiting: CUevent_flags) -> Result<Self, DriverError> {
        // SAFETY: buffers are written before they are read.
        let memory = unsafe { context.alloc_pinned_with_flags::<u8>(n_bytes, 0) }?;
        Ok(Self { memory, copied: context.new_event(Some(waiting))? })
    }
}

impl Drop for Buffer {
    /// Waits until the device no longer reads the memory.
    fn drop(&mut self) {
        let _ = self.copied.synchronize();
    }
}

/// Rows, or a part of one row, that one copy uploads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// Byte offset of the piece on the host; `to` is that on the device.
    from: usize,
    to: usize,
    n_rows: usize,
    row_bytes: usize,
}

impl Piece {
    fn bytes<'a>(&self, of: &'a [u8]) -> &'a [u8] {
        &of[self.from..][..self.n_rows * self.row_bytes]
    }
}

/// Cuts `n_bytes`, contiguous on the host, into pieces that fit into a buffer.
fn pieces(n_bytes: usize, rows: &Rows, buffer_bytes: usize) -> Vec<Piece> {
    if n_bytes == 0 {
        return Vec::new();
    }
    // Rows without gaps count as one row.
    let (row_bytes, pitch) =
        if rows.pitch_bytes == rows.row_bytes { (n_bytes, n_bytes) } else { (rows.row_bytes, rows.pitch_bytes) };
    let n_rows = n_bytes / row_bytes;
    if row_bytes <= buffer_bytes {
        let at_once = buffer_bytes / row_bytes;
        let rows_from = |first: usize| Piece {
            from: first * row_bytes,
            to: first * pitch,
            n_rows: at_once.min(n_rows - first),
            row_bytes,
        };
        return (0..n_rows).step_by(at_once).map(rows_from).collect();
    }
    let parts = |row: usize| {
        (0..row_bytes).step_by(buffer_bytes).map(move |start| Piece {
            from: row * row_bytes + start,
            to: row * pitch + start,
            n_rows: 1,
            row_bytes: buffer_bytes.min(row_bytes - start),
        })
    };
    (0..n_rows).flat_map(parts).collect()
}

impl Staging {
    /// Puts a copy of `bytes`, row after row, on the stream. They may change when the call returns.
    ///
    /// # Safety
    /// `bytes` are whole rows. From the address on there is space for as many, a pitch apart, which may be written.
    /// The space lives until all work is done that was put on the stream before it is freed.
    pub(crate) unsafe fn upload_rows(
        &self,
        stream: &Arc<CudaStream>,
        bytes: &[u8],
        to: Rows,
    ) -> Result<(), DriverError> {
        stream.context().bind_to_thread()?;
        let pair = if bytes.len() < STAGED_MIN { None } else { self.take(stream.context()) };
        let Some(mut pair) = pair else {
            let buffer_bytes = bytes.len();
            // SAFETY: the caller vouches for the space, and the pieces are those of its rows.
            return pieces(bytes.len(), &to, buffer_bytes)
                .iter()
                .try_for_each(|piece| unsafe { copy(stream, piece.bytes(bytes), piece, &to) });
        };
        // SAFETY: as above.
        let done = unsafe { pair.upload(stream, bytes, &to) };
        *lock(&self.pair) = Some(pair);
        done
    }

    /// Puts a copy of `bytes` on the stream through the ring, without a wait for the stream; they may change when the call
    /// returns. Returns `false` and does nothing if they are too many, or there is no ring.
    ///
    /// # Safety
    /// As [`upload_rows`](Self::upload_rows), for rows without gaps.
    pub(crate) unsafe fn upload_aside(
        &self,
        stream: &Arc<CudaStream>,
        bytes: &[u8],
        address: u64,
    ) -> Result<bool, DriverError> {
        if bytes.len() >= STAGED_MIN {
            return Ok(false);
        }
        stream.context().bind_to_thread()?;
        let mut state = lock(&self.ring);
        match &mut *state {
            RingState::Before(n) if *n < BEFORE_RING => {
                *n += 1;
                Ok(false)
            }
            RingState::Before(_) => {
                match Ring::new(stream.context()) {
                    Ok(ring) => *state = RingState::Made(ring),
                    Err(error) => {
                        tracing::debug!("there is no pinned memory: {error:?}");
                        *state = RingState::Refused;
                    }
                }
                Ok(false)
            }
            RingState::Refused => Ok(false),
            // SAFETY: the caller vouches.
            RingState::Made(ring) => unsafe { ring.upload(stream, bytes, address) }.map(|()| true),
        }
    }

    /// Takes the upload buffers, or allocates some if nobody has yet or another upload uses them; `None` where the
    /// system has no memory to pin.
    fn take(&self, context: &Arc<CudaContext>) -> Option<BufferPair> {
        let kept = lock(&self.pair).take();
        kept.or_else(|| {
            let pin = || Buffer::new(context, BUFFER_BYTES, CUevent_flags::CU_EVENT_DISABLE_TIMING);
            let made = pin().and_then(|first| Ok(BufferPair([first, pin()?])));
            made.inspect_err(|error| tracing::debug!("there is no pinned memory: {error:?}")).ok()
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Start of an upload of `len` bytes, behind those up to `head`.
fn place_in_ring(head: usize, len: usize) -> usize {
    let at = head.next_multiple_of(RING_ALIGNMENT);
    if at + len <= RING_BYTES { at } else { 0 }
}

impl Ring {
    fn new(context: &Arc<CudaContext>) -> Result<Self, DriverError> {
        // SAFETY: bytes are written before they are read.
        let memory = unsafe { context.alloc_pinned_with_flags::<u8>(RING_BYTES, 0) }?;
        Ok(Self { copies: VecDeque::new(), memory, head: 0 })
    }

    /// # Safety
    /// As [`Staging::upload_aside`], for fewer bytes than the ring has.
    unsafe fn upload(&mut self, stream: &CudaStream, bytes: &[u8], address: u64) -> Result<(), DriverError> {
        let at = place_in_ring(self.head, bytes.len());
        let place = at..at + bytes.len();
        let overlaps = |(of, _): &(Range<usize>, CudaEvent)| of.start < place.end && place.start < of.end;
        while self.copies.iter().any(overlaps) {
            // Copies end in their order.
            let Some((_, copied)) = self.copies.pop_front() else { break };
            copied.synchronize()?;
        }
        let staged = &mut self.memory.as_mut_slice()?[place.clone()];
        fill(staged, bytes);
        // SAFETY: the caller vouches for the space; the bytes of the ring are neither written nor freed before the event.
        unsafe { result::memcpy_htod_async(address, staged, stream.cu_stream()) }?;
        let copied = stream.context().new_event(Some(CUevent_flags::CU_EVENT_DISABLE_TIMING))?;
        copied.record(stream)?;
        self.head = place.end;
        self.copies.push_back((place, copied));
        Ok(())
    }
}

impl Drop for Ring {
    /// Waits until the device no longer reads the memory.
    fn drop(&mut self) {
        for (_, copied) in &self.copies {
            let _ = copied.synchronize();
        }
    }
}

impl BufferPair {
    /// Puts a copy of `bytes` on the stream, one buffer after the other.
    ///
    /// # Safety
    /// As [`Staging::upload_rows`].
    unsafe fn upload(&mut self, stream: &CudaStream, bytes: &[u8], to: &Rows) -> Result<(), DriverError> {
        for (turn, piece) in pieces(bytes.len(), to, BUFFER_BYTES).iter().enumerate() {
            let (buffer, bytes) = (&mut self.0[turn % 2], piece.bytes(bytes));
            // Waits until its previous contents are on the device.
            buffer.copied.synchronize()?;
            let staged = &mut buffer.memory.as_mut_slice()?[..bytes.len()];
            fill(staged, bytes);
            // SAFETY: the caller vouches for the space; the buffer is neither written nor freed before the event.
            unsafe { copy(stream, staged, piece, to) }?;
            buffer.copied.record(stream)?;
        }
        Ok(())
    }
}

/// Copies on all cores.
fn fill(buffer: &mut [u8], bytes: &[u8]) {
    let parts = buffer.par_chunks_mut(CORE_BYTES).zip(bytes.par_chunks(CORE_BYTES));
    parts.for_each(|(buffer, bytes)| buffer.copy_from_slice(bytes));
}

/// Puts the copy of a piece on the stream.
///
/// # Safety
/// `bytes` are those of the piece, which is one of the rows `to`, where there is space for them; if they are pinned,
/// they stay until the copy is done.
unsafe fn copy(stream: &CudaStream, bytes: &[u8], piece: &Piece, to: &Rows) -> Result<(), DriverError> {
    let address = to.address + piece.to as u64;
    if piece.n_rows == 1 {
        // SAFETY: the caller vouches for both ends; the driver stages pageable memory before the call returns.
        return unsafe { result::memcpy_htod_async(address, bytes, stream.cu_stream()) };
    }
    let copy = CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: bytes.as_ptr().cast::<c_void>(),
        srcDevice: 0,
        srcArray: ptr::null_mut(),
        srcPitch: piece.row_bytes,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstHost: ptr::null_mut(),
        dstDevice: address,
        dstArray: ptr::null_mut(),
        dstPitch: to.pitch_bytes,
        WidthInBytes: piece.row_bytes,
        Height: piece.n_rows,
    };
    // SAFETY: as above; the description is read before the call returns.
    unsafe { cuMemcpy2DAsync_v2(&raw const copy, stream.cu_stream()) }.result()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_bring_every_byte_to_its_place(
            n_rows in 0_usize..20, row_bytes in 1_usize..40, gap in 0_usize..9, buffer_bytes in 1_usize..100,
        ) {
            let host: Vec<u8> = (0..n_rows * row_bytes).map(|i| (i % 251) as u8 + 1).collect();
            let rows = Rows { address: 0, row_bytes, pitch_bytes: row_bytes + gap };
            let mut device = vec![0; n_rows * (row_bytes + gap)];
            for piece in pieces(host.len(), &rows, buffer_bytes) {
                prop_assert!(piece.bytes(&host).len() <= buffer_bytes);
                for (row, bytes) in piece.bytes(&host).chunks(piece.row_bytes).enumerate() {
                    device[piece.to + row * rows.pitch_bytes..][..bytes.len()].copy_from_slice(bytes);
                }
            }
            let expected: Vec<u8> =
                host.chunks(row_bytes).flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(0, gap))).collect();
            prop_assert_eq!(device, expected);
        }
    }

    #[test]
    fn uploads_take_the_ring_in_turn() {
        assert_eq!(place_in_ring(0, 5), 0);
        assert_eq!(place_in_ring(5, 5), RING_ALIGNMENT);
        assert_eq!(place_in_ring(RING_BYTES - RING_ALIGNMENT, RING_ALIGNMENT), RING_BYTES - RING_ALIGNMENT);
        assert_eq!(place_in_ring(RING_BYTES - RING_ALIGNMENT + 1, 1), 0);
    }

    #[test]
    fn all_cores_copy_what_one_would() {
        let bytes: Vec<u8> = (0..3 * CORE_BYTES + 17).map(|i| (i % 253) as u8).collect();
        let mut buffer = vec![0; bytes.len()];
        fill(&mut buffer, &bytes);
        assert!(buffer == bytes);
    }
}
