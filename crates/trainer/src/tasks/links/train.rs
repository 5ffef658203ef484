//! [`LinkPredictor`]: one training run of link prediction on the full graph.

use girih_compute::Backend;
use girih_graph_format::Matrix;
use girih_random::purpose;

use super::scorer::LinkScorer;
use super::{LinkEpochs, Pairs};
use crate::TrainError;
use crate::engine::{Run, RunState, Scorer, Scores, StageTimes, StepCallback, Stopwatch, TestReport};

/// One run, epoch by epoch. Each epoch is a step on all training links, which also carry messages, and on new
/// non-links.
pub struct LinkPredictor<'a, B: Backend> {
    state: RunState<'a, B>,
    scorer: LinkScorer<'a, B>,
    epochs: LinkEpochs<'a>,
}

impl<'a, B: Backend> LinkPredictor<'a, B> {
    pub(crate) fn new(state: RunState<'a, B>, scorer: LinkScorer<'a, B>, epochs: LinkEpochs<'a>) -> Self {
        Self { state, scorer, epochs }
    }

    /// Embeddings of all nodes with the current parameters.
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

    fn has_validation(&self) -> bool {
        self.scorer.has_validation()
    }

    /// One step. Drawing its pairs counts as batch time. The pairs differ in every step, so that no CUDA graph can be
    /// replayed.
    fn train_once(&mut self, lr: f64, _watch: &mut StepCallback<'_>) -> Result<Option<(f32, StageTimes)>, TrainError> {
        let (mut stopwatch, state) = (Stopwatch::start(), &mut self.state);
        let list = self.epochs.all(state.epochs_done());
        let pairs = Pairs::upload(state.backend, &list.ends, list.n_links)?;
        let batches = stopwatch.next();
        let LinkScorer { model, inputs, .. } = &self.scorer;
        let (loss, times) = state.passes(state.key(purpose::DROPOUT), |tape| {
            let embeddings = model.forward(tape, inputs)?;
            let scores = pairs.scores(tape, embeddings)?;
            Ok(pairs.loss(tape, scores)?)
        })?;
        let mut stopwatch = Stopwatch::start();
        let step = state.optimizer.begin(lr);
        state.step(step)?;
        let optimizer = stopwatch.next();
        let value = state.losses(lr, &loss, 1)?[0];
        state.pool.give(state.backend, loss);
        Ok(Some((value, StageTimes { batches, optimizer, ..times })))
    }

    fn evaluate(&mut self) -> Result<Scores, TrainError> {
        self.scorer.evaluate(&mut self.state)
    }

    fn test_report(&mut self) -> Result<Option<TestReport>, TrainError> {
        self.scorer.test_report(&mut self.state)
    }
}
