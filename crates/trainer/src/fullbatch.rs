//! [`FullBatch`]: one training run in which every step sees the whole graph.

use std::time::Instant;

use girih_compute::Backend;
use girih_datasets::{Labels, Split, UNLABELLED};
use girih_graph_format::{Matrix, NodeId};
use girih_random::purpose;

use crate::TrainError;
use crate::config::TrainConfig;
use crate::inputs::Inputs;
use crate::metrics::{Confusion, F1, accuracy, mean_over_labels, per_label, roc_auc};
use crate::models::Model;
use crate::params::Params;
use crate::report::{Scores, StageTimes};
use crate::state::{Run, RunState};
use crate::tape::{Mode, Tape};
use crate::targets::Targets;

/// The labels and the split of a run, on the host and on the device.
pub struct Task<'a, B: Backend> {
    labels: &'a Labels,
    split: &'a Split,
    targets: &'a Targets<B>,
    train: B::Ids,
    val: B::Ids,
    test: B::Ids,
}

impl<'a, B: Backend> Task<'a, B> {
    /// A task on `split`; nodes without a label are left out of the losses.
    ///
    /// # Errors
    /// When no training node has a label, or the device's memory does not suffice.
    pub fn new(backend: &B, labels: &'a Labels, targets: &'a Targets<B>, split: &'a Split) -> Result<Self, TrainError> {
        let labelled =
            |rows: &[NodeId]| -> Vec<NodeId> { rows.iter().copied().filter(|&v| labels.is_labelled(v)).collect() };
        let train = labelled(&split.train);
        if train.is_empty() {
            return Err(TrainError::invalid(
                "the split has no training nodes with a label; choose another split or add labels",
            ));
        }
        Ok(Self {
            labels,
            split,
            targets,
            train: backend.upload_ids(&train)?,
            val: backend.upload_ids(&labelled(&split.val))?,
            test: backend.upload_ids(&labelled(&split.test))?,
        })
    }
}

/// One run, epoch by epoch.
pub struct FullBatch<'a, B: Backend> {
    state: RunState<'a, B>,
    inputs: &'a Inputs<B>,
    task: Task<'a, B>,
    model: Box<dyn Model<B>>,
}

impl<'a, B: Backend> FullBatch<'a, B> {
    /// A run at its start.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new(
        backend: &'a B,
        inputs: &'a Inputs<B>,
        task: Task<'a, B>,
        config: &'a TrainConfig,
        model: Box<dyn Model<B>>,
        params: Params<B>,
        run: u64,
    ) -> Result<Self, TrainError> {
        let state = RunState::new(backend, config, &config.optimizer, params, run)?;
        Ok(Self { state, inputs, task, model })
    }

    /// Logits of all nodes with the parameters as they are.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn logits(&mut self) -> Result<Matrix, TrainError> {
        let state = &mut self.state;
        let mut tape = Tape::new(state.backend, &state.params, &mut state.pool, Mode::Evaluate);
        let logits = self.model.forward(&mut tape, self.inputs)?;
        Ok(state.backend.download(tape.value(logits))?)
    }
}

