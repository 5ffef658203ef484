//! [`TripleTrainer`]: one training run on batches of triples.

use girih_compute::Backend;
use girih_graph_format::Matrix;
use girih_random::{Key, purpose};

use super::batch::{Batch, LossOptions};
use super::epochs::{QueryList, TripleEpochs};
use super::queries::Query;
use super::rank::{Network, rank_entities};
use super::session::TripleData;
use crate::TrainError;
use crate::config::{OptimizerConfig, TrainConfig};
use crate::engine::{
    EntityRanks, Run, RunState, Scores, StageTimes, StepCallback, Stopwatch, TestReport, TripleScores, epoch_of_steps,
};
use crate::tape::Params;

/// One run, epoch by epoch. A step asks for the tails and the heads of a batch of triples.
pub struct TripleTrainer<'a, B: Backend> {
    state: RunState<'a, B>,
    network: Network<'a, B>,
    data: &'a TripleData,
}

impl<'a, B: Backend> TripleTrainer<'a, B> {
    /// Run at its start.
    pub(super) fn new(
        backend: &'a B,
        (network, params): (Network<'a, B>, Params<B>),
        data: &'a TripleData,
        config: &'a TrainConfig,
        run: u64,
    ) -> Result<Self, TrainError> {
        // The weight decay is a penalty on the rows of a batch. It does not shrink all rows at every step.
        let optimizer = OptimizerConfig { weight_decay: 0.0, ..config.optimizer.clone() };
        let state = RunState::new(backend, config, &optimizer, params, run)?;
        Ok(Self { state, network, data })
    }

    /// One step on a list of queries. Writes their mean loss to a row of a matrix.
    fn step(
        &mut self,
        (lr, key): (f64, Key),
        list: &QueryList,
        kept: (&mut B::Matrix, usize),
    ) -> Result<StageTimes, TrainError> {
        let (mut stopwatch, Self { state, network, .. }) = (Stopwatch::start(), self);
        let batch = Batch::upload(state.backend, list)?;
        let batches = stopwatch.next();
        let config = state.config;
        let options = LossOptions { dropout: config.model.dropout, decay: config.optimizer.weight_decay as f32 };
        let (loss, times) = state.passes(key, |tape| {
            let entities = network.model.forward(tape, network.inputs)?;
            Ok(batch.loss(tape, &network.decoder, (entities, network.diagonal), options)?)
        })?;
        let optimizer = state.step_keeping(lr, loss, kept)?;
        Ok(StageTimes { batches, optimizer, ..times })
    }

    /// Ranks of the answers to some queries.
    fn ranks(&mut self, queries: &[Query]) -> Result<Option<EntityRanks>, TrainError> {
        let Self { state, network, data } = self;
        Ok(EntityRanks::of(&rank_entities(state, network, &data.known, queries)?))
    }

    /// Rows of all entities with the current parameters.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn entities(&mut self) -> Result<Matrix, TrainError> {
        let entities = self.network.entities(&mut self.state)?;
        Ok(self.state.backend.download(&entities)?)
    }
}

impl<'a, B: Backend> Run<'a, B> for TripleTrainer<'a, B> {
    fn state(&self) -> &RunState<'a, B> {
        &self.state
    }

    fn state_mut(&mut self) -> &mut RunState<'a, B> {
        &mut self.state
    }

    fn has_validation(&self) -> bool {
        !self.data.triples.val.is_empty()
    }

    /// One step on every batch. Drawing a batch counts as batch time.
    fn train_once(&mut self, lr: f64, _watch: &mut StepCallback<'_>) -> Result<Option<(f32, StageTimes)>, TrainError> {
        let (config, data) = (self.state.config, self.data);
        let (key, dropout) = (self.state.key(purpose::KNOWLEDGE), self.state.key(purpose::DROPOUT));
        let numbers = (data.n_entities, data.triples.n_relations());
        let epoch = TripleEpochs::new(&data.triples.train, numbers, key, config.batch_size);
        let sizes: Vec<usize> = (0..epoch.n_batches()).map(|batch| epoch.n_triples(batch)).collect();
        let step = |run: &mut Self, batch: usize, losses: &mut B::Matrix| {
            let mut stopwatch = Stopwatch::start();
            let list = epoch.batch(batch, config.triples.negatives);
            let drawn = stopwatch.next();
            let times = run.step((lr, dropout.child(batch as u64)), &list, (losses, batch))?;
            Ok(StageTimes { batches: drawn + times.batches, ..times })
        };
        epoch_of_steps(self, lr, &sizes, step).map(Some)
    }

    fn evaluate(&mut self) -> Result<Scores, TrainError> {
        let [val, test] = &self.data.held_out;
        let (val, test) = (self.ranks(val)?, self.ranks(test)?);
        let triples = TripleScores { val, test, unseen_entities: self.data.n_unseen };
        Ok(Scores { triples: Some(triples), ..Scores::default() })
    }

    fn test_report(&mut self) -> Result<Option<TestReport>, TrainError> {
        Ok(None)
    }
}
