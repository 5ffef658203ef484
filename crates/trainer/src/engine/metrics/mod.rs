//! Metrics of predictions against labels.

mod confusion_matrix;
mod filtered;
mod ranked;
mod ranking;

use girih_datasets::UNLABELLED;
use girih_graph_format::{Matrix, NodeId};

pub use confusion_matrix::ConfusionMatrix;
pub use filtered::{EntityRanks, filtered_rank};
pub use ranked::{
    RankedMetric, average_precision, hits_at, mean_over_labels, mean_reciprocal_rank, n_left_out, roc_auc,
};
pub use ranking::{Ranking, TOP_K};

/// Share of `rows` with a correct prediction; `None` if no row has a label.
#[must_use]
pub fn accuracy(predicted: &[u32], classes: &[u32], rows: &[NodeId]) -> Option<f64> {
    let [correct, n] = count_correct(predicted, classes, rows);
    (n > 0).then(|| correct as f64 / n as f64)
}

/// Number of `rows` with a correct prediction, and number of labelled `rows`.
pub(crate) fn count_correct(predicted: &[u32], classes: &[u32], rows: &[NodeId]) -> [u64; 2] {
    let labelled = rows.iter().map(|&v| v as usize).filter(|&v| classes[v] != UNLABELLED);
    labelled.fold([0, 0], |[correct, n], v| [correct + u64::from(predicted[v] == classes[v]), n + 1])
}

/// True positives, false positives and false negatives of every class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confusion {
    true_positives: Vec<u64>,
    false_positives: Vec<u64>,
    false_negatives: Vec<u64>,
}

/// Precision, recall and F1 of a class; `None` for a ratio without a denominator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassScores {
    /// Number of nodes of the class.
    pub n_nodes: u64,
    /// Share of correct answers among the predictions of the class.
    pub precision: Option<f64>,
    /// Share of the nodes of the class that are predicted so.
    pub recall: Option<f64>,
    /// Harmonic mean of precision and recall; `None` for a class that neither occurs nor is predicted.
    pub f1: Option<f64>,
}

/// F1 score (harmonic mean of precision and recall), averaged in two ways.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct F1 {
    /// Micro average, over all decisions.
    pub micro: f64,
    /// Macro average, over classes with equal weights. A class that neither occurs nor is predicted counts zero.
    pub macro_: f64,
    /// Number of classes that neither occur nor are predicted.
    pub n_absent: usize,
}

impl Confusion {
    fn new(n_classes: usize) -> Self {
        let zeros = || vec![0; n_classes];
        Self { true_positives: zeros(), false_positives: zeros(), false_negatives: zeros() }
    }

    /// Confusion of one predicted class per node. Nodes without a label are ignored.
    #[must_use]
    pub fn of_classes(n_classes: usize, predicted: &[u32], classes: &[u32], rows: &[NodeId]) -> Self {
        let mut confusion = Self::new(n_classes);
        for &v in rows {
            let (found, wanted) = (predicted[v as usize] as usize, classes[v as usize]);
            if wanted == UNLABELLED {
                continue;
            }
            if found == wanted as usize {
                confusion.true_positives[found] += 1;
            } else {
                confusion.false_positives[found] += 1;
                confusion.false_negatives[wanted as usize] += 1;
            }
        }
        confusion
    }

    /// Confusion of logits and 0/1 targets. A class is predicted where its logit is positive.
    #[must_use]
    pub fn of_logits(logits: &Matrix, targets: &Matrix, rows: &[NodeId]) -> Self {
        let mut confusion = Self::new(targets.n_cols());
        for &v in rows {
            for (class, (&logit, &target)) in logits.row(v as usize).iter().zip(targets.row(v as usize)).enumerate() {
                match (logit > 0.0, target > 0.5) {
                    (true, true) => confusion.true_positives[class] += 1,
                    (true, false) => confusion.false_positives[class] += 1,
                    (false, true) => confusion.false_negatives[class] += 1,
                    (false, false) => {}
                }
            }
        }
        confusion
    }

    /// All counts: true positives, false positives, false negatives, each by class.
    pub(crate) fn counts(&self) -> Vec<u64> {
        [&self.true_positives[..], &self.false_positives, &self.false_negatives].concat()
    }

    /// Inverse of [`counts`](Self::counts).
    pub(crate) fn of_counts(counts: &[u64]) -> Self {
        let (positive, negatives) = counts.split_at(counts.len() / 3 * 2);
        let (true_positives, false_positives) = positive.split_at(counts.len() / 3);
        Self {
            true_positives: true_positives.to_vec(),
            false_positives: false_positives.to_vec(),
            false_negatives: negatives.to_vec(),
        }
    }

    /// Scores of every class.
    #[must_use]
    pub fn of_each_class(&self) -> Vec<ClassScores> {
        let share = |part: u64, all: u64| (all > 0).then(|| part as f64 / all as f64);
        let each = self.true_positives.iter().zip(&self.false_positives).zip(&self.false_negatives);
        each.map(|((&tp, &fp), &fneg)| ClassScores {
            n_nodes: tp + fneg,
            precision: share(tp, tp + fp),
            recall: share(tp, tp + fneg),
            f1: share(2 * tp, 2 * tp + fp + fneg),
        })
        .collect()
    }

    /// Micro and macro F1; `None` if no class occurs and none is predicted.
    #[must_use]
    pub fn f1(&self) -> Option<F1> {
        let f1 = |tp: u64, fp: u64, fneg: u64| {
            let decisions = 2 * tp + fp + fneg;
            if decisions == 0 { 0.0 } else { 2.0 * tp as f64 / decisions as f64 }
        };
        let sum = |counts: &[u64]| counts.iter().sum();
        let counts_of = |c: usize| [self.true_positives[c], self.false_positives[c], self.false_negatives[c]];
        let n_classes = self.true_positives.len();
        let per_class = (0..n_classes).map(counts_of).map(|[tp, fp, fneg]| f1(tp, fp, fneg));
        let n_absent = (0..n_classes).filter(|&c| counts_of(c) == [0; 3]).count();
        (n_absent < n_classes).then(|| F1 {
            micro: f1(sum(&self.true_positives), sum(&self.false_positives), sum(&self.false_negatives)),
            macro_: per_class.sum::<f64>() / n_classes as f64,
            n_absent,
        })
    }
}

/// F1 of one predicted class per node; `None` if no row has a label.
#[must_use]
pub fn f1_scores(n_classes: usize, predicted: &[u32], classes: &[u32], rows: &[NodeId]) -> Option<F1> {
    Confusion::of_classes(n_classes, predicted, classes, rows).f1()
}
