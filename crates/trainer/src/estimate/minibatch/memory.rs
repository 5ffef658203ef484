//! Device memory of features and graph that batches are drawn from, in 32-bit words.

use girih_features::HostReads;

use super::PlannedRows;
use crate::config::TrainConfig;
use crate::estimate::sizes::DataSizes;

/// Number of batches whose host rows arrive on a device at the same time.
pub(super) const ARRIVING: usize = 2;
/// 32-bit words for each row of a batch that locate its source: an id, a position, and an address.
pub(super) const LISTED: usize = 4;

/// 32-bit words on a device that samples, for features that are not a matrix.
pub(super) fn words_of_features(config: &TrainConfig, data: &DataSizes, rows: PlannedRows) -> usize {
    let words = |n_rows: usize, bytes: usize| (n_rows * bytes).div_ceil(size_of::<f32>());
    match (config.tiers.features, data.code_bytes, rows) {
        (_, None, _) | (Some(_), _, PlannedRows::Elsewhere) => 0,
        (Some(_), Some(bytes), PlannedRows::These(rows)) => words_of_list(data) + words(rows.features, bytes),
        (Some(shares), Some(bytes), PlannedRows::UpperBound) => {
            let (on_every_gpu, on_one_gpu) = shares.of_nodes(data.n_nodes);
            words_of_list(data) + words(on_every_gpu + on_one_gpu, bytes)
        }
        (None, Some(bytes), _) => words(data.n_nodes, bytes),
    }
}

/// Whether a device has a position for each node, to reuse cached rows of the previous batch. Not for code books,
/// whose rows are decoded by then.
pub(super) fn has_places(config: &TrainConfig, data: &DataSizes) -> bool {
    config.tiers.features.is_some_and(|shares| !shares.are_all()) && !data.has_code_book
}

/// 32-bit words for each row of a batch, to reuse rows: the previous batch, which stays until the rows of this one
/// have arrived, and indices.
pub(super) fn words_of_kept(config: &TrainConfig, data: &DataSizes) -> usize {
    if !has_places(config, data) || config.batch.prefetch == 0 {
        return 0;
    }
    let words = (data.n_features * config.precision.n_bytes()).div_ceil(size_of::<f32>());
    words + words.div_ceil(16) + ARRIVING * LISTED
}

/// 32-bit words for each row of a batch, for indices alone, which say whether a row is on the host or on a GPU. Codes
/// need them, too, for any shares.
pub(super) fn words_of_lists(config: &TrainConfig) -> usize {
    if config.tiers.features.is_some_and(|shares| !shares.are_all()) { ARRIVING * LISTED } else { 0 }
}

/// 32-bit words for each row of a batch whose rows a cache places: buffers for codes that are summed, and for rows
/// that host threads stage. A staged row is copied to its place if other rows come from devices.
pub(super) fn words_of_arriving(config: &TrainConfig, data: &DataSizes, makes_sums: bool) -> usize {
    let Some(shares) = config.tiers.features else { return 0 };
    let bytes = data.code_bytes.unwrap_or(data.n_features * config.precision.n_bytes());
    let words = bytes.div_ceil(size_of::<f32>());
    let stored = if makes_sums { ARRIVING * words } else { 0 };
    // The choice between the two depends on the host.
    if config.tiers.host_reads == HostReads::InPlace || shares.are_all() {
        return stored;
    }
    stored + ARRIVING * (words + 1)
}

/// 32-bit words for the graph to sample from, without weights.
pub(super) fn words_of_topology(config: &TrainConfig, data: &DataSizes, rows: PlannedRows) -> usize {
    let list = if config.tiers.topology.is_some() { words_of_list(data) } else { 0 };
    match (config.tiers.topology, rows) {
        (Some(_), PlannedRows::Elsewhere) => 0,
        (Some(_), PlannedRows::These(rows)) => words_of_offsets(data) + list + rows.neighbors,
        (Some(_), PlannedRows::UpperBound) | (None, _) => words_of_offsets(data) + list + data.n_edges,
    }
}

/// 32-bit words for the offsets of the rows of the graph.
pub(super) fn words_of_offsets(data: &DataSizes) -> usize {
    2 * (data.n_nodes + 1)
}

/// 32-bit words for the address of a row of each node.
fn words_of_list(data: &DataSizes) -> usize {
    2 * data.n_nodes
}
