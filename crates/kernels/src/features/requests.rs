//! Pending requests of a feature store, and the buffers that they reuse.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};

use cudarc::driver::{CudaEvent, CudaSlice, CudaStream, DriverError};
use girih_compute::ComputeError;

use super::misses::{MissList, RowsOfBatch};
use super::row_checks::OPERATION;
use super::row_launch::RowLaunch;
use super::staged::{GatherRequest, PendingGather};
use super::{Before, CudaFeatures, IN_DEVICE, Memory, ON_GPUS};
use crate::Cuda;
use crate::abi::{GatherIndex, RowSource};
use crate::matrix::CudaIds;

/// Pending request.
#[derive(Default)]
pub(super) struct Begun {
    /// Address of the result, and its number of rows.
    to: (u64, usize),
    /// Events behind the launches of the request.
    launched: Vec<CudaEvent>,
    /// Gather by the host, if it takes part.
    asked: Option<PendingGather>,
    /// Buffer for rows that are not copied to their final place.
    arriving: Option<CudaSlice<u8>>,
    lists: Option<MissList>,
    /// Whether the previous batch has some of its rows.
    has_before: bool,
    /// Contiguous rows as they are stored, for a request of sums whose rows were not on the device.
    stored: Option<CudaSlice<u8>>,
}

/// Buffers and lists that no batch uses at the moment.
#[derive(Default)]
pub(super) struct Spare {
    pub(super) rooms: Vec<CudaSlice<u8>>,
    lists: Vec<MissList>,
}

impl CudaFeatures {
    /// Pending requests, the oldest first.
    pub(super) fn begun(&self) -> MutexGuard<'_, VecDeque<Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the oldest pending request.
    pub(super) fn oldest(&self) -> Option<Begun> {
        self.begun().pop_front()
    }

