//! [`Targets`]: what the loss compares logits with, and [`Part`]: on which nodes.

use girih_compute::{Backend, ComputeError, Dtype};
use girih_datasets::Labels;
use girih_graph_format::NodeId;

/// Labels on the device.
pub enum Targets<B: Backend> {
    /// One class per node.
    Single(B::Ids),
    /// Zero or one per node and class.
    Multi(B::Matrix),
}

impl<B: Backend> Targets<B> {
    /// The labels of the nodes at hand.
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

/// Some nodes that a loss is the mean over, as the rank at hand sees them.
pub struct Part<B: Backend> {
    /// Those at hand, counted from the first node at hand.
    pub rows: B::Ids,
    /// How many are at hand.
    pub n_here: usize,
    /// How many there are on all ranks together.
    pub n_all: usize,
}

impl<B: Backend> Part<B> {
    /// Of the nodes at hand these, counted from the first of them, and how many there are on all ranks.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new(backend: &B, rows: &[NodeId], n_all: usize) -> Result<Self, ComputeError> {
        Ok(Self { rows: backend.upload_ids(rows)?, n_here: rows.len(), n_all })
    }
}
