//! [`Curves`]: measures of epochs, as means over runs.

use crate::output::as_written;
use crate::point::Point;

/// Maximum number of epochs of a curve.
const EPOCHS_MAX: usize = 4096;

/// Measure of an epoch.
#[derive(Clone, Copy, Debug)]
pub enum Measure {
    /// Mean loss on the training nodes.
    TrainLoss,
    /// Mean loss on the validation nodes.
    ValLoss,
    /// Mean loss on the test nodes.
    TestLoss,
    /// Accuracy on the training nodes.
    TrainAccuracy,
    /// Accuracy on the validation nodes.
    ValAccuracy,
    /// Accuracy on the test nodes.
    TestAccuracy,
    /// ROC-AUC on the validation part.
    ValRocAuc,
    /// ROC-AUC on the test part.
    TestRocAuc,
    /// Recall of a recommender, of the first 20 items.
    RecallAt20,
    /// NDCG of a recommender, of the first 20 items.
    NdcgAt20,
    /// Mean reciprocal rank of the entities of validation triples.
    ValMrr,
    /// Mean reciprocal rank of the entities of test triples.
    TestMrr,
    /// Milliseconds of the training steps.
    StepsMs,
}

impl Measure {
    /// All measures.
    pub const ALL: [Self; 13] = [
        Self::TrainLoss,
        Self::ValLoss,
        Self::TestLoss,
        Self::TrainAccuracy,
        Self::ValAccuracy,
        Self::TestAccuracy,
        Self::ValRocAuc,
        Self::TestRocAuc,
        Self::RecallAt20,
        Self::NdcgAt20,
        Self::ValMrr,
        Self::TestMrr,
        Self::StepsMs,
    ];

    /// Name in `metrics.jsonl` and `metrics.csv`.
    pub fn key(self) -> &'static str {
        match self {
            Self::TrainLoss => "train_loss",
            Self::ValLoss => "val_loss",
            Self::TestLoss => "test_loss",
            Self::TrainAccuracy => "train_accuracy",
            Self::ValAccuracy => "val_accuracy",
            Self::TestAccuracy => "test_accuracy",
            Self::ValRocAuc => "val_roc_auc",
            Self::TestRocAuc => "test_roc_auc",
            Self::RecallAt20 => "recall_at_20",
            Self::NdcgAt20 => "ndcg_at_20",
            Self::ValMrr => "val_mrr",
            Self::TestMrr => "test_mrr",
            Self::StepsMs => "ms",
        }
    }

    /// Value of a point; `None` if the epoch has none.
    pub fn of(self, point: &Point) -> Option<f64> {
        match self {
            Self::TrainLoss => Some(as_written(point.train_loss)),
            Self::ValLoss => point.val_loss,
            Self::TestLoss => point.test_loss,
            Self::TrainAccuracy => point.train_accuracy,
            Self::ValAccuracy => point.val_accuracy,
            Self::TestAccuracy => point.test_accuracy,
            Self::ValRocAuc => point.val_roc_auc,
            Self::TestRocAuc => point.test_roc_auc,
            Self::RecallAt20 => point.recall_at_20,
            Self::NdcgAt20 => point.ndcg_at_20,
            Self::ValMrr => point.val_mrr,
            Self::TestMrr => point.test_mrr,
            Self::StepsMs => Some(point.ms),
        }
    }
}

/// Value of a curve at an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// Epoch, from 1.
    pub epoch: u64,
    /// Mean over the runs that have the epoch.
    pub mean: f64,
    /// Lowest value of a run.
    pub low: f64,
    /// Highest value of a run.
    pub high: f64,
}

/// All curves of a training session, in bounded memory. Beyond 4096 epochs with a value, a curve keeps every 2nd, 4th
/// and so on: epochs whose number is a multiple.
#[derive(Debug, Default)]
pub struct Curves([Curve; Measure::ALL.len()]);

impl Curves {
    /// Adds the measures of an epoch; non-finite values are left out.
    pub fn add(&mut self, point: &Point) {
        for measure in Measure::ALL {
            if let Some(value) = measure.of(point).filter(|value| value.is_finite()) {
                self.0[measure as usize].add(point.epoch, value);
            }
        }
    }

    /// Epochs, counted from 1, with mean and range over runs.
    pub fn points(&self, measure: Measure) -> Vec<CurvePoint> {
        self.0[measure as usize].sums.iter().map(OfEpoch::point).collect()
    }

    /// Epochs, counted from 1, with the mean over runs.
    pub fn means(&self, measure: Measure) -> Vec<(u64, f64)> {
        self.points(measure).into_iter().map(|point| (point.epoch, point.mean)).collect()
    }

    /// Whether any epoch has this measure.
    pub fn have(&self, measure: Measure) -> bool {
        !self.0[measure as usize].sums.is_empty()
    }
}

#[derive(Debug, Default)]
struct Curve {
    /// Epochs in order. One contiguous allocation: small tree nodes would lie between the allocations of
    /// mini-batches, and would keep pages from being returned to the system.
    sums: Vec<OfEpoch>,
    /// Log2 of the step between kept epochs, whose numbers are multiples of the step.
    log2_step: u32,
}

/// Sum and range over the runs that have an epoch, and their number.
#[derive(Debug)]
struct OfEpoch {
    epoch: u64,
    sum: f64,
    low: f64,
    high: f64,
    n: u32,
}

impl OfEpoch {
    fn of_one(epoch: u64, value: f64) -> Self {
        Self { epoch, sum: value, low: value, high: value, n: 1 }
    }

    fn add(&mut self, value: f64) {
        self.sum += value;
        (self.low, self.high) = (self.low.min(value), self.high.max(value));
        self.n += 1;
    }

    fn point(&self) -> CurvePoint {
        let &Self { epoch, sum, low, high, n } = self;
        CurvePoint { epoch, mean: sum / f64::from(n), low, high }
    }
}

impl Curve {
    fn add(&mut self, epoch: u64, value: f64) {
        let keeps = |log2_step: u32, epoch: u64| epoch.trailing_zeros() >= log2_step;
        if !keeps(self.log2_step, epoch) {
            return;
        }
        match self.sums.binary_search_by_key(&epoch, |of_epoch| of_epoch.epoch) {
            Ok(at) => self.sums[at].add(value),
            Err(at) => self.sums.insert(at, OfEpoch::of_one(epoch, value)),
        }
        if self.sums.len() > EPOCHS_MAX {
            self.log2_step += 1;
            self.sums.retain(|of_epoch| keeps(self.log2_step, of_epoch.epoch));
        }
    }
}
