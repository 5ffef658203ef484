//! [`Staging`]: uploads of pageable host memory through pinned buffers.
//!
//! The driver stages pageable memory itself: at 21 GB/s, where an H200 takes 51. Here all cores fill one pinned
//! buffer while the device empties the other.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

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

/// Upload buffers of a device; created by the first large upload.
#[derive(Default)]
pub(crate) struct Staging(Mutex<Option<BufferPair>>);

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
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(pair);
        done
    }

    /// Takes the upload buffers, or allocates some if nobody has yet or another upload uses them; `None` where the
    /// system has no memory to pin.
    fn take(&self, context: &Arc<CudaContext>) -> Option<BufferPair> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        kept.or_else(|| {
            let pin = || Buffer::new(context, BUFFER_BYTES, CUevent_flags::CU_EVENT_DISABLE_TIMING);
            let made = pin().and_then(|first| Ok(BufferPair([first, pin()?])));
            made.inspect_err(|error| tracing::debug!("there is no pinned memory: {error:?}")).ok()
        })
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
    fn all_cores_copy_what_one_would() {
        let bytes: Vec<u8> = (0..3 * CORE_BYTES + 17).map(|i| (i % 253) as u8).collect();
        let mut buffer = vec![0; bytes.len()];
        fill(&mut buffer, &bytes);
        assert!(buffer == bytes);
    }
}
