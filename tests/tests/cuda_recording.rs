//! Compares training steps as CUDA graphs with the same steps without graphs. Without a device the tests report that
//! and pass, unless `GIRIH_REQUIRE_GPU` is set.

use girih_compute::Dtype;
use girih_compute::testing::piece;
use girih_datasets::{Dataset, LoadOptions, load};
use girih_kernels::{Cuda, Tiling};
use girih_tests::{cuda, losses_of};
use girih_trainer::{
    Aggregator, Decay, Jump, ModelConfig, ModelKind, NormKind, OptimizerConfig, OptimizerKind, Schedule,
    SessionOptions, TrainConfig, TrainError, checkpoint_path, train,
};

const EPOCHS: u64 = 20;
/// Steps before the first one that is launched as a graph.
const STEPS_BEFORE: u64 = 2;

fn dataset(spec: &str) -> Dataset {
    load(spec, &LoadOptions::default()).expect("a generated data set")
}

fn planted() -> Dataset {
    dataset("synth:planted,nodes=1500,degree=12,features=24,classes=5")
}

/// Configuration with dropout, weight decay, a rate that changes every epoch, and an evaluation after each.
fn demanding(kind: ModelKind, optimizer: OptimizerKind) -> TrainConfig {
    let base = TrainConfig::for_model(kind);
    let optimizer = OptimizerConfig {
        kind: optimizer,
        schedule: Schedule::Cosine {},
        warmup: 3,
        weight_decay: 0.01,
        decay: Decay::All,
        ..base.optimizer
    };
    TrainConfig { optimizer, epochs: EPOCHS, patience: None, eval_every: 1, ..base }
}

fn with_model(config: &TrainConfig, change: impl FnOnce(&mut ModelConfig)) -> TrainConfig {
    let mut config = config.clone();
    change(&mut config.model);
    config
}

/// Results of training: losses of all epochs, and the bytes of the last checkpoint, with moments and best parameters.
type Left = (Vec<f32>, Vec<u8>);

/// Trains up to `epochs`, from the checkpoint in `folder` if there is one.
fn trained(cuda: &Cuda, dataset: &Dataset, config: &TrainConfig, folder: &std::path::Path) -> Result<Left, TrainError> {
    let options = SessionOptions { checkpoints: Some(folder.to_owned()), resume: true, ..SessionOptions::default() };
    let losses = losses_of(|observe| train(cuda, dataset.clone(), config, &options, observe))?;
    let last = checkpoint_path(folder, config.runs - 1);
    Ok((losses, std::fs::read(last).expect("the checkpoint of the last epoch")))
}

/// As [`trained`], but in a new folder, with or without graphs. Also returns the number of steps launched as graphs.
fn trained_anew(cuda: Cuda, dataset: &Dataset, config: &TrainConfig, recording: bool) -> (Cuda, Left, u64) {
    let cuda = cuda.recording(recording);
    let folder = tempfile::tempdir().expect("a folder");
    let before = cuda.n_repeated();
    let left = trained(&cuda, dataset, config, folder.path()).expect("training");
    let n_repeated = cuda.n_repeated() - before;
    (cuda, left, n_repeated)
}

/// Checks that graphs change no bit, and that `expected` steps are launched as graphs. Each call is a case of a test.
fn check(cuda: Cuda, dataset: &Dataset, config: &TrainConfig, expected: u64) -> Cuda {
    if piece([()]).next().is_none() {
        return cuda;
    }
    let what = format!("{:?}, {:?}, {:?}", config.model, config.optimizer, config.precision);
    let cuda = cuda.storing(config.precision);
    let (cuda, without, none) = trained_anew(cuda, dataset, config, false);
    let (cuda, with, n_repeated) = trained_anew(cuda, dataset, config, true);
    assert_eq!(without.0, with.0, "losses: {what}");
    assert!(without.1 == with.1, "the losses are the same, the checkpoints are not: {what}");
    assert_eq!((none, n_repeated), (0, expected), "{what}");
    cuda
}

#[test]
fn repeated_steps_leave_the_same_bits_for_every_model() {
    let Some(mut cuda) = cuda() else { return };
    let dataset = planted();
    let kinds = [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat, ModelKind::Gatv2, ModelKind::Gin, ModelKind::Sgc];
    for kind in kinds.into_iter().chain([ModelKind::Ngcn, ModelKind::Appnp, ModelKind::Mlp]) {
        let config = demanding(kind, OptimizerKind::Adam);
        for precision in [Dtype::F32, Dtype::Bf16] {
            let config = TrainConfig { precision, ..config.clone() };
            cuda = check(cuda, &dataset, &config, EPOCHS - STEPS_BEFORE);
            let dry = with_model(&config, |model| model.dropout = 0.0);
            cuda = check(cuda, &dataset, &dry, EPOCHS - STEPS_BEFORE);
        }
    }
}