    /// Starts a request that brings rows to address `to` by `launch`. If `stored` is given, it is the memory at `to`,
    /// for rows as they are stored.
    pub(super) fn begin_at(
        &self,
        cuda: &Cuda,
        (ids, before): (&CudaIds, Option<Before<'_>>),
        (launch, to): (&RowLaunch, u64),
        stored: Option<CudaSlice<u8>>,
    ) -> Result<Begun, ComputeError> {
        let (failed, n) = (Cuda::failed(OPERATION), ids.range.len);
        let (at_ids, side, near) = (cuda.pointer(Some(&ids.ids)), self.side.stream(), self.near.stream());
        let (brought, beside_host) = (self.memory.brought(), self.memory.gpus_beside_host());
        let mut begun = Begun { to: (to, n), stored, has_before: before.is_some(), ..Begun::default() };
        if before.is_some() || beside_host.is_some() {
            begun.lists = Some(self.lists(cuda, n)?);
        }
        if brought.is_some() && (begun.lists.is_some() || launch.decodes()) {
            begun.arriving = Some(self.room(cuda, n)?);
        }
        // Behind the allocation of buffers, too.
        [side, near].into_iter().try_for_each(|stream| stream.join(&cuda.device.stream)).map_err(&failed)?;
        if let Some((misses, lists)) = self.misses.as_ref().zip(begun.lists.as_mut()) {
            let before = before.map(|(ids, rows)| RowsOfBatch {
                ids: (cuda.pointer(Some(&ids.ids)), ids.range.len),
                first: cuda.pointer(Some(&rows.data)),
                row_bytes: self.row_bytes,
            });
            let on_gpus = beside_host.map_or(0, |on_gpus| on_gpus.list(cuda));
            // SAFETY: ids were checked to be rows, and there is space for each; all lists are put on this stream; the
            // caller keeps the previous rows and their ids.
            unsafe { misses.put(cuda, side, (at_ids, n), (on_gpus, before), lists) }.map_err(&failed)?;
        }
        // Before the reads on GPUs, because it takes longer.
        if let Some(staged) = brought {
            let wanted = begun.lists.as_ref().map_or(GatherRequest::All(at_ids, n), |lists| lists.wanted(cuda, n));
            let to = begun.arriving.as_ref().map_or(to, |room| cuda.pointer(Some(room)));
            let ready = side.record_event(None).map_err(&failed)?;
            // SAFETY: ids are rows, and there is space for one each; nobody touches it before the request is
            // finished.
            begun.asked = Some(unsafe { staged.ask(ready, wanted, to) }?);
        }
        let mut put = |stream: &Arc<CudaStream>, threads, rows, names| -> Result<(), DriverError> {
            // SAFETY: ids are rows, each of which lies where the list says; codes were checked; the result has a row
            // for each id.
            unsafe { launch.put(stream, threads, rows, names, (to, n as u64)) }?;
            begun.launched.push(stream.record_event(None)?);
            Ok(())
        };
        if let Some(rows) = self.argument(cuda).filter(|_| self.memory.is_read_on_host()) {
            let names = begun.lists.as_ref().map_or(GatherIndex::of(at_ids), |lists| lists.far(cuda));
            put(side, Self::threads_of_bus(launch), rows, names).map_err(&failed)?;
        }
        if let Some(rows) = self.argument(cuda).filter(|_| self.memory.is_read_on_gpus()) {
            put(near, self.threads_on_gpus(), rows.only_on_gpus(), GatherIndex::of(at_ids)).map_err(&failed)?;
        }
        Ok(begun)
    }

    /// Starts a request for no rows; if all ranks ask together, this one takes part.
    pub(super) fn begin_nothing(&self, cuda: &Cuda) -> Result<Begun, ComputeError> {
        let Some(staged) = self.memory.brought().filter(|_| matches!(self.memory, Memory::Split(..))) else {
            return Ok(Begun::default());
        };
        let ready = cuda.device.stream.record_event(None).map_err(Cuda::failed(OPERATION))?;
        Ok(Begun { asked: Some(staged.ask_for_none(ready)?), ..Begun::default() })
    }

    /// Makes the device's stream wait for a request. Copies rows to their final place that arrived elsewhere or that
    /// the previous batch has. Returns the memory of rows that are kept as they are stored. It waits for no later
    /// request, which the step could then not overlap.
    pub(super) fn wait_for(&self, cuda: &Cuda, mut begun: Begun) -> Result<Option<CudaSlice<u8>>, ComputeError> {
        let (stream, failed) = (&cuda.device.stream, Cuda::failed(OPERATION));
        let n_brought = begun.asked.take().map_or(Ok(0), |asked| asked.wait_on(stream));
        // Lists are complete before any row is read or requested on the host.
        begun.launched.iter().try_for_each(|launched| stream.wait(launched)).map_err(&failed)?;
        let taken = n_brought.and_then(|n| self.take_over(cuda, &begun, n));
        // The next user of the buffer waits for this stream, and the buffer is freed in stream order.
        let mut spare = self.spare();
        spare.rooms.extend(begun.arriving);
        spare.lists.extend(begun.lists);
        taken.map(|()| begun.stored)
    }

    /// Puts copies on the device's stream that take rows to their final place; `n_brought` rows have arrived.
    fn take_over(&self, cuda: &Cuda, begun: &Begun, n_brought: usize) -> Result<(), ComputeError> {
        let Begun { to: (to, n), arriving, lists, has_before, stored, .. } = begun;
        let (stream, failed) = (&cuda.device.stream, Cuda::failed(OPERATION));
        if let Some(lists) = lists.as_ref().filter(|_| *has_before) {
            // SAFETY: kept rows are in the previous batch, which has arrived before, and there is a row of the result
            // for each.
            unsafe {
                self.launch.put(
                    stream,
                    IN_DEVICE,
                    lists.kept(cuda, self.row_bytes),
                    GatherIndex::all(),
                    (*to, *n as u64),
                )
            }
            .map_err(&failed)?;
        }
        let Some(room) = arriving.as_ref().filter(|_| n_brought > 0) else { return Ok(()) };
        let launch = self.sums.as_ref().filter(|_| stored.is_some()).map_or(&self.launch, |sums| &sums.copy);
        let places = lists.as_ref().map_or(GatherIndex::all(), |lists| lists.places(cuda));
        let rows = self.stored_in(cuda, room);
        // SAFETY: the rows were copied there; their places are rows of the result.
        unsafe { launch.put(stream, ON_GPUS, rows, places, (*to, n_brought as u64)) }.map_err(failed)
    }

    /// Buffers and lists that no batch uses.
    pub(super) fn spare(&self) -> MutexGuard<'_, Spare> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Buffer for at most `n` rows; reuses a spare one if there is one.
    pub(super) fn room(&self, cuda: &Cuda, n: usize) -> Result<CudaSlice<u8>, ComputeError> {
        let n_bytes = n * self.row_bytes;
        let used = self.spare().rooms.pop().filter(|room| room.len() >= n_bytes);
        used.map_or_else(|| cuda.scratch(OPERATION, with_slack(n_bytes)), Ok)
    }

    /// Lists for at most `n` rows; reuses spare ones if there are some.
    fn lists(&self, cuda: &Cuda, n: usize) -> Result<MissList, ComputeError> {
        let used = self.spare().lists.pop().filter(|lists| lists.len() >= n);
        used.map_or_else(|| MissList::new(cuda, OPERATION, with_slack(n)), Ok)
    }

    /// Contiguous rows on the device.
    pub(super) fn stored_in(&self, cuda: &Cuda, rows: &CudaSlice<u8>) -> RowSource {
        RowSource::at(cuda.pointer(Some(rows)), self.row_bytes as u64)
    }
}

/// Adds slack to a size: batches differ in size, but only slightly.
fn with_slack(n: usize) -> usize {
    n + n / 8
}
