//! [`Store`]: the [`FeatureStore`] of a device, around [`StoredRows`] in memory of any kind.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use girih_compute::{ComputeError, Dtype, Shape, checks};
use girih_features::{FeatureStore, Pending, PendingRows};

use super::request::{Request, RowsOfBatch, StoredRows, Wanted};
use super::row_checks::{OPERATION, check_dtypes};
use super::row_launch::RowLaunch;
use crate::Cuda;
use crate::matrix::{CudaIds, CudaMatrix};
use crate::nccl::OwnedStream;

/// Store of a device, which reads rows by id; see the module.
pub(super) struct Store<S> {
    n_rows: usize,
    /// Columns of the result, and its element type.
    pub(super) result: (usize, Dtype),
    pub(super) write: RowLaunch,
    /// The device's own stream, and that of gathers.
    own: Arc<CudaStream>,
    side: OwnedStream,
    pub(super) rows: S,
}

impl<S: StoredRows> Store<S> {
    /// Store of `n_rows` rows, which `write` turns into those of a `result`: so many columns of a type.
    pub(super) fn new(
        cuda: &Cuda,
        n_rows: usize,
        result: (usize, Dtype),
        write: RowLaunch,
        rows: S,
    ) -> Result<Self, ComputeError> {
        let side = cuda.device.urgent_stream().map_err(Cuda::failed(OPERATION))?;
        let (own, side) = (Arc::clone(&cuda.device.stream), cuda.ending(&side));
        Ok(Self { n_rows, result, write, own, side, rows })
    }

    /// Shape of all rows.
    pub(super) fn shape(&self) -> Shape {
        Shape::new(self.n_rows, self.result.0)
    }

    /// Checks that ids are rows, and that a result has their number and element type.
    fn check(&self, ids: &CudaIds, out: &CudaMatrix) -> Result<(), ComputeError> {
        checks::gather_rows(self.shape(), ids.range, out.shape)?;
        check_dtypes(OPERATION, self.result.1, out.dtype)
    }

    /// Starts to gather wanted rows to an address, by a launch.
    ///
    /// # Safety
    /// As [`StoredRows::gather_async`].
    pub(super) unsafe fn begin<'s>(
        &'s self,
        cuda: &Cuda,
        wanted: Wanted,
        (write, to): (&'s RowLaunch, u64),
        before: Option<RowsOfBatch>,
    ) -> Result<Gather<'s, S>, ComputeError> {
        let stream = self.side.stream();
        stream.join(&self.own).map_err(Cuda::failed(OPERATION))?;
        let request = Request { wanted, to, write, stream, before };
        // SAFETY: the caller vouches.
        let pending = unsafe { self.rows.gather_async(cuda, &request) }?;
        Ok(Gather { store: self, request, pending: Some(pending) })
    }
}

impl<S: StoredRows> FeatureStore<Cuda> for Store<S> {
    fn gather_async<'s>(
        &'s self,
        cuda: &Cuda,
        ids: &CudaIds,
        before: Option<(&CudaIds, &CudaMatrix)>,
        out: &mut CudaMatrix,
    ) -> Result<Pending<'s>, ComputeError> {
        self.check(ids, out)?;
        before.map_or(Ok(()), |(ids, rows)| self.check(ids, rows))?;
        let before = before.filter(|(_, rows)| !rows.shape.is_empty()).map(|(ids, rows)| RowsOfBatch {
            ids: (cuda.pointer(Some(&ids.ids)), ids.range.len),
            first: cuda.pointer(Some(&rows.data)),
            row_bytes: rows.pitch() * rows.dtype.n_bytes(),
        });
        let n = if out.shape.is_empty() { 0 } else { ids.range.len };
        let (wanted, to) = (Wanted::All(cuda.pointer(Some(&ids.ids)), n), cuda.pointer(Some(&out.data)));
        // SAFETY: ids were checked to be rows, and the result to have a row for each; codes were checked; the caller
        // keeps all of them.
        Ok(Box::new(unsafe { self.begin(cuda, wanted, (&self.write, to), before) }?))
    }
}

impl<S> Drop for Store<S> {
    /// Waits until nothing reads the memory of the rows, which is freed after this.
    fn drop(&mut self) {
        self.side.wait();
    }
}

/// Gather of a store under way.
pub(super) struct Gather<'s, S: StoredRows> {
    store: &'s Store<S>,
    request: Request<'s>,
    /// `None` once it was waited for.
    pending: Option<S::Pending>,
}

impl<S: StoredRows> Gather<'_, S> {
    /// Makes the device wait, and puts the rest of the gather on its stream.
    pub(super) fn finish(&mut self) -> Result<(), ComputeError> {
        let Some(pending) = self.pending.take() else { return Ok(()) };
        self.store.rows.wait(&self.store.own, Some(&self.request), pending)
    }
}

impl<S: StoredRows> PendingRows for Gather<'_, S> {
    fn wait(mut self: Box<Self>) -> Result<(), ComputeError> {
        self.finish()
    }

    fn reads_before(&self) -> bool {
        self.pending.as_ref().is_some_and(S::reads_before)
    }
}

impl<S: StoredRows> Drop for Gather<'_, S> {
    fn drop(&mut self) {
        if let Some(pending) = self.pending.take() {
            let _ = self.store.rows.wait(&self.store.own, None, pending);
        }
    }
}
