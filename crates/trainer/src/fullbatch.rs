//! [`FullBatch`]: one training run in which every step sees the whole graph.

use std::ops::Range;
use std::time::Instant;

use girih_compute::Backend;
use girih_datasets::{Labels, Split};
use girih_graph_format::{Matrix, NodeId};
use girih_random::purpose;

use crate::TrainError;
use crate::config::TrainConfig;
use crate::inputs::Inputs;
use crate::metrics::{mean_over_labels, roc_auc};
use crate::models::Model;
use crate::params::Params;
use crate::predictions::Predictions;
use crate::report::{Scores, StageTimes, TestReport};
use crate::state::{Run, RunState};
use crate::tape::{Loss, Mode, Tape};
use crate::targets::{Part, Targets};

/// The labels and the split of a run, on the host and on the device.
pub struct Task<'a, B: Backend> {
    labels: &'a Labels,
    split: &'a Split,
    targets: &'a Targets<B>,
    train: Part<B>,
    val: Part<B>,
    test: Part<B>,
}

impl<'a, B: Backend> Task<'a, B> {
    /// A task on `split`; nodes without a label are left out of the losses.
    ///
    /// # Errors
    /// When no training node has a label, or the device's memory does not suffice.
    pub fn new(backend: &B, labels: &'a Labels, targets: &'a Targets<B>, split: &'a Split) -> Result<Self, TrainError> {
        Self::on_rank(backend, labels, targets, split, 0..labels.n_nodes())
    }

    /// As [`new`](Self::new), of the `own` nodes at hand, whose rows `targets` holds; labels and split are those of all.
    ///
    /// # Errors
    /// When no training node has a label, or the device's memory does not suffice.
    pub fn on_rank(
        backend: &B,
        labels: &'a Labels,
        targets: &'a Targets<B>,
        split: &'a Split,
        own: Range<usize>,
    ) -> Result<Self, TrainError> {
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
            train: Part::new(backend, &train, own.clone())?,
            val: Part::new(backend, &labelled(&split.val), own.clone())?,
            test: Part::new(backend, &labelled(&split.test), own)?,
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
        let state = RunState::new(backend, config, &config.optimizer, params, run)?.among(inputs.ranks.as_deref());
        Ok(Self { state, inputs, task, model })
    }

    /// Logits of all nodes with the parameters as they are.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn logits(&mut self) -> Result<Matrix, TrainError> {
        let logits = self.logits_of_all()?;
        Ok(self.state.backend.download(&logits)?)
    }

    /// Logits of all nodes, on the device; of several ranks, all get those of all.
    fn logits_of_all(&mut self) -> Result<B::Matrix, TrainError> {
        let (state, ranks) = (&mut self.state, self.inputs.ranks.as_deref());
        let mut tape = Tape::new(state.backend, &state.params, &mut state.pool, Mode::Evaluate).among(ranks);
        let logits = self.model.forward(&mut tape, self.inputs)?;
        Ok(tape.gathered(logits)?)
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
        let ranks = self.inputs.ranks.as_deref();
        let mut tape = Tape::new(state.backend, &state.params, &mut state.pool, mode).among(ranks);
        let logits = self.model.forward(&mut tape, self.inputs)?;
        let loss = tape.loss_of(logits, self.task.targets, &self.task.train)?;
        let forward = start.elapsed();
        let loss = tape.backward(loss, &mut state.gradients)?;
        ranks.map_or(Ok(()), |ranks| ranks.sum_gradients(&mut state.gradients))?;
        let backward = start.elapsed() - forward;
        state.step(lr)?;
        let optimizer = start.elapsed() - forward - backward;
        let train_loss = state.read_losses(lr, loss)?.data()[0];
        Ok((train_loss, StageTimes { forward, backward, optimizer }))
    }

    fn evaluate(&mut self) -> Result<Scores, TrainError> {
        let (state, ranks) = (&mut self.state, self.inputs.ranks.as_deref());
        let mut tape = Tape::new(state.backend, &state.params, &mut state.pool, Mode::Evaluate).among(ranks);
        let logits = self.model.forward(&mut tape, self.inputs)?;
        let split = self.task.split;
        let mut mean_loss = |part: &Part<B>| -> Result<Option<B::Matrix>, TrainError> {
            let some = (part.n_all > 0).then_some(part);
            Ok(some.map(|part| tape.loss_of(logits, self.task.targets, part)).transpose()?.map(Loss::into_value))
        };
        let (val_loss, test_loss) = (mean_loss(&self.task.val)?, mean_loss(&self.task.test)?);
        let all = tape.gathered(logits)?;
        // The host reads when all is on its way.
        let predictions = Predictions::of(state.backend, &all, self.task.labels)?;
        state.pool.give(state.backend, all);
        let mut read = |loss: Option<B::Matrix>| -> Result<Option<f64>, TrainError> {
            let Some(loss) = loss else { return Ok(None) };
            let value = state.backend.download(&loss)?.data()[0];
            state.pool.give(state.backend, loss);
            Ok(Some(f64::from(value)))
        };
        let (val_loss, test_loss) = (read(val_loss)?, read(test_loss)?);
        Ok(Scores {
            train_accuracy: predictions.score(&split.train),
            val_accuracy: predictions.score(&split.val),
            test_accuracy: predictions.score(&split.test),
            val_roc_auc: mean_over_labels(&predictions.ranked(roc_auc, &split.val)),
            test_roc_auc: mean_over_labels(&predictions.ranked(roc_auc, &split.test)),
            val_loss,
            test_loss,
            ranking: None,
        })
    }

    fn test_report(&mut self) -> Result<Option<TestReport>, TrainError> {
        let logits = self.logits_of_all()?;
        let predictions = Predictions::of(self.state.backend, &logits, self.task.labels)?;
        Ok(Some(predictions.report(&self.task.split.test)))
    }
}
