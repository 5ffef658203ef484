//! [`train`]: trains a configuration on a data set, from start to result.

#[cfg(test)]
mod tests;

use girih_datasets::Dataset;
use girih_features::MiniBatchBackend;
use girih_graph_format::Matrix;

use crate::TrainError;
use crate::config::{CacheConfig, TaskKind, TrainConfig};
use crate::engine::{
    Checkpoint, DataShape, Observer, Outcome, Run, Scores, SessionOptions, TestReport, apply_best, build_model,
    train_runs, with_labels_for,
};
use crate::minibatch::{LinkSession, MiniBatchSession, scores_by_layers};
use crate::models::Dims;
use crate::tasks::nodes::FullBatchSession;
use crate::tasks::recommend::RecommenderSession;

/// Trains all runs of `config` on `dataset` and reports events to `observe`.
///
/// Takes the data set by value: graph and features move to the device and are freed on the host.
///
/// # Errors
/// When settings or data are unsuitable, a checkpoint does not fit, or the backend or the file system fails.
pub fn train<B: MiniBatchBackend>(
    backend: &B,
    dataset: Dataset,
    config: &TrainConfig,
    options: &SessionOptions,
    observe: &mut Observer<'_>,
) -> Result<Outcome, TrainError> {
    config.validate()?;
    let dataset = dataset.with_features_from(config.features_from)?.with_codec(config.codec, config.seed)?;
    let data = DataShape::of(&dataset);
    if config.model.kind.is_recommender() {
        let session = RecommenderSession::new(backend, dataset, config)?;
        train_runs(config, &data, options, observe, |run| Ok(Box::new(session.run(backend, config, run)?)))
    } else if config.task == TaskKind::Links {
        let session = LinkSession::new(backend, dataset, config)?;
        train_runs(config, &data, options, observe, |run| session.run(backend, config, run))
    } else if config.batch.is_sampled() {
        let session = MiniBatchSession::new(backend, dataset, config, (1, None))?;
        let run =
            |run| -> Result<Box<dyn Run<'_, B>>, TrainError> { Ok(Box::new(session.run(backend, config, run, None)?)) };
        let outcome = train_runs(config, &data, options, observe, run)?;
        Ok(Outcome { tiers: session.tiers().to_vec(), ..outcome })
    } else {
        let session = FullBatchSession::new(backend, dataset, config)?;
        train_runs(config, &data, options, observe, |run| Ok(Box::new(session.run(backend, config, run)?)))
    }
}

/// Scores and test report of a checkpoint's best parameters on a data set, and the logits of all its nodes.
///
/// # Errors
/// When data set and checkpoint do not fit each other, or the backend fails.
pub fn apply<B: MiniBatchBackend>(
    backend: &B,
    dataset: Dataset,
    checkpoint: &Checkpoint,
) -> Result<(Scores, TestReport, Matrix), TrainError> {
    let config = &checkpoint.progress.config;
    let dataset = dataset.with_features_from(config.features_from)?.with_codec(config.codec, config.seed)?;
    checkpoint.progress.check_data(&dataset.outline()).map_err(|what| checkpoint.refused(what))?;
    let dataset = with_labels_for(&checkpoint.progress.data, dataset);
    let found = DataShape::of(&dataset);
    checkpoint.note_other_contents(&found);
    // A CPU holds the full graph and features, without a cache.
    let tiers = if backend.has_own_memory() { config.tiers } else { CacheConfig::default() };
    let config = &TrainConfig { tiers, ..config.clone() };
    let run = checkpoint.progress.run;
    let (model, _) = build_model(backend, config, Dims::of(&dataset), run, None)?;
    let (scores, report, logits) = if config.batch.is_sampled() && scores_by_layers(config, &*model)? {
        let session = MiniBatchSession::new(backend, dataset, config, (1, None))?;
        let mut trained = session.run(backend, config, run, None)?;
        let (scores, report) = apply_best(&mut trained, checkpoint)?;
        (scores, report, session.logits(&mut trained)?)
    } else {
        let session = FullBatchSession::new(backend, dataset, config)?;
        let mut trained = session.run(backend, config, run)?;
        let (scores, report) = apply_best(&mut trained, checkpoint)?;
        (scores, report, trained.logits()?)
    };
    Ok((scores, report.expect("a classifier has classes"), logits))
}
