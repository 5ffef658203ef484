//! [`Point`]: measures of an epoch, as training records and prints them.

use std::collections::BTreeMap;

use girih_trainer::{EpochReport, Scores};
use serde::{Deserialize, Serialize};

use crate::dates;
use crate::error::CliError;
use crate::output::ms;
use crate::scores::{NodeScore, Subset};

/// Measures of one epoch of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Always `epoch`: the line is an event, as those that `--json` prints.
    pub event: String,
    /// Run, from 0.
    pub run: u64,
    /// Epoch, from 1.
    pub epoch: u64,
    /// Mean loss on the training nodes, before the step.
    pub train_loss: f32,
    /// Accuracy on the training part after the step; `None` in epochs without an evaluation.
    pub train_accuracy: Option<f64>,
    /// As `train_accuracy`, on the validation part.
    pub val_accuracy: Option<f64>,
    /// As `train_accuracy`, on the test part.
    pub test_accuracy: Option<f64>,
    /// Mean loss on the validation nodes.
    pub val_loss: Option<f64>,
    /// Mean loss on the test nodes.
    pub test_loss: Option<f64>,
    /// ROC-AUC on the validation part, for links, two classes, or several labels a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_roc_auc: Option<f64>,
    /// As `val_roc_auc`, on the test part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_roc_auc: Option<f64>,
    /// Recall of a recommender: share of test items among the first 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recall_at_20: Option<f64>,
    /// NDCG of a recommender: discounted gain of the first 20 over the best possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ndcg_at_20: Option<f64>,
    /// Mean reciprocal rank of the entities of validation triples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_mrr: Option<f64>,
    /// As `val_mrr`, of the test triples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_mrr: Option<f64>,
    /// Reasons why a score that chooses the epoch has no value, by name of the score.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub undefined: BTreeMap<String, String>,
    /// Learning rate.
    pub lr: f64,
    /// Milliseconds of the training step.
    pub ms: f64,
    /// End of the epoch, in seconds since 1970-01-01 UTC, to the millisecond; zero in files of earlier versions.
    #[serde(default)]
    pub time: f64,
}

impl Point {
    /// Point of an epoch.
    pub fn new(run: u64, report: &EpochReport) -> Self {
        let scores = report.scores;
        Self {
            event: "epoch".to_owned(),
            run,
            epoch: report.epoch,
            train_loss: report.train_loss,
            train_accuracy: scores.and_then(|s| s.train_accuracy),
            val_accuracy: scores.and_then(|s| s.val_accuracy),
            test_accuracy: scores.and_then(|s| s.test_accuracy),
            val_loss: scores.and_then(|s| s.val_loss),
            test_loss: scores.and_then(|s| s.test_loss),
            val_roc_auc: scores.and_then(|s| s.val_roc_auc),
            test_roc_auc: scores.and_then(|s| s.test_roc_auc),
            recall_at_20: scores.and_then(|s| s.ranking).map(|r| r.recall_at_20),
            ndcg_at_20: scores.and_then(|s| s.ranking).map(|r| r.ndcg_at_20),
            val_mrr: scores.and_then(|s| s.val_mrr()),
            test_mrr: scores.and_then(|s| s.triples?.test).map(|ranks| ranks.mrr),
            undefined: BTreeMap::new(),
            lr: report.lr,
            ms: ms(report.times.steps),
            time: dates::now(),
        }
    }

    /// Point as a line of `metrics.jsonl`, which `--json` also prints.
    pub fn to_line(&self) -> Result<String, CliError> {
        serde_json::to_string(self).map_err(|e| CliError::Other(e.to_string()))
    }
}

impl Point {
    /// Adds the reasons why the score that chooses an epoch of classified nodes has no value.
    pub fn with_reasons(mut self, report: &EpochReport, score: NodeScore) -> Self {
        let is_of_nodes =
            |scores: &Scores| scores.ranking.is_none() && scores.links.is_none() && scores.triples.is_none();
        let Some(scores) = report.scores.filter(is_of_nodes) else { return self };
        let keys = match score {
            NodeScore::RocAuc => ["val_roc_auc", "test_roc_auc"],
            NodeScore::Accuracy | NodeScore::MicroF1 => ["val_accuracy", "test_accuracy"],
        };
        for (key, part) in keys.into_iter().zip([Subset::Val, Subset::Test]) {
            let why = score.why_undefined(&scores, part);
            self.undefined.extend(why.map(|why| (key.to_owned(), why.to_owned())));
        }
        self
    }
}
