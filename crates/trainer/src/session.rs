//! [`train`]: trains a configuration on a data set, from start to result.

mod data;
mod runs;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use girih_compute::{Backend, ComputeError, Shape};
use girih_datasets::{Dataset, FeaturesFrom, Labels, Split, UNLABELLED};
use girih_graph_format::{Matrix, NodeId};

use crate::TrainError;
use crate::arrangement::Arrangement;
use crate::checkpoint::{Checkpoint, DataShape};
use crate::classifier::Task;
use crate::config::{CacheConfig, TaskKind, TrainConfig};
use crate::distributed::Ranks;
use crate::fullbatch::FullBatch;
use crate::inputs::Inputs;
use crate::links;
use crate::models::{self, Dims, Model};
use crate::params::{ParamId, ParamInit, Params};
use crate::recommend;
use crate::report::{CacheReport, EpochReport, EpochTimes, RunSummary, Scores, TestReport};
use crate::sampled;
use crate::state::{BatchDone, Run};
use crate::targets::Targets;
use crate::thinned::Thinned;

pub(crate) use self::data::{Trainable, check_features, check_trainable};
pub(crate) use self::runs::train_runs;

/// Options of a session besides the training itself.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Folder for checkpoints, one file per run ([`checkpoint_path`]); `None` for no checkpoints.
    pub checkpoints: Option<PathBuf>,
    /// Number of epochs between two checkpoints of a run. The end of a run is always written.
    pub checkpoint_every: Option<u64>,
    /// If true, runs continue from existing checkpoints.
    pub resume: bool,
    /// Whether this rank writes checkpoints: exactly one of several ranks does. All ranks may read them.
    pub writes: bool,
    /// Cancellation flag with the effect of [`Control::Stop`]. Each rank reads its own flag. Setting it on any rank
    /// stops all ranks.
    pub stop: Option<&'static AtomicBool>,
    /// Device and ranks, for the checkpoints. A resumed run warns if they changed. `None`: not recorded.
    pub arrangement: Option<Arrangement>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { checkpoints: None, checkpoint_every: None, resume: false, writes: true, stop: None, arrangement: None }
    }
}

impl SessionOptions {
    /// Combines an observer's answer with the cancellation flag.
    pub(crate) fn control(&self, observed: Control) -> Control {
        let is_asked = self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
        if is_asked { Control::Stop } else { observed }
    }
}

/// Event of a training session.
#[derive(Clone, Debug)]
pub enum Event<'e> {
    /// Graph and features are on the device.
    Prepared,
    /// A run starts, or continues after `epochs_done`.
    RunStarted {
        /// Number of the run, from 0.
        run: u64,
        /// Epochs that the checkpoint had already done.
        epochs_done: u64,
        /// Hash of the whole checkpoint, if the run continues from one.
        checkpoint: Option<u32>,
    },
    /// A mini-batch is done that is not the last one of its epoch.
    Batch {
        /// Number of the run, from 0.
        run: u64,
        /// Progress of the epoch.
        done: BatchDone,
    },
    /// An epoch is done.
    Epoch {
        /// Number of the run, from 0.
        run: u64,
        /// Report of the epoch.
        report: &'e EpochReport,
    },
    /// A run is done.
    RunFinished(&'e RunSummary),
}

/// Answer of the observer of [`train`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Go on.
    Continue,
    /// Write a checkpoint and stop.
    Stop,
}

/// Result of a training session.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Summaries of all runs that evaluated at least once, in order.
    pub runs: Vec<RunSummary>,
    /// Test report for the best parameters of the last run.
    pub test: Option<TestReport>,
    /// Times of the epochs of this session; every k-th of very many.
    pub times: Thinned<EpochTimes>,
    /// Relative error of the logits for these parameters, from rounding operands before they are sent
    /// ([`Run::wire_error`]).
    pub wire_error: Option<f64>,
    /// Cache reports of features and graph; empty if devices held all of both.
    pub tiers: Vec<CacheReport>,
    /// Whether the observer stopped training before its end.
    pub stopped: bool,
}

/// Mean and sample standard deviation (n − 1) over runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanStd {
    /// The mean.
    pub mean: f64,
    /// The standard deviation; zero for a single run.
    pub std: f64,
}

