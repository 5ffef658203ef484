//! [`SamplingDevice`]: graphs from which a device samples.

use crate::{ComputeError, Memory, NeighborGraph, NeighborOperand};

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
