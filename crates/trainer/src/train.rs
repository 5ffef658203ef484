//! [`train`]: trains a configuration on a data set, from start to result.

use girih_datasets::{Dataset, Features};
use girih_features::MiniBatchBackend;
use girih_graph_format::Matrix;

use crate::TrainError;
use crate::config::{CacheConfig, Combination, ExecutionPlan, ScoreBy, TrainConfig, supported};
use crate::data::as_read;
use crate::engine::{
    Checkpoint, DataShape, ModelSource, Observer, Outcome, Run, Scores, SessionOptions, TestReport, config_for,
    restore_best, train_runs, with_labels_for,
};
use crate::minibatch::{
    LinkSession, MiniBatch, MiniBatchSession, TimedLinkSession, TypedSession, embed, method_of_scores,
};
use crate::models::BuildModel;
use crate::tasks::nodes::{FullBatch, FullBatchSession};
use crate::tasks::recommend::{self, RecommenderSession};
use crate::tasks::triples::{self, TripleSession};

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
    train_model(backend, dataset, &config.model, config, options, observe)
}

/// As [`train`], for a model from outside. Its builder's [`config`](BuildModel::config) takes the place of
/// `config.model`.
///
/// # Errors
/// As [`train`], and when `config` or a checkpoint to resume from names another model than the builder's.
pub fn train_model<B: MiniBatchBackend>(
    backend: &B,
    dataset: Dataset,
    builder: &dyn BuildModel<B>,
    config: &TrainConfig,
    options: &SessionOptions,
    observe: &mut Observer<'_>,
) -> Result<Outcome, TrainError> {
    let config = &config_for(config, builder)?;
    let dataset = as_read(dataset, config)?;
    let data = DataShape::of(&dataset);
    let has_codes = matches!(dataset.features, Some(Features::Compressed(_)));
    let combination = Combination::of(config).on_device(backend.has_own_memory()).with_codes(has_codes);
    let plan = supported(&combination)?;
    let source = ModelSource::new(builder, config, &dataset.outline())?;
    match plan {
        ExecutionPlan::Recommend => {
            let session = RecommenderSession::new(backend, dataset, source)?;
            train_runs(config, &data, options, observe, |run| Ok(Box::new(session.run(backend, run)?)))
        }
        ExecutionPlan::Triples => {
            let session = TripleSession::new(backend, dataset, source)?;
            train_runs(config, &data, options, observe, |run| Ok(Box::new(session.run(backend, run)?)))
        }
        ExecutionPlan::Links if config.time.is_set() => {
            let session = TimedLinkSession::new(backend, dataset, source)?;
            train_runs(config, &data, options, observe, |run| Ok(Box::new(session.run(backend, run)?)))
        }
        ExecutionPlan::Links => {
            let session = LinkSession::new(backend, dataset, source)?;
            train_runs(config, &data, options, observe, |run| session.run(backend, run))
        }
        ExecutionPlan::MiniBatch if source.input_spec(backend)?.relations.is_some() => {
            let session = TypedSession::new(backend, dataset, source)?;
            train_runs(config, &data, options, observe, |run| Ok(Box::new(session.run(backend, run, None)?)))
        }
        ExecutionPlan::MiniBatch => {
            let session = MiniBatchSession::new(backend, dataset, source, (1, None))?;
            let run =
                |run| -> Result<Box<dyn Run<'_, B>>, TrainError> { Ok(Box::new(session.run(backend, run, None)?)) };
            let outcome = train_runs(config, &data, options, observe, run)?;
            Ok(Outcome { tiers: session.tiers().to_vec(), ..outcome })
        }
        ExecutionPlan::FullBatch => {
            let session = FullBatchSession::new(backend, dataset, source)?;
            train_runs(config, &data, options, observe, |run| Ok(Box::new(session.run(backend, run)?)))
        }
        plan @ (ExecutionPlan::Partitioned | ExecutionPlan::Replicas | ExecutionPlan::Patches) => {
            unreachable!("{plan:?} is for ranks, and there are none")
        }
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
    apply_model(backend, dataset, &checkpoint.progress.config.model, checkpoint)
}

/// As [`apply`], for a model from outside.
///
/// # Errors
/// As [`apply`], and when the checkpoint is of another model than the builder's.
pub fn apply_model<B: MiniBatchBackend>(
    backend: &B,
    dataset: Dataset,
    builder: &dyn BuildModel<B>,
    checkpoint: &Checkpoint,
) -> Result<(Scores, TestReport, Matrix), TrainError> {
    let whole = |run: &mut FullBatch<'_, B>| Ok((run.test_report()?, run.evaluate()?, run.logits()?));
    let layers = |session: LayerSession<'_, '_, B>, run: &mut MiniBatch<'_, B>| {
        Ok((run.test_report()?, run.evaluate()?, session.logits(run)?))
    };
    let (report, scores, logits) = of_trained(backend, dataset, (builder, checkpoint), whole, layers)?;
    Ok((scores, report.expect("a classifier has classes"), logits))
}

/// Logits of all nodes with the best parameters of a checkpoint, without scores.
///
/// # Errors
/// As [`apply`].
pub(crate) fn all_logits<B: MiniBatchBackend>(
    backend: &B,
    dataset: Dataset,
    checkpoint: &Checkpoint,
) -> Result<Matrix, TrainError> {
    let trained = (&checkpoint.progress.config.model as &dyn BuildModel<B>, checkpoint);
    of_trained(backend, dataset, trained, |run| run.logits(), |session, run| session.logits(run))
}

