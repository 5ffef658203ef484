//! [`MiniBatch`]: one training run on mini-batches.

use std::ops::Range;
use std::thread::Scope;

use girih_comm::Collective;
use girih_compute::{AdamStep, Backend, Dtype, Shape, StepInputs};
use girih_features::MiniBatchBackend;
use girih_graph_format::Matrix;
use girih_pipeline::{Items, Pipeline, Stage, StageError};
use girih_random::{Key, purpose};

use super::batch::{Batch, WholeGraph};
use super::batches::{Batches, EpochBatches, SeedLists};
use super::device::{DeviceBatch, DeviceBatches};
use super::host_batch::HostBatch;
use super::prefetch::CollectivePrefetcher;
use super::scoring::{HiddenInference, NodeInference};
use crate::TrainError;
use crate::engine::{
    BatchDone, Control, PartialEpoch, Run, RunState, Scorer, Scores, StageTimes, StepCallback, Stopwatch, TestReport,
};
use crate::models::Model;
use crate::tape::Pool;
use crate::tape::ranks::{broadcast_from_first, decode_message, encode_message, run_on_first};

/// One run, epoch by epoch. Each epoch takes a step for every batch; scores are those of the full graph.
///
/// With several ranks, each takes an equal share of the seeds or subgraphs of every step, and holds graph and
/// features whole. Or each holds a patch and takes the seeds in it; then all score together, each on its own nodes.
/// Ranks sum their gradients before the step, so that parameters are identical on all of them, to the bit. They equal
/// those of one rank up to the order of sums. With dropout they differ, since a rank draws its own masks for the
/// nodes that it computes.
pub struct MiniBatch<'a, B: Backend> {
    /// Captured sequence that ranks launch in each step. Declared first, so that it is dropped before its operands.
    shared_step: B::Recording,
    state: RunState<'a, B>,
    batches: Batches<'a>,
    whole: WholeGraph<'a, B>,
    scorer: Box<dyn Scorer<'a, B> + 'a>,
    world: Option<&'a dyn Collective<B>>,
    /// Set where the device samples by itself.
    on_device: Option<DeviceBatches<'a, B>>,
}

/// Batch that a step gets.
enum StepBatch<B: Backend> {
    OnHost(Box<HostBatch>),
    OnDevice(DeviceBatch<B>),
}

impl<B: Backend> StepBatch<B> {
    /// Number of nodes or pairs in the loss of the whole batch, on all ranks.
    fn n_loss(&self) -> usize {
        match self {
            Self::OnHost(batch) => batch.n_loss,
            Self::OnDevice(batch) => batch.n_loss,
        }
    }
}

/// Inputs of a step, besides the state of the run.
struct Stepper<'s, 'a, B: Backend> {
    model: &'s dyn Model<B>,
    whole: &'s WholeGraph<'a, B>,
    world: Option<&'a dyn Collective<B>>,
    lr: f64,
}

/// Progress of an epoch in this session.
struct Progress<M> {
    /// Loss of each batch, one per row. With several ranks, each has its share until they are summed.
    losses: M,
    /// Number of nodes or pairs in the loss of each finished batch.
    n_losses: Vec<usize>,
    before: PartialEpoch,
    /// Times of the stages of all steps.
    times: StageTimes,
}

impl<'a, B: Backend> MiniBatch<'a, B> {
    /// Run at its start, whose batches the host makes.
    pub(crate) fn new(
        state: RunState<'a, B>,
        batches: Batches<'a>,
        whole: WholeGraph<'a, B>,
        scorer: Box<dyn Scorer<'a, B> + 'a>,
        world: Option<&'a dyn Collective<B>>,
    ) -> Self {
        let mut state = state.sharing_batches(world.is_some_and(|world| world.size() > 1));
        state.pool = Pool::resizing();
        Self { shared_step: B::Recording::default(), state, batches, whole, scorer, world, on_device: None }
    }

    /// Makes the device sample, if `on_device` is given.
    pub(crate) fn sampled_by(self, on_device: Option<DeviceBatches<'a, B>>) -> Self {
        Self { on_device, ..self }
    }
}

