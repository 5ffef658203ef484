//! [`RunState`]: what every kind of training keeps from epoch to epoch, and [`Run`]: an epoch of any kind.

use std::time::{Duration, Instant};

use girih_compute::{AdamStep, Backend};
use girih_graph_format::Matrix;
use girih_graph_format::file::{check_mapped_files, replaced_files};
use girih_random::Key;
use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::checkpoint::{CHECKPOINT_VERSION, Checkpoint, DataShape, Progress};
use crate::config::{OptimizerConfig, TrainConfig};
use crate::distributed::Ranks;
use crate::optim::Optimizer;
use crate::params::{Gradients, Param, Params};
use crate::report::{EpochReport, EpochTimes, RunSummary, Scores, StageTimes, TestReport};
use crate::session::Control;
use crate::tape::{Loss, Mode, Pool, Tape};

/// Where a run stands: parameters, the optimiser's state, epochs done, and the best scores so far.
pub struct RunState<'a, B: Backend> {
    pub(crate) backend: &'a B,
    pub(crate) config: &'a TrainConfig,
    pub(crate) params: Params<B>,
    pub(crate) gradients: Gradients<B>,
    pub(crate) optimizer: Optimizer<B>,
    pub(crate) pool: Pool<B>,
    /// This rank among those that share the work.
    ranks: Option<&'a Ranks<B>>,
    run: u64,
    epoch: u64,
    /// Where the epoch that is under way stands; at its start between epochs.
    pub(crate) partial: PartialEpoch,
    train_loss: f32,
    last: Option<Scores>,
    best: Option<Best>,
}

/// Where a run stands within an epoch of several batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartialEpoch {
    /// Batches done.
    pub batches: u64,
    /// The sum of the losses of all nodes in them.
    pub loss_sum: f64,
    /// How many nodes those are.
    pub n_losses: u64,
}

impl PartialEpoch {
    /// Whether no batch is done.
    #[must_use]
    pub fn is_start(&self) -> bool {
        self.batches == 0
    }
}

/// A batch is done, and it was not the last one of its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchDone {
    /// Batches done in this epoch.
    pub batches: u64,
    /// Batches of an epoch.
    pub n_batches: u64,
}

/// Who is told of every batch but the last of an epoch, and says whether to go on.
pub type StepCallback<'w> = dyn FnMut(BatchDone) -> Control + 'w;

/// A clock of what is done one after the other.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the last call, or since the start.
    pub(crate) fn next(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.0, now)
    }
}

struct Best {
    epoch: u64,
    scores: Scores,
    params: Vec<Matrix>,
}

/// One run, epoch by epoch.
pub trait Run<'a, B: Backend + 'a> {
    /// Where the run stands.
    fn state(&self) -> &RunState<'a, B>;

    /// Where the run stands, to be changed.
    fn state_mut(&mut self) -> &mut RunState<'a, B>;

    /// Refuses to train where there is nothing to learn from; a model that is trained may be applied there.
    ///
    /// # Errors
    /// When there is nothing, saying what.
    fn check_trains(&self) -> Result<(), TrainError> {
        Ok(())
    }

    /// Whether there is something to choose the epoch by: validation nodes with labels, validation links, or test items.
    fn has_validation(&self) -> bool;

    /// Goes through the training data once at learning rate `lr`, or through what is left of it; returns the mean loss,
    /// and the time of stages as the host's clock tells it. `None` when `watch` said to stop: the epoch can go on after
    /// that, from a [checkpoint](RunState::checkpoint) also. An epoch that cannot does not ask.
    ///
    /// # Errors
    /// When the backend fails, or the loss is no longer finite. A run has no further epoch then: its parameters may be
    /// those of a step that leads nowhere.
    fn train_once(&mut self, lr: f64, watch: &mut StepCallback<'_>) -> Result<Option<(f32, StageTimes)>, TrainError>;

    /// Scores of the parameters as they are.
    ///
    /// # Errors
    /// When the backend fails.
    fn evaluate(&mut self) -> Result<Scores, TrainError>;

    /// More about the test nodes with the parameters as they are; `None` where nodes have no classes,
    /// and where another rank says it for all.
    ///
    /// # Errors
    /// When the backend fails.
    fn test_report(&mut self) -> Result<Option<TestReport>, TrainError>;

    /// How far logits are off with the parameters as they are where ranks round operands before these travel
    /// ([`RankOptions::wire`](crate::distributed::RankOptions::wire)): the Euclidean norm of their differences to
    /// logits without rounding, over that of the latter, of all nodes. Of mini-batches these are the logits of scores.
    /// `None` where ranks do not round, and for recommenders.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    fn wire_error(&mut self) -> Result<Option<f64>, TrainError> {
        Ok(None)
    }

