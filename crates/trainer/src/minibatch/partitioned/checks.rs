//! Refusals of settings and data that do not work with patches.

use girih_datasets::FeaturesFrom;

use crate::TrainError;
use crate::config::{GraphPlacement, ScoreBy, TrainConfig};

/// Refuses settings that do not work with patches.
///
/// # Errors
/// When there is such a setting.
pub(crate) fn check_patches(config: &TrainConfig, layout: GraphPlacement) -> Result<(), TrainError> {
    const PLACED: &str = "each rank holds its own rows in the memory of its device";
    let is_cut = layout == GraphPlacement::Patches;
    let settings = [
        (is_cut && config.tiers.features.is_some(), "--feature-cache", PLACED),
        (is_cut && config.tiers.topology.is_some(), "--topology-cache", PLACED),
        (
            config.features_from.is_some_and(FeaturesFrom::knows_nodes),
            "--features-from onehot or embedding",
            "ranks exchange feature rows that are small and that training does not change",
        ),
        (
            config.tiers.features.is_some_and(|shares| shares.one_gpu > 0.0),
            "a second share of --feature-cache",
            "rows that are not on every device stay on the host of their rank",
        ),
        (
            config.tiers.topology.is_some_and(|shares| shares.one_gpu > 0.0),
            "a second share of --topology-cache",
            "the rest of the graph stays on each host, whole",
        ),
        (
            config.batch.score_by == Some(ScoreBy::Layers),
            "--score-by layers",
            "ranks that hold a part of the graph score all nodes in one pass",
        ),
    ];
    match settings.iter().find(|(is_set, ..)| *is_set) {
        None => Ok(()),
        Some((_, setting, why)) => Err(TrainError::invalid(format!(
            "{setting} cannot be combined with --layout {}: {why}; leave it out, or give --layout replicated",
            layout.name()
        ))),
    }
}

/// Refuses data that cannot be partitioned into patches.
///
/// # Errors
/// When features are sparse.
pub(crate) fn check_patches_of(has_sparse_features: bool) -> Result<(), TrainError> {
    if has_sparse_features {
        return Err(TrainError::invalid(
            "the features are sparse, and ranks exchange dense or compressed rows only: give --codec topk:8, or --layout \
             replicated",
        ));
    }
    Ok(())
}
