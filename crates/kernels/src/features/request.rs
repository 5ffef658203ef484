//! [`StoredRows`], rows in memory of any kind, and the [`Request`] that gathers them.

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaStream, DevicePtr};
use girih_compute::ComputeError;

use super::row_checks::OPERATION;
use super::row_launch::RowLaunch;
use crate::Cuda;
use crate::abi::{GatherIndex, RowSource};
use crate::buffer::Buffer;

/// Rows as they are stored, in one kind of memory, or nearer ones around a store of the others.
pub(super) trait StoredRows: Send + Sync {
    /// Gather under way. Its memory may be freed once [`wait`](Self::wait) has returned.
    type Pending: Send;

    /// Starts to write rows to the result of a request.
    ///
    /// # Safety
    /// Ids have to be rows. They, the result, which has space for each of them, and the rows before stay until
    /// [`wait`](Self::wait), and nobody else uses the result.
    unsafe fn gather_async(&self, cuda: &Cuda, request: &Request<'_>) -> Result<Self::Pending, ComputeError>;

    /// Makes `stream`, that of the device, wait for a gather, and puts the rest of it there. Without the request, which
    /// is that of the gather, only waits: nobody wants the rows any more.
    fn wait(
        &self,
        stream: &Arc<CudaStream>,
        request: Option<&Request<'_>>,
        pending: Self::Pending,
    ) -> Result<(), ComputeError>;

    /// Whether a gather copies rows of the previous batch.
    fn reads_before(_: &Self::Pending) -> bool {
        false
    }
}

/// Rows to gather, and their destination.
#[derive(Clone, Copy)]
pub(super) struct Request<'s> {
    pub(super) wanted: Wanted,
    /// Address of the result.
    pub(super) to: u64,
    /// Launch that writes rows to the result: as they are stored, or decoded.
    pub(super) write: &'s RowLaunch,
    /// Stream beside the device's own, with all earlier work of the device, and with the lists of wanted rows.
    pub(super) stream: &'s Arc<CudaStream>,
    /// Rows of the previous batch that may be copied, stored as the result.
    pub(super) before: Option<RowsOfBatch>,
}

/// Rows that a batch wants.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    /// Ids at an address, and their number. Rows of the result are consecutive.
    All(u64, usize),
    /// Address of a word with the number of ids, which follow it, address of their rows of the result, and the most
    /// that there may be.
    Counted(u64, u64, usize),
}

impl Wanted {
    /// Greatest number of rows.
    pub(super) fn len(self) -> usize {
        let (Self::All(_, n) | Self::Counted(_, _, n)) = self;
        n
    }

    /// Address of the words on the device, and their greatest number.
    pub(super) fn words(self) -> (u64, usize) {
        match self {
            Self::All(ids, n) => (ids, n),
            Self::Counted(words, _, most) => (words, most + 1),
        }
    }

    /// Ids and places for kernels.
    pub(super) fn index(self) -> GatherIndex {
        match self {
            Self::All(ids, _) => GatherIndex::of(ids),
            Self::Counted(words, places, _) => {
                GatherIndex::of_at(words + size_of::<u32>() as u64, places).counted_at(words)
            }
        }
    }

    /// Places for kernels, of rows that are consecutive where they are read.
    pub(super) fn places(self) -> GatherIndex {
        match self {
            Self::All(..) => GatherIndex::all(),
            Self::Counted(_, places, _) => GatherIndex::at(places),
        }
    }
}

/// Rows of a batch, on the device.
#[derive(Clone, Copy)]
pub(super) struct RowsOfBatch {
    /// Device address of the ids, and their number.
    pub(super) ids: (u64, usize),
    /// Device address of the first row; the rows are contiguous.
    pub(super) first: u64,
    /// Bytes of a row.
    pub(super) row_bytes: usize,
}

/// Things of batches that no batch uses at the moment. Allocating them for each batch would take longer than bringing
/// its rows.
pub(super) struct Spare<T>(Mutex<Vec<T>>);

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Spare<T> {
    /// Takes one that fits, if the first at hand does.
    pub(super) fn take(&self, fits: impl FnOnce(&T) -> bool) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().filter(fits)
    }

    pub(super) fn give(&self, things: impl IntoIterator<Item = T>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(things);
    }
}

/// Adds slack to a size: batches differ in size, but only slightly.
pub(super) fn with_slack(n: usize) -> usize {
    n + n / 8
}

/// Buffers on the device for consecutive rows as they are stored.
pub(super) struct RowBuffers {
    row_bytes: usize,
    spare: Spare<Buffer<u8>>,
}

impl RowBuffers {
    pub(super) fn new(row_bytes: usize) -> Self {
        Self { row_bytes, spare: Spare::default() }
    }

    /// Takes a buffer for at most `n` rows.
    pub(super) fn take(&self, cuda: &Cuda, n: usize) -> Result<Buffer<u8>, ComputeError> {
        let n_bytes = n * self.row_bytes;
        let used = self.spare.take(|buffer| buffer.len() >= n_bytes);
        used.map_or_else(|| cuda.scratch(OPERATION, with_slack(n_bytes)), Ok)
    }

    /// Takes a buffer back. Its next user waits for the device's stream, and it is freed in the order of that.
    pub(super) fn give(&self, buffer: Option<Buffer<u8>>) {
        self.spare.give(buffer);
    }

    /// Rows at an address.
    pub(super) fn source(&self, first: u64) -> RowSource {
        RowSource::at(first, self.row_bytes as u64)
    }
}

/// Address of a slice.
pub(super) fn address<T>(slice: &Buffer<T>) -> u64 {
    slice.device_ptr(slice.stream()).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_things_are_taken_if_they_fit() {
        let spare = Spare::default();
        spare.give([3, 8]);
        assert_eq!(spare.take(|&size| size >= 5), Some(8));
        assert_eq!(spare.take(|&size| size >= 5), None, "too small, and gone");
        assert_eq!(spare.take(|_| true), None);
    }
}
