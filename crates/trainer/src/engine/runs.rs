//! Runs of a session, one after the other: epochs, events and checkpoints.

use std::path::Path;

use girih_compute::{Backend, Dtype, Shape};

use super::checkpoint::{Checkpoint, DataShape};
use super::observe::{Control, Event, Outcome, SessionOptions, checkpoint_path};
use super::prepare::check_builder;
use super::report::StageTimes;
use super::state::{Run, RunState};
use super::thinned::Thinned;
use crate::TrainError;
use crate::config::{BatchConfig, Schedule, TaskKind, TrainConfig, differences};

/// Epoch of a step for each batch. Batch `i` has `sizes[i]` terms in its loss; `step` writes its mean to row `i` of the
/// matrix that it gets. Returns the mean over all terms, and the times of all steps. Losses stay on the device until the
/// last step is launched.
///
/// # Errors
/// As `step`, and when a loss is not finite.
pub(crate) fn epoch_of_steps<'a, B: Backend + 'a, R: Run<'a, B>>(
    run: &mut R,
    lr: f64,
    sizes: &[usize],
    mut step: impl FnMut(&mut R, usize, &mut B::Matrix) -> Result<StageTimes, TrainError>,
) -> Result<(f32, StageTimes), TrainError> {
    let (state, mut times) = (run.state_mut(), StageTimes::default());
    let mut losses = state.pool.take(state.backend, Shape::new(sizes.len(), 1), Dtype::F32)?;
    for batch in 0..sizes.len() {
        times += step(run, batch, &mut losses)?;
    }
    let state = run.state_mut();
    let values = state.losses(lr, &losses, sizes.len())?;
    state.pool.give(state.backend, losses);
    let total: f64 = values.iter().zip(sizes).map(|(&loss, &size)| f64::from(loss) * size as f64).sum();
    Ok(((total / sizes.iter().sum::<usize>() as f64) as f32, times))
}

/// Trains the runs created by `start`, one after the other.
pub(crate) fn train_runs<'a, B: Backend + 'a>(
    config: &TrainConfig,
    data: &DataShape,
    options: &SessionOptions,
    observe: &mut dyn FnMut(Event<'_>) -> Control,
    start: impl Fn(u64) -> Result<Box<dyn Run<'a, B> + 'a>, TrainError>,
) -> Result<Outcome, TrainError> {
    let observe = &mut |event: Event<'_>| options.control(observe(event));
    let mut outcome = Outcome {
        runs: Vec::new(),
        test: None,
        wire_error: None,
        times: Thinned::default(),
        tiers: Vec::new(),
        stopped: false,
    };
    outcome.stopped = observe(Event::Prepared) == Control::Stop;
    for run in 0..config.runs {
        if outcome.stopped {
            break;
        }
        let mut trainer = start(run)?;
        trainer.check_trains()?;
        if !trainer.has_validation() {
            check_patience(config, run)?;
        }
        let file = options.checkpoints.as_deref().map(|folder| checkpoint_path(folder, run));
        let mut reached = RunProgress { epoch: 1, kept: None };
        let context = RunContext { run, file: file.as_deref(), config, data, options };
        let done = train_run(&mut *trainer, &context, observe, &mut outcome, &mut reached);
        done.map_err(|error| error.in_epoch(run, reached.epoch, file.zip(reached.kept)))?;
    }
    Ok(outcome)
}

/// Refuses `patience` without validation data. If it is a published setting of the model, warns once instead, and the
/// run goes through all epochs.
fn check_patience(config: &TrainConfig, run: u64) -> Result<(), TrainError> {
    let Some(patience) = config.patience else { return Ok(()) };
    let what = match config.task {
        _ if config.model.kind.is_recommender() => "test items",
        TaskKind::Links => "validation links",
        TaskKind::Triples => "validation triples",
        TaskKind::Nodes => "validation nodes with a label",
    };
    if TrainConfig::for_task(config.task, config.model.kind).patience != Some(patience) {
        return Err(TrainError::invalid(format!(
            "patience ends a run after {patience} epochs without a better score, and there are no {what} to score: leave --patience \
             out, or give data with such a part"
        )));
    }
    if run == 0 {
        tracing::warn!(
            "patience ({patience} epochs, the usual of {}) has no effect: there are no {what}; the run goes through all epochs",
            config.model.name()
        );
    }
    Ok(())
}

/// Progress of a run.
struct RunProgress {
    /// Current epoch.
    epoch: u64,
    /// Epoch of the checkpoint in the run's file.
    kept: Option<u64>,
}

/// Context of a run, which does not change while it trains.
struct RunContext<'c> {
    /// Number of the run, from 0.
    run: u64,
    /// File of the run's checkpoints; `None` for no checkpoints.
    file: Option<&'c Path>,
    /// Configuration of all runs.
    config: &'c TrainConfig,
    /// Shape of the data, which checkpoints contain.
    data: &'c DataShape,
    /// Options of the session.
    options: &'c SessionOptions,
}