impl<'a, B: Backend> Run<'a, B> for FullBatch<'a, B> {
    fn state(&self) -> &RunState<'a, B> {
        &self.state
    }

    fn state_mut(&mut self) -> &mut RunState<'a, B> {
        &mut self.state
    }

    /// One step on the whole graph.
    fn train_once(&mut self, lr: f64) -> Result<(f32, StageTimes), TrainError> {
        let start = Instant::now();
        let state = &mut self.state;
        let mode = Mode::Train(state.key(purpose::DROPOUT));
        let mut tape = Tape::new(state.backend, &state.params, &mut state.pool, mode);
        let logits = self.model.forward(&mut tape, self.inputs)?;
        let loss = tape.loss(logits, self.task.targets, &self.task.train)?;
        let train_loss = loss.value(state.backend)?;
        let forward = start.elapsed();
        tape.backward(loss, &mut state.gradients)?;
        let backward = start.elapsed() - forward;
        state.step(lr, train_loss)?;
        let optimizer = start.elapsed() - forward - backward;
        Ok((train_loss, StageTimes { forward, backward, optimizer, ..StageTimes::default() }))
    }

    fn evaluate(&mut self) -> Result<Scores, TrainError> {
        let state = &mut self.state;
        let mut tape = Tape::new(state.backend, &state.params, &mut state.pool, Mode::Evaluate);
        let logits = self.model.forward(&mut tape, self.inputs)?;
        let split = self.task.split;
        let mut mean_loss = |rows: &B::Ids, ids: &[NodeId]| -> Result<Option<f64>, TrainError> {
            if !ids.iter().any(|&v| self.task.labels.is_labelled(v)) {
                return Ok(None);
            }
            let loss = tape.loss(logits, self.task.targets, rows)?;
            let value = loss.value(state.backend)?;
            tape.discard(loss);
            Ok(Some(f64::from(value)))
        };
        let val_loss = mean_loss(&self.task.val, &split.val)?;
        let test_loss = mean_loss(&self.task.test, &split.test)?;
        let predictions = Predictions::of(state.backend, tape.value(logits), self.task.labels)?;
        let score = |rows: &[NodeId]| predictions.score(self.task.labels, rows);
        Ok(Scores {
            train_accuracy: score(&split.train),
            val_accuracy: score(&split.val),
            test_accuracy: score(&split.test),
            val_roc_auc: predictions.roc_auc(self.task.labels, &split.val),
            test_roc_auc: predictions.roc_auc(self.task.labels, &split.test),
            val_loss,
            test_loss,
            ranking: None,
        })
    }

    fn test_f1(&mut self) -> Result<Option<F1>, TrainError> {
        let state = &mut self.state;
        let mut tape = Tape::new(state.backend, &state.params, &mut state.pool, Mode::Evaluate);
        let logits = self.model.forward(&mut tape, self.inputs)?;
        let predictions = Predictions::of(state.backend, tape.value(logits), self.task.labels)?;
        Ok(Some(predictions.confusion(self.task.labels, &self.task.split.test).f1()))
    }
}

/// What a model says of every node, on the host.
enum Predictions {
    Classes(Vec<u32>),
    /// Of two classes: also how much the second is preferred to the first.
    Binary(Vec<u32>, Vec<f32>),
    Logits(Matrix),
}

impl Predictions {
    fn of<B: Backend>(backend: &B, logits: &B::Matrix, labels: &Labels) -> Result<Self, TrainError> {
        Ok(match labels {
            Labels::Single { n_classes: 2, .. } => {
                let host = backend.download(logits)?;
                let preferences = (0..host.n_rows()).map(|v| host.row(v)[1] - host.row(v)[0]).collect();
                Self::Binary(backend.argmax_rows(logits)?, preferences)
            }
            Labels::Single { .. } => Self::Classes(backend.argmax_rows(logits)?),
            Labels::Multi { .. } => Self::Logits(backend.download(logits)?),
        })
    }

    fn confusion(&self, labels: &Labels, rows: &[NodeId]) -> Confusion {
        match (self, labels) {
            (Self::Classes(found) | Self::Binary(found, _), Labels::Single { n_classes, classes }) => {
                Confusion::of_classes(*n_classes, found, classes, rows)
            }
            (Self::Logits(logits), Labels::Multi { targets, .. }) => Confusion::of_logits(logits, targets, rows),
            _ => unreachable!("predictions are made for the kind of the labels"),
        }
    }

    /// Accuracy, or micro-F1 with several labels a node; `None` without labelled rows.
    fn score(&self, labels: &Labels, rows: &[NodeId]) -> Option<f64> {
        match (self, labels) {
            (Self::Classes(found) | Self::Binary(found, _), Labels::Single { classes, .. }) => {
                accuracy(found, classes, rows)
            }
            _ => (!rows.is_empty()).then(|| self.confusion(labels, rows).f1().micro),
        }
    }

    /// Area under the receiver operating characteristic; `None` where it is not defined, as for more than two classes.
    fn roc_auc(&self, labels: &Labels, rows: &[NodeId]) -> Option<f64> {
        match (self, labels) {
            (Self::Binary(_, preferences), Labels::Single { classes, .. }) => {
                let labelled = || rows.iter().map(|&v| v as usize).filter(|&v| classes[v] != UNLABELLED);
                let scores: Vec<f32> = labelled().map(|v| preferences[v]).collect();
                roc_auc(&scores, &labelled().map(|v| classes[v] == 1).collect::<Vec<_>>())
            }
            (Self::Logits(logits), Labels::Multi { targets, .. }) => {
                mean_over_labels(&per_label(roc_auc, logits, targets, rows))
            }
            _ => None,
        }
    }
}
