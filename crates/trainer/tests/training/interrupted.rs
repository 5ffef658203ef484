//! A run depends only on its configuration and data, not on interruptions or threads.

use std::fs;
use std::path::Path;

use girih_compute::{Cpu, Dtype};
use girih_datasets::Dataset;
use girih_features::CacheShares;
use girih_trainer::{
    BatchConfig, BatchKind, CacheConfig, Checkpoint, Control, Event, ModelConfig, ModelKind, OptimizerConfig,
    OptimizerKind, Run, Schedule, SessionOptions, TrainConfig, checkpoint_path,
};

use crate::{Stage, config, planted, train, train_epochs, train_into};

/// Small, but with dropout, weight decay, a schedule and a warm-up, so that missing state shows.
fn demanding(kind: ModelKind, optimizer: OptimizerKind) -> TrainConfig {
    let optimizer =
        OptimizerConfig { kind: optimizer, schedule: Schedule::Cosine {}, warmup: 3, ..OptimizerConfig::default() };
    TrainConfig { optimizer, ..config(kind, 10) }
}

fn bytes_of(checkpoint: &Checkpoint) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.safetensors");
    checkpoint.save(&path).unwrap();
    fs::read(path).unwrap()
}

/// Losses and final state of six more epochs in a new session that restores `checkpoint`.
fn six_more(dataset: &Dataset, config: &TrainConfig, checkpoint: &Checkpoint) -> (Vec<f32>, Checkpoint) {
    let stage = Stage::new(dataset.clone(), config);
    let mut run = stage.run(config);
    run.state_mut().restore(checkpoint).unwrap();
    let losses = train_epochs(&mut run, 6);
    (losses, run.state().checkpoint(stage.data.clone()).unwrap().unwrap())
}

#[test]
fn ten_epochs_are_four_and_six() {
    let dataset = planted("nodes=400");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("four.safetensors");
    for kind in ModelKind::classifiers() {
        for optimizer in [OptimizerKind::Adam, OptimizerKind::Adamw, OptimizerKind::Sgd] {
            let config = demanding(kind, optimizer);
            let stage = Stage::new(dataset.clone(), &config);
            let mut run = stage.run(&config);
            train_epochs(&mut run, 4);
            let four = run.state().checkpoint(stage.data.clone()).unwrap().unwrap();
            let losses = train_epochs(&mut run, 6);
            let ten = run.state().checkpoint(stage.data.clone()).unwrap().unwrap();

            let (found, end) = six_more(&dataset, &config, &four);
            assert_eq!(found, losses, "{kind:?} {optimizer:?}");
            assert!(bytes_of(&end) == bytes_of(&ten), "{kind:?} {optimizer:?}: parameters, moments or best differ");

            four.save(&path).unwrap();
            let (found, end) = six_more(&dataset, &config, &Checkpoint::load(&path).unwrap());
            assert_eq!(found, losses, "{kind:?} {optimizer:?}, from a file");
            assert!(bytes_of(&end) == bytes_of(&ten), "{kind:?} {optimizer:?}, from a file");
        }
    }
}

#[test]
fn a_checkpoint_reads_back_as_it_was_written() {
    let config = config(ModelKind::Sage, 3);
    let stage = Stage::new(planted("nodes=200"), &config);
    let mut run = stage.run(&config);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.safetensors");
    for _ in 0..2 {
        run.epoch().unwrap();
        let checkpoint = run.state().checkpoint(stage.data.clone()).unwrap().unwrap();
        checkpoint.save(&path).unwrap();
        assert_eq!(Checkpoint::load(&path).unwrap(), checkpoint);
    }
}

#[test]
fn a_cut_or_changed_checkpoint_is_refused_by_name() {
    let config = config(ModelKind::Gcn, 3);
    let stage = Stage::new(planted("nodes=200"), &config);
    let mut run = stage.run(&config);
    run.epoch().unwrap();
    let bytes = bytes_of(&run.state().checkpoint(stage.data.clone()).unwrap().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.safetensors");
    for length in [0, 7, 8, 100, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&path, &bytes[..length]).unwrap();
        let message = Checkpoint::load(&path).unwrap_err().to_string();
        assert!(message.contains("cut.safetensors"), "{length} bytes: {message}");
    }
    for at in (0..bytes.len()).step_by(17).chain([bytes.len() - 3]) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x55;
        fs::write(&path, flipped).unwrap();
        let message = Checkpoint::load(&path).expect_err("a flipped byte is noticed").to_string();
        assert!(message.contains("cut.safetensors"), "byte {at}: {message}");
    }
    fs::write(&path, b"\x93NUMPY").unwrap();
    assert!(Checkpoint::load(&path).unwrap_err().to_string().contains("not a usable checkpoint"));
}

#[test]
fn a_stopped_session_of_several_runs_goes_on_where_it_was() {
    let dataset = planted("nodes=400");
    let config = TrainConfig { runs: 2, ..demanding(ModelKind::Gcn, OptimizerKind::Adam) };
    let (straight, stopped) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let wanted = train_into(straight.path(), dataset.clone(), &config, None);
    let partial = train_into(stopped.path(), dataset.clone(), &config, Some(7));
    assert!(partial.stopped && !wanted.stopped);
    assert_eq!(partial.runs[1].epochs, 7);
    let resumed = train_into(stopped.path(), dataset, &config, None);
    assert_eq!((resumed.runs, resumed.test), (wanted.runs, wanted.test));
    assert_eq!(resumed.times.len(), 3, "only the epochs that were left are trained");
    assert_same_checkpoints(straight.path(), stopped.path(), 2);
}

