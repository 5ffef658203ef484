//! [`LinkPredictor`]: one training run in which every step sees the whole graph.

use std::time::Instant;

use girih_compute::Backend;
use girih_graph_format::Matrix;
use girih_random::purpose;

use super::scorer::LinkScorer;
use super::{LinkEpochs, Pairs};
use crate::TrainError;
use crate::report::{Scores, StageTimes, TestReport};
use crate::scorer::Scorer;
use crate::state::{Run, RunState, Watch};
use crate::tape::{Mode, Tape};

/// One run, epoch by epoch: a step on all training links, which also carry the messages, and on pairs drawn anew.
pub struct LinkPredictor<'a, B: Backend> {
    state: RunState<'a, B>,
    scorer: LinkScorer<'a, B>,
    epochs: LinkEpochs<'a>,
}

impl<'a, B: Backend> LinkPredictor<'a, B> {
    pub(super) fn new(state: RunState<'a, B>, scorer: LinkScorer<'a, B>, epochs: LinkEpochs<'a>) -> Self {
        Self { state, scorer, epochs }
    }

    /// The embeddings of all nodes with the parameters as they are.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn embeddings(&mut self) -> Result<Matrix, TrainError> {
        self.scorer.embeddings(&mut self.state)
    }
}

impl<'a, B: Backend> Run<'a, B> for LinkPredictor<'a, B> {
    fn state(&self) -> &RunState<'a, B> {
        &self.state
    }

    fn state_mut(&mut self) -> &mut RunState<'a, B> {
        &mut self.state
    }

    /// One step. Drawing its pairs counts as making a batch; since they are others in every step, no device can repeat it.
    fn train_once(&mut self, lr: f64, _watch: &mut Watch<'_>) -> Result<Option<(f32, StageTimes)>, TrainError> {
        let start = Instant::now();
        let backend = self.state.backend;
        let state = &mut self.state;
        let list = self.epochs.all(state.epochs_done());
        let pairs = Pairs::upload(backend, &list.ends, list.n_links)?;
        let batches = start.elapsed();
        let mode = Mode::Train(state.key(purpose::DROPOUT));
        let mut tape = Tape::new(backend, &state.params, &mut state.pool, mode);
        let embeddings = self.scorer.model.forward(&mut tape, self.scorer.inputs)?;
        let scores = pairs.scores(&mut tape, embeddings)?;
        let loss = pairs.loss(&mut tape, scores)?;
        let forward = start.elapsed() - batches;
        let loss = tape.backward(loss, &mut state.gradients)?;
        let backward = start.elapsed() - batches - forward;
        let step = state.optimizer.begin(lr);
        state.step(step)?;
        let optimizer = start.elapsed() - batches - forward - backward;
        let value = state.read_losses(lr, &loss)?.data()[0];
        state.pool.give(backend, loss);
        Ok(Some((value, StageTimes { batches, forward, backward, optimizer })))
    }

    fn evaluate(&mut self) -> Result<Scores, TrainError> {
        self.scorer.evaluate(&mut self.state)
    }

    fn test_report(&mut self) -> Result<Option<TestReport>, TrainError> {
        self.scorer.test_report(&mut self.state)
    }
}