impl MeanStd {
    /// Mean and deviation of `values`; `None` if there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = values.len() as f64;
        let mean = (!values.is_empty()).then(|| values.iter().sum::<f64>() / n)?;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
        Some(Self { mean, std: variance.sqrt() })
    }
}

impl Outcome {
    /// Mean and deviation over runs of a number at the best epoch; `None` if no run has it.
    #[must_use]
    pub fn over_runs(&self, what: impl Fn(&RunSummary) -> Option<f64>) -> Option<MeanStd> {
        MeanStd::of(&self.runs.iter().filter_map(what).collect::<Vec<_>>())
    }
}

/// Checkpoint file of a run below an output folder.
#[must_use]
pub fn checkpoint_path(folder: &Path, run: u64) -> PathBuf {
    folder.join(format!("run-{run:03}.safetensors"))
}

/// Trains all runs of `config` on `dataset` and reports events to `observe`.
///
/// Takes the data set by value: graph and features move to the device and are freed on the host.
///
/// # Errors
/// When settings or data are unsuitable, a checkpoint does not fit, or the backend or the file system fails.
pub fn train<B: Backend>(
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
        let session = recommend::Prepared::new(backend, dataset, config)?;
        train_runs(config, &data, options, observe, |run| Ok(Box::new(session.run(backend, config, run)?)))
    } else if config.task == TaskKind::Links {
        let session = links::Prepared::new(backend, dataset, config)?;
        train_runs(config, &data, options, observe, |run| session.run(backend, config, run))
    } else if config.batch.is_sampled() {
        let session = sampled::Prepared::new(backend, dataset, config, (1, None))?;
        let run =
            |run| -> Result<Box<dyn Run<'_, B>>, TrainError> { Ok(Box::new(session.run(backend, config, run, None)?)) };
        let outcome = train_runs(config, &data, options, observe, run)?;
        Ok(Outcome { tiers: session.tiers().to_vec(), ..outcome })
    } else {
        let session = Prepared::new(backend, dataset, config)?;
        train_runs(config, &data, options, observe, |run| Ok(Box::new(session.run(backend, config, run)?)))
    }
}

/// Callback for events of training. Its answer tells whether to continue.
pub type Observer<'o> = dyn FnMut(Event<'_>) -> Control + Send + 'o;

/// Scores and test report of a checkpoint's best parameters on a data set, and the logits of all its nodes.
///
/// # Errors
/// When data set and checkpoint do not fit each other, or the backend fails.
pub fn apply<B: Backend>(
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
    let (scores, report, logits) = if config.batch.is_sampled() && sampled::scores_by_layers(config, &*model)? {
        let session = sampled::Prepared::new(backend, dataset, config, (1, None))?;
        let mut trained = session.run(backend, config, run, None)?;
        let (scores, report) = apply_best(&mut trained, checkpoint)?;
        (scores, report, session.logits(&mut trained)?)
    } else {
        let session = Prepared::new(backend, dataset, config)?;
        let mut trained = session.run(backend, config, run)?;
        let (scores, report) = apply_best(&mut trained, checkpoint)?;
        (scores, report, trained.logits()?)
    };
    Ok((scores, report.expect("a classifier has classes"), logits))
}

/// Adapts data to a model that was `trained` on other data. It gets the model's number of classes. Without labels,
/// all nodes are unlabelled; without a split, all nodes are test nodes.
pub(crate) fn with_labels_for(trained: &DataShape, dataset: Dataset) -> Dataset {
    let (n_nodes, n_classes) = (dataset.n_nodes(), trained.n_classes);
    let labels = match dataset.labels {
        None if trained.multi_label => {
            let targets = Matrix::new(n_nodes, n_classes, vec![0.0; n_nodes * n_classes]);
            Labels::Multi { n_classes, targets: targets.expect("as many zeros as it has elements") }
        }
        None => Labels::Single { n_classes, classes: vec![UNLABELLED; n_nodes] },
        Some(Labels::Single { n_classes: found, classes }) if found < n_classes && !trained.multi_label => {
            Labels::Single { n_classes, classes }
        }
        Some(labels) => labels,
    };
    let mut splits = if dataset.splits.is_empty() { vec![Split::default()] } else { dataset.splits };
    for split in splits.iter_mut().filter(|split| split.parts().iter().all(|(_, nodes)| nodes.is_empty())) {
        split.test = (0..n_nodes as NodeId).collect();
    }
    Dataset { labels: Some(labels), splits, ..dataset }
}