impl<'a, B: MiniBatchBackend> MiniBatch<'a, B> {
    /// Logits of some nodes with the current parameters.
    ///
    /// # Errors
    /// When the backend fails.
    pub(crate) fn logits(&mut self, inference: &dyn NodeInference<B>) -> Result<Matrix, TrainError> {
        let logits = inference.logits(self.scorer.model(), &mut self.state)?;
        Ok(self.state.backend.download(&logits)?)
    }

    /// Rows of the last hidden layer of some nodes with the current parameters; `None` without hidden layers.
    ///
    /// # Errors
    /// When the backend fails.
    pub(crate) fn hidden(&mut self, layers: &dyn HiddenInference<B>) -> Result<Option<Matrix>, TrainError> {
        let hidden = layers.hidden(self.scorer.model(), &mut self.state)?;
        Ok(hidden.map(|hidden| self.state.backend.download(&hidden)).transpose()?)
    }

    /// World in which one rank computes scores for all: ranks have no patches, and do not share the scoring.
    fn others_wait(&self) -> Option<&'a dyn Collective<B>> {
        self.world.filter(|_| !self.batches.are_made_together() && !self.scorer.is_shared())
    }

    /// Scores on the full graph. Clears the pool, since batches cannot use its buffers.
    fn scores(&mut self) -> Result<Scores, TrainError> {
        let scores = self.scorer.evaluate(&mut self.state)?;
        self.state.pool.clear();
        Ok(scores)
    }
}