/// Session whose runs compute rows for some nodes at a time.
enum LayerSession<'s, 'm, B: MiniBatchBackend> {
    Plain(&'s MiniBatchSession<'m, B>),
    Typed(&'s TypedSession<'m, B>),
}

impl<B: MiniBatchBackend> LayerSession<'_, '_, B> {
    fn logits(&self, run: &mut MiniBatch<'_, B>) -> Result<Matrix, TrainError> {
        match self {
            Self::Plain(session) => session.logits(run),
            Self::Typed(session) => session.logits(run),
        }
    }

    fn hidden(&self, run: &mut MiniBatch<'_, B>) -> Result<Option<Matrix>, TrainError> {
        match self {
            Self::Plain(session) => session.hidden(run),
            Self::Typed(session) => session.hidden(run),
        }
    }
}

/// Result of a classifier with the best parameters of a checkpoint: of `layers` where it is computed layer by layer, of
/// `whole` where one pass reads the whole graph.
fn of_trained<B: MiniBatchBackend, T>(
    backend: &B,
    dataset: Dataset,
    (builder, checkpoint): (&dyn BuildModel<B>, &Checkpoint),
    whole: impl FnOnce(&mut FullBatch<'_, B>) -> Result<T, TrainError>,
    layers: impl FnOnce(LayerSession<'_, '_, B>, &mut MiniBatch<'_, B>) -> Result<T, TrainError>,
) -> Result<T, TrainError> {
    checkpoint.check_built_by(builder)?;
    let config = &checkpoint.progress.config;
    let dataset = data_for(checkpoint, dataset)?;
    // A CPU holds the full graph and features, without a cache.
    let tiers = if backend.has_own_memory() { config.tiers } else { CacheConfig::default() };
    let config = &TrainConfig { tiers, ..config.clone() };
    let run = checkpoint.progress.run;
    let source = ModelSource::new(builder, config, &dataset.outline())?;
    let (model, _) = source.build(backend, run, None)?;
    if config.batch.is_sampled() && method_of_scores(config, &*model)? != ScoreBy::Graph {
        if model.input_spec().relations.is_some() {
            let session = TypedSession::new(backend, dataset, source)?;
            let mut trained = session.run(backend, run, None)?;
            restore_best(&mut trained, checkpoint)?;
            return layers(LayerSession::Typed(&session), &mut trained);
        }
        let session = MiniBatchSession::new(backend, dataset, source, (1, None))?;
        let mut trained = session.run(backend, run, None)?;
        restore_best(&mut trained, checkpoint)?;
        layers(LayerSession::Plain(&session), &mut trained)
    } else {
        let session = FullBatchSession::new(backend, dataset, source)?;
        let mut trained = session.run(backend, run)?;
        restore_best(&mut trained, checkpoint)?;
        whole(&mut trained)
    }
}

/// Embeddings of all nodes with the best parameters of a checkpoint, one row each. A classifier's are the rows of its
/// last hidden layer. Those of a link predictor and a recommender are the rows whose products are scores.
///
/// # Errors
/// When data set and checkpoint do not fit each other, a classifier has no hidden layer, or the backend fails.
pub fn embeddings<B: MiniBatchBackend>(
    backend: &B,
    dataset: Dataset,
    checkpoint: &Checkpoint,
) -> Result<Matrix, TrainError> {
    let plan = supported(&Combination::of(&checkpoint.progress.config).applied())
        .map_err(|reason| TrainError::invalid(reason.to_string()))?;
    match plan {
        ExecutionPlan::Recommend => recommend::embeddings(backend, dataset, checkpoint),
        ExecutionPlan::Triples => triples::embeddings(backend, dataset, checkpoint),
        ExecutionPlan::Links => Ok(embed(backend, dataset, checkpoint)?.embeddings),
        _ => hidden_rows(backend, dataset, checkpoint),
    }
}

/// Rows of the last hidden layer of a classifier.
fn hidden_rows<B: MiniBatchBackend>(
    backend: &B,
    dataset: Dataset,
    checkpoint: &Checkpoint,
) -> Result<Matrix, TrainError> {
    let config = &checkpoint.progress.config;
    let trained = (&config.model as &dyn BuildModel<B>, checkpoint);
    let hidden = of_trained(backend, dataset, trained, |run| run.hidden(), |session, run| session.hidden(run))?;
    hidden.ok_or_else(|| {
        TrainError::invalid(format!(
            "{} has no hidden layer, so that it embeds no nodes; its logits are what girih predict --logits writes",
            config.model.name()
        ))
    })
}

/// A data set as the model of a checkpoint reads it.
fn data_for(checkpoint: &Checkpoint, dataset: Dataset) -> Result<Dataset, TrainError> {
    let config = &checkpoint.progress.config;
    let dataset = as_read(dataset, config)?;
    checkpoint.progress.check_data(&dataset.outline()).map_err(|what| checkpoint.refused(what))?;
    let dataset = with_labels_for(&checkpoint.progress.data, dataset);
    let found = DataShape::of(&dataset);
    checkpoint.note_other_contents(&found);
    Ok(dataset)
}
