//! [`train`]: trains a configuration on a data set, from start to result.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use girih_compute::{Backend, ComputeError, Shape};
use girih_datasets::{Dataset, FeaturesFrom, Labels, Outline, Split, UNLABELLED};
use girih_graph_format::{Matrix, NodeId};

use crate::TrainError;
use crate::arrangement::{Arrangement, differences};
use crate::batching::BatchConfig;
use crate::checkpoint::{Checkpoint, DataShape};
use crate::classifier::Task;
use crate::config::{Metric, Schedule, TaskKind, TrainConfig};
use crate::distributed::Ranks;
use crate::features::NodeFeatures;
use crate::fullbatch::FullBatch;
use crate::inputs::Inputs;
use crate::models::{self, Dims, Model};
use crate::params::{ParamId, ParamInit, Params};
use crate::report::{EpochReport, EpochTimes, RunSummary, Scores, TestReport};
use crate::sampled::{CacheConfig, CacheReport};
use crate::state::{BatchDone, Run, RunState};
use crate::targets::Targets;
use crate::thinned::Thinned;
use crate::{links, recommend, sampled};

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

/// Trains the runs created by `start`, one after the other.
pub(crate) fn train_runs<'a, B: Backend + 'a>(
    config: &TrainConfig,
    data: &DataShape,
    options: &SessionOptions,
    observe: &mut dyn FnMut(Event<'_>) -> Control,
    start: impl Fn(u64) -> Result<Box<dyn Run<'a, B> + 'a>, TrainError>,
) -> Result<Outcome, TrainError> {
    let observe = &mut |event: Event<'_>| options.control(observe(event));
    let mut outcome = Outcome {
        runs: Vec::new(),
        test: None,
        wire_error: None,
        times: Thinned::default(),
        tiers: Vec::new(),
        stopped: false,
    };
    outcome.stopped = observe(Event::Prepared) == Control::Stop;
    for run in 0..config.runs {
        if outcome.stopped {
            break;
        }
        let mut trainer = start(run)?;
        trainer.check_trains()?;
        if !trainer.has_validation() {
            check_patience(config, run)?;
        }
        let file = options.checkpoints.as_deref().map(|folder| checkpoint_path(folder, run));
        let mut reached = RunProgress { epoch: 1, kept: None };
        let done = train_run(
            &mut *trainer,
            run,
            file.as_deref(),
            (config, data, options),
            observe,
            &mut outcome,
            &mut reached,
        );
        done.map_err(|error| error.in_epoch(run, reached.epoch, file.zip(reached.kept)))?;
    }
    Ok(outcome)
}

/// Refuses `patience` without validation data. If it is a published setting of the model, warns once instead, and the
/// run goes through all epochs.
fn check_patience(config: &TrainConfig, run: u64) -> Result<(), TrainError> {
    let Some(patience) = config.patience else { return Ok(()) };
    let what = match config.task {
        _ if config.model.kind.is_recommender() => "test items",
        TaskKind::Links => "validation links",
        TaskKind::Nodes => "validation nodes with a label",
    };
    if TrainConfig::for_task(config.task, config.model.kind).patience != Some(patience) {
        return Err(TrainError::invalid(format!(
            "patience ends a run after {patience} epochs without a better score, and there are no {what} to score: leave --patience \
             out, or give data with such a part"
        )));
    }
    if run == 0 {
        tracing::warn!(
            "patience ({patience} epochs, the usual of {}) has no effect: there are no {what}; the run goes through all epochs",
            config.model.kind.name()
        );
    }
    Ok(())
}

/// Progress of a run: current epoch, and epoch of the checkpoint in its file.
struct RunProgress {
    epoch: u64,
    kept: Option<u64>,
}

/// Trains a run and writes its checkpoints to `file`.
fn train_run<'a, B: Backend + 'a>(
    trainer: &mut (dyn Run<'a, B> + 'a),
    run: u64,
    file: Option<&Path>,
    (config, data, options): (&TrainConfig, &DataShape, &SessionOptions),
    observe: &mut dyn FnMut(Event<'_>) -> Control,
    outcome: &mut Outcome,
    reached: &mut RunProgress,
) -> Result<(), TrainError> {
    let mut checkpoint = None;
    if let Some(path) = file.filter(|path| options.resume && path.exists()) {
        checkpoint = Some(resume(trainer.state_mut(), path, (config, data, options))?);
        reached.kept = Some(trainer.state().epochs_done());
    }
    let epochs_done = trainer.state().epochs_done();
    outcome.stopped = observe(Event::RunStarted { run, epochs_done, checkpoint }) == Control::Stop;
    while !outcome.stopped && !trainer.state().is_finished() {
        reached.epoch = trainer.state().epochs_done() + 1;
        let report = trainer.epoch_until(&mut |done| observe(Event::Batch { run, done }))?;
        let due = match &report {
            None => {
                outcome.stopped = true;
                true
            }
            Some(report) => {
                outcome.times.push(report.times);
                outcome.stopped = observe(Event::Epoch { run, report }) == Control::Stop;
                options.checkpoint_every.is_some_and(|every| report.epoch.is_multiple_of(every))
            }
        };
        let last = outcome.stopped || trainer.state().is_finished();
        if let Some(path) = file.filter(|_| due || last) {
            // Rows of all ranks are gathered on the first rank, which writes them.
            let checkpoint = trainer.state().checkpoint(data.clone())?;
            if let Some(mut checkpoint) = checkpoint.filter(|_| options.writes) {
                checkpoint.progress.arrangement.clone_from(&options.arrangement);
                checkpoint.save(path)?;
            }
            reached.kept = Some(trainer.state().epochs_done());
        }
    }
    if let Some(summary) = trainer.state().summary() {
        if trainer.state().is_finished() {
            let stops = observe(Event::RunFinished(&summary)) == Control::Stop;
            outcome.stopped |= stops && run + 1 < config.runs;
        }
        trainer.state_mut().restore_best()?;
        outcome.test = trainer.test_report()?;
        outcome.wire_error = trainer.wire_error()?;
        outcome.runs.push(summary);
    }
    Ok(())
}

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
    inputs: Inputs<B>,
    targets: Targets<B>,
    labels: Labels,
    splits: Vec<Split>,
    dims: Dims,
}

/// Creates a run on existing inputs. Labels and splits are those of the local nodes.
pub(crate) fn start_run<'a, B: Backend>(
    backend: &'a B,
    inputs: &'a Inputs<B>,
    (labels, targets, splits): (&'a Labels, &'a Targets<B>, &'a [Split]),
    (config, dims): (&'a TrainConfig, Dims),
    run: u64,
) -> Result<FullBatch<'a, B>, TrainError> {
    let split = &splits[run as usize % splits.len()];
    let task = Task::on_ranks(backend, labels, targets, split, inputs.ranks.as_deref())?;
    let (model, params) = build_model(backend, config, dims, run, inputs.ranks.as_deref())?;
    FullBatch::new(backend, inputs, task, config, model, params, run)
}

impl<B: Backend> Prepared<B> {
    fn new(backend: &B, dataset: Dataset, config: &TrainConfig) -> Result<Self, TrainError> {
        let dims = Dims::of(&dataset);
        let Trainable { dataset, features, labels } = Trainable::check(dataset, config)?;
        let (model, _) = build_model(backend, config, dims, 0, None)?;
        let targets = Targets::upload(backend, &labels)?;
        let inputs = Inputs::of_features(backend, dataset.graph, features, &model.input_spec(), config.precision)?;
        Ok(Self { inputs, targets, labels, splits: dataset.splits, dims })
    }

    fn run<'a>(&'a self, backend: &'a B, config: &'a TrainConfig, run: u64) -> Result<FullBatch<'a, B>, TrainError> {
        let task = (&self.labels, &self.targets, &self.splits[..]);
        start_run(backend, &self.inputs, task, (config, self.dims), run)
    }
}

