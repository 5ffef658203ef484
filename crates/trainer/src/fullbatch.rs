//! [`FullBatch`]: one training run in which every step sees the whole graph.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use girih_compute::Backend;
use girih_datasets::{Labels, Split, UNLABELLED};
use girih_graph_format::{Matrix, NodeId};
use girih_random::{Key, purpose};
use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::checkpoint::{CHECKPOINT_VERSION, Checkpoint, DataShape, Progress};
use crate::config::{Metric, TrainConfig};
use crate::inputs::Inputs;
use crate::metrics::{Confusion, F1, accuracy, mean_over_labels, per_label, roc_auc};
use crate::models::Model;
use crate::optim::Optimizer;
use crate::params::{Gradients, Params};
use crate::tape::{Mode, Pool, Tape};
use crate::targets::Targets;

/// How a model does on the three parts of a split; `None` for a part without labelled nodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// On the training nodes: share of nodes whose class is right; with several labels a node, micro-F1.
    pub train_accuracy: Option<f64>,
    /// On the validation nodes; it chooses the epoch.
    pub val_accuracy: Option<f64>,
    /// On the test nodes.
    pub test_accuracy: Option<f64>,
    /// Area under the receiver operating characteristic on the validation nodes, for two classes; with several labels a
    /// node, the mean over labels that have both answers.
    #[serde(default)]
    pub val_roc_auc: Option<f64>,
    /// As `val_roc_auc`, on the test nodes.
    #[serde(default)]
    pub test_roc_auc: Option<f64>,
    /// Mean loss on the validation nodes.
    pub val_loss: Option<f64>,
    /// Mean loss on the test nodes.
    pub test_loss: Option<f64>,
}

impl Scores {
    /// The score on the validation nodes that chooses the epoch.
    #[must_use]
    pub fn val(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Accuracy => self.val_accuracy,
            Metric::RocAuc => self.val_roc_auc,
        }
    }

    /// Whether these scores choose their epoch over those of an earlier one: a better score on the validation nodes, or
    /// as good a one at a lower loss. Without validation nodes the later epoch is chosen.
    #[must_use]
    pub fn better_than(&self, earlier: &Self, metric: Metric) -> bool {
        let rank = |scores: &Self| (scores.val(metric), scores.val_loss.map(|loss| -loss));
        self.val(metric).is_none() || rank(self) > rank(earlier)
    }
}

/// Time spent in the stages of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageTimes {
    /// Forward pass and loss.
    pub forward: Duration,
    /// Backward pass.
    pub backward: Duration,
    /// The optimiser's step.
    pub optimizer: Duration,
    /// Evaluation after the step; not part of the epoch's time.
    pub evaluate: Duration,
}

impl StageTimes {
    /// Time of the training step: all but evaluation.
    #[must_use]
    pub fn epoch(&self) -> Duration {
        self.forward + self.backward + self.optimizer
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
    pub times: StageTimes,
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
    /// Scores at that epoch.
    pub best: Scores,
    /// Scores at the last epoch.
    pub last: Scores,
    /// Training loss of the last epoch.
    pub train_loss: f32,
}

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
    backend: &'a B,
    inputs: &'a Inputs<B>,
    task: Task<'a, B>,
    config: &'a TrainConfig,
    model: Box<dyn Model<B>>,
    params: Params<B>,
    gradients: Gradients<B>,
    optimizer: Optimizer<B>,
    pool: Pool<B>,
    run: u64,
    epoch: u64,
    train_loss: f32,
    last: Option<Scores>,
    best: Option<Best>,
}

