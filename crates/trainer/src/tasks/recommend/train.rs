//! [`Recommender`]: one training run on batches of interactions.

use std::ops::Range;

use girih_compute::Backend;
use girih_datasets::Interactions;
use girih_graph_format::{Matrix, NodeId};
use girih_random::purpose;

use super::batch::Batch;
use super::rank::top_items;
use super::triples::Triples;
use crate::TrainError;
use crate::config::{OptimizerConfig, TrainConfig};
use crate::engine::{
    Ranking, Run, RunState, Scores, StageTimes, StepCallback, Stopwatch, TOP_K, TestReport, epoch_of_steps,
};
use crate::layers::Inputs;
use crate::models::Model;
use crate::tape::{Mode, ParamId, Params, Pool, Tape};

/// One run, epoch by epoch. A step propagates over the whole graph, and its loss is that of one batch.
pub struct Recommender<'a, B: Backend> {
    state: RunState<'a, B>,
    inputs: &'a Inputs<B>,
    interactions: &'a Interactions,
    model: Box<dyn Model<B>>,
    embedding: ParamId,
    /// Pool for the scores of blocks of users, kept between evaluations.
    blocks: Pool<B>,
}

impl<'a, B: Backend> Recommender<'a, B> {
    /// Run at its start.
    ///
    /// # Errors
    /// When the model has no embeddings of nodes, or the device's memory does not suffice.
    pub fn new(
        backend: &'a B,
        inputs: &'a Inputs<B>,
        interactions: &'a Interactions,
        config: &'a TrainConfig,
        model: Box<dyn Model<B>>,
        params: Params<B>,
        run: u64,
    ) -> Result<Self, TrainError> {
        let embedding = model.embedding().ok_or_else(|| {
            TrainError::invalid(format!(
                "{} has no embeddings to rank items by: give --model lightgcn",
                config.model.kind.name()
            ))
        })?;
        // The weight decay is a penalty on the rows of a batch. It does not shrink all rows at every step.
        let optimizer = OptimizerConfig { weight_decay: 0.0, ..config.optimizer.clone() };
        let state = RunState::new(backend, config, &optimizer, params, run)?.among(inputs.ranks.as_deref());
        Ok(Self { state, inputs, interactions, model, embedding, blocks: Pool::default() })
    }

    /// One step on the triples of `nodes`. Writes their mean loss to a row of a matrix.
    fn step(&mut self, lr: f64, nodes: &[NodeId], kept: (&mut B::Matrix, usize)) -> Result<StageTimes, TrainError> {
        let (mut stopwatch, Self { state, inputs, model, embedding, .. }) = (Stopwatch::start(), self);
        let batch = Batch::new(state.backend, nodes, inputs.ranks.as_ref())?;
        let uploaded = stopwatch.next();
        let (key, decay) = (state.key(purpose::DROPOUT), state.config.optimizer.weight_decay as f32);
        let (loss, times) = state.passes(key, |tape| Ok(batch.loss(tape, &**model, inputs, *embedding, decay)?))?;
        let optimizer = state.step_keeping(lr, loss, kept)?;
        if inputs.ranks.is_some() {
            // Numbers of held and fetched rows differ from batch to batch.
            state.pool.drop_unused();
        }
        Ok(StageTimes { forward: uploaded + times.forward, optimizer, ..times })
    }

    /// Ranks the [`TOP_K`] best items for every user with the current parameters; see
    /// [`Recommendations`](super::Recommendations). With several ranks, each ranks items for a share of the users,
    /// and all get all lists.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    pub fn top_items(&mut self) -> Result<Vec<NodeId>, TrainError> {
        let (state, ranks, train) = (&mut self.state, self.inputs.ranks.as_deref(), self.interactions.train());
        let mut tape = Tape::new(state.backend, &state.params, &mut state.pool, Mode::Evaluate).among(ranks);
        let embeddings = self.model.forward(&mut tape, self.inputs)?;
        let embeddings = tape.gathered(embeddings)?;
        let met = |users: Range<usize>| train.block(users, 0..train.n_cols());
        let users = ranks.map_or(0..train.n_rows(), |ranks| ranks.share_of(train.n_rows()));
        let sizes = (train.n_rows(), train.n_cols());
        let top = top_items(state.backend, &mut self.blocks, &embeddings, sizes, users, met)?;
        state.pool.give(state.backend, embeddings);
        match ranks {
            None => Ok(top),
            Some(ranks) => Ok(ranks.join_shares(&top, (train.n_rows(), TOP_K))?),
        }
    }
}

impl<B: Backend> Recommender<'_, B> {
    /// Embeddings of users, then of items, with the current parameters.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn embeddings(&mut self) -> Result<Matrix, TrainError> {
        let state = &mut self.state;
        let mut tape = Tape::new(state.backend, &state.params, &mut state.pool, Mode::Evaluate);
        let embeddings = self.model.forward(&mut tape, self.inputs)?;
        Ok(state.backend.download(tape.value(embeddings))?)
    }
}

impl<'a, B: Backend> Run<'a, B> for Recommender<'a, B> {
    fn state(&self) -> &RunState<'a, B> {
        &self.state
    }

    fn state_mut(&mut self) -> &mut RunState<'a, B> {
        &mut self.state
    }

    /// The test items of users choose the epoch, since there is no validation part.
    fn has_validation(&self) -> bool {
        self.interactions.test().nnz() > 0
    }

    /// One step on every batch. Drawing a batch counts as forward time.
    fn train_once(&mut self, lr: f64, _watch: &mut StepCallback<'_>) -> Result<Option<(f32, StageTimes)>, TrainError> {
        let key = self.state.key(purpose::TRIPLES);
        let triples = Triples::new(self.interactions, key, self.state.config.batch_size);
        let sizes: Vec<usize> = (0..triples.n_batches()).map(|batch| triples.n_triples(batch)).collect();
        let step = |run: &mut Self, batch: usize, losses: &mut B::Matrix| {
            let mut stopwatch = Stopwatch::start();
            let nodes = triples.batch(batch);
            let drawn = stopwatch.next();
            let times = run.step(lr, &nodes, (losses, batch))?;
            Ok(StageTimes { forward: drawn + times.forward, ..times })
        };
        epoch_of_steps(self, lr, &sizes, step).map(Some)
    }

    fn evaluate(&mut self) -> Result<Scores, TrainError> {
        let top = self.top_items()?;
        let test = self.interactions.test();
        let users = top.chunks_exact(TOP_K).enumerate();
        let ranking = Ranking::mean(users.filter_map(|(user, items)| Ranking::of_user(items, test.row(user))));
        Ok(Scores { ranking, ..Scores::default() })
    }

    fn test_report(&mut self) -> Result<Option<TestReport>, TrainError> {
        Ok(None)
    }
}
