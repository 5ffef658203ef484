//! [`Staged`]: rows that threads of the host bring ([`threads`](super::threads)), from its own memory or from others'.

use std::sync::Arc;

use cudarc::driver::{CudaEvent, CudaStream, DriverError};
use girih_compute::ComputeError;
use girih_graph_format::NodeId;
use girih_machine::prefetch;

use super::in_place::ON_GPUS;
use super::request::{Request, RowBuffers, StoredRows, Wanted, address};
use super::row_checks::OPERATION;
use super::threads::{BUFFER_BYTES, Batch, Buffers, PendingGather, StagedGather, StagedWorker};
use crate::Cuda;
use crate::buffer::Buffer;

/// Distance in rows between the prefetch and the copy of a row.
const ROWS_AHEAD: usize = 8;
/// Bytes of a line of the CPU's caches.
const LINE_BYTES: usize = 64;

/// Rows that the host brings; see the module.
pub(super) struct Staged {
    threads: StagedGather,
    /// Whether all ranks gather together, also for a rank that wants nothing.
    together: bool,
    /// Buffers for rows that do not arrive in their final place.
    arriving: RowBuffers,
}

/// Rows on their way, and the buffer where they arrive; `None` for the result itself.
pub(super) struct PendingStaged {
    asked: PendingGather,
    arriving: Option<Buffer<u8>>,
}

impl Staged {
    /// Rows of `row_bytes` bytes that `threads` bring; with `together`, all ranks make each gather.
    pub(super) fn new(threads: StagedGather, row_bytes: usize, together: bool) -> Self {
        Self { threads, together, arriving: RowBuffers::new(row_bytes) }
    }
}

impl StoredRows for Staged {
    type Pending = Option<PendingStaged>;

    unsafe fn gather_async(&self, cuda: &Cuda, request: &Request<'_>) -> Result<Self::Pending, ComputeError> {
        let &Request { wanted, to, write, stream, .. } = request;
        let n = wanted.len();
        if n == 0 && !self.together {
            return Ok(None);
        }
        let is_direct = n == 0 || (matches!(wanted, Wanted::All(..)) && !write.decodes());
        let arriving = (!is_direct).then(|| self.arriving.take(cuda, n)).transpose()?;
        // Behind the allocation of the buffer, too.
        let ready = stream.join(&cuda.device.stream).and_then(|()| stream.record_event(None));
        let to = arriving.as_ref().map_or(to, address);
        // SAFETY: the caller vouches for ids and result; nobody else uses the buffer before the request is over.
        let asked = unsafe { self.threads.ask(ready.map_err(Cuda::failed(OPERATION))?, wanted, to) }?;
        Ok(Some(PendingStaged { asked, arriving }))
    }

    fn wait(
        &self,
        stream: &Arc<CudaStream>,
        request: Option<&Request<'_>>,
        pending: Self::Pending,
    ) -> Result<(), ComputeError> {
        let Some(PendingStaged { asked, arriving }) = pending else { return Ok(()) };
        let put = |n: usize| -> Result<(), DriverError> {
            let Some((request, buffer)) = request.zip(arriving.as_ref()).filter(|_| n > 0) else { return Ok(()) };
            let (rows, places) = (self.arriving.source(address(buffer)), request.wanted.places());
            // SAFETY: the rows were copied there; their places are rows of the result.
            unsafe { request.write.put(stream, ON_GPUS, rows, places, (request.to, n as u64)) }
        };
        let written = asked.wait_on(stream).and_then(|n| put(n).map_err(Cuda::failed(OPERATION)));
        self.arriving.give(arriving);
        written
    }
}

/// Rows of equal size, in the format of the device.
pub(crate) trait StagedSource: Send + Sync {
    /// Copies a row to `to`, which has the size of a row.
    fn copy(&self, row: usize, to: &mut [u8]);

