//! Trainings that are compared by what they learn, for suites that ask for scores and not for speed alone.

use girih_compute::Backend;
use girih_datasets::Dataset;
use girih_trainer::{
    BatchConfig, BatchKind, Control, MeanStd, Metric, ModelConfig, ModelKind, OptimizerConfig, RunSummary, Schedule,
    SessionOptions, TrainConfig, train,
};

use crate::timing::Summary;
use crate::{Case, Error};

/// Hidden columns on real data, of all heads together.
const HIDDEN: usize = 64;

/// How many neighbours an attention network samples in each hop of a dense graph, and how many a node of one has at
/// least.
const DENSE_FANOUT: i64 = 25;
const DENSE: usize = 100;

/// How many times fewer epochs are trained on batches of generated graphs.
const FEWER_EPOCHS: u64 = 2;

/// A network for generated graphs, whose 41 classes want more than 16 hidden columns: 128, on features that are not
/// dropped out; attention networks drop nothing. Weights do not decay, which would hold back those that read features
/// that many neighbours have evened out; the rate falls to zero, so that the last epochs of two runs differ little.
pub(super) fn wide(kind: ModelKind) -> TrainConfig {
    let model = ModelConfig { kind, hidden: 128, input_dropout: Some(0.0), ..ModelConfig::default() };
    let model = if kind.has_heads() { ModelConfig { hidden: 128 / model.heads, dropout: 0.0, ..model } } else { model };
    TrainConfig {
        model,
        optimizer: OptimizerConfig { weight_decay: 0.0, schedule: Schedule::Cosine {}, ..OptimizerConfig::default() },
        ..TrainConfig::default()
    }
}

/// A network for a data set, on the full graph: on real data with 64 hidden columns, as Shchur et al. (2018) compare
/// networks. With 16, the noise of batches leaves too few rectifiers alive in some runs.
pub(super) fn network(dataset: &Dataset, model: ModelKind) -> TrainConfig {
    if dataset.generated {
        return wide(model);
    }
    let published = TrainConfig::for_model(model);
    let heads = if model.has_heads() { published.model.heads } else { 1 };
    TrainConfig { model: ModelConfig { hidden: HIDDEN / heads, ..published.model }, ..published }
}

/// A configuration on mini-batches of a kind, or still on the full graph; in fewer epochs on generated graphs, two
/// thirds of whose nodes train. Shares of attention are those among the sampled neighbours: where nodes have hundreds,
/// more are sampled of them.
pub(super) fn on_batches(dataset: &Dataset, full: TrainConfig, kind: BatchKind) -> TrainConfig {
    let epochs = if dataset.generated { full.epochs / FEWER_EPOCHS } else { full.epochs };
    let is_wide =
        kind == BatchKind::Neighbor && full.model.kind.has_heads() && dataset.graph.nnz() > DENSE * dataset.n_nodes();
    let fanout = if is_wide { vec![DENSE_FANOUT; full.model.layers] } else { Vec::new() };
    TrainConfig { batch: BatchConfig { kind, fanout, ..BatchConfig::default() }, epochs, ..full }
}

/// Runs of one configuration, each with a seed of its own that other configurations share.
pub(super) struct Trained {
    runs: Vec<RunSummary>,
    /// What the steps of an epoch took, evaluation left out.
    time: Summary,
}

/// Paired difference of the scores of two configurations, run by run.
pub(super) struct Difference {
    /// Mean over runs of the difference, in points.
    pub(super) points: f64,
    /// Its standard error.
    pub(super) error: f64,
}

impl Trained {
    /// Trains on a data set.
    ///
    /// # Errors
    /// When training fails.
    pub(super) fn with<B: Backend>(backend: &B, dataset: &Dataset, config: &TrainConfig) -> Result<Self, Error> {
        let outcome = train(backend, dataset.clone(), config, &SessionOptions::default(), &mut |_| Control::Continue)?;
        let seconds: Vec<f64> = outcome.times.iter().map(|times| times.steps.as_secs_f64()).collect();
        Ok(Self { runs: outcome.runs, time: Summary::of(&seconds) })
    }

    /// How many trainings there were.
    pub(super) fn n_runs(&self) -> usize {
        self.runs.len()
    }

    /// The score of every run, in percent.
    fn scores(&self, metric: Metric) -> Result<Vec<f64>, Error> {
        let score = |run: &RunSummary| match metric {
            Metric::Accuracy => run.best.test_accuracy,
            Metric::RocAuc => run.best.test_roc_auc,
        };
        let missing = "no test node has a label: take data with a test split";
        self.runs.iter().map(|run| Ok(100.0 * score(run).ok_or(missing)?)).collect()
    }

    /// The scores less those of the other configuration's runs with the same seeds.
    pub(super) fn minus(&self, other: &Self, metric: Metric) -> Result<Difference, Error> {
        let (expected, found) = (other.scores(metric)?, self.scores(metric)?);
        let differences: Vec<f64> = expected.iter().zip(&found).map(|(a, b)| b - a).collect();
        let spread = spread(&differences);
        Ok(Difference { points: spread.mean, error: spread.std / (differences.len() as f64).sqrt() })
    }

    /// The case, with each score that there is.
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

/// What a score is called in records.
pub(super) fn name(metric: Metric) -> &'static str {
    match metric {
        Metric::Accuracy => "accuracy",
        Metric::RocAuc => "roc_auc",
    }
}

fn spread(scores: &[f64]) -> MeanStd {
    MeanStd::of(scores).expect("at least one run")
}