/// Trains a run and writes its checkpoints to the file of its context.
fn train_run<'a, B: Backend + 'a>(
    trainer: &mut (dyn Run<'a, B> + 'a),
    context: &RunContext<'_>,
    observe: &mut dyn FnMut(Event<'_>) -> Control,
    outcome: &mut Outcome,
    reached: &mut RunProgress,
) -> Result<(), TrainError> {
    let &RunContext { run, file, config, data, options } = context;
    let mut checkpoint = None;
    if let Some(path) = file.filter(|path| options.resume && path.exists()) {
        checkpoint = Some(resume(trainer.state_mut(), path, context)?);
        reached.kept = Some(trainer.state().epochs_done());
    }
    let epochs_done = trainer.state().epochs_done();
    outcome.stopped = observe(Event::RunStarted { run, epochs_done, checkpoint }) == Control::Stop;
    while !outcome.stopped && !trainer.state().is_finished() {
        reached.epoch = trainer.state().epochs_done() + 1;
        let report = trainer.epoch_until(&mut |done| observe(Event::Batch { run, done }))?;
        let due = match &report {
            None => {
                outcome.stopped = true;
                true
            }
            Some(report) => {
                outcome.times.push(report.times);
                outcome.stopped = observe(Event::Epoch { run, report }) == Control::Stop;
                options.checkpoint_every.is_some_and(|every| report.epoch.is_multiple_of(every))
            }
        };
        let last = outcome.stopped || trainer.state().is_finished();
        if let Some(path) = file.filter(|_| due || last) {
            // Rows of all ranks are gathered on the first rank, which writes them.
            let checkpoint = trainer.state().checkpoint(data.clone())?;
            if let Some(mut checkpoint) = checkpoint.filter(|_| options.writes) {
                checkpoint.progress.arrangement.clone_from(&options.arrangement);
                checkpoint.save(path)?;
            }
            reached.kept = Some(trainer.state().epochs_done());
        }
    }
    if let Some(summary) = trainer.state().summary() {
        if trainer.state().is_finished() {
            let stops = observe(Event::RunFinished(&summary)) == Control::Stop;
            outcome.stopped |= stops && run + 1 < config.runs;
        }
        trainer.state_mut().restore_best()?;
        outcome.test = trainer.test_report()?;
        outcome.wire_error = trainer.wire_error()?;
        outcome.runs.push(summary);
    }
    Ok(())
}

/// Continues a run from the checkpoint at `path`, if both describe the same run. Returns a hash of the whole
/// checkpoint.
fn resume<B: Backend>(state: &mut RunState<'_, B>, path: &Path, context: &RunContext<'_>) -> Result<u32, TrainError> {
    let &RunContext { config, data, options, .. } = context;
    let checkpoint = Checkpoint::load(path)?;
    let saved = &checkpoint.progress;
    check_builder(&saved.config.model, &config.model).map_err(|what| TrainError::checkpoint(path, what))?;
    saved.data.check_same(data, saved.run).map_err(|what| TrainError::checkpoint(path, what))?;
    // Other numbers of epochs and runs, other patience and other evaluation intervals only lengthen or shorten the
    // same training, unless the learning rate depends on the number of epochs. The prefetch depth and the shares of
    // the cache change no results. Any other setting changes the training.
    let comparable = |c: &TrainConfig| {
        let batch = BatchConfig { prefetch: 0, ..c.batch.clone() };
        let epochs = if c.optimizer.schedule == (Schedule::Cosine {}) { c.epochs } else { 0 };
        let (runs, patience, eval_every, tiers) = (0, None, 1, c.tiers.without_shares());
        TrainConfig { epochs, runs, patience, eval_every, batch, tiers, ..c.clone() }
    };
    let (before, now) = (comparable(&saved.config), comparable(config));
    if before != now {
        return Err(TrainError::checkpoint(
            path,
            format!(
                "it was trained with other settings: {}; resume with those of the checkpoint, or choose another --out",
                differences(&before, &now).join(", ")
            ),
        ));
    }
    if let (Some(before), Some(now), true) = (&saved.arrangement, &options.arrangement, options.writes)
        && before != now
    {
        tracing::warn!(
            "{}: trained so far by {before}, and from here by {now}: results agree up to the order of sums, not bit for bit",
            path.display()
        );
    }
    state.restore(&checkpoint)?;
    Ok(checkpoint.identity())
}