    /// Trains one epoch, then takes scores when they are due.
    ///
    /// # Errors
    /// As [`train_once`](Self::train_once).
    ///
    /// # Panics
    /// When an epoch ends early though nobody said so.
    fn epoch(&mut self) -> Result<EpochReport, TrainError> {
        Ok(self.epoch_until(&mut |_| Control::Continue)?.expect("nobody stopped it"))
    }

    /// As [`epoch`](Self::epoch), unless `watch` says to stop, in the middle of it: `None` then.
    ///
    /// # Errors
    /// As [`train_once`](Self::train_once), and when a mapped file of the process has changed.
    fn epoch_until(&mut self, watch: &mut StepCallback<'_>) -> Result<Option<EpochReport>, TrainError> {
        let (start, lr) = (Instant::now(), self.state().lr());
        let Some((train_loss, stages)) = self.train_once(lr, watch)? else { return Ok(None) };
        let steps = start.elapsed();
        let state = self.state_mut();
        let stages = (!state.backend.is_asynchronous()).then_some(stages);
        let mut times = EpochTimes { steps, stages, ..EpochTimes::default() };
        state.epoch += 1;
        state.partial = PartialEpoch::default();
        state.train_loss = train_loss;
        let epoch = state.epoch;
        let mut scores = None;
        if state.is_scored() {
            let start = Instant::now();
            scores = Some(self.evaluate()?);
            self.state_mut().keep_if_best(scores)?;
            times.evaluate = start.elapsed();
        }
        check_files()?;
        Ok(Some(EpochReport { epoch, train_loss, lr, times, scores }))
    }
}

/// Refuses to go on with files that changed while they were read, and warns of those that were replaced.
fn check_files() -> Result<(), TrainError> {
    check_mapped_files()?;
    replaced_files().iter().for_each(|warning| tracing::warn!("{warning}"));
    Ok(())
}

