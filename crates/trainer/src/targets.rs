//! [`Targets`]: what the loss compares logits with.

use girih_compute::{Backend, ComputeError, Dtype};
use girih_datasets::Labels;

/// Labels on the device.
pub enum Targets<B: Backend> {
    /// One class per node.
    Single(B::Ids),
    /// Zero or one per node and class.
    Multi(B::Matrix),
}

impl<B: Backend> Targets<B> {
    /// The labels of all nodes.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn upload(backend: &B, labels: &Labels) -> Result<Self, ComputeError> {
        match labels {
            Labels::Single { classes, .. } => Ok(Self::Single(backend.upload_ids(classes)?)),
            Labels::Multi { targets, .. } => Ok(Self::Multi(backend.upload(targets, Dtype::F32)?)),
        }
    }
}