/// Data set with everything that training needs.
pub(crate) struct Trainable {
    pub(crate) dataset: Dataset,
    pub(crate) features: NodeFeatures,
    pub(crate) labels: Labels,
}

impl Trainable {
    pub(crate) fn check(mut dataset: Dataset, config: &TrainConfig) -> Result<Self, TrainError> {
        check_trainable(&dataset.outline(), config)?;
        let features = NodeFeatures::take(&mut dataset, None, config.seed)?;
        let labels = dataset.labels.take().expect("checked");
        Ok(Self { dataset, features, labels })
    }
}

/// Refuses data that node classification cannot be trained on, and metrics that do not suit it.
pub(crate) fn check_trainable(outline: &Outline, config: &TrainConfig) -> Result<(), TrainError> {
    check_features(outline)?;
    if outline.n_classes == 0 {
        return Err(missing(
            outline,
            "labels",
            "training needs a class for each node: give --labels FILE.npy, or --task links",
        ));
    }
    if outline.splits.is_empty() {
        return Err(missing(
            outline,
            "split",
            "training needs training, validation and test nodes; ask for a random split",
        ));
    }
    if config.metric == Metric::RocAuc && !outline.multi_label && outline.n_classes != 2 {
        return Err(TrainError::invalid(format!(
            "{} has {} classes; ROC-AUC is defined for two classes, or for several labels a node: give --metric accuracy",
            outline.name, outline.n_classes
        )));
    }
    Ok(())
}