/// Restores the best parameters of a checkpoint, and returns their scores.
pub(crate) fn apply_best<'a, B: Backend + 'a>(
    run: &mut impl Run<'a, B>,
    checkpoint: &Checkpoint,
) -> Result<(Scores, Option<TestReport>), TrainError> {
    run.state_mut().restore(checkpoint)?;
    run.state_mut().restore_best()?;
    let report = run.test_report()?;
    Ok((run.evaluate()?, report))
}

/// State shared by all runs: inputs and targets on the device, labels and splits on the host.
struct Prepared<B: Backend> {
    /// Graph and features on the device.
    inputs: Inputs<B>,
    /// Labels on the device.
    targets: Targets<B>,
    /// Labels on the host.
    labels: Labels,
    /// Splits, one of which each run takes.
    splits: Vec<Split>,
    /// Sizes of the network.
    dims: Dims,
}

/// Labels and splits of the local nodes, for all runs.
pub(crate) struct LabelledNodes<'a, B: Backend> {
    /// Labels on the host.
    pub(crate) labels: &'a Labels,
    /// Labels on the device.
    pub(crate) targets: &'a Targets<B>,
    /// Splits, one of which each run takes.
    pub(crate) splits: &'a [Split],
}

/// Creates a run on existing inputs.
pub(crate) fn start_run<'a, B: Backend>(
    backend: &'a B,
    inputs: &'a Inputs<B>,
    nodes: &LabelledNodes<'a, B>,
    (config, dims): (&'a TrainConfig, Dims),
    run: u64,
) -> Result<FullBatch<'a, B>, TrainError> {
    let &LabelledNodes { labels, targets, splits } = nodes;
    let split = &splits[run as usize % splits.len()];
    let task = Task::on_ranks(backend, labels, targets, split, inputs.ranks.as_deref())?;
    let (model, params) = build_model(backend, config, dims, run, inputs.ranks.as_deref())?;
    FullBatch::new(backend, inputs, task, config, model, params, run)
}

impl<B: Backend> Prepared<B> {
    /// Checks a data set and copies it to the device.
    fn new(backend: &B, dataset: Dataset, config: &TrainConfig) -> Result<Self, TrainError> {
        let dims = Dims::of(&dataset);
        let Trainable { dataset, features, labels } = Trainable::check(dataset, config)?;
        let (model, _) = build_model(backend, config, dims, 0, None)?;
        let targets = Targets::upload(backend, &labels)?;
        let inputs = Inputs::of_features(backend, dataset.graph, features, &model.input_spec(), config.precision)?;
        Ok(Self { inputs, targets, labels, splits: dataset.splits, dims })
    }

    /// Creates a run.
    fn run<'a>(&'a self, backend: &'a B, config: &'a TrainConfig, run: u64) -> Result<FullBatch<'a, B>, TrainError> {
        let nodes = LabelledNodes { labels: &self.labels, targets: &self.targets, splits: &self.splits };
        start_run(backend, &self.inputs, &nodes, (config, self.dims), run)
    }
}

/// Model with its parameters.
type ModelWithParams<B> = (Box<dyn Model<B>>, Params<B>);

/// A model with its initial parameters. One of several ranks holds only its own rows of per-node parameters.
pub(crate) fn build_model<B: Backend>(
    backend: &B,
    config: &TrainConfig,
    dims: Dims,
    run: u64,
    ranks: Option<&Ranks<B>>,
) -> Result<ModelWithParams<B>, TrainError> {
    let mut init = ParamInit::new(backend, config.seed, run).among(ranks);
    let model = build_network(config, dims, &mut init)?;
    Ok((model, init.finish()))
}

/// Builds the network of a configuration, preceded by its learned features, if any. These are initialised from a
/// normal distribution, with rows of expected squared length one.
pub(crate) fn build_network<B: Backend>(
    config: &TrainConfig,
    dims: Dims,
    init: &mut ParamInit<'_, B>,
) -> Result<Box<dyn Model<B>>, ComputeError> {
    if let Some(FeaturesFrom::Embedding(width)) = config.features_from {
        let deviation = 1.0 / (width as f32).sqrt();
        let features = init.embedding(0, "features", Shape::new(dims.n_nodes, width), deviation)?;
        debug_assert_eq!(features, ParamId::FEATURES);
    }
    models::build(&config.model, dims, init)
}
