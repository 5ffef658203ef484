//! Sessions on a CPU: checkpoints, failures, and buffers between steps.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use girih_compress::CodecSpec;
use girih_compute::{ComputeError, Cpu, HostMatrix};
use girih_datasets::{Dataset, LoadOptions, load};
use girih_trainer::testing::{lose_gradient, parts_of_run};
use girih_trainer::{
    Aggregator, BuildModel, Checkpoint, Control, Dims, Event, InputSpec, Inputs, Model, ModelConfig, ModelKind,
    NormKind, ParamInit, Run, SessionOptions, Tape, TrainConfig, Var, checkpoint_path, train, train_model,
};

use crate::Stage;

fn dataset() -> Dataset {
    load("synth:planted,nodes=100,features=8,classes=2", &LoadOptions::default()).unwrap()
}

/// A model on a device that fails once it is told to.
struct Failing {
    model: ModelConfig,
    fails: Arc<AtomicBool>,
}

/// Network of [`Failing`].
struct FailingNetwork {
    network: Box<dyn Model<Cpu>>,
    fails: Arc<AtomicBool>,
}

impl BuildModel<Cpu> for Failing {
    fn config(&self) -> ModelConfig {
        self.model.clone()
    }

    fn build(&self, dims: Dims, init: &mut ParamInit<'_, Cpu>) -> Result<Box<dyn Model<Cpu>>, ComputeError> {
        Ok(Box::new(FailingNetwork { network: self.model.build(dims, init)?, fails: Arc::clone(&self.fails) }))
    }
}

impl Model<Cpu> for FailingNetwork {
    fn input_spec(&self) -> InputSpec {
        self.network.input_spec()
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, Cpu>, inputs: &'a Inputs<Cpu>) -> Result<Var, ComputeError> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(ComputeError::device("spmm", "its memory failed"));
        }
        self.network.forward(tape, inputs)
    }
}

/// Trains with a checkpoint every second epoch in `folder` until the device fails in an epoch; returns the error
/// message. With `done` epochs, the session resumes after these.
fn failure_in(epoch: u64, folder: &Path, done: Option<u64>) -> String {
    let config = TrainConfig { epochs: 9, ..TrainConfig::default() };
    let fails = Arc::new(AtomicBool::new(epoch == done.unwrap_or(0) + 1));
    let builder = Failing { model: config.model.clone(), fails: Arc::clone(&fails) };
    let checkpoints = Some(folder.to_owned());
    let resume = done.is_some();
    let options = SessionOptions { checkpoints, checkpoint_every: Some(2), resume, ..SessionOptions::default() };
    let mut observe = |event: Event<'_>| {
        if let Event::Epoch { report, .. } = event {
            fails.store(report.epoch + 1 == epoch, Ordering::Relaxed);
        }
        Control::Continue
    };
    train_model(&Cpu::new(), dataset(), &builder, &config, &options, &mut observe).unwrap_err().to_string()
}

#[test]
fn whatever_happens_between_steps_gives_all_buffers_back() {
    let dataset = dataset();
    let kinds = [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat, ModelKind::Gin, ModelKind::Appnp, ModelKind::Mlp];
    let codecs = [None, Some(CodecSpec::Topk(2))];
    for (kind, codec) in kinds.into_iter().flat_map(|kind| codecs.map(|codec| (kind, codec))) {
        let model = ModelConfig { aggregator: Aggregator::Pool, ..TrainConfig::for_model(kind).model };
        let config = TrainConfig { model, codec, ..TrainConfig::default() };
        let stage = Stage::new(dataset.clone().with_codec(codec, config.seed).unwrap(), &config);
        let mut run = stage.run(&config);
        let mut between_steps = || {
            run.train_once(0.01, &mut |_| Control::Continue).unwrap();
            let before = parts_of_run(run.state()).2.n_free();
            run.evaluate().unwrap();
            run.test_report().unwrap();
            run.logits().unwrap();
            (before, parts_of_run(run.state()).2.n_free())
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
    let dataset = dataset();
    let kinds = [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat, ModelKind::Gatv2, ModelKind::Gin, ModelKind::Mlp];
    let norms = [NormKind::None, NormKind::Layer, NormKind::Batch];
    let aggregators = [Aggregator::Mean, Aggregator::Pool, Aggregator::Lstm];
    let models = kinds.into_iter().flat_map(|kind| norms.map(|norm| (kind, norm)));
    for ((kind, norm), aggregator) in models.flat_map(|model| aggregators.map(|aggregator| (model, aggregator))) {
        let model = ModelConfig { aggregator, norm, ..TrainConfig::for_model(kind).model };
        let config = TrainConfig { model, ..TrainConfig::default() };
        let stage = Stage::new(dataset.clone(), &config);
        let mut run = stage.run(&config);
        let mut addresses = || {
            run.train_once(0.01, &mut |_| Control::Continue).unwrap();
            let (params, gradients, _) = parts_of_run(run.state());
            let address = |id| gradients.get(id).map(|gradient| gradient.bytes().as_ptr());
            params.iter().map(|(id, _)| address(id)).collect::<Vec<_>>()
        };
        let first = addresses();
        assert!(first.iter().all(Option::is_some), "{kind:?}: every parameter has a gradient");
        assert_eq!(first, addresses(), "{kind:?} {norm:?} {aggregator:?}");
    }
}

#[test]
fn who_says_stop_when_a_run_is_done_gets_no_further_one() {
    let dataset = dataset();
    for (n_runs, stops_at, expected) in [(3, 0, (1, true)), (3, 2, (3, false)), (1, 0, (1, false))] {
        let config = TrainConfig { epochs: 2, runs: n_runs, ..TrainConfig::default() };
        let mut n_done = 0;
        let mut observe = |event: Event<'_>| {
            let Event::RunFinished(_) = event else { return Control::Continue };
            n_done += 1;
            if n_done > stops_at { Control::Stop } else { Control::Continue }
        };
        let options = SessionOptions::default();
        let outcome = train(&Cpu::new(), dataset.clone(), &config, &options, &mut observe).unwrap();
        assert_eq!((outcome.runs.len(), outcome.stopped), expected, "{n_runs} runs, stopped at {stops_at}");
    }
}

#[test]
fn a_gradient_that_a_failure_has_taken_is_made_anew() {
    let dataset = dataset();
    let config = TrainConfig::default();
    let stage = Stage::new(dataset, &config);
    let mut run = stage.run(&config);
    let (id, _) = parts_of_run(run.state()).0.iter().next().unwrap();
    lose_gradient(run.state_mut(), id);
    run.train_once(0.01, &mut |_| Control::Continue).unwrap();
    assert!(parts_of_run(run.state()).1.get(id).is_some());
}

#[test]
fn a_failure_of_the_device_names_the_epoch_and_the_checkpoint_that_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let file = checkpoint_path(folder.path(), 0);
    let first = failure_in(1, folder.path(), None);
    assert!(first.starts_with("epoch 1 of run 0: spmm failed on the device: its memory failed"), "{first}");
    assert!(first.ends_with("no checkpoint yet") && !file.exists(), "{first}");

    let later = failure_in(6, folder.path(), None);
    assert!(later.starts_with("epoch 6 of run 0") && later.contains("epoch 4 is kept"), "{later}");
    assert!(later.ends_with(file.to_str().unwrap()), "{later}");
    assert_eq!(Checkpoint::load(&file).unwrap().progress.epoch, 4);

    let resumed = failure_in(5, folder.path(), Some(4));
    assert!(resumed.starts_with("epoch 5 of run 0") && resumed.contains("epoch 4 is kept"), "{resumed}");
}
