//! [`Predictions`]: predictions for the local nodes, compared with their labels.

use girih_compute::Backend;
use girih_datasets::{Labels, Split, UNLABELLED};
use girih_graph_format::{Matrix, NodeId};

use crate::TrainError;
use crate::engine::{
    Confusion, ConfusionMatrix, RankedMetric, Scores, TestReport, average_precision, count_correct, mean_over_labels,
    n_left_out, roc_auc,
};
use crate::tape::ranks::Ranks;

/// Predictions of a model for the local nodes, on the host, with their labels. Each of several ranks has its own
/// nodes, and all ranks call every method together. Counts are summed over ranks; ranked scores are gathered, one
/// label at a time.
pub(crate) struct Predictions<'l, B: Backend> {
    labels: &'l Labels,
    ranks: Option<&'l Ranks<B>>,
    predicted: Predicted,
}

/// Predictions for some nodes after others, on the host.
#[derive(Default)]
pub(crate) struct PredictionParts {
    classes: Vec<u32>,
    /// For two classes, the logit of the second class minus that of the first.
    preferences: Vec<f32>,
    /// For several labels a node, rows of this width.
    logits: (Vec<f32>, usize),
}

impl PredictionParts {
    /// Adds the predictions for the next nodes, from their logits.
    ///
    /// # Errors
    /// When the backend fails.
    pub(crate) fn add<B: Backend>(
        &mut self,
        backend: &B,
        logits: &B::Matrix,
        labels: &Labels,
    ) -> Result<(), TrainError> {
        match labels {
            Labels::Single { n_classes, .. } => {
                if *n_classes == 2 {
                    let host = backend.download(logits)?;
                    self.preferences.extend((0..host.n_rows()).map(|v| host.row(v)[1] - host.row(v)[0]));
                }
                self.classes.extend(backend.argmax_rows(logits)?);
            }
            Labels::Multi { .. } => {
                let host = backend.download(logits)?;
                self.logits.1 = host.n_cols();
                self.logits.0.extend(host.data());
            }
        }
        Ok(())
    }
}

enum Predicted {
    Classes(Vec<u32>),
    /// Two classes: predicted classes, and the logit of the second class minus that of the first.
    Binary(Vec<u32>, Vec<f32>),
    Logits(Matrix),
}

impl<'l, B: Backend> Predictions<'l, B> {
    /// Predictions from the logits of the local nodes.
    ///
    /// # Errors
    /// When the backend fails.
    pub(crate) fn of(
        backend: &B,
        logits: &B::Matrix,
        labels: &'l Labels,
        ranks: Option<&'l Ranks<B>>,
    ) -> Result<Self, TrainError> {
        let mut parts = PredictionParts::default();
        parts.add(backend, logits, labels)?;
        Ok(Self::of_parts(parts, labels, ranks))
    }

    /// Predictions for all local nodes, in their order.
    pub(crate) fn of_parts(parts: PredictionParts, labels: &'l Labels, ranks: Option<&'l Ranks<B>>) -> Self {
        let PredictionParts { classes, preferences, logits: (values, width) } = parts;
        let predicted = match labels {
            Labels::Single { n_classes: 2, .. } => Predicted::Binary(classes, preferences),
            Labels::Single { .. } => Predicted::Classes(classes),
            Labels::Multi { .. } => {
                let n_rows = values.len().checked_div(width).unwrap_or(0);
                Predicted::Logits(Matrix::new(n_rows, width, values).expect("rows of one width"))
            }
        };
        Self { labels, ranks, predicted }
    }

    /// Accuracy and areas under curves of the parts of a split, without losses.
    ///
    /// # Errors
    /// When another rank fails.
    pub(crate) fn scores(&self, split: &Split) -> Result<Scores, TrainError> {
        let (val_roc_auc, test_roc_auc) = (self.ranked(roc_auc, &split.val)?, self.ranked(roc_auc, &split.test)?);
        let is_multi = matches!(self.labels, Labels::Multi { .. });
        let labels_left_out = |values: &[Option<f64>]| if is_multi { n_left_out(values) } else { 0 };
        Ok(Scores {
            train_accuracy: self.score(&split.train)?,
            val_accuracy: self.score(&split.val)?,
            test_accuracy: self.score(&split.test)?,
            val_roc_auc: mean_over_labels(&val_roc_auc),
            test_roc_auc: mean_over_labels(&test_roc_auc),
            val_labels_left_out: labels_left_out(&val_roc_auc),
            test_labels_left_out: labels_left_out(&test_roc_auc),
            ..Scores::default()
        })
    }

