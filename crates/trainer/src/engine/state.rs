//! [`RunState`]: state that every kind of training keeps between epochs, and [`Run`]: a run of any kind.

use std::time::{Duration, Instant};

use girih_compute::{AdamStep, Backend, Shape};
use girih_graph_format::Matrix;
use girih_graph_format::file::{check_mapped_files, replaced_files};
use girih_random::Key;

use super::checkpoint::{CHECKPOINT_VERSION, Checkpoint, DataShape, Progress};
use super::observe::Control;
use super::optim::Optimizer;
use super::report::{BatchDone, EpochReport, EpochTimes, PartialEpoch, RunSummary, Scores, StageTimes, TestReport};
use crate::TrainError;
use crate::config::{OptimizerConfig, TrainConfig};
use crate::tape::ranks::Ranks;
use crate::tape::{Gradients, Loss, Mode, Param, Params, Pool, Tape};

/// State of a run: parameters, optimiser state, epochs done, and the best scores so far.
pub struct RunState<'a, B: Backend> {
    pub(crate) backend: &'a B,
    pub(crate) config: &'a TrainConfig,
    pub(crate) params: Params<B>,
    pub(crate) gradients: Gradients<B>,
    pub(crate) optimizer: Optimizer<B>,
    pub(crate) pool: Pool<B>,
    /// This rank and its world; `None` for a single rank.
    ranks: Option<&'a Ranks<B>>,
    /// Whether steps compute this rank's share of a mini-batch.
    shares_batches: bool,
    run: u64,
    epoch: u64,
    /// Progress within the current epoch; at its start between epochs.
    pub(crate) partial: PartialEpoch,
    train_loss: f32,
    last: Option<Scores>,
    best: Option<Best>,
}

/// Callback after every batch but the last of an epoch. Its result tells whether to continue.
pub type StepCallback<'w> = dyn FnMut(BatchDone) -> Control + 'w;

/// Clock for consecutive stages.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the last call, or since the start.
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
    /// State of the run.
    fn state(&self) -> &RunState<'a, B>;

    /// State of the run, mutable.
    fn state_mut(&mut self) -> &mut RunState<'a, B>;

    /// Refuses to train without training data. A trained model may still be applied to such data.
    ///
    /// # Errors
    /// When there is no training data; the message names it.
    fn check_trains(&self) -> Result<(), TrainError> {
        Ok(())
    }

    /// Whether validation data can choose the epoch: labelled validation nodes, validation links, or test items.
    fn has_validation(&self) -> bool;

    /// Trains one epoch, or its remainder, at learning rate `lr`. Returns the mean loss and the time of each stage by
    /// the host's clock. Returns `None` if `watch` stops the epoch; a later call or a
    /// [checkpoint](RunState::checkpoint) can continue it. Runs that cannot stop within an epoch never call `watch`.
    ///
    /// # Errors
    /// When the backend fails, or the loss is not finite. The run has no further epoch then: its parameters may
    /// already include the failed step.
    fn train_once(&mut self, lr: f64, watch: &mut StepCallback<'_>) -> Result<Option<(f32, StageTimes)>, TrainError>;

    /// Scores of the current parameters.
    ///
    /// # Errors
    /// When the backend fails.
    fn evaluate(&mut self) -> Result<Scores, TrainError>;

    /// Detailed report on the test nodes for the current parameters. `None` for tasks without node classes, and on
    /// ranks for which another rank reports.
    ///
    /// # Errors
    /// When the backend fails.
    fn test_report(&mut self) -> Result<Option<TestReport>, TrainError>;

    /// Relative rounding error of the logits for the current parameters, where ranks round operands before they are
    /// sent ([`RankOptions::wire`](crate::config::RankOptions::wire)). It is the Euclidean norm of the
    /// differences to unrounded logits over the norm of these, for all nodes. Mini-batch runs compare the logits of
    /// evaluation. `None` where ranks do not round, and for recommenders.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    fn wire_error(&mut self) -> Result<Option<f64>, TrainError> {
        Ok(None)
    }

    /// Trains one epoch, then evaluates if due.
    ///
    /// # Errors
    /// As [`train_once`](Self::train_once).
    ///
    /// # Panics
    /// When an epoch ends early although no callback stopped it.
    fn epoch(&mut self) -> Result<EpochReport, TrainError> {
        Ok(self.epoch_until(&mut |_| Control::Continue)?.expect("nobody stopped it"))
    }

    /// As [`epoch`](Self::epoch), but returns `None` if `watch` stops it in the middle.
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

/// Fails if a mapped file changed while it was read, and warns of replaced files.
fn check_files() -> Result<(), TrainError> {
    check_mapped_files()?;
    replaced_files().iter().for_each(|warning| tracing::warn!("{warning}"));
    Ok(())
}

