//! Rules of mini-batches that several parts share: what is drawn, gathered and summed for a configuration.

use girih_compress::CompressedFeatures;
use girih_graph_format::Norm;

use crate::TrainError;
use crate::config::{BatchKind, TrainConfig};
use crate::models::{Adjacency, InputSpec, Propagation};

/// Input spec of a model on mini-batches: raw features, from which each batch takes its rows.
pub(crate) fn raw(input_spec: &InputSpec) -> InputSpec {
    InputSpec { raw_features: true, propagation: Propagation::Never, ..input_spec.clone() }
}

/// Adjacency that samplers draw from. A cluster is a graph of its own, with its own self loops and degrees.
pub(super) fn drawn_from(config: &TrainConfig, adjacency: Adjacency) -> Adjacency {
    match config.batch.kind {
        BatchKind::Cluster => Adjacency { self_loops: false, norm: Norm::None, ..adjacency },
        _ => adjacency,
    }
}

/// Whether the first layer aggregates raw features, so that the rows of its sources need not be gathered.
pub(crate) fn reads_in_place(config: &TrainConfig, input_spec: &InputSpec) -> bool {
    config.batch.kind == BatchKind::Neighbor && input_spec.hops > 0 && config.model.input_dropout() == 0.0
}

/// Whether the first layer aggregates raw features, so that it needs only sums of them. `Some(true)` if it also reads
/// rows of destinations.
pub(crate) fn summed(config: &TrainConfig, input_spec: &InputSpec) -> Option<bool> {
    reads_in_place(config, input_spec).then_some(input_spec.raw_features)
}

/// Refuses invalid codes: devices do not check that a position is a column.
///
/// # Errors
/// When a position is not a column.
pub(super) fn check_codes(codes: &CompressedFeatures) -> Result<(), TrainError> {
    codes.check_codes().map_err(|error| TrainError::invalid(error.to_string()))
}

/// Error for a model that reads no neighbors.
pub(crate) fn no_neighbors(config: &TrainConfig) -> TrainError {
    TrainError::invalid(format!(
        "{} does not aggregate neighbors, so there is nothing to sample: give --batch full, or another --model",
        config.model.name()
    ))
}