    /// Accuracy; with several labels per node, micro-F1. `None` without labelled rows, or if labels neither occur nor
    /// are predicted.
    ///
    /// # Errors
    /// When another rank fails.
    pub(crate) fn score(&self, rows: &[NodeId]) -> Result<Option<f64>, TrainError> {
        match (&self.predicted, self.labels) {
            (Predicted::Classes(found) | Predicted::Binary(found, _), Labels::Single { classes, .. }) => {
                let counts = self.totals(&count_correct(found, classes, rows))?;
                Ok((counts[1] > 0).then(|| counts[0] as f64 / counts[1] as f64))
            }
            _ => Ok(self.confusion(rows)?.f1().map(|f1| f1.micro)),
        }
    }

    /// Values of a ranking metric: one value for two classes, one per label with several labels per node. Empty for
    /// more than two classes, where the metric is not defined.
    ///
    /// # Errors
    /// When another rank fails.
    pub(crate) fn ranked(&self, metric: RankedMetric, rows: &[NodeId]) -> Result<Vec<Option<f64>>, TrainError> {
        match (&self.predicted, self.labels) {
            (Predicted::Binary(_, preferences), Labels::Single { classes, .. }) => {
                let labelled = rows.iter().map(|&v| v as usize).filter(|&v| classes[v] != UNLABELLED);
                Ok(vec![self.metric(metric, labelled.map(|v| (preferences[v], classes[v] == 1)))?])
            }
            (Predicted::Logits(logits), Labels::Multi { targets, .. }) => {
                let of_label = |label: usize| {
                    let at = |&v: &NodeId| (logits.row(v as usize)[label], targets.row(v as usize)[label] > 0.5);
                    self.metric(metric, rows.iter().map(at))
                };
                (0..targets.n_cols()).map(of_label).collect()
            }
            _ => Ok(Vec::new()),
        }
    }

    /// A metric of the scores and answers of all ranks, in node order.
    fn metric(&self, metric: RankedMetric, here: impl Iterator<Item = (f32, bool)>) -> Result<Option<f64>, TrainError> {
        let Some(ranks) = self.ranks else {
            let (scores, answers): (Vec<f32>, Vec<bool>) = here.unzip();
            return Ok(metric(&scores, &answers));
        };
        let message: Vec<u8> = here
            .flat_map(|(score, answer)| {
                let [a, b, c, d] = score.to_le_bytes();
                [a, b, c, d, u8::from(answer)]
            })
            .collect();
        let all = ranks.join(&message)?;
        let (mut scores, mut answers): (Vec<f32>, Vec<bool>) = (Vec::new(), Vec::new());
        for (peer, message) in all.iter().enumerate() {
            let mut payload = ranks.payload(peer, message, "scores");
            while !payload.is_empty() {
                scores.push(payload.number()?);
                answers.push(payload.number::<u8>()? == 1);
            }
        }
        Ok(metric(&scores, &answers))
    }

    /// Detailed report on `rows`, of which `n_labelled` have a label on all ranks together.
    ///
    /// # Errors
    /// When another rank fails.
    pub(crate) fn report(&self, rows: &[NodeId], n_labelled: usize) -> Result<TestReport, TrainError> {
        let confusion = self.confusion(rows)?;
        Ok(TestReport {
            f1: confusion.f1().filter(|_| n_labelled > 0),
            roc_auc: self.ranked(roc_auc, rows)?,
            average_precision: self.ranked(average_precision, rows)?,
            confusion,
            matrix: self.matrix(rows)?,
        })
    }

    fn matrix(&self, rows: &[NodeId]) -> Result<Option<ConfusionMatrix>, TrainError> {
        let here = match (&self.predicted, self.labels) {
            (Predicted::Classes(found) | Predicted::Binary(found, _), Labels::Single { n_classes, classes }) => {
                ConfusionMatrix::of_classes(*n_classes, found, classes, rows)
            }
            _ => None,
        };
        let Some(here) = here else { return Ok(None) };
        let totals = self.totals(here.counts())?;
        Ok(Some(here.with_counts(totals)))
    }

    fn confusion(&self, rows: &[NodeId]) -> Result<Confusion, TrainError> {
        let here = match (&self.predicted, self.labels) {
            (Predicted::Classes(found) | Predicted::Binary(found, _), Labels::Single { n_classes, classes }) => {
                Confusion::of_classes(*n_classes, found, classes, rows)
            }
            (Predicted::Logits(logits), Labels::Multi { targets, .. }) => Confusion::of_logits(logits, targets, rows),
            _ => unreachable!("predictions are made for the kind of the labels"),
        };
        Ok(Confusion::of_counts(&self.totals(&here.counts())?))
    }

    /// Counts of the local nodes, summed over all ranks.
    fn totals(&self, here: &[u64]) -> Result<Vec<u64>, TrainError> {
        Ok(Ranks::totals(self.ranks, here)?)
    }
}
