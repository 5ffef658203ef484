//! [`MiniBatchBackend`]: a device that serves mini-batches, beside the operations of a step.
//!
//! - [`FeatureDevice`]: feature stores that a device reads.
//! - [`SamplingDevice`]: graphs from which a device samples.
//!
//! The backends of `girih-compute` have the memory of the host, and so they offer neither. The host then gathers and
//! samples.

use girih_compress::CompressedFeatures;
use girih_compute::{Backend, ComputeError, Cpu, Dtype, Memory, Reference, Shape, Symbolic};
use girih_graph_format::Matrix;

use crate::{
    FeatureStore, HostFeatures, HostReads, NeighborGraph, NeighborOperand, Placement, SplitRows, WritableStore,
};

/// Backend that also serves mini-batches: rows of features by id, and graphs to sample from.
pub trait MiniBatchBackend: Backend + FeatureDevice + SamplingDevice {}

impl<B: Backend + FeatureDevice + SamplingDevice> MiniBatchBackend for B {}

/// Feature stores and row stores of a device. The defaults offer none, and the host then gathers and uploads.
pub trait FeatureDevice: Memory {
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
    ) -> Result<Option<HostFeatures<Self>>, ComputeError>
    where
        Self: Sized,
    {
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
    ) -> Result<Option<Box<dyn FeatureStore<Self>>>, ComputeError>
    where
        Self: Sized,
    {
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
    ) -> Result<Option<Box<dyn FeatureStore<Self>>>, ComputeError>
    where
        Self: Sized,
    {
        Ok(None)
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
    ) -> Result<Option<Box<dyn WritableStore<Self>>>, ComputeError>
    where
        Self: Sized,
    {
        Ok(None)
    }
}

/// Graphs from which a device samples by itself. The default offers none, and the host then samples.
pub trait SamplingDevice: Memory {
    /// Uploads a graph from which the device samples mini-batches. Returns `None` if the device does not sample; the
    /// host then samples and uploads.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn neighbor_graph(
        &self,
        _operand: &NeighborOperand<'_>,
    ) -> Result<Option<Box<dyn NeighborGraph<Self>>>, ComputeError>
    where
        Self: Sized,
    {
        Ok(None)
    }
}

impl FeatureDevice for Cpu {}

impl SamplingDevice for Cpu {}

impl FeatureDevice for Reference {}

impl SamplingDevice for Reference {}

impl FeatureDevice for Symbolic {}

impl SamplingDevice for Symbolic {}
