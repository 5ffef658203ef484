//! Tests of sessions on a CPU: checkpoints, failures, and buffers between steps.

use std::path::Path;

use girih_compress::CodecSpec;
use girih_compute::{ComputeError, Cpu, HostMatrix};
use girih_datasets::{LoadOptions, load};

use super::*;
use crate::TrainError;
use crate::config::{Aggregator, ModelConfig, ModelKind, NormKind, TrainConfig};
use crate::engine::{
    Checkpoint, Control, DataShape, Event, RunState, SessionOptions, StageTimes, StepCallback, TestReport,
    checkpoint_path,
};
use crate::tasks::nodes::FullBatch;

/// Models of a configuration for a data set.
fn source<'c>(dataset: &Dataset, config: &'c TrainConfig) -> ModelSource<'c, Cpu> {
    ModelSource::new(&config.model, config, &dataset.outline()).unwrap()
}

/// A run whose device fails in a given epoch.
struct Failing<'a> {
    run: FullBatch<'a, Cpu>,
    epoch: u64,
}

impl<'a> Run<'a, Cpu> for Failing<'a> {
    fn state(&self) -> &RunState<'a, Cpu> {
        self.run.state()
    }

    fn state_mut(&mut self) -> &mut RunState<'a, Cpu> {
        self.run.state_mut()
    }

    fn has_validation(&self) -> bool {
        self.run.has_validation()
    }

    fn train_once(&mut self, lr: f64, watch: &mut StepCallback<'_>) -> Result<Option<(f32, StageTimes)>, TrainError> {
        if self.state().epochs_done() + 1 == self.epoch {
            return Err(ComputeError::device("spmm", "its memory failed").into());
        }
        self.run.train_once(lr, watch)
    }

    fn evaluate(&mut self) -> Result<Scores, TrainError> {
        self.run.evaluate()
    }

    fn test_report(&mut self) -> Result<Option<TestReport>, TrainError> {
        self.run.test_report()
    }
}

/// Trains with a checkpoint every second epoch in `folder` until the device fails; returns the error message.
fn failure_in(epoch: u64, folder: &Path, resume: bool) -> String {
    let cpu = Cpu::new();
    let config = TrainConfig { epochs: 9, ..TrainConfig::default() };
    let dataset = load("synth:planted,nodes=100,features=8,classes=2", &LoadOptions::default()).unwrap();
    let data = DataShape::of(&dataset);
    let session = FullBatchSession::new(&cpu, dataset.clone(), source(&dataset, &config)).unwrap();
    let checkpoints = Some(folder.to_owned());
    let options = SessionOptions { checkpoints, checkpoint_every: Some(2), resume, ..SessionOptions::default() };
    let start = |run| -> Result<Box<dyn Run<'_, Cpu>>, TrainError> {
        Ok(Box::new(Failing { run: session.run(&cpu, run)?, epoch }))
    };
    train_runs(&config, &data, &options, &mut |_| Control::Continue, start).unwrap_err().to_string()
}

#[test]
fn whatever_happens_between_steps_gives_all_buffers_back() {
    let cpu = Cpu::new();
    let dataset = load("synth:planted,nodes=100,features=8,classes=2", &LoadOptions::default()).unwrap();
    let kinds = [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat, ModelKind::Gin, ModelKind::Appnp, ModelKind::Mlp];
    let codecs = [None, Some(CodecSpec::Topk(2))];
    for (kind, codec) in kinds.into_iter().flat_map(|kind| codecs.map(|codec| (kind, codec))) {
        let model = ModelConfig { aggregator: Aggregator::Pool, ..TrainConfig::for_model(kind).model };
        let config = TrainConfig { model, codec, ..TrainConfig::default() };
        let dataset = dataset.clone().with_codec(codec, config.seed).unwrap();
        let session = FullBatchSession::new(&cpu, dataset.clone(), source(&dataset, &config)).unwrap();
        let mut run = session.run(&cpu, 0).unwrap();
        let mut between_steps = || {
            run.train_once(0.01, &mut |_| Control::Continue).unwrap();
            let before = run.state().pool.n_free();
            run.evaluate().unwrap();
            run.test_report().unwrap();
            run.logits().unwrap();
            (before, run.state().pool.n_free())
        };
        let (before, after) = between_steps();
        assert!(before.0.iter().all(|(kind, n)| after.0[kind] >= *n), "{kind:?}: {before:?}, then {after:?}");
        assert!(before.1.iter().all(|(len, n)| after.1[len] >= *n), "{kind:?}: {before:?}, then {after:?}");
        let (before, after) = between_steps();
        assert_eq!(before, after, "{kind:?}: nothing is made or lost any more");
    }
}

