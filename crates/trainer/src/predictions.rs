//! [`Predictions`]: what a model says of every node, held against the labels.

use girih_compute::Backend;
use girih_datasets::{Labels, UNLABELLED};
use girih_graph_format::{Matrix, NodeId};

use crate::TrainError;
use crate::metrics::{Confusion, RankedMetric, accuracy, average_precision, per_label, roc_auc};
use crate::report::TestReport;

/// What a model says of every node, on the host, with the labels that it is held against.
pub(crate) struct Predictions<'l> {
    labels: &'l Labels,
    said: Said,
}

enum Said {
    Classes(Vec<u32>),
    /// Of two classes: also how much the second is preferred to the first.
    Binary(Vec<u32>, Vec<f32>),
    Logits(Matrix),
}

impl<'l> Predictions<'l> {
    /// From the logits of all nodes.
    ///
    /// # Errors
    /// When the backend fails.
    pub(crate) fn of<B: Backend>(backend: &B, logits: &B::Matrix, labels: &'l Labels) -> Result<Self, TrainError> {
        let said = match labels {
            Labels::Single { n_classes: 2, .. } => {
                let host = backend.download(logits)?;
                let preferences = (0..host.n_rows()).map(|v| host.row(v)[1] - host.row(v)[0]).collect();
                Said::Binary(backend.argmax_rows(logits)?, preferences)
            }
            Labels::Single { .. } => Said::Classes(backend.argmax_rows(logits)?),
            Labels::Multi { .. } => Said::Logits(backend.download(logits)?),
        };
        Ok(Self { labels, said })
    }

    /// Accuracy, or micro-F1 with several labels a node; `None` without labelled rows.
    pub(crate) fn score(&self, rows: &[NodeId]) -> Option<f64> {
        match (&self.said, self.labels) {
            (Said::Classes(found) | Said::Binary(found, _), Labels::Single { classes, .. }) => {
                accuracy(found, classes, rows)
            }
            _ => (!rows.is_empty()).then(|| self.confusion(rows).f1().micro),
        }
    }

    /// A metric of scores against yes or no: one value for two classes, one for each of several labels a node, none for
    /// more than two classes, where it is not defined.
    pub(crate) fn ranked(&self, metric: RankedMetric, rows: &[NodeId]) -> Vec<Option<f64>> {
        match (&self.said, self.labels) {
            (Said::Binary(_, preferences), Labels::Single { classes, .. }) => {
                let labelled = || rows.iter().map(|&v| v as usize).filter(|&v| classes[v] != UNLABELLED);
                let scores: Vec<f32> = labelled().map(|v| preferences[v]).collect();
                vec![metric(&scores, &labelled().map(|v| classes[v] == 1).collect::<Vec<_>>())]
            }
            (Said::Logits(logits), Labels::Multi { targets, .. }) => per_label(metric, logits, targets, rows),
            _ => Vec::new(),
        }
    }

    /// Everything there is to say of `rows`.
    pub(crate) fn report(&self, rows: &[NodeId]) -> TestReport {
        TestReport {
            f1: self.confusion(rows).f1(),
            roc_auc: self.ranked(roc_auc, rows),
            average_precision: self.ranked(average_precision, rows),
        }
    }

    fn confusion(&self, rows: &[NodeId]) -> Confusion {
        match (&self.said, self.labels) {
            (Said::Classes(found) | Said::Binary(found, _), Labels::Single { n_classes, classes }) => {
                Confusion::of_classes(*n_classes, found, classes, rows)
            }
            (Said::Logits(logits), Labels::Multi { targets, .. }) => Confusion::of_logits(logits, targets, rows),
            _ => unreachable!("predictions are made for the kind of the labels"),
        }
    }
}
