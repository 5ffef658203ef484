//! [`FeatureStore`], [`RowSums`] and [`WritableStore`]: feature rows that a device reads by id, independent of their
//! place and encoding.

use girih_compute::{ComputeError, Memory};

/// Reader of feature rows: gathers rows by id into a matrix on the device.
pub trait FeatureStore<B: Memory>: Send + Sync {
    /// Gathers rows: row `i` of `out` (`ids.len() × width`) becomes row `ids[i]`.
    ///
    /// # Errors
    /// On shapes or storage that do not fit, an id out of range, or when the device fails.
    fn gather(&self, backend: &B, ids: &B::Ids, out: &mut B::Matrix) -> Result<(), ComputeError>;

    /// Whether [`begin`](Self::begin) reuses rows of the previous request. If not, callers need not keep its ids and
    /// rows.
    fn reuses_previous_batch(&self) -> bool {
        false
    }

    /// Starts an asynchronous [`gather`](Self::gather). It runs after all earlier work of the device, and overlaps
    /// later work until [`finish`](Self::finish). Until then `ids` must stay, and `out` must be neither used nor
    /// freed. The next request may start before this one finishes.
    ///
    /// `before` holds the ids and rows of the previous request, if they still exist. They must stay until this
    /// request finishes. Rows that both requests contain may be copied from there instead of the feature store.
    ///
    /// # Errors
    /// As [`gather`](Self::gather), also for `before`.
    fn begin(
        &self,
        backend: &B,
        ids: &B::Ids,
        _before: Option<(&B::Ids, &B::Matrix)>,
        out: &mut B::Matrix,
    ) -> Result<(), ComputeError> {
        self.gather(backend, ids, out)
    }

    /// Completes the oldest pending request, if there is one. Later work of the device runs after it.
    ///
    /// # Errors
    /// When the device fails.
    fn finish(&self, _backend: &B) -> Result<(), ComputeError> {
        Ok(())
    }

    /// Reader that sums rows without decoding them first. `Some` if that is cheaper, because the stored rows are
    /// compressed.
    fn sums(&self) -> Option<&dyn RowSums<B>> {
        None
    }
}

/// Reader that sums rows from their stored codes (Ma et al., 2024). The first layer then reads codes instead of rows.
pub trait RowSums<B: Memory>: Send + Sync {
    /// Starts an asynchronous read of the codes of the rows of `ids`, as [`FeatureStore::begin`] does. `ids` must stay
    /// until [`finish`](Self::finish). The next request may start before this one finishes.
    ///
    /// # Errors
    /// On an id out of range, or when the device fails.
    fn begin(&self, backend: &B, ids: &B::Ids) -> Result<(), ComputeError>;

    /// Completes the oldest pending request: `sums = block · features[ids]`, for `rows = (block, ids)`. `block` is
    /// `n × ids.len()` and `sums` is `n × width`. Row `i` of `own`, if given, becomes row `ids[i]`, for as many rows
    /// as `own` has.
    ///
    /// # Errors
    /// On shapes or storage that do not fit, or when the device fails.
    fn finish(
        &self,
        backend: &B,
        rows: (&B::Sparse, &B::Ids),
        own: Option<&mut B::Matrix>,
        sums: &mut B::Matrix,
    ) -> Result<(), ComputeError>;
}

/// Row store in memory of the host. A device writes it block by block and reads it by id.
///
/// Devices of several ranks may share a store. One of them then writes each row, and the others read it after the
/// ranks synchronise.
pub trait WritableStore<B: Memory>: FeatureStore<B> {
    /// Whether the devices of all ranks share the store.
    fn is_shared(&self) -> bool;

    /// Overwrites consecutive rows with `rows`, from row `first` on.
    ///
    /// # Errors
    /// When the store has too few rows, width or storage differs, or the device fails.
    fn write(&mut self, backend: &B, first: usize, rows: &B::Matrix) -> Result<(), ComputeError>;
}
