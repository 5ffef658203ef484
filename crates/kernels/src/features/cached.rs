//! [`Cached`]: rows that GPUs already have, around a store of the others.
//!
//! GPUs have hot rows, which a placement put there, and the rows of the previous batch. One launch lists what neither
//! has ([`misses`](super::misses)), so that these are one type: two would list one after the other, before the host
//! learns what it has to send.

use std::sync::Arc;

use cudarc::driver::{CudaEvent, CudaStream};
use girih_compute::ComputeError;

use super::cache::DeviceCache;
use super::in_place::{IN_DEVICE, InPlace};
use super::misses::{MissKernels, MissList};
use super::request::{Request, Spare, StoredRows, Wanted, with_slack};
use super::row_checks::OPERATION;
use crate::Cuda;
use crate::abi::GatherIndex;
use crate::nccl::OwnedStream;

/// Rows on GPUs, and a store of the others; see the module.
pub(super) struct Cached<S> {
    hot: Option<InPlace<Arc<DeviceCache>>>,
    misses: MissKernels,
    lists: Spare<MissList>,
    /// Stream of reads of hot rows, which wait for no list and no host.
    near: OwnedStream,
    pub(super) others: S,
}

/// Gather from the GPUs, if they have some rows, and from the store of the others.
pub(super) struct PendingCached<P> {
    listed: Option<Listed>,
    others: P,
}

/// Lists of a batch, and the gather from the hot rows.
struct Listed {
    lists: MissList,
    hot: Option<CudaEvent>,
    reads_before: bool,
}

impl<S: StoredRows> Cached<S> {
    /// Rows around a store of all `n_rows` rows: hot ones, and with `reuses` those of the previous batch.
    pub(super) fn new(
        cuda: &Cuda,
        (n_rows, reuses): (usize, bool),
        hot: Option<InPlace<Arc<DeviceCache>>>,
        others: S,
    ) -> Result<Self, ComputeError> {
        let near = cuda.device.urgent_stream().map_err(Cuda::failed(OPERATION))?;
        let misses = MissKernels::new(cuda, OPERATION, (n_rows, reuses))?;
        Ok(Self { hot, misses, lists: Spare::default(), near: cuda.ending(&near), others })
    }

    /// Starts to list what GPUs do not have.
    ///
    /// # Safety
    /// As [`StoredRows::gather_async`].
    unsafe fn list(&self, cuda: &Cuda, request: &Request<'_>) -> Result<MissList, ComputeError> {
        let Wanted::All(ids, n) = request.wanted else { unreachable!("a cache is around all other stores") };
        let failed = Cuda::failed(OPERATION);
        let used = self.lists.take(|lists| lists.len() >= n);
        let mut lists = used.map_or_else(|| MissList::new(cuda, OPERATION, with_slack(n)), Ok)?;
        // Behind the allocation of the lists, too.
        request.stream.join(&cuda.device.stream).map_err(&failed)?;
        let hot = self.hot.as_ref().map_or(0, |hot| hot.source.rows);
        // SAFETY: the caller vouches; there is space for each id, and one stream has all lists.
        unsafe { self.misses.put(cuda, request.stream, (ids, n), (hot, request.before), &mut lists) }
            .map_err(failed)?;
        Ok(lists)
    }
}

impl<S: StoredRows> StoredRows for Cached<S> {
    type Pending = PendingCached<S::Pending>;

    unsafe fn gather_async(&self, cuda: &Cuda, request: &Request<'_>) -> Result<Self::Pending, ComputeError> {
        let request = &Request { before: request.before.filter(|_| self.misses.has_before()), ..*request };
        let n = request.wanted.len();
        if n == 0 || (self.hot.is_none() && request.before.is_none()) {
            // SAFETY: the caller vouches.
            return Ok(PendingCached { listed: None, others: unsafe { self.others.gather_async(cuda, request) }? });
        }
        let near = self.near.stream();
        near.join(&cuda.device.stream).map_err(Cuda::failed(OPERATION))?;
        // SAFETY: the caller vouches.
        let lists = unsafe { self.list(cuda, request) }?;
        // Before the reads on GPUs, because it takes longer.
        // SAFETY: listed ids are some of the wanted ones, and their places rows of the result.
        let others = unsafe { self.others.gather_async(cuda, &missing(request, &lists)) }
            // Lists are freed in the order of the device's own stream.
            .inspect_err(|_| {
                let _ = cuda.device.stream.join(request.stream);
            })?;
        let read = |hot: &InPlace<_>| {
            // SAFETY: the caller vouches; results of other rows are left alone.
            unsafe { hot.gather_async(cuda, &Request { stream: near, ..*request }) }
        };
        let hot = self.hot.as_ref().map(read).transpose()?.flatten();
        Ok(PendingCached { listed: Some(Listed { lists, hot, reads_before: request.before.is_some() }), others })
    }

    fn wait(
        &self,
        stream: &Arc<CudaStream>,
        request: Option<&Request<'_>>,
        PendingCached { listed, others }: Self::Pending,
    ) -> Result<(), ComputeError> {
        let Some(Listed { lists, hot, reads_before }) = listed else {
            return self.others.wait(stream, request, others);
        };
        let rest = request.map(|request| missing(request, &lists));
        let arrived = self.others.wait(stream, rest.as_ref(), others);
        let joined = self.hot.as_ref().map_or(Ok(()), |near| near.wait(stream, request, hot));
        let copied = request.filter(|_| reads_before && arrived.is_ok()).and_then(|request| {
            let (write, before) = (request.write, request.before?);
            let to = (request.to, request.wanted.len() as u64);
            // SAFETY: kept rows are in the previous batch, which has arrived before, and there is a row of the result
            // for each.
            Some(unsafe { write.put(stream, IN_DEVICE, lists.kept(before.row_bytes), GatherIndex::all(), to) })
        });
        self.lists.give([lists]);
        arrived.and(joined)?;
        copied.unwrap_or(Ok(())).map_err(Cuda::failed(OPERATION))
    }

    fn reads_before(pending: &Self::Pending) -> bool {
        pending.listed.as_ref().is_some_and(|listed| listed.reads_before)
    }
}

/// Request for the rows that a list is of.
fn missing<'s>(request: &Request<'s>, lists: &MissList) -> Request<'s> {
    Request { wanted: lists.wanted(request.wanted.len()), before: None, ..*request }
}

impl<S> Drop for Cached<S> {
    /// Waits until nothing reads the hot rows, which are freed after this.
    fn drop(&mut self) {
        self.near.wait();
    }
}