/// CUDA graphs refer to gradients by their addresses.
#[test]
fn gradients_stay_where_they_are() {
    let cpu = Cpu::new();
    let dataset = load("synth:planted,nodes=100,features=8,classes=2", &LoadOptions::default()).unwrap();
    let kinds = [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat, ModelKind::Gatv2, ModelKind::Gin, ModelKind::Mlp];
    let norms = [NormKind::None, NormKind::Layer, NormKind::Batch];
    let aggregators = [Aggregator::Mean, Aggregator::Pool, Aggregator::Lstm];
    let models = kinds.into_iter().flat_map(|kind| norms.map(|norm| (kind, norm)));
    for ((kind, norm), aggregator) in models.flat_map(|model| aggregators.map(|aggregator| (model, aggregator))) {
        let model = ModelConfig { aggregator, norm, ..TrainConfig::for_model(kind).model };
        let config = TrainConfig { model, ..TrainConfig::default() };
        let session = FullBatchSession::new(&cpu, dataset.clone(), source(&dataset, &config)).unwrap();
        let mut run = session.run(&cpu, 0).unwrap();
        let mut addresses = || {
            run.train_once(0.01, &mut |_| Control::Continue).unwrap();
            let state = run.state();
            let address = |id| state.gradients.get(id).map(|gradient| gradient.bytes().as_ptr());
            state.params.iter().map(|(id, _)| address(id)).collect::<Vec<_>>()
        };
        let first = addresses();
        assert!(first.iter().all(Option::is_some), "{kind:?}: every parameter has a gradient");
        assert_eq!(first, addresses(), "{kind:?} {norm:?} {aggregator:?}");
    }
}

#[test]
fn who_says_stop_when_a_run_is_done_gets_no_further_one() {
    let cpu = Cpu::new();
    let dataset = load("synth:planted,nodes=100,features=8,classes=2", &LoadOptions::default()).unwrap();
    for (n_runs, stops_at, expected) in [(3, 0, (1, true)), (3, 2, (3, false)), (1, 0, (1, false))] {
        let config = TrainConfig { epochs: 2, runs: n_runs, ..TrainConfig::default() };
        let mut n_done = 0;
        let mut observe = |event: Event<'_>| {
            let Event::RunFinished(_) = event else { return Control::Continue };
            n_done += 1;
            if n_done > stops_at { Control::Stop } else { Control::Continue }
        };
        let options = SessionOptions::default();
        let outcome = train(&cpu, dataset.clone(), &config, &options, &mut observe).unwrap();
        assert_eq!((outcome.runs.len(), outcome.stopped), expected, "{n_runs} runs, stopped at {stops_at}");
    }
}

#[test]
fn a_gradient_that_a_failure_has_taken_is_made_anew() {
    let cpu = Cpu::new();
    let dataset = load("synth:planted,nodes=100,features=8,classes=2", &LoadOptions::default()).unwrap();
    let config = TrainConfig::default();
    let session = FullBatchSession::new(&cpu, dataset.clone(), source(&dataset, &config)).unwrap();
    let mut run = session.run(&cpu, 0).unwrap();
    let (id, _) = run.state().params.iter().next().unwrap();
    drop(run.state_mut().gradients.take(id));
    run.train_once(0.01, &mut |_| Control::Continue).unwrap();
    assert!(run.state().gradients.get(id).is_some());
}

#[test]
fn a_failure_of_the_device_names_the_epoch_and_the_checkpoint_that_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let file = checkpoint_path(folder.path(), 0);
    let first = failure_in(1, folder.path(), false);
    assert!(first.starts_with("epoch 1 of run 0: spmm failed on the device: its memory failed"), "{first}");
    assert!(first.ends_with("no checkpoint yet") && !file.exists(), "{first}");

    let later = failure_in(6, folder.path(), false);
    assert!(later.starts_with("epoch 6 of run 0") && later.contains("epoch 4 is kept"), "{later}");
    assert!(later.ends_with(file.to_str().unwrap()), "{later}");
    assert_eq!(Checkpoint::load(&file).unwrap().progress.epoch, 4);

    let resumed = failure_in(5, folder.path(), true);
    assert!(resumed.starts_with("epoch 5 of run 0") && resumed.contains("epoch 4 is kept"), "{resumed}");
}
