//! [`MiniBatchBackend`]: a device that serves mini-batches, beside the operations of a step.
//!
//! - [`FeatureDevice`]: feature stores that a device reads.
//! - [`SamplingDevice`]: graphs from which a device samples.
//!
//! The backends of `girih-compute` have the memory of the host, and so they offer neither. The host then gathers and
//! samples.

use girih_comm::{CommError, GpuTransport};
use girih_compress::CompressedFeatures;
use girih_compute::{Backend, ComputeError, Cpu, Dtype, Memory, Reference, Shape, Symbolic};
use girih_graph_format::{Matrix, NodeId};

use crate::{
    FeatureStore, HostFeatures, HostReads, NeighborGraph, NeighborOperand, PatchOperand, PatchRowsOperand, Placement,
    SplitRows, WritableStore,
};

/// One value for each transport.
pub type ByTransport<T> = Vec<(GpuTransport, T)>;

/// Backend that also serves mini-batches: rows of features by id, and graphs to sample from.
pub trait MiniBatchBackend: Backend + FeatureDevice + SamplingDevice {}

impl<B: Backend + FeatureDevice + SamplingDevice> MiniBatchBackend for B {}

/// Feature stores and row stores of a device. The defaults offer none, and the host then gathers and uploads.
pub trait FeatureDevice: Memory + Sized {
    /// Stores feature rows (`rows`, one per node) in memory of the host, for reads rounded to `dtype`. The placement
    /// may store some of them on devices as well. [`HostReads`] says how devices read the others. Returns `None` if
    /// the device's memory is the host's. All ranks of a process call it together, and each holds a part of the rows.
    ///
    /// # Errors
    /// When the host cannot allocate such memory, a device's memory does not suffice, the placement is for other
    /// devices, or a device cannot read the memory of another.
    fn host_features(
        &self,
        _rows: &Matrix,
        _dtype: Dtype,
        _placed: (&Placement, HostReads),
    ) -> Result<Option<HostFeatures<Self>>, ComputeError> {
        Ok(None)
    }

    /// Stores compressed features in the device's memory, or where a placement puts them, as
    /// [`host_features`](Self::host_features) does. Reads decode rows to `dtype`. The codes must [be
    /// sound](CompressedFeatures::check_codes). Returns `None` if the device cannot decode them; the host then
    /// decodes and uploads.
    ///
    /// # Errors
    /// As [`host_features`](Self::host_features).
    fn code_rows(
        &self,
        _codes: &CompressedFeatures,
        _dtype: Dtype,
        _placed: Option<(&Placement, HostReads)>,
    ) -> Result<Option<Box<dyn FeatureStore<Self>>>, ComputeError> {
        Ok(None)
    }

    /// Creates a reader of rows that the ranks store in memory of their hosts. Rows that the placement assigns to
    /// every device are copied there at once. All ranks call it together, with the same placement, and
    /// [start](FeatureStore::gather_async) equally many gathers. Codes must be [sound](CompressedFeatures::check_codes). Returns
    /// `None` if the device's memory is the host's, or the device cannot decode such codes.
    ///
    /// # Errors
    /// When the device's memory does not suffice, the placement gives rows to single devices, or a rank fails.
    fn split_rows(
        &self,
        _rows: SplitRows<'_>,
        _placement: &Placement,
    ) -> Result<Option<Box<dyn FeatureStore<Self>>>, ComputeError> {
        Ok(None)
    }

    /// Creates readers of rows of which the device of every rank holds a patch: one for each transport of `by` by which
    /// the devices can read each other's rows. Returns none if the device works with no ranks. All ranks call it
    /// together, with the same `by`, and [start](FeatureStore::gather_async) equally many gathers. `own` has the rows
    /// of this rank's patch. `bounds` has the first row id of each patch, followed by the number of rows. Codes are
    /// sent as codes, and must be [sound](CompressedFeatures::check_codes).
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else; when the memory of a device is too small.
    fn remote_features(
        &self,
        _own: PatchRowsOperand<'_, Self>,
        _bounds: &[NodeId],
        _by: &[GpuTransport],
    ) -> Result<ByTransport<Box<dyn FeatureStore<Self>>>, CommError> {
        Ok(Vec::new())
    }

    /// Allocates a row store in memory of the host that the device writes and reads. Returns `None` if the device's
    /// memory is the host's. With `together`, all ranks call it, and the ranks of one process share one store.
    ///
    /// # Errors
    /// When the host cannot allocate such memory, or a rank fails.
    fn row_store(
        &self,
        _shape: Shape,
        _dtype: Dtype,
        _together: bool,
    ) -> Result<Option<Box<dyn WritableStore<Self>>>, ComputeError> {
        Ok(None)
    }
}

/// Graphs from which a device samples by itself. The default offers none, and the host then samples.
pub trait SamplingDevice: Memory + Sized {
    /// Uploads a graph from which the device samples mini-batches. Returns `None` if the device does not sample; the
    /// host then samples and uploads.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn neighbor_graph(
        &self,
        _operand: &NeighborOperand<'_>,
    ) -> Result<Option<Box<dyn NeighborGraph<Self>>>, ComputeError> {
        Ok(None)
    }

    /// Creates graphs over the patches of all ranks: one for each transport of `by` that the devices support. Returns
    /// none if the device works with no ranks. All ranks call it together, with the same `by`, and
    /// [take](crate::NeighborSource::take) a batch together with one key. A rank without seeds for the batch still
    /// draws for the others.
    ///
    /// # Errors
    /// When a rank fails, is late, or calls something else; when the memory of a device is too small.
    fn patch_graphs(
        &self,
        _patch: &PatchOperand<'_>,
        _by: &[GpuTransport],
    ) -> Result<ByTransport<Box<dyn NeighborGraph<Self>>>, CommError> {
        Ok(Vec::new())
    }
}

impl FeatureDevice for Cpu {}

impl SamplingDevice for Cpu {}

impl FeatureDevice for Reference {}

impl SamplingDevice for Reference {}

impl FeatureDevice for Symbolic {}

impl SamplingDevice for Symbolic {}
