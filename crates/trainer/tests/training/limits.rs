//! Data at the edge of what training can work with, and beyond it.

use girih_compute::Cpu;
use girih_datasets::{Dataset, Features, Labels, Split, UNLABELLED};
use girih_graph_format::{Coo, Csr, Duplicates, Matrix};
use girih_trainer::{
    Checkpoint, Control, Event, ModelConfig, OptimizerConfig, OptimizerKind, SessionOptions, TrainConfig,
    checkpoint_path,
};

use crate::{ModelKind, config, planted, train};

/// A data set of two features and two classes on a given graph.
fn two_classes(graph: Csr, split: Split) -> Dataset {
    let n = graph.n_rows();
    let features = Matrix::new(n, 2, (0..2 * n).map(|i| f32::from(i % 4 < 2)).collect::<Vec<_>>()).unwrap();
    let labels = Labels::Single { n_classes: 2, classes: (0..n as u32).map(|v| v % 2).collect() };
    Dataset::new("small", graph, Some(Features::Dense(features)), Some(labels), vec![split]).unwrap()
}

fn refusal(dataset: Dataset, config: &TrainConfig) -> String {
    train(dataset, config).expect_err("this must be refused").to_string()
}

#[test]
fn a_graph_of_one_node_trains() {
    for kind in ModelKind::classifiers() {
        let split = Split { train: vec![0], ..Split::default() };
        let outcome = train(two_classes(Csr::empty(1, 1).unwrap(), split), &config(kind, 20)).unwrap();
        let run = &outcome.runs[0];
        assert!(run.train_loss.is_finite(), "{kind:?}");
        assert_eq!((run.best.val_accuracy, run.best.test_accuracy), (None, None), "{kind:?}");
    }
}

#[test]
fn isolated_nodes_train_and_are_scored() {
    let graph = Coo::new(6, 6, vec![0, 1], vec![1, 0], None).unwrap().to_csr(Duplicates::Refuse).unwrap();
    let split = Split { train: vec![0, 1, 2, 3], val: vec![4], test: vec![5] };
    for kind in ModelKind::classifiers() {
        let run = &train(two_classes(graph.clone(), split.clone()), &config(kind, 50)).unwrap().runs[0];
        assert!(run.train_loss.is_finite() && run.last.test_loss.unwrap().is_finite(), "{kind:?}: {run:?}");
        assert!(run.best.test_accuracy.is_some(), "{kind:?}");
    }
}

#[test]
fn without_validation_nodes_the_last_epoch_is_chosen() {
    let mut dataset = planted("nodes=200");
    dataset.splits[0].val.clear();
    let run = &train(dataset, &config(ModelKind::Gcn, 12)).unwrap().runs[0];
    assert_eq!((run.epochs, run.best_epoch), (12, 12), "nothing says that an epoch was worse");
    assert_eq!(run.best, run.last);
}

#[test]
fn nodes_without_a_label_are_left_out() {
    let mut dataset = planted("nodes=200");
    let Some(Labels::Single { classes, .. }) = &mut dataset.labels else { panic!("one class per node") };
    dataset.splits[0].train.iter().skip(1).for_each(|&v| classes[v as usize] = UNLABELLED);
    let only_one = train(dataset.clone(), &config(ModelKind::Gcn, 3)).unwrap();
    dataset.splits[0].train.truncate(1);
    assert_eq!(train(dataset, &config(ModelKind::Gcn, 3)).unwrap().runs, only_one.runs);
}

#[test]
fn missing_data_are_named() {
    let config = config(ModelKind::Gcn, 2);
    let complete = planted("nodes=200");
    let without = |change: fn(&mut Dataset)| {
        let mut dataset = complete.clone();
        change(&mut dataset);
        refusal(dataset, &config)
    };
    assert!(without(|d| d.splits[0].train.clear()).contains("no training nodes"));
    assert!(without(|d| d.splits.clear()).contains("has no split"));
    assert!(without(|d| d.features = None).contains("has no features"));
    assert!(without(|d| d.labels = None).contains("has no labels"));
    let unlabelled: fn(&mut Dataset) =
        |d| d.labels = Some(Labels::Single { n_classes: 2, classes: vec![UNLABELLED; 200] });
    assert!(without(unlabelled).contains("no training nodes with a label"));
    let empty = Dataset { name: "void".to_owned(), graph: Csr::empty(0, 0).unwrap(), ..complete.clone() };
    assert!(refusal(empty, &config).contains("void has no nodes"));
}

