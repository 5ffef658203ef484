//! [`FeatureStore`], [`RowSums`] and [`WritableStore`]: feature rows that a device reads by id, independent of their
//! place and encoding.

use girih_compute::{ComputeError, Memory};

/// Reader of feature rows: gathers rows by id into a matrix on the device.
pub trait FeatureStore<B: Memory>: Send + Sync {
    /// Starts a gather: row `i` of `out` (`ids.len() × width`) becomes row `ids[i]`. It runs after all earlier work of
    /// the device, and overlaps later work until [`PendingRows::wait`]. Until then `ids` must stay, and `out` must be
    /// neither used nor freed. The next gather may start before this one is waited for.
    ///
    /// `before` holds the ids and rows of the previous gather, if they still exist. A gather may copy rows from there
    /// ([`PendingRows::reads_before`]). They must then stay until it is waited for, after the previous one.
    ///
    /// # Errors
    /// On shapes or storage that do not fit, also of `before`, an id out of range, or when the device fails.
    fn gather_async<'s>(
        &'s self,
        backend: &B,
        ids: &B::Ids,
        before: Option<(&B::Ids, &B::Matrix)>,
        out: &mut B::Matrix,
    ) -> Result<Pending<'s>, ComputeError>;

    /// Gathers rows as [`gather_async`](Self::gather_async) does, before all later work of the device.
    ///
    /// # Errors
    /// As [`gather_async`](Self::gather_async).
    fn gather(&self, backend: &B, ids: &B::Ids, out: &mut B::Matrix) -> Result<(), ComputeError> {
        self.gather_async(backend, ids, None, out)?.wait()
    }

    /// Reader that sums rows without decoding them first. `Some` if that is cheaper, because the stored rows are
    /// compressed.
    fn sums(&self) -> Option<&dyn RowSums<B>> {
        None
    }
}

/// Gather under way. It borrows the store alone, not ids and rows: a trainer keeps these in one value with it.
pub type Pending<'s> = Box<dyn PendingRows + 's>;

/// Rows of a gather under way. Dropping it orders later work of the device after the gather, too, so that its memory
/// may be freed; the rows are then undefined.
#[must_use = "the rows may be read only after a wait"]
pub trait PendingRows: Send {
    /// Orders later work of the device after the gather.
    ///
    /// # Errors
    /// When the device or a rank fails.
    fn wait(self: Box<Self>) -> Result<(), ComputeError>;

    /// Whether the gather copies rows of the previous batch.
    fn reads_before(&self) -> bool {
        false
    }
}

/// Reader that sums rows from their stored codes (Ma et al., 2024). The first layer then reads codes instead of rows.
pub trait RowSums<B: Memory>: Send + Sync {
    /// Starts to gather the codes of the rows of `ids`, as [`FeatureStore::gather_async`] does rows.
    ///
    /// # Errors
    /// On an id out of range, or when the device fails.
    fn gather_async<'s>(&'s self, backend: &B, ids: &B::Ids) -> Result<Box<dyn PendingSums<B> + 's>, ComputeError>;
}

/// Codes of a gather under way; dropping it is as for [`PendingRows`].
#[must_use = "codes are summed only in a wait"]
pub trait PendingSums<B: Memory>: Send {
    /// Orders later work of the device after the gather, and computes `sums = block · features[ids]`, for
    /// `rows = (block, ids)` with the ids of the gather. `block` is `n × ids.len()` and `sums` is `n × width`. Row `i`
    /// of `own`, if given, becomes row `ids[i]`, for as many rows as `own` has.
    ///
    /// # Errors
    /// On shapes or storage that do not fit, or when the device or a rank fails.
    fn wait(
        self: Box<Self>,
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
