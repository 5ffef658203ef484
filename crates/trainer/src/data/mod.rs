//! Data as training takes it: inputs of a model on the device.

mod inputs;

pub(crate) use inputs::{stay_sparse, upload_adjacency, upload_sparse_features};