#[test]
fn more_epochs_lengthen_a_finished_session() {
    let dataset = planted("nodes=300");
    let (once, twice) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    train_into(once.path(), dataset.clone(), &config(ModelKind::Gcn, 12), None);
    train_into(twice.path(), dataset.clone(), &config(ModelKind::Gcn, 5), None);
    train_into(twice.path(), dataset, &config(ModelKind::Gcn, 12), None);
    assert_same_checkpoints(once.path(), twice.path(), 1);
}

/// Evaluation does not change the steps.
#[test]
fn other_epochs_may_be_scored_when_a_run_goes_on() {
    let (once, twice) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let dataset = planted("nodes=300");
    let scored = |every, epochs| TrainConfig { eval_every: every, ..config(ModelKind::Gcn, epochs) };
    train_into(once.path(), dataset.clone(), &scored(3, 12), None);
    train_into(twice.path(), dataset.clone(), &scored(1, 5), None);
    train_into(twice.path(), dataset, &scored(3, 12), None);
    let last = |folder: &Path| Checkpoint::load(&checkpoint_path(folder, 0)).unwrap();
    let (once, twice) = (last(once.path()), last(twice.path()));
    assert!(once.params == twice.params && once.moments == twice.moments, "the steps differ");
    assert_eq!(once.progress.last, twice.progress.last);
}

#[test]
fn another_configuration_or_data_set_does_not_resume() {
    let folder = tempfile::tempdir().unwrap();
    let short = config(ModelKind::Gcn, 2);
    train_into(folder.path(), planted("nodes=300"), &short, None);
    let refusal = |dataset: Dataset, config: &TrainConfig| {
        let options =
            SessionOptions { checkpoints: Some(folder.path().to_owned()), resume: true, ..SessionOptions::default() };
        let mut go_on = |_: Event<'_>| Control::Continue;
        let cpu = Cpu::new();
        girih_trainer::train(&cpu, dataset, config, &options, &mut go_on).unwrap_err().to_string()
    };
    let wider = TrainConfig { model: ModelConfig { hidden: 8, ..ModelConfig::default() }, ..short.clone() };
    let message = refusal(planted("nodes=300"), &wider);
    assert!(message.contains("run-000.safetensors") && message.contains("model.hidden 8 (was 16)"), "{message}");
    let message = refusal(planted("nodes=301"), &short);
    assert!(message.contains("run-000.safetensors") && message.contains("not on"), "{message}");
}

#[test]
fn one_two_and_three_threads_give_the_same_bits() {
    let dataset = planted("nodes=3000");
    for kind in ModelKind::classifiers() {
        for precision in [Dtype::F32, Dtype::Bf16] {
            let config = TrainConfig {
                model: ModelConfig { kind, hidden: 40, layers: 3, ..ModelConfig::default() },
                precision,
                epochs: 2,
                ..TrainConfig::default()
            };
            let state = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let folder = tempfile::tempdir().unwrap();
                pool.install(|| train_into(folder.path(), dataset.clone(), &config, None));
                fs::read(checkpoint_path(folder.path(), 0)).unwrap()
            };
            let alone = state(1);
            assert!(state(2) == alone && state(3) == alone, "{kind:?} {precision:?} depends on the number of threads");
        }
    }
}

fn assert_same_checkpoints(a: &Path, b: &Path, runs: u64) {
    for run in 0..runs {
        let read = |folder| fs::read(checkpoint_path(folder, run)).unwrap();
        assert!(read(a) == read(b), "the checkpoints of run {run} differ");
    }
}

/// Shares of the cache follow from available memory, which may differ when training resumes.
#[test]
fn training_goes_on_with_other_shares_of_what_is_placed() {
    let folder = tempfile::tempdir().unwrap();
    let placed = |epochs, features: Option<f64>| {
        let features = features.map(|every_gpu| CacheShares { every_gpu, one_gpu: 0.0 });
        let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![4, 3], ..BatchConfig::default() };
        TrainConfig {
            tiers: CacheConfig { features, ..CacheConfig::default() },
            codec: Some("topk:4".parse().unwrap()),
            batch,
            ..config(ModelKind::Sage, epochs)
        }
    };
    train_into(folder.path(), planted("nodes=300"), &placed(1, Some(0.2)), None);
    let other = train_into(folder.path(), planted("nodes=300"), &placed(2, Some(0.7)), None);
    assert_eq!(other.times.len(), 1, "it went on");
    let whole = train(planted("nodes=300"), &placed(2, Some(0.2))).unwrap();
    assert_eq!(other.runs[0].train_loss.to_bits(), whole.runs[0].train_loss.to_bits());
    let options =
        SessionOptions { checkpoints: Some(folder.path().to_owned()), resume: true, ..SessionOptions::default() };
    let mut go_on = |_: Event<'_>| Control::Continue;
    let elsewhere = girih_trainer::train(&Cpu::new(), planted("nodes=300"), &placed(3, None), &options, &mut go_on);
    assert!(elsewhere.unwrap_err().to_string().contains("other settings"));
}
