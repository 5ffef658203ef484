//! [`FullBatch`]: one training run in which every step sees the whole graph.

use std::ops::Range;
use std::time::Instant;

use girih_compute::{Backend, StepInputs};
use girih_datasets::{Labels, Split};
use girih_graph_format::{Matrix, NodeId};
use girih_random::{Key, purpose};

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
    /// Dropped before the matrices that it knows by their addresses.
    recording: B::Recording,
    /// The loss of the last step, which no evaluation may use for something else: a step that is repeated leaves its loss there.
    loss: Option<B::Matrix>,
    /// Keys that a step draws below, once there was one.
    n_draws: u64,
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
        Ok(Self { recording: B::Recording::default(), loss: None, n_draws: 0, state, inputs, task, model })
    }

    /// The passes of a training step and the step of the optimiser, put on the device.
    fn step(&mut self, inputs: &StepInputs, key: Key) -> Result<StageTimes, TrainError> {
        let start = Instant::now();
        let (state, ranks) = (&mut self.state, self.inputs.ranks.as_deref());
        if let Some(loss) = self.loss.take() {
            state.pool.give(state.backend, loss);
        }
        let mut tape = Tape::new(state.backend, &state.params, &mut state.pool, Mode::Train(key)).among(ranks);
        let logits = self.model.forward(&mut tape, self.inputs)?;
        let loss = tape.loss_of(logits, self.task.targets, &self.task.train)?;
        self.n_draws = tape.n_draws();
        let forward = start.elapsed();
        self.loss = Some(tape.backward(loss, &mut state.gradients)?);
        ranks.map_or(Ok(()), |ranks| ranks.sum_gradients(&mut state.gradients))?;
        let backward = start.elapsed() - forward;
        state.step(inputs.optimizer)?;
        Ok(StageTimes { forward, backward, optimizer: start.elapsed() - forward - backward })
    }

    /// Logits of all nodes with the parameters as they are.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn logits(&mut self) -> Result<Matrix, TrainError> {
        let logits = self.logits_of_all()?;
        let on_host = self.state.backend.download(&logits)?;
        self.state.pool.give(self.state.backend, logits);
        Ok(on_host)
    }

    /// Logits of all nodes, on the device; of several ranks, all get those of all. They go back to the pool: a step that the
    /// device repeats writes to every buffer that it found there.
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

    /// One step on the whole graph: run, or repeated by the device.
    fn train_once(&mut self, lr: f64) -> Result<(f32, StageTimes), TrainError> {
        let key = self.state.key(purpose::DROPOUT);
        let keys = Tape::<B>::keys(key, self.n_draws);
        let inputs = StepInputs { keys, optimizer: self.state.optimizer.begin(lr) };
        let mut recording = std::mem::take(&mut self.recording);
        let mut times = StageTimes::default();
        let backend = self.state.backend;
        let done = backend.repeat(&mut recording, &inputs, &mut || -> Result<(), TrainError> {
            times = self.step(&inputs, key)?;
            Ok(())
        });
        self.recording = recording;
        done?;
        let loss = self.loss.as_ref().expect("a step leaves its loss");
        Ok((self.state.read_losses(lr, loss)?.data()[0], times))
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
        self.state.pool.give(self.state.backend, logits);
        Ok(Some(predictions.report(&self.task.split.test)))
    }
}
