//! Training runs that are compared by their scores, not by speed alone.

use girih_datasets::Dataset;
use girih_features::MiniBatchBackend;
use girih_trainer::{
    BatchConfig, BatchKind, Control, MeanStd, Metric, ModelConfig, ModelKind, OptimizerConfig, RunSummary, Schedule,
    SessionOptions, TrainConfig, train,
};

use super::setup::Setup;
use crate::timing::Summary;
use crate::{Case, Error};

/// Hidden columns on real data, over all heads.
const HIDDEN: usize = 64;

/// Fan-out of attention networks in each hop of a dense graph, and the mean degree from which a graph is dense.
const DENSE_FANOUT: i64 = 25;
const DENSE: usize = 100;

/// Divisor of the number of epochs for mini-batches of generated graphs.
const FEWER_EPOCHS: u64 = 2;

/// Network for generated graphs: 128 hidden columns, because 41 classes need more than 16, without dropout of
/// features. Attention networks have no dropout. Weight decay is off, because it slows down networks whose features
/// many neighbors have averaged. The learning rate falls to zero, so that the last epochs of two runs differ little.
pub(super) fn wide(kind: ModelKind) -> TrainConfig {
    let model = ModelConfig { kind, hidden: 128, input_dropout: Some(0.0), ..ModelConfig::default() };
    let model = if kind.has_heads() { ModelConfig { hidden: 128 / model.heads, dropout: 0.0, ..model } } else { model };
    TrainConfig {
        model,
        optimizer: OptimizerConfig { weight_decay: 0.0, schedule: Schedule::Cosine {}, ..OptimizerConfig::default() },
        ..TrainConfig::default()
    }
}

/// Epochs of a quick run.
const EPOCHS_SMALL: u64 = 10;

/// Configuration of [`network`] with the caller's number of runs, and few epochs in a quick run.
pub(super) fn configured(setup: &Setup, dataset: &Dataset, model: ModelKind) -> TrainConfig {
    let full = network(dataset, model);
    let epochs = if setup.small { EPOCHS_SMALL } else { full.epochs };
    TrainConfig { runs: setup.runs, epochs, ..full }
}

/// Network for a data set, on the full graph. On real data it has 64 hidden columns, as in Shchur et al. (2018). With
/// 16, the noise of batches leaves too few active ReLUs in some runs.
fn network(dataset: &Dataset, model: ModelKind) -> TrainConfig {
    if dataset.generated {
        return wide(model);
    }
    let published = TrainConfig::for_model(model);
    let heads = if model.has_heads() { published.model.heads } else { 1 };
    TrainConfig { model: ModelConfig { hidden: HIDDEN / heads, ..published.model }, ..published }
}

/// Configuration on mini-batches of a kind, or still on the full graph. Generated graphs get fewer epochs, because
/// two thirds of their nodes train. Attention is normalised over the sampled neighbors, so dense graphs get a larger
/// fan-out.
pub(super) fn on_batches(dataset: &Dataset, full: TrainConfig, kind: BatchKind) -> TrainConfig {
    let epochs = if dataset.generated { full.epochs / FEWER_EPOCHS } else { full.epochs };
    let is_wide =
        kind == BatchKind::Neighbor && full.model.kind.has_heads() && dataset.graph.nnz() > DENSE * dataset.n_nodes();
    let fanout = if is_wide { vec![DENSE_FANOUT; full.model.layers] } else { Vec::new() };
    TrainConfig { batch: BatchConfig { kind, fanout, ..BatchConfig::default() }, epochs, ..full }
}

/// Runs of one configuration, with seeds that other configurations share.
pub(super) struct Trained {
    runs: Vec<RunSummary>,
    /// Time of the steps of an epoch, without evaluation.
    time: Summary,
}

/// Paired difference of the scores of two configurations, run by run.
pub(super) struct Difference {
    /// Mean of the difference over runs, in points.
    pub(super) points: f64,
    /// Standard error of the mean.
    pub(super) error: f64,
}

impl Trained {
    /// Trains on a data set.
    ///
    /// # Errors
    /// When training fails.
    pub(super) fn with<B: MiniBatchBackend>(
        backend: &B,
        dataset: &Dataset,
        config: &TrainConfig,
    ) -> Result<Self, Error> {
        let outcome = train(backend, dataset.clone(), config, &SessionOptions::default(), &mut |_| Control::Continue)?;
        let seconds: Vec<f64> = outcome.times.iter().map(|times| times.steps.as_secs_f64()).collect();
        Ok(Self { runs: outcome.runs, time: Summary::of(&seconds) })
    }

    /// Number of runs.
    pub(super) fn n_runs(&self) -> usize {
        self.runs.len()
    }

    /// Score of every run, in per cent.
    fn scores(&self, metric: Metric) -> Result<Vec<f64>, Error> {
        let score = |run: &RunSummary| match metric {
            Metric::Accuracy => run.best.test_accuracy,
            Metric::RocAuc => run.best.test_roc_auc,
        };
        let missing = "no test node has a label: take data with a test split";
        self.runs.iter().map(|run| Ok(100.0 * score(run).ok_or(missing)?)).collect()
    }

    /// Difference of the scores to those of another configuration with the same seeds.
    pub(super) fn minus(&self, other: &Self, metric: Metric) -> Result<Difference, Error> {
        let (expected, found) = (other.scores(metric)?, self.scores(metric)?);
        let differences: Vec<f64> = expected.iter().zip(&found).map(|(a, b)| b - a).collect();
        let spread = spread(&differences);
        Ok(Difference { points: spread.mean, error: spread.std / (differences.len() as f64).sqrt() })
    }

    /// Case with all available scores.
    pub(super) fn case(&self, case: String, metric: Metric) -> Result<Case, Error> {
        let mut case = Case::new(case, self.time);
        let shown: &[Metric] = match metric {
            Metric::Accuracy => &[Metric::Accuracy],
            Metric::RocAuc => &[Metric::Accuracy, Metric::RocAuc],
        };
        for &metric in shown {
            let (name, spread) = (name(metric), spread(&self.scores(metric)?));
            case = case.with(&format!("{name}_percent"), spread.mean).with(&format!("{name}_std_points"), spread.std);
        }
        Ok(case)
    }
}

/// Name of a score in records.
pub(super) fn name(metric: Metric) -> &'static str {
    match metric {
        Metric::Accuracy => "accuracy",
        Metric::RocAuc => "roc_auc",
    }
}

fn spread(scores: &[f64]) -> MeanStd {
    MeanStd::of(scores).expect("at least one run")
}