impl<B: Backend> Stepper<'_, '_, B> {
    /// One step on a batch. The mean of its losses, or this rank's share of it, becomes the next row of the losses.
    fn step(
        &self,
        (state, shared_step): (&mut RunState<'_, B>, &mut B::Recording),
        made: StepBatch<B>,
        key: Key,
        progress: &mut Progress<B::Matrix>,
    ) -> Result<StageTimes, TrainError> {
        let (mut stopwatch, backend) = (Stopwatch::start(), state.backend);
        let row = progress.n_losses.len();
        progress.n_losses.push(made.n_loss());
        if made.n_loss() == 0 {
            // A subgraph without training nodes gives no gradient. Its loss has no weight, but must be a number.
            let mut none = state.pool.take(backend, Shape::new(1, 1), Dtype::F32)?;
            backend.set_zero(&mut none)?;
            backend.copy_block(Shape::new(1, 1), &none, (0, 0), &mut progress.losses, (row, 0))?;
            state.pool.give(backend, none);
            return Ok(StageTimes::default());
        }
        let pool = &mut state.pool;
        let batch = match made {
            StepBatch::OnHost(host) => Batch::upload(backend, pool, &host, self.whole)?,
            StepBatch::OnDevice(sampled) => Batch::of_sampled(backend, pool, sampled, self.whole)?,
        };
        let batches = stopwatch.next();
        let (loss, times) = state.passes(key, |tape| Ok(batch.loss(tape, self.model)?))?;
        let mut stopwatch = Stopwatch::start();
        backend.copy_block(Shape::new(1, 1), &loss, (0, 0), &mut progress.losses, (row, 0))?;
        state.pool.give(backend, loss);
        batch.recycle(backend, &mut state.pool);
        let backward = times.backward + stopwatch.next();
        let step = state.optimizer.begin(self.lr);
        match self.world {
            None => state.step(step)?,
            Some(world) => change_together(state, shared_step, world, step)?,
        }
        // Shapes of batches differ slightly: buffers that no later batch takes would pile up.
        state.pool.drop_unused();
        Ok(StageTimes { batches, backward, optimizer: stopwatch.next(), ..times })
    }

    /// Takes steps on the batches from `first` on, which `next` returns in order. Returns false if `watch` asks to
    /// stop.
    fn steps(
        &self,
        (state, shared_step): (&mut RunState<'_, B>, &mut B::Recording),
        (first, n_batches): (usize, usize),
        mut next: impl FnMut(usize, &mut Pool<B>) -> Result<StepBatch<B>, TrainError>,
        progress: &mut Progress<B::Matrix>,
        watch: &mut StepCallback<'_>,
    ) -> Result<bool, TrainError> {
        let rank = self.world.map_or(0, |world| world.rank());
        let epoch = state.key(purpose::DROPOUT);
        for at in first..n_batches {
            let mut stopwatch = Stopwatch::start();
            let made = next(at, &mut state.pool)?;
            progress.times.batches += stopwatch.next();
            let key = epoch.child(at as u64).child(rank as u64);
            let times = self.step((&mut *state, &mut *shared_step), made, key, progress)?;
            progress.times += times;
            let done = BatchDone { batches: at as u64 + 1, n_batches: n_batches as u64 };
            if at + 1 < n_batches && watch(done) == Control::Stop {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Sums the gradients of all ranks, and takes an optimizer step. The sequence is the same in every step, so that it
/// is captured and replayed: launching it would take longer than running it.
fn change_together<B: Backend>(
    state: &mut RunState<'_, B>,
    recording: &mut B::Recording,
    world: &dyn Collective<B>,
    step: AdamStep,
) -> Result<(), TrainError> {
    let (backend, inputs) = (state.backend, StepInputs { keys: Vec::new(), optimizer: step });
    backend.repeat(recording, &inputs, &mut || -> Result<(), TrainError> {
        state.gradients.sum_over(world)?;
        state.step(step)
    })
}

/// Passes the batches from `first` on to `work`. Threads prefetch at most `ahead` of them; with zero, `work` makes
/// them itself.
fn with_batches<R>(
    epoch: &EpochBatches<'_>,
    first: usize,
    ahead: usize,
    work: impl FnOnce(&mut dyn FnMut(usize) -> Result<HostBatch, TrainError>) -> Result<R, TrainError>,
) -> Result<R, TrainError> {
    if ahead == 0 {
        return work(&mut |at| epoch.make(at));
    }
    let make = |at| epoch.make(at);
    std::thread::scope(|scope| {
        if epoch.are_made_together() {
            let mut made = CollectivePrefetcher::start_in(scope, epoch, first, ahead)?;
            return work(&mut |at| made.take(at));
        }
        let mut items = made_ahead(scope, "sample", (first..epoch.n_batches(), ahead), &make)?;
        work(&mut |_| Ok(next_item(&mut items)?.expect("as many batches as the epoch has")))
    })
}

/// Items that threads of a scope make of numbers, at most `ahead` of them before they are asked for.
///
/// # Errors
/// When the system refuses a thread.
pub(super) fn made_ahead<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &'static str,
    (numbers, ahead): (Range<usize>, usize),
    make: &'scope (impl Fn(usize) -> Result<T, TrainError> + Sync),
) -> Result<Items<'scope, T, TrainError>, TrainError> {
    let stage = Stage::new(name).capacity(ahead).workers(n_workers(ahead));
    let pipeline = Pipeline::<usize, TrainError>::new(numbers).stage(stage, move || make);
    pipeline.start_in(scope).map_err(|error| TrainError::invalid(error.to_string()))
}

/// Next item of a pipeline; `None` after the last.
pub(super) fn next_item<T>(
    items: &mut impl Iterator<Item = Result<T, StageError<TrainError>>>,
) -> Result<Option<T>, TrainError> {
    items.next().transpose().map_err(|error| match error {
        StageError::Failed { source, .. } => source,
        error => TrainError::invalid(error.to_string()),
    })
}

/// Threads that make batches on the host: as many as batches wait, but no more than half of all, which the step uses too.
fn n_workers(ahead: usize) -> usize {
    ahead.min(rayon::current_num_threads() / 2).max(1)
}

impl<'a, B: MiniBatchBackend> Run<'a, B> for MiniBatch<'a, B> {
    fn state(&self) -> &RunState<'a, B> {
        &self.state
    }

    fn state_mut(&mut self) -> &mut RunState<'a, B> {
        &mut self.state
    }

    fn check_trains(&self) -> Result<(), TrainError> {
        self.scorer.check_trains()
    }

    fn has_validation(&self) -> bool {
        self.scorer.has_validation()
    }

    /// One step for every remaining batch of the epoch. Losses stay on the device until the last step is launched.
    fn train_once(&mut self, lr: f64, watch: &mut StepCallback<'_>) -> Result<Option<(f32, StageTimes)>, TrainError> {
        let Self { shared_step, state, batches, whole, scorer, world, on_device } = self;
        let epoch = batches.epoch(state.epochs_done());
        let (n_batches, before, ahead) = (epoch.n_batches(), state.partial, state.config.batch.prefetch);
        let losses = state.pool.take(state.backend, Shape::new(n_batches, 1), Dtype::F32)?;
        let mut progress = Progress { losses, n_losses: Vec::new(), before, times: StageTimes::default() };
        let stepper = Stepper { model: scorer.model(), whole, world: *world, lr };
        let first = before.batches as usize;
        let is_done = if let Some(device) = on_device {
            device.begin(&epoch, first, &mut state.pool)?;
            let next = |at, pool: &mut Pool<B>| device.next(&epoch, at, pool).map(StepBatch::OnDevice);
            stepper.steps((state, shared_step), (first, n_batches), next, &mut progress, watch)?
        } else {
            with_batches(&epoch, first, ahead, |next| {
                let next = |at, _: &mut Pool<B>| next(at).map(|batch| StepBatch::OnHost(Box::new(batch)));
                stepper.steps((state, shared_step), (first, n_batches), next, &mut progress, watch)
            })?
        };
        if let Some(world) = *world {
            world.all_reduce(&mut progress.losses)?;
        }
        state.partial = progress.read(state, lr)?;
        state.pool.give(state.backend, progress.losses);
        let PartialEpoch { loss_sum, n_losses, .. } = state.partial;
        if is_done && n_losses == 0 {
            return Err(TrainError::invalid(
                "no batch of an epoch had a training node with a label: give a larger --batch-size",
            ));
        }
        Ok(is_done.then_some(((loss_sum / n_losses as f64) as f32, progress.times)))
    }

    fn evaluate(&mut self) -> Result<Scores, TrainError> {
        const WHAT: &str = "scores";
        if let Some(world) = self.others_wait() {
            // One rank computes the scores for all: every rank has the same parameters and the whole graph.
            return decode_message(WHAT, &run_on_first(world, || Ok(encode_message(&self.scores()?)))?);
        }
        let scores = self.scores()?;
        match self.world.filter(|_| self.scorer.is_shared()) {
            // All ranks use the scores of the first, since the last bits may differ on other CPUs and decisions
            // depend on them.
            Some(world) => broadcast_from_first(world, WHAT, Some(&scores)),
            None => Ok(scores),
        }
    }

    fn test_report(&mut self) -> Result<Option<TestReport>, TrainError> {
        let Some(world) = self.others_wait() else {
            return self.scorer.test_report(&mut self.state);
        };
        let mut mine = None;
        // Buffers that the first rank reads must stay in place until it is done.
        run_on_first(world, || {
            mine = self.scorer.test_report(&mut self.state)?;
            Ok(Vec::new())
        })?;
        Ok(mine)
    }

    fn wire_error(&mut self) -> Result<Option<f64>, TrainError> {
        self.scorer.wire_error(&mut self.state)
    }
}

impl<M> Progress<M> {
    /// State of the epoch, with the losses of all batches so far.
    fn read<B: Backend<Matrix = M>>(&self, state: &RunState<'_, B>, lr: f64) -> Result<PartialEpoch, TrainError> {
        let mut partial = self.before;
        let values = state.losses(lr, &self.losses, self.n_losses.len())?;
        for (&n, loss) in self.n_losses.iter().zip(values) {
            partial.batches += 1;
            partial.n_losses += n as u64;
            partial.loss_sum += f64::from(loss) * n as f64;
        }
        Ok(partial)
    }
}