impl<'a, B: Backend> RunState<'a, B> {
    /// Initial state of a run.
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
            shares_batches: false,
            run,
            epoch: 0,
            partial: PartialEpoch::default(),
            train_loss,
            last: None,
            best: None,
        })
    }

    /// This state on one of several ranks. Per-node parameters hold only the rows of its own nodes.
    #[must_use]
    pub(crate) fn among(mut self, ranks: Option<&'a Ranks<B>>) -> Self {
        self.ranks = ranks;
        self
    }

    /// This state on one of several ranks that share each mini-batch, if `shares`.
    #[must_use]
    pub(crate) fn sharing_batches(self, shares: bool) -> Self {
        Self { shares_batches: shares, ..self }
    }

    /// Number of the run in its session.
    #[must_use]
    pub(crate) fn run(&self) -> u64 {
        self.run
    }

    /// Number of epochs done.
    #[must_use]
    pub fn epochs_done(&self) -> u64 {
        self.epoch
    }

    /// Whether scores are due after the current number of epochs: every `eval_every` epochs, and after the last.
    fn is_scored(&self) -> bool {
        self.epoch.is_multiple_of(self.config.eval_every) || self.epoch >= self.config.epochs
    }

    /// Whether no epoch is left: all are done, or patience ran out.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let impatient = match (self.config.patience, &self.best) {
            // Later epochs without scores may be better than the last scored one.
            (Some(patience), Some(best)) => self.is_scored() && self.epoch - best.epoch >= patience,
            _ => false,
        };
        self.epoch >= self.config.epochs || impatient
    }

    /// Random key of the next epoch for `purpose`.
    pub(crate) fn key(&self, purpose: u32) -> Key {
        Key::new(self.config.seed, purpose).child(self.run).child(self.epoch)
    }

    fn lr(&self) -> f64 {
        self.config.optimizer.lr_at(self.epoch, self.config.epochs)
    }

    /// Runs the forward and the backward pass of a step, with random draws below `key`. `forward` ends in a loss,
    /// which is returned. The gradients stay in [`step`](Self::step)'s buffers. They are summed over ranks that
    /// partition the graph, but not over ranks that share batches.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    pub(crate) fn passes<'t>(
        &'t mut self,
        key: Key,
        forward: impl FnOnce(&mut Tape<'t, B>) -> Result<Loss<B>, TrainError>,
    ) -> Result<(B::Matrix, StageTimes), TrainError> {
        let mut stopwatch = Stopwatch::start();
        let mut tape = Tape::new(self.backend, &self.params, &mut self.pool, Mode::Train(key))
            .among(self.ranks)
            .on_batch_share(self.shares_batches);
        let loss = forward(&mut tape)?;
        let forward = stopwatch.next();
        let loss = tape.backward(loss, &mut self.gradients)?;
        Ok((loss, StageTimes { forward, backward: stopwatch.next(), ..StageTimes::default() }))
    }

    /// Takes an optimiser step with the current gradients. [`begin`](Optimizer::begin) must have counted it.
    ///
    /// # Errors
    /// When the backend fails.
    pub(crate) fn step(&mut self, step: AdamStep) -> Result<(), TrainError> {
        let Self { backend, optimizer, gradients, params, pool, .. } = self;
        Ok(optimizer.apply((*backend, pool), step, gradients, params)?)
    }

    /// Takes an optimiser step at learning rate `lr`, keeps the loss of the pass in row `row` of `losses`, and returns the
    /// time.
    ///
    /// # Errors
    /// When the backend fails.
    pub(crate) fn step_keeping(
        &mut self,
        lr: f64,
        loss: B::Matrix,
        (losses, row): (&mut B::Matrix, usize),
    ) -> Result<Duration, TrainError> {
        let mut stopwatch = Stopwatch::start();
        let step = self.optimizer.begin(lr);
        self.step(step)?;
        self.backend.copy_block(Shape::new(1, 1), &loss, (0, 0), losses, (row, 0))?;
        self.pool.give(self.backend, loss);
        Ok(stopwatch.next())
    }

    /// Losses of `n` steps at learning rate `lr`: the first `n` rows of `losses`, on the host.
    ///
    /// The host waits for the steps here, and not between their passes. A step with a non-finite loss therefore
    /// changes the parameters before the host notices. The error ends the run, and checkpoints are written only after
    /// epochs without one.
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

    /// Records the latest scores, and keeps a copy of the parameters if they are the best so far.
    fn keep_if_best(&mut self, scores: Option<Scores>) -> Result<(), TrainError> {
        let Some(scores) = scores else { return Ok(()) };
        if self.best.as_ref().is_none_or(|best| scores.better_than(&best.scores, self.config.metric)) {
            self.best = Some(Best { epoch: self.epoch, scores, params: self.params.download(self.backend)? });
        }
        self.last = Some(scores);
        Ok(())
    }

    /// Summary of the run; `None` before the first evaluation.
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

    /// State of the run, from which [`restore`](Self::restore) continues bit for bit. All ranks call it together. The
    /// first rank gets the state of all, which any number of ranks can restore. The others get `None` if parameters
    /// have per-node rows.
    ///
    /// # Errors
    /// When the backend or another rank fails.
    pub fn checkpoint(&self, data: DataShape) -> Result<Option<Checkpoint>, TrainError> {
        let (first, second) = self.optimizer.download(self.backend)?.into_iter().unzip();
        let best_params = self.best.as_ref().map_or_else(Vec::new, |best| best.params.clone());
        // Gathers all matrices before any rank returns.
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

    /// Matrices shaped like the parameters, by name. Per-node matrices are gathered from all ranks onto the first
    /// rank; the others get `None`.
    fn of_all(&self, matrices: Vec<Matrix>) -> Result<Option<Vec<(String, Matrix)>>, TrainError> {
        let entries = self.params.iter().zip(matrices).map(|((_, param), matrix)| {
            let matrix = match self.ranks.filter(|_| param.per_node) {
                Some(ranks) => ranks.gather_on_first(&matrix)?,
                None => Some(matrix),
            };
            Ok(matrix.map(|matrix| (param.name.clone(), matrix)))
        });
        // Every matrix is gathered before the check for a missing one, so that all ranks take part.
        let entries: Vec<Option<_>> = entries.collect::<Result<_, TrainError>>()?;
        Ok(entries.into_iter().collect())
    }

    /// Restores the state of a checkpoint.
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

    /// Restores the best parameters so far; does nothing before the first evaluation.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn restore_best(&mut self) -> Result<(), TrainError> {
        match &self.best {
            Some(best) => Ok(self.params.write(self.backend, &best.params)?),
            None => Ok(()),
        }
    }

    /// Matrices in the order of the parameters. For per-node parameters, only the rows of this rank's nodes.
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