#[test]
fn repeated_steps_leave_the_same_bits_for_what_models_are_made_of() {
    let Some(mut cuda) = cuda() else { return };
    let dataset = planted();
    let gcn = demanding(ModelKind::Gcn, OptimizerKind::Adam);
    let changes: [fn(&mut ModelConfig); 5] = [
        |model| model.input_dropout = Some(0.0),
        |model| (model.layers, model.norm, model.residual) = (3, NormKind::Batch, true),
        |model| (model.layers, model.norm, model.jump) = (3, NormKind::Layer, Jump::Concat),
        |model| (model.layers, model.jump) = (3, Jump::Max),
        |model| (model.kind, model.aggregator) = (ModelKind::Sage, Aggregator::Pool),
    ];
    for change in changes {
        cuda = check(cuda, &dataset, &with_model(&gcn, change), EPOCHS - STEPS_BEFORE);
    }
    // An LSTM uploads its inputs in every step, so it cannot be captured.
    let lstm = |model: &mut ModelConfig| (model.kind, model.aggregator) = (ModelKind::Sage, Aggregator::Lstm);
    check(cuda, &dataset, &with_model(&gcn, lstm), 0);
}

#[test]
fn repeated_steps_leave_the_same_bits_for_every_optimiser_and_schedule() {
    let Some(mut cuda) = cuda() else { return };
    let dataset = planted();
    let schedules = [Schedule::Constant {}, Schedule::Cosine {}, Schedule::Step { every: 4, factor: 0.5 }];
    for kind in [OptimizerKind::Adam, OptimizerKind::Adamw, OptimizerKind::Sgd] {
        for schedule in schedules {
            let mut config = demanding(ModelKind::Gcn, kind);
            config.optimizer.schedule = schedule;
            cuda = check(cuda, &dataset, &config, EPOCHS - STEPS_BEFORE);
        }
    }
    // Each run has its own graphs; early stopping and rare evaluations see the same scores.
    let config = TrainConfig { runs: 3, eval_every: 7, ..demanding(ModelKind::Gat, OptimizerKind::Adam) };
    cuda = check(cuda, &dataset, &config, 3 * (EPOCHS - STEPS_BEFORE));
    for impatient in piece([TrainConfig { patience: Some(2), ..demanding(ModelKind::Gcn, OptimizerKind::Adam) }]) {
        let (without, with);
        (cuda, without, _) = trained_anew(cuda, &dataset, &impatient, false);
        (cuda, with, _) = trained_anew(cuda, &dataset, &impatient, true);
        assert!(without == with, "early stopping");
    }
}

#[test]
fn repeated_steps_leave_the_same_bits_with_tiles_hubs_and_many_labels() {
    let Some(cuda) = cuda() else { return };
    let mut cuda = cuda.tiling(Tiling::From(0.001));
    let dense = dataset("synth:planted,nodes=3000,degree=60,features=40,classes=5");
    let labels = dataset("synth:yelp@0.003");
    for precision in [Dtype::F32, Dtype::Bf16] {
        let config = TrainConfig { precision, ..demanding(ModelKind::Gcn, OptimizerKind::Adam) };
        let config = with_model(&config, |model| model.hidden = 64);
        cuda = check(cuda, &dense, &config, EPOCHS - STEPS_BEFORE);
        cuda = check(cuda, &labels, &config, EPOCHS - STEPS_BEFORE);
    }
    let hubs = dataset("synth:archaea@0.02");
    check(cuda, &hubs, &demanding(ModelKind::Gatv2, OptimizerKind::Adam), EPOCHS - STEPS_BEFORE);
}

#[test]
fn a_run_that_is_resumed_repeats_on() {
    let Some(cuda) = cuda() else { return };
    let dataset = planted();
    let mut config = demanding(ModelKind::Gcn, OptimizerKind::Adamw);
    config.optimizer.schedule = Schedule::Step { every: 3, factor: 0.8 };
    let half = TrainConfig { epochs: EPOCHS / 2, ..config.clone() };
    let (cuda, whole, _) = trained_anew(cuda, &dataset, &config, true);
    let folder = tempfile::tempdir().unwrap();
    let (mut losses, _) = trained(&cuda, &dataset, &half, folder.path()).unwrap();
    let before = cuda.n_repeated();
    let (later, checkpoint) = trained(&cuda, &dataset, &config, folder.path()).unwrap();
    losses.extend(later);
    assert_eq!(whole.0, losses);
    assert!(whole.1 == checkpoint, "the checkpoints differ");
    assert_eq!(cuda.n_repeated() - before, EPOCHS / 2 - STEPS_BEFORE);
}

#[test]
fn a_loss_that_is_no_number_ends_repeated_steps_with_the_same_words() {
    let Some(cuda) = cuda() else { return };
    let dataset = planted();
    let mut config = demanding(ModelKind::Gcn, OptimizerKind::Sgd);
    config.optimizer = OptimizerConfig { lr: 30.0, warmup: 0, schedule: Schedule::Constant {}, ..config.optimizer };
    config.epochs = 1000;
    let message = |cuda: &Cuda| {
        let folder = tempfile::tempdir().unwrap();
        trained(cuda, &dataset, &config, folder.path()).expect_err("no training loss stays finite").to_string()
    };
    let cuda = cuda.recording(false);
    let expected = message(&cuda);
    let cuda = cuda.recording(true);
    assert_eq!(message(&cuda), expected);
    assert!(cuda.n_repeated() > 0, "it diverged before a step was repeated: {expected}");
}