struct Best {
    epoch: u64,
    scores: Scores,
    params: Vec<Matrix>,
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
        let gradients = Gradients::new(backend, &params)?;
        let optimizer = Optimizer::new(backend, &config.optimizer, &params)?;
        Ok(Self {
            backend,
            inputs,
            task,
            config,
            model,
            params,
            gradients,
            optimizer,
            pool: Pool::default(),
            run,
            epoch: 0,
            train_loss: f32::NAN,
            last: None,
            best: None,
        })
    }

    /// Epochs done.
    #[must_use]
    pub fn epochs_done(&self) -> u64 {
        self.epoch
    }

    /// Whether no epoch is left: all are done, or patience ran out.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let impatient = match (self.config.patience, &self.best) {
            (Some(patience), Some(best)) => self.epoch - best.epoch >= patience,
            _ => false,
        };
        self.epoch >= self.config.epochs || impatient
    }

    /// Trains one epoch: one step on the whole graph, then scores when they are due.
    ///
    /// # Errors
    /// When the backend fails, or the loss is no longer finite.
    pub fn epoch(&mut self) -> Result<EpochReport, TrainError> {
        let lr = self.config.optimizer.lr_at(self.epoch, self.config.epochs);
        let mut times = self.step(lr)?;
        self.epoch += 1;
        let due = self.epoch.is_multiple_of(self.config.eval_every) || self.epoch >= self.config.epochs;
        let mut scores = None;
        if due {
            let start = Instant::now();
            scores = Some(self.score()?);
            times.evaluate = start.elapsed();
        }
        Ok(EpochReport { epoch: self.epoch, train_loss: self.train_loss, lr, times, scores })
    }

    fn step(&mut self, lr: f64) -> Result<StageTimes, TrainError> {
        let start = Instant::now();
        let key = Key::new(self.config.seed, purpose::DROPOUT).child(self.run).child(self.epoch);
        let mut tape = Tape::new(self.backend, &self.params, &mut self.pool, Mode::Train(key));
        let logits = self.model.forward(&mut tape, self.inputs)?;
        let loss = tape.loss(logits, self.task.targets, &self.task.train)?;
        self.train_loss = loss.value(self.backend)?;
        let forward = start.elapsed();
        tape.backward(loss, &mut self.gradients)?;
        let backward = start.elapsed() - forward;
        if !self.train_loss.is_finite() {
            return Err(TrainError::invalid(format!(
                "the training loss is {} in epoch {}; lower the learning rate (now {lr}) or check the features",
                self.train_loss,
                self.epoch + 1
            )));
        }
        self.optimizer.step(self.backend, lr, &self.gradients, &mut self.params)?;
        let optimizer = start.elapsed() - forward - backward;
        Ok(StageTimes { forward, backward, optimizer, evaluate: Duration::ZERO })
    }

    /// Takes scores, and keeps the parameters when they are the best so far.
    fn score(&mut self) -> Result<Scores, TrainError> {
        let scores = self.evaluate()?;
        if self.best.as_ref().is_none_or(|best| scores.better_than(&best.scores, self.config.metric)) {
            self.best = Some(Best { epoch: self.epoch, scores, params: self.params.download(self.backend)? });
        }
        self.last = Some(scores);
        Ok(scores)
    }

    /// Scores of the parameters as they are.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn evaluate(&mut self) -> Result<Scores, TrainError> {
        let mut tape = Tape::new(self.backend, &self.params, &mut self.pool, Mode::Evaluate);
        let logits = self.model.forward(&mut tape, self.inputs)?;
        let split = self.task.split;
        let mut mean_loss = |rows: &B::Ids, ids: &[NodeId]| -> Result<Option<f64>, TrainError> {
            if !ids.iter().any(|&v| self.task.labels.is_labelled(v)) {
                return Ok(None);
            }
            let loss = tape.loss(logits, self.task.targets, rows)?;
            let value = loss.value(self.backend)?;
            tape.discard(loss);
            Ok(Some(f64::from(value)))
        };
        let val_loss = mean_loss(&self.task.val, &split.val)?;
        let test_loss = mean_loss(&self.task.test, &split.test)?;
        let predictions = Predictions::of(self.backend, tape.value(logits), self.task.labels)?;
        let score = |rows: &[NodeId]| predictions.score(self.task.labels, rows);
        Ok(Scores {
            train_accuracy: score(&split.train),
            val_accuracy: score(&split.val),
            test_accuracy: score(&split.test),
            val_roc_auc: predictions.roc_auc(self.task.labels, &split.val),
            test_roc_auc: predictions.roc_auc(self.task.labels, &split.test),
            val_loss,
            test_loss,
        })
    }

    /// Logits of all nodes with the parameters as they are.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn logits(&mut self) -> Result<Matrix, TrainError> {
        let mut tape = Tape::new(self.backend, &self.params, &mut self.pool, Mode::Evaluate);
        let logits = self.model.forward(&mut tape, self.inputs)?;
        Ok(self.backend.download(tape.value(logits))?)
    }

    /// F1 on the test nodes with the parameters as they are.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn test_f1(&mut self) -> Result<F1, TrainError> {
        let mut tape = Tape::new(self.backend, &self.params, &mut self.pool, Mode::Evaluate);
        let logits = self.model.forward(&mut tape, self.inputs)?;
        let predictions = Predictions::of(self.backend, tape.value(logits), self.task.labels)?;
        Ok(predictions.confusion(self.task.labels, &self.task.split.test).f1())
    }

    /// What the run has come to; `None` before the first evaluation.
    #[must_use]
    pub fn summary(&self) -> Option<RunSummary> {
        let (best, last) = (self.best.as_ref()?, self.last?);
        Some(RunSummary {
            run: self.run,
            epochs: self.epoch,
            best_epoch: best.epoch,
            best: best.scores,
            last,
            train_loss: self.train_loss,
        })
    }

    /// The state of the run, from which [`restore`](Self::restore) continues bit for bit.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn checkpoint(&self, data: DataShape) -> Result<Checkpoint, TrainError> {
        let names = || self.params.iter().map(|(_, param)| param.name.clone());
        let best_params = self.best.as_ref().map_or(&[][..], |best| &best.params);
        Ok(Checkpoint {
            progress: Progress {
                version: CHECKPOINT_VERSION,
                config: self.config.clone(),
                data,
                run: self.run,
                epoch: self.epoch,
                n_steps: self.optimizer.n_steps(),
                finished: self.is_finished(),
                best: self.best.as_ref().map(|best| (best.epoch, best.scores)),
                last: self.last,
                train_loss: self.train_loss,
            },
            params: names().zip(self.params.download(self.backend)?).collect(),
            moments: names().zip(self.optimizer.download(self.backend)?).collect(),
            best_params: names().zip(best_params.iter().cloned()).collect(),
        })
    }

    /// Goes to the state of a checkpoint.
    ///
    /// # Errors
    /// When the checkpoint lacks a parameter of this model or holds one of another shape.
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        let params = self.named(&checkpoint.params)?;
        let moments = self.named(&checkpoint.moments)?;
        self.params.write(self.backend, &params)?;
        self.optimizer.write(self.backend, &moments, checkpoint.progress.n_steps)?;
        self.best = match checkpoint.progress.best {
            Some((epoch, scores)) => Some(Best { epoch, scores, params: self.named(&checkpoint.best_params)? }),
            None => None,
        };
        self.epoch = checkpoint.progress.epoch;
        self.last = checkpoint.progress.last;
        self.train_loss = checkpoint.progress.train_loss;
        Ok(())
    }

    /// Makes the best parameters so far the current ones; does nothing before the first evaluation.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn restore_best(&mut self) -> Result<(), TrainError> {
        match &self.best {
            Some(best) => Ok(self.params.write(self.backend, &best.params)?),
            None => Ok(()),
        }
    }

    /// The entries of `map` in the order of the parameters.
    fn named<T: Clone>(&self, map: &BTreeMap<String, T>) -> Result<Vec<T>, TrainError> {
        let entries = self.params.iter().map(|(_, param)| {
            map.get(&param.name).cloned().ok_or_else(|| {
                TrainError::invalid(format!(
                    "the checkpoint has no `{}`: it belongs to a model of another kind or size",
                    param.name
                ))
            })
        });
        entries.collect()
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
