//! [`FullBatch`]: training run whose steps see the whole graph.

use girih_compute::{Backend, StepInputs};
use girih_graph_format::Matrix;
use girih_random::{Key, purpose};

use super::classifier::{Classifier, Task};
use crate::TrainError;
use crate::config::TrainConfig;
use crate::engine::{Run, RunState, Scores, StageTimes, StepCallback, Stopwatch, TestReport};
use crate::layers::Inputs;
use crate::models::Model;
use crate::tape::{Params, Tape};

/// Full-batch training run, epoch by epoch.
pub struct FullBatch<'a, B: Backend> {
    /// Captured CUDA graph of a step. It refers to matrices by address, so it is dropped before them.
    recording: B::Recording,
    /// Loss of the last step. Replayed steps write their loss to this buffer, so no evaluation may reuse it.
    loss: Option<B::Matrix>,
    /// Number of random keys that a step draws; 0 before the first step.
    n_draws: u64,
    state: RunState<'a, B>,
    inputs: &'a Inputs<B>,
    classifier: Classifier<'a, B>,
}

impl<'a, B: Backend> FullBatch<'a, B> {
    /// Initial state of a run.
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
        Ok(Self {
            recording: B::Recording::default(),
            loss: None,
            n_draws: 0,
            state,
            inputs,
            classifier: Classifier { inputs, task, model },
        })
    }

    /// Launches forward pass, backward pass and optimiser step on the device.
    fn step(&mut self, inputs: &StepInputs, key: Key) -> Result<StageTimes, TrainError> {
        let Self { state, inputs: whole, classifier: Classifier { task, model, .. }, n_draws, .. } = self;
        if let Some(loss) = self.loss.take() {
            state.pool.give(state.backend, loss);
        }
        let (loss, times) = state.passes(key, |tape| {
            let logits = model.forward(tape, whole)?;
            let loss = tape.loss_of(logits, task.targets, &task.train)?;
            *n_draws = tape.n_draws();
            Ok(loss)
        })?;
        self.loss = Some(loss);
        let mut stopwatch = Stopwatch::start();
        state.step(inputs.optimizer)?;
        Ok(StageTimes { optimizer: stopwatch.next(), ..times })
    }

    /// Logits of the local nodes for the current parameters.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn logits(&mut self) -> Result<Matrix, TrainError> {
        self.classifier.logits(&mut self.state)
    }
}

impl<B: Backend> FullBatch<'_, B> {
    /// Rows of the last hidden layer of the local nodes for the current parameters; `None` without hidden layers.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn hidden(&mut self) -> Result<Option<Matrix>, TrainError> {
        self.classifier.hidden(&mut self.state)
    }
}

impl<'a, B: Backend> Run<'a, B> for FullBatch<'a, B> {
    fn state(&self) -> &RunState<'a, B> {
        &self.state
    }

    fn state_mut(&mut self) -> &mut RunState<'a, B> {
        &mut self.state
    }

    fn check_trains(&self) -> Result<(), TrainError> {
        self.classifier.task.check_trains()
    }

    fn has_validation(&self) -> bool {
        self.classifier.task.has_validation()
    }

    /// Runs one step on the whole graph, or replays its captured CUDA graph.
    fn train_once(&mut self, lr: f64, _watch: &mut StepCallback<'_>) -> Result<Option<(f32, StageTimes)>, TrainError> {
        let key = self.state.key(purpose::DROPOUT);
        let keys = Tape::<B>::keys(key, self.n_draws);
        let inputs = StepInputs { keys, optimizer: self.state.optimizer.begin(lr) };
        let mut recording = std::mem::take(&mut self.recording);
        let mut times = StageTimes::default();
        let backend = self.state.backend;
        let needs_host = self.inputs.needs_host();
        let mut step = || -> Result<(), TrainError> {
            times = self.step(&inputs, key)?;
            Ok(())
        };
        let done = if needs_host { step() } else { backend.repeat(&mut recording, &inputs, &mut step) };
        self.recording = recording;
        done?;
        let loss = self.loss.as_ref().expect("a step leaves its loss");
        Ok(Some((self.state.losses(lr, loss, 1)?[0], times)))
    }

    fn evaluate(&mut self) -> Result<Scores, TrainError> {
        self.classifier.evaluate(&mut self.state, None)
    }

    fn test_report(&mut self) -> Result<Option<TestReport>, TrainError> {
        self.classifier.test_report(&mut self.state, None).map(Some)
    }

    fn wire_error(&mut self) -> Result<Option<f64>, TrainError> {
        // Frees buffers that a captured step reads. A later step would be captured again.
        (self.recording, self.loss) = (B::Recording::default(), None);
        self.classifier.wire_error(&mut self.state)
    }
}
