//! Data as training takes it: checks before a run, features that are given or made, and inputs on the device.
//!
//! A rank reads its own rows of the graph, and learns the others' degrees and entries from messages
//! ([`PartitionedAdjacency`]).

mod checks;
mod features;
mod inputs;
mod mirror;
pub(crate) mod partitioned_adjacency;

pub use checks::unread_types;
pub(crate) use checks::{Trainable, check_features, check_trainable, check_untyped};
pub(crate) use features::{NodeFeatures, as_read};
pub(crate) use inputs::{stay_sparse, upload_adjacency, upload_sparse_features};
pub(crate) use partitioned_adjacency::PartitionedAdjacency;
