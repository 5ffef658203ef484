//! Results of training: [`Scores`], [`EpochTimes`], [`EpochReport`] and [`RunSummary`].

use std::ops::AddAssign;
use std::time::Duration;

use girih_features::Tier;
use serde::{Deserialize, Serialize};

use super::metrics::{Confusion, ConfusionMatrix, EntityRanks, F1, Ranking};
use crate::config::Metric;

/// Scores of a model on the three parts of a split, of nodes or of links. `None` for an empty part and for scores of
/// other tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Share of correctly classified training nodes; with several labels per node, micro-F1.
    pub train_accuracy: Option<f64>,
    /// As `train_accuracy`, on the validation nodes. It chooses the epoch.
    pub val_accuracy: Option<f64>,
    /// As `train_accuracy`, on the test nodes.
    pub test_accuracy: Option<f64>,
    /// Area under the receiver operating characteristic on the validation nodes, for two classes. With several labels
    /// per node, the mean over labels with both answers. For a link predictor, on the validation links and as many
    /// non-links; it chooses the epoch.
    #[serde(default)]
    pub val_roc_auc: Option<f64>,
    /// As `val_roc_auc`, on the test nodes or links.
    #[serde(default)]
    pub test_roc_auc: Option<f64>,
    /// With several labels per node, number of labels that `val_roc_auc` omits: the validation nodes have only one
    /// answer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub val_labels_left_out: usize,
    /// As `val_labels_left_out`, on the test nodes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub test_labels_left_out: usize,
    /// Mean loss on the validation nodes, or on the validation links and as many non-links.
    pub val_loss: Option<f64>,
    /// As `val_loss`, on the test nodes or links.
    pub test_loss: Option<f64>,
    /// Ranking scores of a recommender on the test items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranking: Option<Ranking>,
    /// Ranking scores of a link predictor on the test links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<LinkScores>,
    /// Ranks of the entities of triples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub triples: Option<TripleScores>,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// Rule that chose the best epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChosenBy {
    /// Accuracy on the validation nodes; with several labels per node, micro-F1.
    ValAccuracy,
    /// ROC-AUC on the validation nodes or links.
    ValRocAuc,
    /// Recall of the test items.
    RecallAt20,
    /// Mean reciprocal rank of the entities of validation triples.
    ValMrr,
    /// Loss on the validation nodes, where the metric is not defined.
    ValLoss,
    /// None: without validation data, the last epoch counts.
    LastEpoch,
}

impl ChosenBy {
    /// Name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ValAccuracy => "val_accuracy",
            Self::ValRocAuc => "val_roc_auc",
            Self::RecallAt20 => "recall_at_20",
            Self::ValMrr => "val_mrr",
            Self::ValLoss => "val_loss",
            Self::LastEpoch => "last_epoch",
        }
    }
}

impl Scores {
    /// Score on the validation nodes that chooses the epoch; for a link predictor, ROC-AUC.
    #[must_use]
    pub fn val(&self, metric: Metric) -> Option<f64> {
        match metric {
            // Link predictors have no accuracy.
            Metric::Accuracy if self.val_accuracy.is_none() => self.val_roc_auc,
            Metric::Accuracy => self.val_accuracy,
            Metric::RocAuc => self.val_roc_auc,
        }
    }

    /// Mean reciprocal rank of the entities of validation triples.
    #[must_use]
    pub fn val_mrr(&self) -> Option<f64> {
        self.triples?.val.map(|ranks| ranks.mrr)
    }

    /// Rule that chooses an epoch with these scores.
    #[must_use]
    pub fn chosen_by(&self, metric: Metric) -> ChosenBy {
        if self.ranking.is_some() {
            return ChosenBy::RecallAt20;
        }
        if self.val_mrr().is_some() {
            return ChosenBy::ValMrr;
        }
        match (self.val(metric), metric) {
            (Some(_), Metric::Accuracy) if self.val_accuracy.is_some() => ChosenBy::ValAccuracy,
            (Some(_), _) => ChosenBy::ValRocAuc,
            (None, _) if self.val_loss.is_some() => ChosenBy::ValLoss,
            (None, _) => ChosenBy::LastEpoch,
        }
    }

    /// Whether these scores are better than those of an earlier epoch: a higher validation score, or an equal one at
    /// a lower loss. Where the score is not defined, a lower loss counts. Without validation nodes, later epochs
    /// always win. Recommenders compare recall.
    #[must_use]
    pub fn better_than(&self, earlier: &Self, metric: Metric) -> bool {
        if let (Some(ranking), Some(earlier)) = (&self.ranking, &earlier.ranking) {
            return ranking.recall_at_20 > earlier.recall_at_20;
        }
        let val = |scores: &Self| scores.val_mrr().or(scores.val(metric));
        let rank = |scores: &Self| (val(scores), scores.val_loss.map(|loss| -loss));
        rank(self) == (None, None) || rank(self) > rank(earlier)
    }
}

