//! [`TripleTrainer`]: one training run on batches of triples.

use girih_compute::{Backend, Dtype, Shape};
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
    EntityRanks, Run, RunState, Scores, StageTimes, StepCallback, Stopwatch, TestReport, TripleScores,
};
use crate::tape::{Mode, Params, Tape};

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

    /// One step on a list of queries. Writes their mean loss to row `row` of `losses`.
    fn step(
        &mut self,
        (lr, key): (f64, Key),
        list: &QueryList,
        (losses, row): (&mut B::Matrix, usize),
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
        let mut stopwatch = Stopwatch::start();
        let step = state.optimizer.begin(lr);
        state.step(step)?;
        state.backend.copy_block(Shape::new(1, 1), &loss, (0, 0), losses, (row, 0))?;
        state.pool.give(state.backend, loss);
        Ok(StageTimes { batches, optimizer: stopwatch.next(), ..times })
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
        let state = &mut self.state;
        let mut tape = Tape::new(state.backend, &state.params, &mut state.pool, Mode::Evaluate);
        let entities = self.network.model.forward(&mut tape, self.network.inputs)?;
        Ok(state.backend.download(tape.value(entities))?)
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

    /// One step on every batch. Drawing a batch counts as batch time. Losses stay on the device until the last step is
    /// launched.
    fn train_once(&mut self, lr: f64, _watch: &mut StepCallback<'_>) -> Result<Option<(f32, StageTimes)>, TrainError> {
        let (config, data) = (self.state.config, self.data);
        let (key, dropout) = (self.state.key(purpose::KNOWLEDGE), self.state.key(purpose::DROPOUT));
        let sizes = (data.n_entities, data.triples.n_relations());
        let epoch = TripleEpochs::new(&data.triples.train, sizes, key, config.batch_size);
        let (n_batches, mut times) = (epoch.n_batches(), StageTimes::default());
        let mut losses = self.state.pool.take(self.state.backend, Shape::new(n_batches, 1), Dtype::F32)?;
        for batch in 0..n_batches {
            let mut stopwatch = Stopwatch::start();
            let list = epoch.batch(batch, config.triples.negatives);
            times.batches += stopwatch.next();
            times += self.step((lr, dropout.child(batch as u64)), &list, (&mut losses, batch))?;
        }
        let values = self.state.losses(lr, &losses, n_batches)?;
        self.state.pool.give(self.state.backend, losses);
        let weighed = values.iter().enumerate();
        let total: f64 = weighed.map(|(batch, &loss)| f64::from(loss) * epoch.n_triples(batch) as f64).sum();
        Ok(Some(((total / data.triples.train.len() as f64) as f32, times)))
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