/// Error for a data set that lacks `what`, with a remedy.
fn missing(outline: &Outline, what: &str, remedy: &str) -> TrainError {
    TrainError::invalid(format!("{} has no {what}; {remedy}", outline.name))
}

/// Refuses data without nodes, data of users and items, and data without features.
pub(crate) fn check_features(outline: &Outline) -> Result<(), TrainError> {
    if outline.n_nodes == 0 {
        return Err(missing(outline, "nodes", "there is nothing to train on"));
    }
    if outline.n_users.is_some() {
        let what = "features or classes, but users and items";
        return Err(missing(outline, what, "train it with --model lightgcn"));
    }
    if outline.n_features == 0 {
        let remedy = format!(
            "training needs a row of numbers for each node: give --features FILE.npy, or have them made by \
             --features-from {}",
            FeaturesFrom::VALUES
        );
        return Err(missing(outline, "features", &remedy));
    }
    Ok(())
}

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

/// Continues a run from the checkpoint at `path`, if both describe the same run. Returns a hash of the whole
/// checkpoint.
fn resume<B: Backend>(
    state: &mut RunState<'_, B>,
    path: &Path,
    (config, data, options): (&TrainConfig, &DataShape, &SessionOptions),
) -> Result<u32, TrainError> {
    let checkpoint = Checkpoint::load(path)?;
    let saved = &checkpoint.progress;
    saved.data.check_same(data, saved.run).map_err(|what| TrainError::checkpoint(path, what))?;
    // Other numbers of epochs and runs, other patience and other evaluation intervals only lengthen or shorten the
    // same training, unless the learning rate depends on the number of epochs. The prefetch depth and the shares of
    // the cache change no results. Any other setting changes the training.
    let comparable = |c: &TrainConfig| {
        let batch = BatchConfig { prefetch: 0, ..c.batch.clone() };
        let epochs = if c.optimizer.schedule == (Schedule::Cosine {}) { c.epochs } else { 0 };
        let (runs, patience, eval_every, tiers) = (0, None, 1, c.tiers.without_shares());
        TrainConfig { epochs, runs, patience, eval_every, batch, tiers, ..c.clone() }
    };
    let (before, now) = (comparable(&saved.config), comparable(config));
    if before != now {
        return Err(TrainError::checkpoint(
            path,
            format!(
                "it was trained with other settings: {}; resume with those of the checkpoint, or choose another --out",
                differences(&before, &now).join(", ")
            ),
        ));
    }
    if let (Some(before), Some(now), true) = (&saved.arrangement, &options.arrangement, options.writes)
        && before != now
    {
        tracing::warn!(
            "{}: trained so far by {before}, and from here by {now}: results agree up to the order of sums, not bit for bit",
            path.display()
        );
    }
    state.restore(&checkpoint)?;
    Ok(checkpoint.identity())
}

#[cfg(test)]
mod tests {
    use girih_compress::CodecSpec;
    use girih_compute::{Cpu, HostMatrix};
    use girih_datasets::{LoadOptions, load};