/// Detailed scores of the best parameters on the test nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct TestReport {
    /// F1 over classes or labels; `None` without labelled test nodes.
    pub f1: Option<F1>,
    /// Area under the receiver operating characteristic: one value for two classes, one per label with several labels
    /// per node, none for more than two classes. `None` for a label without both answers.
    pub roc_auc: Vec<Option<f64>>,
    /// Average precision, in the layout of `roc_auc`.
    pub average_precision: Vec<Option<f64>>,
    /// Correct and wrong answers for every class or label.
    pub confusion: Confusion,
    /// Test nodes by class and prediction; `None` with several labels per node, and for very many classes.
    pub matrix: Option<ConfusionMatrix>,
}

/// Times of the parts of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EpochTimes {
    /// Training steps, until the host knows their loss.
    pub steps: Duration,
    /// Stages of the steps. `None` on an [asynchronous](girih_compute::Memory::is_asynchronous) backend, where the
    /// host would only measure launches. Use a profiler of the device there.
    pub stages: Option<StageTimes>,
    /// Evaluation after the steps.
    pub evaluate: Duration,
}

/// Times of the stages of training steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageTimes {
    /// Waiting for mini-batches and moving them to the device; zero for full batches.
    pub batches: Duration,
    /// Forward pass and loss.
    pub forward: Duration,
    /// Backward pass.
    pub backward: Duration,
    /// Optimiser step.
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

/// Report of an epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct EpochReport {
    /// Number of the epoch, from 1.
    pub epoch: u64,
    /// Mean loss on the training nodes, before each step.
    pub train_loss: f32,
    /// Learning rate of the epoch.
    pub lr: f64,
    /// Times of the parts of the epoch.
    pub times: EpochTimes,
    /// Scores after the epoch, if it was evaluated.
    pub scores: Option<Scores>,
}

/// Summary of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Number of the run, from 0.
    pub run: u64,
    /// Number of epochs done.
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

/// Contents of one kind of memory, of features or neighbors, and the reads that it serves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CacheReport {
    /// `features`, or `neighbors` for rows to sample from.
    pub of: &'static str,
    /// Kind of memory.
    #[serde(serialize_with = "tier::serialize")]
    pub tier: Tier,
    /// Number of nodes with rows there.
    pub n_nodes: usize,
    /// Bytes of these rows, counted once.
    pub bytes: u64,
    /// Fraction of the reads of such rows that it serves, in some batches of the first epoch. Hotness is not measured
    /// on these batches.
    pub reads: f64,
}

/// Tier in results, by name.
mod tier {
    use girih_features::Tier;
    use serde::Serializer;

    #[allow(clippy::trivially_copy_pass_by_ref)]
    pub(super) fn serialize<S: Serializer>(tier: &Tier, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(tier.name())
    }
}

/// Progress within an epoch of several batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartialEpoch {
    /// Number of batches done.
    pub batches: u64,
    /// Sum of the losses of all nodes of these batches.
    pub loss_sum: f64,
    /// Number of these nodes.
    pub n_losses: u64,
}

impl PartialEpoch {
    /// Whether the epoch has done no batch yet.
    #[must_use]
    pub fn is_start(&self) -> bool {
        self.batches == 0
    }
}

/// Report of a finished batch that is not the last of its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchDone {
    /// Number of batches done in this epoch.
    pub batches: u64,
    /// Number of batches of an epoch.
    pub n_batches: u64,
}

/// Ranks of the entities of triples, among those that are not known to be right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TripleScores {
    /// Ranks of the heads and tails of validation triples, which choose the epoch; `None` without any.
    pub val: Option<EntityRanks>,
    /// Ranks of the heads and tails of test triples; `None` without any.
    pub test: Option<EntityRanks>,
    /// Number of entities of validation and test triples that no training triple names. Their rows are untrained.
    pub unseen_entities: usize,
}

/// Ranks of test links among as many non-links. [`Scores`] also has ROC-AUC and losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkScores {
    /// Mean over links of the precision among all pairs that score at least as high.
    pub average_precision: f64,
    /// Fraction of links with a higher score than the [`HITS_K`](crate::HITS_K)-th best non-link.
    pub hits_at_20: f64,
    /// Mean over links of the reciprocal rank among all non-links.
    pub mrr: f64,
}
