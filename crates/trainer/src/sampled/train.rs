//! [`MiniBatch`]: one training run in which every step sees a part of the graph.

use girih_comm::Collective;
use girih_compute::{AdamStep, Backend, Dtype, Shape, StepInputs};
use girih_graph_format::Matrix;
use girih_pipeline::{Pipeline, Stage, StageError};
use girih_random::{Key, purpose};

use super::batch::{Batch, Whole};
use super::batches::SeedLists;
use super::batches::{Batches, EpochBatches, HostBatch};
use super::device::{DeviceBatch, DeviceBatches};
use super::layerwise::Layerwise;
use super::together::CollectivePrefetcher;
use crate::TrainError;
use crate::distributed::{first_does, first_tells, read_told, told};
use crate::models::Model;
use crate::report::{Scores, StageTimes, TestReport};
use crate::scorer::Scorer;
use crate::session::Control;
use crate::state::{BatchDone, PartialEpoch, Run, RunState, StepCallback, Stopwatch};
use crate::tape::Pool;

/// One run, epoch by epoch: each takes a step for every batch, and scores are those of the full graph.
///
/// Of several ranks, each takes an equal share of the seeds or the subgraphs of every step and holds graph and features
/// whole, or it takes the seeds that lie in its patch and holds that, in which case all score together, each on its own
/// nodes. It adds its gradients to those of the others before the step, so that parameters are the same on all of them,
/// to the bit; and up to the order of sums those of one rank. With dropout they are not: a rank draws masks of its own
/// for the nodes that it computes.
pub struct MiniBatch<'a, B: Backend> {
    /// What ranks do together in each step. It is dropped before what it reads.
    shared_step: B::Recording,
    state: RunState<'a, B>,
    batches: Batches<'a>,
    whole: Whole<'a, B>,
    scorer: Box<dyn Scorer<'a, B> + 'a>,
    world: Option<&'a dyn Collective<B>>,
    /// Where the device samples by itself.
    on_device: Option<DeviceBatches<'a, B>>,
}

/// A batch as it comes to a step.
enum Made<B: Backend> {
    OnHost(Box<HostBatch>),
    OnDevice(DeviceBatch<B>),
}

impl<B: Backend> Made<B> {
    /// Nodes or pairs in the loss of the whole batch, on all ranks.
    fn n_loss(&self) -> usize {
        match self {
            Self::OnHost(batch) => batch.n_loss,
            Self::OnDevice(batch) => batch.n_loss,
        }
    }
}

/// What a step needs of a run, beside its state.
struct Stepper<'s, 'a, B: Backend> {
    model: &'s dyn Model<B>,
    whole: &'s Whole<'a, B>,
    batches: &'s Batches<'a>,
    world: Option<&'a dyn Collective<B>>,
    lr: f64,
}

/// An epoch as far as it has come in this session.
struct Progress<M> {
    /// Of each batch, a row; of several ranks, the share of each until these are added up.
    losses: M,
    /// Nodes or pairs in the loss of each batch done.
    n_losses: Vec<usize>,
    before: PartialEpoch,
}

impl<'a, B: Backend> MiniBatch<'a, B> {
    pub(crate) fn new(
        mut state: RunState<'a, B>,
        batches: Batches<'a>,
        whole: Whole<'a, B>,
        scorer: Box<dyn Scorer<'a, B> + 'a>,
        world: Option<&'a dyn Collective<B>>,
    ) -> Self {
        state.pool = Pool::resizing();
        Self { shared_step: B::Recording::default(), state, batches, whole, scorer, world, on_device: None }
    }

    /// Has the device sample, if there is something to do that with.
    pub(crate) fn sampled_by(self, on_device: Option<DeviceBatches<'a, B>>) -> Self {
        Self { on_device, ..self }
    }
}

impl<'a, B: Backend> MiniBatch<'a, B> {
    /// Logits of some nodes with the parameters as they are.
    ///
    /// # Errors
    /// When the backend fails.
    pub(crate) fn logits(&mut self, layers: &Layerwise<'_, B>) -> Result<Matrix, TrainError> {
        let logits = layers.logits(self.scorer.model(), &mut self.state)?;
        Ok(self.state.backend.download(&logits)?)
    }