    use super::*;
    use crate::config::{Aggregator, ModelConfig, ModelKind, NormKind};
    use crate::report::StageTimes;
    use crate::state::StepCallback;

    /// A run whose device fails in a given epoch.
    struct Failing<'a> {
        run: FullBatch<'a, Cpu>,
        epoch: u64,
    }

    impl<'a> Run<'a, Cpu> for Failing<'a> {
        fn state(&self) -> &RunState<'a, Cpu> {
            self.run.state()
        }

        fn state_mut(&mut self) -> &mut RunState<'a, Cpu> {
            self.run.state_mut()
        }

        fn has_validation(&self) -> bool {
            self.run.has_validation()
        }

        fn train_once(
            &mut self,
            lr: f64,
            watch: &mut StepCallback<'_>,
        ) -> Result<Option<(f32, StageTimes)>, TrainError> {
            if self.state().epochs_done() + 1 == self.epoch {
                return Err(ComputeError::device("spmm", "its memory failed").into());
            }
            self.run.train_once(lr, watch)
        }

        fn evaluate(&mut self) -> Result<Scores, TrainError> {
            self.run.evaluate()
        }

        fn test_report(&mut self) -> Result<Option<TestReport>, TrainError> {
            self.run.test_report()
        }
    }

    /// Trains with a checkpoint every second epoch in `folder` until the device fails; returns the error message.
    fn failure_in(epoch: u64, folder: &Path, resume: bool) -> String {
        let cpu = Cpu::new();
        let config = TrainConfig { epochs: 9, ..TrainConfig::default() };
        let dataset = load("synth:planted,nodes=100,features=8,classes=2", &LoadOptions::default()).unwrap();
        let data = DataShape::of(&dataset);
        let session = Prepared::new(&cpu, dataset, &config).unwrap();
        let checkpoints = Some(folder.to_owned());
        let options = SessionOptions { checkpoints, checkpoint_every: Some(2), resume, ..SessionOptions::default() };
        let start = |run| -> Result<Box<dyn Run<'_, Cpu>>, TrainError> {
            Ok(Box::new(Failing { run: session.run(&cpu, &config, run)?, epoch }))
        };
        train_runs(&config, &data, &options, &mut |_| Control::Continue, start).unwrap_err().to_string()
    }

    #[test]
    fn whatever_happens_between_steps_gives_all_buffers_back() {
        let cpu = Cpu::new();
        let dataset = load("synth:planted,nodes=100,features=8,classes=2", &LoadOptions::default()).unwrap();
        let kinds = [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat, ModelKind::Gin, ModelKind::Appnp, ModelKind::Mlp];
        let codecs = [None, Some(CodecSpec::Topk(2))];
        for (kind, codec) in kinds.into_iter().flat_map(|kind| codecs.map(|codec| (kind, codec))) {
            let model = ModelConfig { aggregator: Aggregator::Pool, ..TrainConfig::for_model(kind).model };
            let config = TrainConfig { model, codec, ..TrainConfig::default() };
            let dataset = dataset.clone().with_codec(codec, config.seed).unwrap();
            let session = Prepared::new(&cpu, dataset, &config).unwrap();
            let mut run = session.run(&cpu, &config, 0).unwrap();
            let mut between_steps = || {
                run.train_once(0.01, &mut |_| Control::Continue).unwrap();
                let before = run.state().pool.n_free();
                run.evaluate().unwrap();
                run.test_report().unwrap();
                run.logits().unwrap();
                (before, run.state().pool.n_free())
            };
            let (before, after) = between_steps();
            assert!(before.0.iter().all(|(kind, n)| after.0[kind] >= *n), "{kind:?}: {before:?}, then {after:?}");
            assert!(before.1.iter().all(|(len, n)| after.1[len] >= *n), "{kind:?}: {before:?}, then {after:?}");
            let (before, after) = between_steps();
            assert_eq!(before, after, "{kind:?}: nothing is made or lost any more");
        }
    }

    /// CUDA graphs refer to gradients by their addresses.
    #[test]
    fn gradients_stay_where_they_are() {
        let cpu = Cpu::new();
        let dataset = load("synth:planted,nodes=100,features=8,classes=2", &LoadOptions::default()).unwrap();
        let kinds = [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat, ModelKind::Gatv2, ModelKind::Gin, ModelKind::Mlp];
        let norms = [NormKind::None, NormKind::Layer, NormKind::Batch];
        let aggregators = [Aggregator::Mean, Aggregator::Pool, Aggregator::Lstm];
        let models = kinds.into_iter().flat_map(|kind| norms.map(|norm| (kind, norm)));
        for ((kind, norm), aggregator) in models.flat_map(|model| aggregators.map(|aggregator| (model, aggregator))) {
            let model = ModelConfig { aggregator, norm, ..TrainConfig::for_model(kind).model };
            let config = TrainConfig { model, ..TrainConfig::default() };
            let session = Prepared::new(&cpu, dataset.clone(), &config).unwrap();
            let mut run = session.run(&cpu, &config, 0).unwrap();
            let mut addresses = || {
                run.train_once(0.01, &mut |_| Control::Continue).unwrap();
                let state = run.state();
                let address = |id| state.gradients.get(id).map(|gradient| gradient.bytes().as_ptr());
                state.params.iter().map(|(id, _)| address(id)).collect::<Vec<_>>()
            };
            let first = addresses();
            assert!(first.iter().all(Option::is_some), "{kind:?}: every parameter has a gradient");
            assert_eq!(first, addresses(), "{kind:?} {norm:?} {aggregator:?}");
        }
    }

    #[test]
    fn who_says_stop_when_a_run_is_done_gets_no_further_one() {
        let cpu = Cpu::new();
        let dataset = load("synth:planted,nodes=100,features=8,classes=2", &LoadOptions::default()).unwrap();
        for (n_runs, stops_at, expected) in [(3, 0, (1, true)), (3, 2, (3, false)), (1, 0, (1, false))] {
            let config = TrainConfig { epochs: 2, runs: n_runs, ..TrainConfig::default() };
            let mut n_done = 0;
            let mut observe = |event: Event<'_>| {
                let Event::RunFinished(_) = event else { return Control::Continue };
                n_done += 1;
                if n_done > stops_at { Control::Stop } else { Control::Continue }
            };
            let options = SessionOptions::default();
            let outcome = train(&cpu, dataset.clone(), &config, &options, &mut observe).unwrap();
            assert_eq!((outcome.runs.len(), outcome.stopped), expected, "{n_runs} runs, stopped at {stops_at}");
        }
    }

    #[test]
    fn a_gradient_that_a_failure_has_taken_is_made_anew() {
        let cpu = Cpu::new();
        let dataset = load("synth:planted,nodes=100,features=8,classes=2", &LoadOptions::default()).unwrap();
        let config = TrainConfig::default();
        let session = Prepared::new(&cpu, dataset, &config).unwrap();
        let mut run = session.run(&cpu, &config, 0).unwrap();
        let (id, _) = run.state().params.iter().next().unwrap();
        drop(run.state_mut().gradients.take(id));
        run.train_once(0.01, &mut |_| Control::Continue).unwrap();
        assert!(run.state().gradients.get(id).is_some());
    }

    #[test]
    fn a_failure_of_the_device_names_the_epoch_and_the_checkpoint_that_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let file = checkpoint_path(folder.path(), 0);
        let first = failure_in(1, folder.path(), false);
        assert!(first.starts_with("epoch 1 of run 0: spmm failed on the device: its memory failed"), "{first}");
        assert!(first.ends_with("no checkpoint yet") && !file.exists(), "{first}");

        let later = failure_in(6, folder.path(), false);
        assert!(later.starts_with("epoch 6 of run 0") && later.contains("epoch 4 is kept"), "{later}");
        assert!(later.ends_with(file.to_str().unwrap()), "{later}");
        assert_eq!(Checkpoint::load(&file).unwrap().progress.epoch, 4);

        let resumed = failure_in(5, folder.path(), true);
        assert!(resumed.starts_with("epoch 5 of run 0") && resumed.contains("epoch 4 is kept"), "{resumed}");
    }
}