#[test]
fn a_loss_that_is_no_number_ends_the_run_with_advice() {
    for kind in [OptimizerKind::Adam, OptimizerKind::Adamw, OptimizerKind::Sgd] {
        for model in ModelKind::classifiers() {
            let optimizer = OptimizerConfig { kind, lr: 1e30, ..OptimizerConfig::default() };
            let message = refusal(planted("nodes=200"), &TrainConfig { optimizer, ..config(model, 50) });
            let says_why = message.contains("training loss is") && message.contains("give a lower --lr");
            assert!(says_why, "{model:?} {kind:?}: {message}");
        }
    }
}

#[test]
fn a_step_by_a_loss_that_is_no_number_is_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let options = SessionOptions {
        checkpoints: Some(folder.path().to_owned()),
        checkpoint_every: Some(1),
        ..SessionOptions::default()
    };
    let optimizer = OptimizerConfig { lr: 1e30, ..OptimizerConfig::default() };
    let config = TrainConfig { optimizer, ..config(ModelKind::Gcn, 50) };
    let mut losses = Vec::new();
    let outcome = girih_trainer::train(&Cpu::new(), planted("nodes=200"), &config, &options, &mut |event| {
        if let Event::Epoch { report, .. } = event {
            losses.push(report.train_loss);
        }
        Control::Continue
    });
    assert!(outcome.is_err() && !losses.is_empty() && losses.iter().all(|loss| loss.is_finite()));
    let saved = Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
    assert_eq!(saved.progress.epoch, losses.len() as u64, "the last epoch whose loss was a number");
    for (name, param) in &saved.params {
        let (first, second) = &saved.moments[name];
        let mut values = [param, first, second].into_iter().flat_map(|matrix| matrix.data());
        assert!(values.all(|value| value.is_finite()), "{name}");
    }
}

#[test]
fn settings_that_make_no_sense_are_named() {
    let default = TrainConfig::default;
    let model = |model| TrainConfig { model, ..default() };
    let optimizer = |optimizer| TrainConfig { optimizer, ..default() };
    let cases = [
        ("epochs", TrainConfig { epochs: 0, ..default() }),
        ("runs", TrainConfig { runs: 0, ..default() }),
        ("patience", TrainConfig { patience: Some(0), ..default() }),
        ("eval_every", TrainConfig { eval_every: 0, ..default() }),
        ("layers", model(ModelConfig { layers: 0, ..ModelConfig::default() })),
        ("hidden", model(ModelConfig { hidden: 0, ..ModelConfig::default() })),
        ("dropout", model(ModelConfig { dropout: 1.0, ..ModelConfig::default() })),
        ("dropout", model(ModelConfig { dropout: f64::NAN, ..ModelConfig::default() })),
        ("input_dropout", model(ModelConfig { input_dropout: Some(-0.1), ..ModelConfig::default() })),
        ("lr", optimizer(OptimizerConfig { lr: 0.0, ..OptimizerConfig::default() })),
        ("lr", optimizer(OptimizerConfig { lr: f64::INFINITY, ..OptimizerConfig::default() })),
        ("weight_decay", optimizer(OptimizerConfig { weight_decay: -1.0, ..OptimizerConfig::default() })),
        // Rounding to `f32` reaches the limit.
        ("dropout", model(ModelConfig { dropout: 0.999_999_99, ..ModelConfig::default() })),
        ("beta2", optimizer(OptimizerConfig { beta2: 0.999_999_99, ..OptimizerConfig::default() })),
        ("eps", optimizer(OptimizerConfig { eps: 1e-50, ..OptimizerConfig::default() })),
    ];
    for (setting, config) in cases {
        let message = refusal(planted("nodes=50"), &config);
        assert!(message.contains(&format!("`{setting}`")), "{setting}: {message}");
    }
}