impl<'a, B: Backend> RunState<'a, B> {
    /// A run at its start.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(crate) fn new(
        backend: &'a B,
        config: &'a TrainConfig,
        optimizer: &OptimizerConfig,
        params: Params<B>,
        run: u64,
    ) -> Result<Self, TrainError> {
        let gradients = Gradients::new(backend, &params)?;
        let optimizer = Optimizer::new(backend, optimizer, &params)?;
        let pool = Pool::default();
        let train_loss = 0.0;
        Ok(Self {
            backend,
            config,
            params,
            gradients,
            optimizer,
            pool,
            ranks: None,
            run,
            epoch: 0,
            partial: PartialEpoch::default(),
            train_loss,
            last: None,
            best: None,
        })
    }

    /// The same on one of several ranks, whose own rows are among the parameters.
    #[must_use]
    pub(crate) fn among(mut self, ranks: Option<&'a Ranks<B>>) -> Self {
        self.ranks = ranks;
        self
    }

    /// Epochs done.
    #[must_use]
    pub fn epochs_done(&self) -> u64 {
        self.epoch
    }

    /// Whether scores are taken after the epochs that are done: every so many, and at the last.
    fn is_scored(&self) -> bool {
        self.epoch.is_multiple_of(self.config.eval_every) || self.epoch >= self.config.epochs
    }

    /// Whether no epoch is left: all are done, or patience ran out.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let impatient = match (self.config.patience, &self.best) {
            // Epochs behind the last scores may be better than these.
            (Some(patience), Some(best)) => self.is_scored() && self.epoch - best.epoch >= patience,
            _ => false,
        };
        self.epoch >= self.config.epochs || impatient
    }

    /// The key below which the next epoch draws for `purpose`.
    pub(crate) fn key(&self, purpose: u32) -> Key {
        Key::new(self.config.seed, purpose).child(self.run).child(self.epoch)
    }

    fn lr(&self) -> f64 {
        self.config.optimizer.lr_at(self.epoch, self.config.epochs)
    }

    /// Both passes of a step, with draws below `key`: `forward` ends in a loss, which comes back, and gradients are
    /// left where [`step`](Self::step) reads them: summed over ranks that cut the graph, not over those that share batches.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    pub(crate) fn passes<'t>(
        &'t mut self,
        key: Key,
        forward: impl FnOnce(&mut Tape<'t, B>) -> Result<Loss<B>, TrainError>,
    ) -> Result<(B::Matrix, StageTimes), TrainError> {
        let mut lap = Stopwatch::start();
        let mut tape = Tape::new(self.backend, &self.params, &mut self.pool, Mode::Train(key)).among(self.ranks);
        let loss = forward(&mut tape)?;
        let forward = lap.next();
        let loss = tape.backward(loss, &mut self.gradients)?;
        Ok((loss, StageTimes { forward, backward: lap.next(), ..StageTimes::default() }))
    }

    /// Takes a step of the optimiser, which has [begun](Optimizer::begin), by the gradients at hand.
    ///
    /// # Errors
    /// When the backend fails.
    pub(crate) fn step(&mut self, step: AdamStep) -> Result<(), TrainError> {
        Ok(self.optimizer.apply(self.backend, step, &self.gradients, &mut self.params)?)
    }

    /// The losses of `n` steps that were taken at learning rate `lr`, which are the first rows of `losses`, on the host.
    ///
    /// Here the host waits for the steps, and not between their passes. A step by a loss that is no number is taken
    /// before that is seen; the error ends the run, and a checkpoint is only written after an epoch without one.
    ///
    /// # Errors
    /// When a loss is not finite, or the backend fails.
    pub(crate) fn losses(&self, lr: f64, losses: &B::Matrix, n: usize) -> Result<Vec<f32>, TrainError> {
        let values = self.backend.download(losses)?.data()[..n].to_vec();
        self.check_losses(lr, &values)?;
        Ok(values)
    }

    fn check_losses(&self, lr: f64, losses: &[f32]) -> Result<(), TrainError> {
        match losses.iter().find(|loss| !loss.is_finite()) {
            None => Ok(()),
            Some(loss) => Err(TrainError::invalid(format!(
                "the training loss is {loss} in epoch {}: give a lower --lr (now {lr}), or check the features",
                self.epoch + 1
            ))),
        }
    }

    /// Takes note of the latest scores, and keeps the parameters when they are the best so far.
    fn keep_if_best(&mut self, scores: Option<Scores>) -> Result<(), TrainError> {
        let Some(scores) = scores else { return Ok(()) };
        if self.best.as_ref().is_none_or(|best| scores.better_than(&best.scores, self.config.metric)) {
            self.best = Some(Best { epoch: self.epoch, scores, params: self.params.download(self.backend)? });
        }
        self.last = Some(scores);
        Ok(())
    }

    /// What the run has come to; `None` before the first evaluation.
    #[must_use]
    pub fn summary(&self) -> Option<RunSummary> {
        let (best, last) = (self.best.as_ref()?, self.last?);
        Some(RunSummary {
            run: self.run,
            epochs: self.epoch,
            best_epoch: best.epoch,
            best: best.scores,
            chosen_by: best.scores.chosen_by(self.config.metric),
            last,
            train_loss: self.train_loss,
        })
    }

    /// The state of the run, from which [`restore`](Self::restore) continues bit for bit. Of several ranks, all call it
    /// together, and the first gets the state of all, which any number of ranks can restore; the others get none, if
    /// they have rows of their own among the parameters.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    pub fn checkpoint(&self, data: DataShape) -> Result<Option<Checkpoint>, TrainError> {
        let (first, second) = self.optimizer.download(self.backend)?.into_iter().unzip();
        let best_params = self.best.as_ref().map_or_else(Vec::new, |best| best.params.clone());
        // All of them, before any rank leaves.
        let (first, second) = (self.of_all(first)?, self.of_all(second)?);
        let (params, best_params) = (self.of_all(self.params.download(self.backend)?)?, self.of_all(best_params)?);
        let (Some(first), Some(second), Some(params), Some(best_params)) = (first, second, params, best_params) else {
            return Ok(None);
        };
        let moments = first.into_iter().zip(second);
        Ok(Some(Checkpoint {
            progress: Progress {
                version: CHECKPOINT_VERSION,
                config: self.config.clone(),
                data,
                run: self.run,
                epoch: self.epoch,
                partial: self.partial,
                n_steps: self.optimizer.n_steps(),
                finished: self.is_finished(),
                best: self.best.as_ref().map(|best| (best.epoch, best.scores)),
                last: self.last,
                train_loss: self.train_loss,
                arrangement: None,
            },
            moments: moments.map(|((name, first), (_, second))| (name, (first, second))).collect(),
            params: params.into_iter().collect(),
            best_params: best_params.into_iter().collect(),
            file: None,
        }))
    }

    /// Matrices like the parameters, by name: of those with a row for each node, the rows of all ranks, which the first
    /// gets.
    fn of_all(&self, matrices: Vec<Matrix>) -> Result<Option<Vec<(String, Matrix)>>, TrainError> {
        let entries = self.params.iter().zip(matrices).map(|((_, param), matrix)| {
            let matrix = match self.ranks.filter(|_| param.per_node) {
                Some(ranks) => ranks.gather_on_first(&matrix)?,
                None => Some(matrix),
            };
            Ok(matrix.map(|matrix| (param.name.clone(), matrix)))
        });
        // Each is gathered before it is seen that one is not here.
        let entries: Vec<Option<_>> = entries.collect::<Result<_, TrainError>>()?;
        Ok(entries.into_iter().collect())
    }

    /// Goes to the state of a checkpoint.
    ///
    /// # Errors
    /// When the checkpoint lacks a parameter of this model or holds one of another shape.
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        let params = self.own(|name| checkpoint.params.get(name))?;
        let first = self.own(|name| Some(&checkpoint.moments.get(name)?.0))?;
        let second = self.own(|name| Some(&checkpoint.moments.get(name)?.1))?;
        let moments: Vec<(Matrix, Matrix)> = first.into_iter().zip(second).collect();
        self.params.write(self.backend, &params)?;
        self.optimizer.write(self.backend, &moments, checkpoint.progress.n_steps)?;
        self.best = match checkpoint.progress.best {
            Some((epoch, scores)) => {
                Some(Best { epoch, scores, params: self.own(|name| checkpoint.best_params.get(name))? })
            }
            None => None,
        };
        self.epoch = checkpoint.progress.epoch;
        self.partial = checkpoint.progress.partial;
        self.last = checkpoint.progress.last;
        self.train_loss = checkpoint.progress.train_loss;
        Ok(())
    }

    /// Makes the best parameters so far the current ones; does nothing before the first evaluation.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn restore_best(&mut self) -> Result<(), TrainError> {
        match &self.best {
            Some(best) => Ok(self.params.write(self.backend, &best.params)?),
            None => Ok(()),
        }
    }

    /// Matrices of all ranks in the order of the parameters: of those with a row for each node, the rows at hand.
    fn own<'m>(&self, of_name: impl Fn(&str) -> Option<&'m Matrix>) -> Result<Vec<Matrix>, TrainError> {
        let own = |param: &Param<B>| {
            let whole = of_name(&param.name)?;
            match self.ranks.filter(|_| param.per_node) {
                Some(ranks) => ranks.own_rows(whole),
                None => Some(whole.clone()),
            }
        };
        let entries = self.params.iter().map(|(_, param)| {
            own(param).ok_or_else(|| {
                TrainError::invalid(format!(
                    "the checkpoint has no `{}`: it belongs to a model of another kind or size",
                    param.name
                ))
            })
        });
        entries.collect()
    }
}
