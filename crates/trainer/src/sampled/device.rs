//! [`DeviceBatches`]: batches that the device samples, one ahead of the step.

use girih_compute::{Backend, NeighborBatch, NeighborSource};
use girih_graph_format::NodeId;

use super::batches::EpochBatches;
use crate::TrainError;

/// Where a device samples by itself, what it makes batches with.
pub(crate) struct DeviceBatches<'a, B: Backend>(pub(crate) Box<dyn NeighborSource<B> + 'a>);

/// A batch on the device, and what its loss is of.
pub(crate) struct DeviceBatch<B: Backend> {
    pub(crate) sampled: NeighborBatch<B>,
    /// This rank's seeds: its destinations.
    pub(crate) seeds: Vec<NodeId>,
    /// Seeds of the whole batch, on all ranks.
    pub(crate) n_loss: usize,
}

impl<B: Backend> DeviceBatches<'_, B> {
    /// Asks for the first batch of an epoch, or of what is left of it.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) fn begin(&mut self, epoch: &EpochBatches<'_>, first: usize) -> Result<(), TrainError> {
        if first < epoch.n_batches() {
            let drawn = epoch.seeds(first);
            self.0.request(drawn.mine, drawn.key)?;
        }
        Ok(())
    }

    /// Batch number `at`, which was asked for. The next one is asked for before the step on this one: the device samples it first,
    /// and the host knows its sizes before the step is done.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) fn next(&mut self, epoch: &EpochBatches<'_>, at: usize) -> Result<DeviceBatch<B>, TrainError> {
        let sampled = self.0.take()?;
        self.begin(epoch, at + 1)?;
        let drawn = epoch.seeds(at);
        Ok(DeviceBatch { sampled, seeds: drawn.mine.to_vec(), n_loss: drawn.n_all })
    }
}
