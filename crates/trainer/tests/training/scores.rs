//! Scores without a definition have no value, and defined scores choose the epoch.

use girih_compute::Cpu;
use girih_datasets::{Dataset, Labels, LoadOptions, Split, load};
use girih_trainer::{
    ChosenBy, Control, Event, LinkConfig, Metric, ModelKind, Scores, SessionOptions, TaskKind, TrainConfig,
};

use crate::recommend::{lightgcn, tastes};
use crate::{config, small, train};

fn two_classes() -> Dataset {
    load("synth:planted,nodes=200,degree=8,features=16,classes=2", &LoadOptions::default()).unwrap()
}

/// The data with a changed split.
fn with_split(dataset: Dataset, change: impl FnOnce(&mut Split, &[u32])) -> Dataset {
    let Some(Labels::Single { classes, .. }) = &dataset.labels else { panic!("one class per node") };
    let mut split = dataset.splits[0].clone();
    change(&mut split, classes);
    Dataset { splits: vec![split], ..dataset }
}

fn by_area(epochs: u64) -> TrainConfig {
    TrainConfig { metric: Metric::RocAuc, ..small(config(ModelKind::Gcn, epochs)) }
}

fn all_scores(dataset: Dataset, config: &TrainConfig) -> (Vec<Scores>, girih_trainer::RunSummary) {
    let mut seen = Vec::new();
    let mut observe = |event: Event<'_>| {
        if let Event::Epoch { report, .. } = event {
            seen.extend(report.scores);
        }
        Control::Continue
    };
    let outcome = girih_trainer::train(&Cpu::new(), dataset, config, &SessionOptions::default(), &mut observe);
    (seen, outcome.unwrap().runs.remove(0))
}

#[test]
fn an_area_of_one_class_is_undefined_and_the_loss_chooses() {
    let dataset = with_split(two_classes(), |split, classes| split.val.retain(|&v| classes[v as usize] == 0));
    let (seen, run) = all_scores(dataset.clone(), &by_area(20));
    assert!(seen.iter().all(|scores| scores.val_roc_auc.is_none() && scores.val_accuracy.is_some()));
    assert!(seen.iter().all(|scores| scores.test_roc_auc.is_some()));
    assert_eq!(run.chosen_by, ChosenBy::ValLoss);
    let least = seen.iter().map(|scores| scores.val_loss.unwrap()).fold(f64::INFINITY, f64::min);
    assert_eq!(run.best.val_loss, Some(least));
    let patient = TrainConfig { patience: Some(3), epochs: 5000, ..by_area(1) };
    let run = &train(dataset, &patient).unwrap().runs[0];
    assert_eq!(run.epochs, run.best_epoch + 3, "patience goes by what chooses");
    let (_, run) = all_scores(two_classes(), &by_area(3));
    assert_eq!(run.chosen_by, ChosenBy::ValRocAuc);
}

#[test]
fn without_validation_nodes_the_last_epoch_is_the_best_and_patience_is_refused() {
    let dataset = with_split(two_classes(), |split, _| split.val.clear());
    for metric in [Metric::Accuracy, Metric::RocAuc] {
        let (_, run) = all_scores(dataset.clone(), &TrainConfig { metric, ..by_area(7) });
        assert_eq!((run.best_epoch, run.chosen_by, run.best.val_accuracy), (7, ChosenBy::LastEpoch, None));
        assert!(run.best.test_accuracy.is_some());
    }
    let message = train(dataset.clone(), &TrainConfig { patience: Some(3), ..by_area(7) }).unwrap_err().to_string();
    assert!(message.contains("patience") && message.contains("validation nodes with a label"), "{message}");
    // The network's published settings have patience, which the user did not request.
    let gat = TrainConfig { epochs: 2, ..TrainConfig::for_model(ModelKind::Gat) };
    assert_eq!(train(dataset, &gat).unwrap().runs[0].chosen_by, ChosenBy::LastEpoch);

    let mut links = TrainConfig { task: TaskKind::Links, ..small(config(ModelKind::Gcn, 3)) };
    links.links = LinkConfig { val: 0.0, ..LinkConfig::default() };
    let (_, run) = all_scores(two_classes(), &links);
    assert_eq!((run.best_epoch, run.chosen_by, run.best.val_roc_auc), (3, ChosenBy::LastEpoch, None));
    let message = train(two_classes(), &TrainConfig { patience: Some(3), ..links }).unwrap_err().to_string();
    assert!(message.contains("validation links"), "{message}");
}

#[test]
fn without_test_nodes_links_or_items_scores_have_no_value() {
    let dataset = with_split(two_classes(), |split, _| split.test.clear());
    let (_, run) = all_scores(dataset, &by_area(3));
    assert_eq!((run.best.test_accuracy, run.best.test_roc_auc, run.best.test_loss), (None, None, None));
    let mut links = TrainConfig { task: TaskKind::Links, ..small(config(ModelKind::Gcn, 3)) };
    links.links = LinkConfig { test: 0.0, ..LinkConfig::default() };
    let (_, run) = all_scores(two_classes(), &links);
    assert_eq!((run.best.test_roc_auc, run.best.links), (None, None));

    let items = tastes();
    let interactions = items.interactions.as_ref().unwrap();
    let nothing = girih_graph_format::Csr::empty(interactions.n_users(), interactions.n_items()).unwrap();
    let interactions = girih_datasets::Interactions::new(interactions.train().clone(), nothing).unwrap();
    let dataset = Dataset::of_interactions("tastes", interactions).unwrap();
    let config = TrainConfig { epochs: 4, eval_every: 2, patience: None, ..lightgcn(4) };
    let (_, run) = all_scores(dataset.clone(), &config);
    assert_eq!((run.best_epoch, run.chosen_by, run.best.ranking), (4, ChosenBy::LastEpoch, None));
    let message = train(dataset, &TrainConfig { patience: Some(3), ..config }).unwrap_err().to_string();
    assert!(message.contains("test items"), "{message}");
}

#[test]
fn labels_without_both_answers_are_counted() {
    let dataset = load("synth:yelp@0.001", &LoadOptions::default()).unwrap();
    let Some(Labels::Multi { targets, n_classes }) = dataset.labels.clone() else { panic!("several labels a node") };
    let val = &dataset.splits[0].val;
    let constant = |label: usize| {
        let n = val.iter().filter(|&&v| targets.row(v as usize)[label] > 0.5).count();
        n == 0 || n == val.len()
    };
    let expected = (0..n_classes).filter(|&label| constant(label)).count();
    let (seen, _) = all_scores(dataset, &by_area(2));
    assert!(seen.iter().all(|scores| scores.val_labels_left_out == expected), "{seen:?}");
}
