//! What training says of itself: [`Scores`], [`EpochTimes`], [`EpochReport`] and [`RunSummary`].

use std::ops::AddAssign;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::Metric;
use crate::links::LinkScores;
use crate::metrics::F1;
use crate::recommend::Ranking;

/// How a model does on the three parts of a split, of nodes or of links; `None` for a part without any, and for scores
/// of another task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// On the training nodes: share of nodes whose class is right; with several labels a node, micro-F1.
    pub train_accuracy: Option<f64>,
    /// On the validation nodes; it chooses the epoch.
    pub val_accuracy: Option<f64>,
    /// On the test nodes.
    pub test_accuracy: Option<f64>,
    /// Area under the receiver operating characteristic on the validation nodes, for two classes; with several labels a
    /// node, the mean over labels that have both answers. Of a link predictor, on the validation links and as many
    /// other pairs; it chooses the epoch.
    #[serde(default)]
    pub val_roc_auc: Option<f64>,
    /// As `val_roc_auc`, on the test nodes or links.
    #[serde(default)]
    pub test_roc_auc: Option<f64>,
    /// Of several labels a node, those without both answers on the validation nodes, which `val_roc_auc` leaves out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub val_labels_left_out: usize,
    /// As `val_labels_left_out`, on the test nodes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub test_labels_left_out: usize,
    /// Mean loss on the validation nodes, or on the validation links and as many other pairs.
    pub val_loss: Option<f64>,
    /// As `val_loss`, on the test nodes or links.
    pub test_loss: Option<f64>,
    /// How well a recommender ranks the test items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranking: Option<Ranking>,
    /// How a link predictor ranks the test links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<LinkScores>,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// Rule that chose an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChosenBy {
    /// Accuracy on the validation nodes; with several labels a node, micro-F1.
    ValAccuracy,
    /// ROC-AUC on the validation nodes or links.
    ValRocAuc,
    /// Recall of the test items.
    RecallAt20,
    /// Loss on the validation nodes: the metric is not defined there.
    ValLoss,
    /// Nothing: it is the last one, since there is nothing to validate on.
    LastEpoch,
}

impl ChosenBy {
    /// The name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ValAccuracy => "val_accuracy",
            Self::ValRocAuc => "val_roc_auc",
            Self::RecallAt20 => "recall_at_20",
            Self::ValLoss => "val_loss",
            Self::LastEpoch => "last_epoch",
        }
    }
}

impl Scores {
    /// The score on the validation nodes that chooses the epoch; of a link predictor, ROC-AUC.
    #[must_use]
    pub fn val(&self, metric: Metric) -> Option<f64> {
        match metric {
            // No node is classified: links are scored.
            Metric::Accuracy if self.val_accuracy.is_none() => self.val_roc_auc,
            Metric::Accuracy => self.val_accuracy,
            Metric::RocAuc => self.val_roc_auc,
        }
    }

    /// Rule that chooses an epoch with these scores.
    #[must_use]
    pub fn chosen_by(&self, metric: Metric) -> ChosenBy {
        if self.ranking.is_some() {
            return ChosenBy::RecallAt20;
        }
        match (self.val(metric), metric) {
            (Some(_), Metric::Accuracy) if self.val_accuracy.is_some() => ChosenBy::ValAccuracy,
            (Some(_), _) => ChosenBy::ValRocAuc,
            (None, _) if self.val_loss.is_some() => ChosenBy::ValLoss,
            (None, _) => ChosenBy::LastEpoch,
        }
    }

    /// Whether these scores choose their epoch over those of an earlier one: a better score on the validation nodes, or
    /// as good a one at a lower loss; where the score is not defined, a lower loss. Without validation nodes the later
    /// epoch is chosen. Recommenders go by their recall.
    #[must_use]
    pub fn better_than(&self, earlier: &Self, metric: Metric) -> bool {
        if let (Some(ranking), Some(earlier)) = (&self.ranking, &earlier.ranking) {
            return ranking.recall_at_20 > earlier.recall_at_20;
        }
        let rank = |scores: &Self| (scores.val(metric), scores.val_loss.map(|loss| -loss));
        rank(self) == (None, None) || rank(self) > rank(earlier)
    }
}

/// How the best parameters do on the test nodes, in more detail than an epoch needs.
#[derive(Clone, Debug, PartialEq)]
pub struct TestReport {
    /// F1 over classes or labels; `None` without test nodes that have a label.
    pub f1: Option<F1>,
    /// Area under the receiver operating characteristic: one value for two classes, one for each of several labels a
    /// node, none for more than two classes. `None` for a label without both answers.
    pub roc_auc: Vec<Option<f64>>,
    /// Average precision, listed as `roc_auc` is.
    pub average_precision: Vec<Option<f64>>,
}

/// Where the time of an epoch went.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EpochTimes {
    /// The training steps, until their loss is known on the host.
    pub steps: Duration,
    /// Their stages. `None` on an [asynchronous](girih_compute::Backend::is_asynchronous) backend: the host would time
    /// how long it takes to ask for a stage. A profiler of the device tells more.
    pub stages: Option<StageTimes>,
    /// Evaluation after the steps.
    pub evaluate: Duration,
}

/// Time spent in the stages of training steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageTimes {
    /// Waiting for mini-batches, and moving them to the device; zero where steps see the whole graph.
    pub batches: Duration,
    /// Forward pass and loss.
    pub forward: Duration,
    /// Backward pass.
    pub backward: Duration,
    /// The optimiser's step.
    pub optimizer: Duration,
}

impl AddAssign for StageTimes {
    fn add_assign(&mut self, other: Self) {
        self.batches += other.batches;
        self.forward += other.forward;
        self.backward += other.backward;
        self.optimizer += other.optimizer;
    }
}

/// What an epoch did.
#[derive(Clone, Debug, PartialEq)]
pub struct EpochReport {
    /// Number of the epoch, from 1.
    pub epoch: u64,
    /// Mean loss on the training nodes, before the step.
    pub train_loss: f32,
    /// Learning rate of the step.
    pub lr: f64,
    /// Where the time went.
    pub times: EpochTimes,
    /// Scores after the step, when this epoch evaluates.
    pub scores: Option<Scores>,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Number of the run, from 0.
    pub run: u64,
    /// Epochs done.
    pub epochs: u64,
    /// Epoch of the best validation score, from 1.
    pub best_epoch: u64,
    /// Rule that chose that epoch.
    pub chosen_by: ChosenBy,
    /// Scores at that epoch.
    pub best: Scores,
    /// Scores at the last epoch.
    pub last: Scores,
    /// Training loss of the last epoch.
    pub train_loss: f32,
}