    /// The ranks of which one takes scores for all: where they have no part of these, and do not take turns.
    fn others_wait(&self) -> Option<&'a dyn Collective<B>> {
        self.world.filter(|_| !self.batches.are_made_together() && !self.scorer.is_shared())
    }

    /// Scores on the full graph, whose buffers are of no use to batches.
    fn scores(&mut self) -> Result<Scores, TrainError> {
        let scores = self.scorer.evaluate(&mut self.state)?;
        self.state.pool.clear();
        Ok(scores)
    }
}

impl<B: Backend> Stepper<'_, '_, B> {
    /// One step on a batch; the mean of its losses, or this rank's share of it, becomes the next row of the losses.
    fn step(
        &self,
        (state, shared_step): (&mut RunState<'_, B>, &mut B::Recording),
        made: Made<B>,
        key: Key,
        progress: &mut Progress<B::Matrix>,
    ) -> Result<StageTimes, TrainError> {
        let (mut lap, backend) = (Stopwatch::start(), state.backend);
        let row = progress.n_losses.len();
        progress.n_losses.push(made.n_loss());
        if made.n_loss() == 0 {
            // Of a subgraph without training nodes there is nothing to learn; its loss counts nothing, but must be a
            // number.
            let mut none = state.pool.take(backend, Shape::new(1, 1), Dtype::F32)?;
            backend.set_zero(&mut none)?;
            backend.copy_block(Shape::new(1, 1), &none, (0, 0), &mut progress.losses, (row, 0))?;
            state.pool.give(backend, none);
            return Ok(StageTimes::default());
        }
        let pool = &mut state.pool;
        let batch = match made {
            Made::OnHost(host) => Batch::upload(backend, pool, &host, self.whole, self.batches.adjacency())?,
            Made::OnDevice(sampled) => Batch::of_sampled(backend, pool, sampled, self.whole)?,
        };
        let batches = lap.next();
        let (loss, times) = state.passes(key, |tape| Ok(batch.loss(tape, self.model)?))?;
        let mut lap = Stopwatch::start();
        backend.copy_block(Shape::new(1, 1), &loss, (0, 0), &mut progress.losses, (row, 0))?;
        state.pool.give(backend, loss);
        batch.recycle(backend, &mut state.pool);
        let backward = times.backward + lap.next();
        let step = state.optimizer.begin(self.lr);
        match self.world {
            None => state.step(step)?,
            Some(world) => change_together(state, shared_step, world, step)?,
        }
        // No two batches have the same shapes, but nearly: what none of the next takes would pile up.
        state.pool.drop_unused();
        Ok(StageTimes { batches, backward, optimizer: lap.next(), ..times })
    }

    /// Takes steps on the batches from `first` on, which `next` gives in order; false when `watch` said to stop.
    fn steps(
        &self,
        (state, shared_step): (&mut RunState<'_, B>, &mut B::Recording),
        (first, n_batches): (usize, usize),
        mut next: impl FnMut(usize, &mut Pool<B>) -> Result<Made<B>, TrainError>,
        (progress, times): (&mut Progress<B::Matrix>, &mut StageTimes),
        watch: &mut StepCallback<'_>,
    ) -> Result<bool, TrainError> {
        let rank = self.world.map_or(0, |world| world.rank());
        let epoch = state.key(purpose::DROPOUT);
        for at in first..n_batches {
            let mut lap = Stopwatch::start();
            let made = next(at, &mut state.pool)?;
            times.batches += lap.next();
            let key = epoch.child(at as u64).child(rank as u64);
            *times += self.step((&mut *state, &mut *shared_step), made, key, progress)?;
            let done = BatchDone { batches: at as u64 + 1, n_batches: n_batches as u64 };
            if at + 1 < n_batches && watch(done) == Control::Stop {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Adds up the gradients of all ranks, and takes a step by the sums: alike in every step, so that a device need not be
/// told each time, which takes its host longer than the sums take the device.
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

/// Hands the batches from `first` on to `work`, made ahead of it by threads, `ahead` at most; or by itself, if none are
/// to be.
fn with_batches<R>(
    epoch: &EpochBatches<'_>,
    first: usize,
    ahead: usize,
    work: impl FnOnce(&mut dyn FnMut(usize) -> Result<HostBatch, TrainError>) -> Result<R, TrainError>,
) -> Result<R, TrainError> {
    if ahead == 0 {
        return work(&mut |at| epoch.make(at));
    }
    std::thread::scope(|scope| {
        if epoch.are_made_together() {
            let mut made = CollectivePrefetcher::start_in(scope, epoch, first, ahead)?;
            return work(&mut |at| made.take(at));
        }
        let stage = Stage::new("sample").capacity(ahead);
        let pipeline =
            Pipeline::<usize, TrainError>::new(first..epoch.n_batches()).stage(stage, || |at| epoch.make(at));
        let mut items = pipeline.start_in(scope).map_err(|error| TrainError::invalid(error.to_string()))?;
        work(&mut |_| match items.next() {
            Some(Ok(batch)) => Ok(batch),
            Some(Err(StageError::Failed { source, .. })) => Err(source),
            Some(Err(error)) => Err(TrainError::invalid(error.to_string())),
            None => unreachable!("as many batches as the epoch has"),
        })
    })
}

impl<'a, B: Backend> Run<'a, B> for MiniBatch<'a, B> {
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

    /// A step for every batch that is left of the epoch. Losses stay on the device until the last step is on its way.
    fn train_once(&mut self, lr: f64, watch: &mut StepCallback<'_>) -> Result<Option<(f32, StageTimes)>, TrainError> {
        let Self { shared_step, state, batches, whole, scorer, world, on_device } = self;
        let epoch = batches.epoch(state.epochs_done());
        let (n_batches, before, ahead) = (epoch.n_batches(), state.partial, state.config.batch.prefetch);
        let losses = state.pool.take(state.backend, Shape::new(n_batches, 1), Dtype::F32)?;
        let mut progress = Progress { losses, n_losses: Vec::new(), before };
        let stepper = Stepper { model: scorer.model(), whole, batches, world: *world, lr };
        let (first, mut times) = (before.batches as usize, StageTimes::default());
        let told = (&mut progress, &mut times);
        let is_done = if let Some(device) = on_device {
            device.begin(&epoch, first, &mut state.pool)?;
            let next = |at, pool: &mut Pool<B>| device.next(&epoch, at, pool).map(Made::OnDevice);
            stepper.steps((state, shared_step), (first, n_batches), next, told, watch)?
        } else {
            with_batches(&epoch, first, ahead, |next| {
                let next = |at, _: &mut Pool<B>| next(at).map(|batch| Made::OnHost(Box::new(batch)));
                stepper.steps((state, shared_step), (first, n_batches), next, told, watch)
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
        Ok(is_done.then_some(((loss_sum / n_losses as f64) as f32, times)))
    }

    fn evaluate(&mut self) -> Result<Scores, TrainError> {
        const WHAT: &str = "scores";
        if let Some(world) = self.others_wait() {
            // One rank takes the scores for all: every rank has the same parameters and the whole graph.
            return read_told(WHAT, &first_does(world, || Ok(told(&self.scores()?)))?);
        }
        let scores = self.scores()?;
        match self.world.filter(|_| self.scorer.is_shared()) {
            // What is done next depends on scores, whose last bits may be others on other processors.
            Some(world) => first_tells(world, WHAT, Some(&scores)),
            None => Ok(scores),
        }
    }

    fn test_report(&mut self) -> Result<Option<TestReport>, TrainError> {
        let Some(world) = self.others_wait() else {
            return self.scorer.test_report(&mut self.state);
        };
        let mut mine = None;
        // What the first rank reads stays where it is until it is done.
        first_does(world, || {
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
    /// Where the epoch stands, with the losses of all batches so far.
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
