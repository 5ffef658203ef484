//! Scores for display: values, or the reason why there are none.

use girih_trainer::{ChosenBy, Metric, Scores};
use serde_json::{Map, Value};

use crate::output::{Results, percent};

/// Part of a split that is scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subset {
    /// Training part.
    Train,
    /// Validation part.
    Val,
    /// Test part.
    Test,
}

/// Score of classified nodes that chooses an epoch or is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeScore {
    /// Share of correct classes.
    Accuracy,
    /// Harmonic mean of precision and recall, over all labels of all nodes.
    MicroF1,
    /// Area under the receiver operating characteristic.
    RocAuc,
}

impl NodeScore {
    /// Score of a metric; with several labels a node, accuracy is micro-F1.
    pub fn of_metric(metric: Metric, multi_label: bool) -> Self {
        match metric {
            Metric::RocAuc => Self::RocAuc,
            Metric::Accuracy => Self::of_classes(multi_label),
        }
    }

    /// Share of correct answers: accuracy, or micro-F1 with several labels a node.
    pub fn of_classes(multi_label: bool) -> Self {
        if multi_label { Self::MicroF1 } else { Self::Accuracy }
    }

    /// Name in results.
    pub fn key(self) -> &'static str {
        match self {
            Self::Accuracy => "accuracy",
            Self::MicroF1 => "f1_micro",
            Self::RocAuc => "roc-auc",
        }
    }

    /// Name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Accuracy => "accuracy",
            Self::MicroF1 => "micro-F1",
            Self::RocAuc => "ROC-AUC",
        }
    }

    /// Value on a part of the split.
    pub fn value(self, scores: &Scores, part: Subset) -> Option<f64> {
        match (self, part) {
            (Self::RocAuc, Subset::Train) => None,
            (Self::RocAuc, Subset::Val) => scores.val_roc_auc,
            (Self::RocAuc, Subset::Test) => scores.test_roc_auc,
            (_, Subset::Train) => scores.train_accuracy,
            (_, Subset::Val) => scores.val_accuracy,
            (_, Subset::Test) => scores.test_accuracy,
        }
    }

    /// Reason why a part has no value; `None` if it has one.
    pub fn why_undefined(self, scores: &Scores, part: Subset) -> Option<&'static str> {
        if self.value(scores, part).is_some() {
            return None;
        }
        let has_nodes = match part {
            Subset::Train => true,
            Subset::Val => scores.val_loss.is_some(),
            Subset::Test => scores.test_loss.is_some(),
        };
        Some(match (has_nodes, part, self) {
            (false, Subset::Test, _) => "no test nodes with a label",
            (false, ..) => "no validation nodes with a label",
            (true, Subset::Train, Self::RocAuc) => "not scored on training nodes",
            (true, Subset::Train, _) => "no training nodes with a label, or --score-by samples, which scores none",
            (true, _, Self::RocAuc) => "one class only",
            (true, _, Self::MicroF1) => "no label occurs, and none is predicted",
            (true, _, Self::Accuracy) => "no node with a label",
        })
    }
}

/// Reasons of scores without a value, by their names in results.
#[derive(Debug, Default)]
pub struct Undefined(Map<String, Value>);

impl Undefined {
    /// Records a score without a value.
    pub fn note(&mut self, key: &str, why: Option<&str>) {
        if let Some(why) = why {
            self.0.insert(key.to_owned(), why.into());
        }
    }

    /// Adds the reasons to results, if there are any.
    pub fn add_to(self, results: &mut Results) {
        if !self.0.is_empty() {
            results.add_hidden("undefined", Value::Object(self.0));
        }
    }
}

/// Share as a percentage, or the reason why there is none.
pub fn percent_or(value: Option<f64>, why: Option<&str>) -> String {
    match (value, why) {
        (Some(value), _) => percent(value),
        (None, Some(why)) => format!("undefined: {why}"),
        (None, None) => String::new(),
    }
}

/// Rule that chose an epoch, in words.
pub fn chosen_in_words(chosen: ChosenBy, score: NodeScore) -> String {
    match chosen {
        ChosenBy::ValAccuracy => {
            format!("by validation {}", NodeScore::of_classes(score == NodeScore::MicroF1).title())
        }
        ChosenBy::ValRocAuc => "by validation ROC-AUC".to_owned(),
        ChosenBy::ValMrr => "by the mean reciprocal rank of validation triples".to_owned(),
        ChosenBy::RecallAt20 => "by recall@20 of the test items".to_owned(),
        ChosenBy::ValLoss => format!("by validation loss: {} is undefined there", score.title()),
        ChosenBy::LastEpoch => "the last one: there is nothing to validate on".to_owned(),
    }
}

/// Position of the largest value; the first one of equal values.
pub fn argmax(row: &[f32]) -> usize {
    (1..row.len()).fold(0, |best, at| if row[at] > row[best] { at } else { best })
}
