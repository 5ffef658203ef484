//! Data as training takes it: inputs of a model on the device.

mod checks;
mod features;
mod inputs;
mod mirror;
mod partitioned_adjacency;

pub(crate) use checks::{Trainable, check_features, check_trainable};
pub(crate) use features::NodeFeatures;
pub(crate) use inputs::{stay_sparse, upload_adjacency, upload_sparse_features};
pub(crate) use partitioned_adjacency::PartitionedAdjacency;
