//! [`Targets`]: labels that the loss compares logits with, and [`Part`]: nodes that the loss is taken of.

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
    /// Labels of the local nodes.
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

/// Nodes that a loss is the mean over, as seen by this rank.
pub struct Part<B: Backend> {
    /// Local nodes of the part, as row indices from this rank's first node.
    pub rows: B::Ids,
    /// Number of local nodes of the part.
    pub n_here: usize,
    /// Number of nodes of the part on all ranks together.
    pub n_all: usize,
}

impl<B: Backend> Part<B> {
    /// Part with the given local rows and `n_all` nodes on all ranks.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new(backend: &B, rows: &[NodeId], n_all: usize) -> Result<Self, ComputeError> {
        Ok(Self { rows: backend.upload_ids(rows)?, n_here: rows.len(), n_all })
    }
}
