//! Training learns, stops when it should, and follows its seed.

use girih_compute::Dtype;
use girih_datasets::{Dataset, Labels};
use girih_graph_format::Matrix;
use girih_trainer::{ModelKind, Outcome, Run, TrainConfig, mean_over_labels};

use crate::{Stage, config, planted, train, train_epochs};

fn val_accuracy(outcome: &Outcome) -> f64 {
    outcome.runs[0].best.val_accuracy.unwrap()
}

#[test]
fn every_graph_model_beats_the_perceptron() {
    let dataset = planted("nodes=1500");
    let accuracy = |kind| val_accuracy(&train(dataset.clone(), &config(kind, 80)).unwrap());
    let mlp = accuracy(ModelKind::Mlp);
    for kind in ModelKind::classifiers().filter(|&kind| kind != ModelKind::Mlp) {
        let found = accuracy(kind);
        assert!(found > 0.6 && found > mlp + 0.05, "{kind:?} {found}, mlp {mlp}");
    }
    assert!(mlp > 0.3, "the features alone say something: {mlp}");
}

#[test]
fn patience_ends_a_run() {
    let patient = TrainConfig { patience: Some(6), ..config(ModelKind::Gcn, 5000) };
    let run = &train(planted("nodes=400"), &patient).unwrap().runs[0];
    assert!(run.epochs < 5000, "the run did not end");
    assert_eq!(run.epochs, run.best_epoch + 6);
}

#[test]
fn the_best_epoch_is_one_that_was_seen() {
    let config = config(ModelKind::Gcn, 40);
    let stage = Stage::new(planted("nodes=400"), &config);
    let mut run = stage.run(&config);
    let scores: Vec<_> = (0..40).map(|_| run.epoch().unwrap().scores.unwrap()).collect();
    let summary = run.state().summary().unwrap();
    assert_eq!(scores[summary.best_epoch as usize - 1], summary.best);
    assert!(scores.iter().all(|s| s.val_accuracy <= summary.best.val_accuracy));
    run.state_mut().restore_best().unwrap();
    assert_eq!(run.evaluate().unwrap(), summary.best, "the best parameters are those of the best epoch");
}

#[test]
fn one_seed_gives_one_result_and_another_seed_another() {
    let outcome = |seed, runs| {
        let config = TrainConfig { seed, runs, ..config(ModelKind::Sage, 5) };
        train(planted("nodes=300"), &config).unwrap().runs
    };
    let two = outcome(1, 2);
    assert_eq!(outcome(1, 2), two);
    assert_eq!(outcome(1, 1)[0], two[0], "a run does not depend on how many follow");
    assert_ne!(two[0].train_loss, two[1].train_loss);
    assert_ne!(outcome(2, 1)[0].train_loss, two[0].train_loss);
}

#[test]
fn bf16_storage_trains_like_f32() {
    for kind in ModelKind::classifiers() {
        let losses = [Dtype::F32, Dtype::Bf16].map(|precision| {
            let config = TrainConfig { precision, ..config(kind, 40) };
            let stage = Stage::new(planted("nodes=1500"), &config);
            let mut run = stage.run(&config);
            let losses = train_epochs(&mut run, 40);
            (losses[0], losses[39], run.evaluate().unwrap().val_accuracy.unwrap())
        });
        let [exact, rounded] = losses;
        assert_ne!(exact.1, rounded.1, "bf16 is asked for by name and must not be ignored");
        assert!((exact.0 - rounded.0).abs() < 0.02 * exact.0, "{kind:?}: first losses {losses:?}");
        assert!((exact.1 - rounded.1).abs() < 0.1 * exact.1, "{kind:?}: last losses {losses:?}");
        assert!((exact.2 - rounded.2).abs() < 0.05, "{kind:?}: accuracies {losses:?}");
    }
}

/// Multi-label data: every node has its class and, in the first two classes, also the next class.
fn with_several_labels(dataset: Dataset) -> Dataset {
    let Some(Labels::Single { n_classes, classes }) = &dataset.labels else { panic!("one class per node") };
    let mut targets = vec![0.0; dataset.n_nodes() * n_classes];
    for (v, &class) in classes.iter().enumerate() {
        targets[v * n_classes + class as usize] = 1.0;
        if class < 2 {
            targets[v * n_classes + class as usize + 1] = 1.0;
        }
    }
    let targets = Matrix::new(dataset.n_nodes(), *n_classes, targets).unwrap();
    Dataset { labels: Some(Labels::Multi { n_classes: *n_classes, targets }), ..dataset }
}

#[test]
fn without_test_nodes_nothing_is_said_of_them() {
    let dataset = planted("nodes=300");
    for mut dataset in [dataset.clone(), with_several_labels(dataset)] {
        dataset.splits[0].test.clear();
        let config = config(ModelKind::Gcn, 2);
        let stage = Stage::new(dataset, &config);
        let mut run = stage.run(&config);
        train_epochs(&mut run, 2);
        assert_eq!(run.test_report().unwrap().unwrap().f1, None);
    }
}

#[test]
fn several_labels_a_node_are_learnt() {
    let dataset = with_several_labels(planted("nodes=1500"));
    for kind in [ModelKind::Gcn, ModelKind::Sage] {
        let config = config(kind, 120);
        let stage = Stage::new(dataset.clone(), &config);
        let mut run = stage.run(&config);
        let losses = train_epochs(&mut run, 120);
        assert!(losses[119] < 0.8 * losses[0], "{kind:?}: {} → {}", losses[0], losses[119]);
        let fresh = stage.run(&config).test_report().unwrap().unwrap();
        let trained = run.test_report().unwrap().unwrap();
        let (before, after) = (fresh.f1.unwrap(), trained.f1.unwrap());
        assert!(after.micro > before.micro + 0.15 && after.micro > 0.6, "{kind:?}: {before:?} → {after:?}");
        assert!(after.macro_ > before.macro_, "{kind:?}: {before:?} → {after:?}");
        for (fresh, trained) in
            [(&fresh.roc_auc, &trained.roc_auc), (&fresh.average_precision, &trained.average_precision)]
        {
            assert_eq!(trained.len(), 4, "a value for each label");
            let (before, after) = (mean_over_labels(fresh), mean_over_labels(trained));
            assert!(after > before && after > Some(0.7), "{kind:?}: {before:?} → {after:?}");
        }
    }
}