    /// Prefetches a row that is copied soon.
    fn prefetch(&self, _row: usize) {}
}

/// Rows that are stored in the format of the device.
pub(crate) trait RowBytes: Send + Sync {
    fn row(&self, row: usize) -> &[u8];
}

impl<T: RowBytes> StagedSource for T {
    fn copy(&self, row: usize, to: &mut [u8]) {
        to.copy_from_slice(self.row(row));
    }

    fn prefetch(&self, row: usize) {
        prefetch_bytes(self.row(row));
    }
}

/// Prefetches the cache lines of a row.
pub(crate) fn prefetch_bytes(bytes: &[u8]) {
    bytes.chunks(LINE_BYTES).for_each(|line| prefetch(line.as_ptr()));
}

/// Gather of rows that are on this host.
#[derive(Clone)]
pub(crate) struct GatherJob {
    pub(crate) source: Arc<dyn StagedSource>,
    /// Bytes of a row.
    pub(crate) row_bytes: usize,
}

impl StagedWorker for GatherJob {
    fn share_of(&mut self, batch: &Batch, buffers: &mut Buffers) -> Result<CudaEvent, ComputeError> {
        self.pieces_of(batch, buffers).map_err(Cuda::failed(buffers.operation))
    }
}

impl GatherJob {
    /// Brings pieces of a batch until none is left.
    fn pieces_of(&self, batch: &Batch, buffers: &mut Buffers) -> Result<CudaEvent, DriverError> {
        buffers.stream.wait(&batch.ready)?;
        let Self { source, row_bytes } = self;
        let (ids, at_once) = (batch.ids.wait()?, rows_at_once(*row_bytes));
        while let Some(piece) = batch.cursor.take(at_once, ids.len()) {
            let to = batch.to + (piece.start * row_bytes) as u64;
            let ids = &ids[piece];
            buffers.bring(ids.len() * row_bytes, to, |rows| fill(source.as_ref(), *row_bytes, ids, rows))?;
        }
        buffers.stream.record_event(None)
    }
}

/// Rows of a piece.
fn rows_at_once(row_bytes: usize) -> usize {
    BUFFER_BYTES / row_bytes.max(1)
}

/// Copies rows side by side.
fn fill(source: &dyn StagedSource, row_bytes: usize, ids: &[NodeId], to: &mut [u8]) {
    if row_bytes == 0 {
        return;
    }
    for (at, (to, &id)) in to.chunks_exact_mut(row_bytes).zip(ids).enumerate() {
        if let Some(&soon) = ids.get(at + ROWS_AHEAD) {
            source.prefetch(soon as usize);
        }
        source.copy(id as usize, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::threads::ROW_BYTES_MAX;

    /// Rows whose bytes tell which they are.
    struct Numbered;

    impl StagedSource for Numbered {
        fn copy(&self, row: usize, to: &mut [u8]) {
            to.iter_mut().enumerate().for_each(|(at, byte)| *byte = (row * 31 + at) as u8);
        }
    }

    #[test]
    fn pieces_fit_into_a_buffer() {
        for row_bytes in [0, 1, 3, 16, 200, 2408, ROW_BYTES_MAX] {
            let n = rows_at_once(row_bytes);
            assert!(n > 0 && n * row_bytes <= BUFFER_BYTES, "{n} rows of {row_bytes}");
        }
    }

    #[test]
    fn rows_fill_a_buffer_in_order() {
        for n in [0_usize, 1, 2, 17, 1000] {
            let ids: Vec<NodeId> = (0..n).map(|i| (i * 7919 % 251) as NodeId).collect();
            let mut memory = vec![0; 13 * n];
            fill(&Numbered, 13, &ids, &mut memory);
            let mut row = [0; 13];
            for (bytes, &id) in memory.chunks_exact(13).zip(&ids) {
                Numbered.copy(id as usize, &mut row);
                assert_eq!(bytes, row);
            }
        }
    }
}
