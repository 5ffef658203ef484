//! Link predictors learn, on the whole graph and on batches of links, resume bit for bit, and refuse invalid
//! settings.

mod batches;
mod edges;
mod pairs;
mod shipped;
pub(crate) mod timed;

use std::path::Path;
use std::time::Duration;

use girih_compute::{Cpu, Rates};
use girih_datasets::Dataset;
use girih_partition::{Exchange, ProcessGrid, Scheme};
use girih_trainer::distributed::{RankJob, RankOptions, TrainJob};
use girih_trainer::{
    BatchConfig, BatchKind, Checkpoint, Control, DataSizes, Event, LinkConfig, ModelKind, Plan, Scores, SessionOptions,
    TaskKind, TrainConfig, checkpoint_path, embed,
};

use crate::{config, densified, planted, small, train, train_into, with_bags_of_words};

/// Configuration of a link predictor without dropout, which small graphs do not need.
fn links(kind: ModelKind, epochs: u64) -> TrainConfig {
    TrainConfig { task: TaskKind::Links, ..small(config(kind, epochs)) }
}

fn on_batches(config: TrainConfig) -> TrainConfig {
    let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![6, 4], ..BatchConfig::default() };
    TrainConfig { batch, batch_size: Some(200), ..config }
}

/// A graph of few communities with most links inside them.
fn communities() -> Dataset {
    planted("nodes=400")
}

fn without_labels(dataset: Dataset) -> Dataset {
    Dataset { labels: None, splits: Vec::new(), ..dataset }
}

#[test]
fn every_model_tells_links_from_other_pairs_and_needs_no_labels() {
    let dataset = without_labels(communities());
    for kind in ModelKind::classifiers().filter(|&kind| kind != ModelKind::Sgc && !kind.reads_relations()) {
        let best = train(dataset.clone(), &links(kind, 60)).unwrap().runs[0].best;
        let (auc, ranks) = (best.test_roc_auc.unwrap(), best.links.unwrap());
        assert!(auc > 0.6, "{kind:?}: {best:?}");
        assert!(ranks.average_precision > 0.6 && ranks.hits_at_20 > 0.0 && ranks.mrr > 0.0, "{kind:?}: {best:?}");
        assert!(best.val_loss.is_some() && best.test_loss.is_some() && best.val_accuracy.is_none());
    }
}

#[test]
fn batches_of_links_learn_what_the_whole_graph_does() {
    let sparse = with_bags_of_words(&communities());
    for dataset in [without_labels(communities()), without_labels(sparse.clone()), densified(&sparse)] {
        for kind in [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat] {
            let auc = |config: &TrainConfig| train(dataset.clone(), config).unwrap().runs[0].best.test_roc_auc.unwrap();
            let (whole, batches) = (auc(&links(kind, 60)), auc(&on_batches(links(kind, 15))));
            assert!(batches > whole - 0.06, "{kind:?}: {batches} instead of {whole}");
        }
    }
}

#[test]
fn the_best_epoch_has_the_best_area_on_validation_links() {
    let (mut seen, config) = (Vec::<Scores>::new(), links(ModelKind::Sage, 30));
    let mut observe = |event: Event<'_>| {
        if let Event::Epoch { report, .. } = event {
            seen.extend(report.scores);
        }
        Control::Continue
    };
    let outcome = girih_trainer::train(&Cpu::new(), communities(), &config, &SessionOptions::default(), &mut observe);
    let run = outcome.unwrap().runs[0].clone();
    assert_eq!(seen[run.best_epoch as usize - 1], run.best);
    assert!(seen.iter().all(|scores| scores.val_roc_auc <= run.best.val_roc_auc));
    let patient = TrainConfig { patience: Some(4), epochs: 5000, ..config };
    let run = &train(communities(), &patient).unwrap().runs[0];
    assert_eq!(run.epochs, run.best_epoch + 4);
}

#[test]
fn runs_differ_and_seeds_deal_links_anew() {
    let outcome = |seed, runs| {
        let config = TrainConfig { seed, runs, ..links(ModelKind::Gcn, 4) };
        train(communities(), &config).unwrap().runs
    };
    let two = outcome(1, 2);
    assert_eq!(outcome(1, 2), two);
    assert_eq!(outcome(1, 1)[0], two[0]);
    assert_ne!(two[0].train_loss, two[1].train_loss);
    assert_ne!(outcome(2, 1)[0].train_loss, two[0].train_loss);
}

#[test]
fn more_negatives_and_a_width_are_what_is_trained() {
    let mut config = links(ModelKind::Gcn, 40);
    config.links = LinkConfig { negatives: 4, width: 5, ..LinkConfig::default() };
    let folder = tempfile::tempdir().unwrap();
    let outcome = train_into(folder.path(), communities(), &config, None);
    assert!(outcome.runs[0].best.test_roc_auc.unwrap() > 0.6);
    let checkpoint = load(folder.path());
    let embedded = embed(&Cpu::new(), communities(), &checkpoint).unwrap();
    assert_eq!((embedded.embeddings.n_rows(), embedded.embeddings.n_cols()), (400, 5));
    assert_eq!(embedded.scores, outcome.runs[0].best, "a checkpoint scores what its run did");
}

fn load(folder: &Path) -> Checkpoint {
    Checkpoint::load(&checkpoint_path(folder, 0)).unwrap()
}

/// Resumes training and stops after `stop_after` batches or epochs.
fn train_some(folder: &Path, (dataset, config): (&Dataset, &TrainConfig), stop_after: Option<u64>) -> bool {
    let options = SessionOptions { checkpoints: Some(folder.to_owned()), resume: true, ..SessionOptions::default() };
    let mut n_done = 0;
    let mut observe = |event: Event<'_>| {
        n_done += u64::from(matches!(event, Event::Batch { .. } | Event::Epoch { .. }));
        if stop_after.is_some_and(|stop| n_done >= stop) { Control::Stop } else { Control::Continue }
    };
    girih_trainer::train(&Cpu::new(), dataset.clone(), config, &options, &mut observe).unwrap().stopped
}

#[test]
fn a_run_goes_on_as_if_it_had_not_stopped() {
    let with_dropout = |mut config: TrainConfig| {
        config.model.dropout = 0.3;
        config
    };
    for config in [links(ModelKind::Sage, 4), on_batches(links(ModelKind::Gcn, 3))].map(with_dropout) {
        let whole = tempfile::tempdir().unwrap();
        assert!(!train_some(whole.path(), (&communities(), &config), None));
        let parts = tempfile::tempdir().unwrap();
        let mut n_sessions = 1;
        while train_some(parts.path(), (&communities(), &config), Some(2)) {
            n_sessions += 1;
            assert!(n_sessions < 100, "it never ends");
        }
        assert!(n_sessions > 1);
        assert!(load(parts.path()) == load(whole.path()), "{:?}", config.batch);
    }
}

#[test]
fn results_do_not_depend_on_how_far_batches_are_made_ahead() {
    let ahead = |prefetch| {
        let mut config = on_batches(links(ModelKind::Sage, 2));
        config.batch.prefetch = prefetch;
        let folder = tempfile::tempdir().unwrap();
        train_into(folder.path(), communities(), &config, None);
        load(folder.path()).params
    };
    assert_eq!(ahead(0), ahead(3));
}

#[test]
fn plans_follow_links_and_pairs() {
    const RATES: Rates = Rates { stream_bytes: 1e10, gather_bytes: 2e10, flops: 1e11 };
    let sizes = DataSizes::of(&without_labels(communities()));
    let plan = |config: &TrainConfig| Plan::new(config, &sizes, RATES).unwrap();
    let (one, mut more) = (links(ModelKind::Gcn, 10), links(ModelKind::Gcn, 10));
    more.links.negatives = 8;
    assert!(plan(&more).peak_bytes > plan(&one).peak_bytes && plan(&more).epoch_seconds > plan(&one).epoch_seconds);
    let batches = plan(&on_batches(one.clone()));
    assert!(batches.epoch_seconds > plan(&one).epoch_seconds, "many small steps");
    assert!(batches.peak_bytes >= batches.input_bytes + batches.parameter_bytes);
    assert!(Plan::on_cuda(&one, &sizes).unwrap().peak_bytes > 0);
}

#[test]
fn conflicting_settings_are_refused_by_name() {
    let gcn = || links(ModelKind::Gcn, 1);
    let with = |links| TrainConfig { links, ..gcn() };
    let kind = |kind| TrainConfig { batch: BatchConfig { kind, ..BatchConfig::default() }, ..gcn() };
    let wrong = [
        (links(ModelKind::LightGcn, 1), "gcn or sage"),
        (links(ModelKind::Sgc, 1), "weights of zero"),
        (kind(BatchKind::Layer), "neighbor batches"),
        (kind(BatchKind::Cluster), "neighbor batches"),
        (kind(BatchKind::Saint), "neighbor batches"),
        (TrainConfig { batch_size: Some(10), ..gcn() }, "batch_size"),
        (with(LinkConfig { val: 1.0, ..LinkConfig::default() }), "links.val"),
        (with(LinkConfig { test: -0.1, ..LinkConfig::default() }), "links.test"),
        (with(LinkConfig { val: 0.5, test: 0.5, ..LinkConfig::default() }), "left to train on"),
        (with(LinkConfig { negatives: 0, ..LinkConfig::default() }), "links.negatives"),
        (with(LinkConfig { width: 0, ..LinkConfig::default() }), "links.width"),
        (
            TrainConfig { task: TaskKind::Nodes, ..with(LinkConfig { negatives: 2, ..LinkConfig::default() }) },
            "task links",
        ),
    ];
    for (config, told) in wrong {
        let message = config.validate().unwrap_err().to_string();
        assert!(message.contains(told), "{message}");
    }
    let refused = |dataset| train(dataset, &gcn()).unwrap_err().to_string();
    let message = refused(Dataset { features: None, ..communities() });
    assert!(message.contains("no features"), "{message}");
    let no_edges = girih_graph_format::Csr::empty(400, 400).unwrap();
    let message = refused(Dataset { graph: no_edges, ..communities() });
    assert!(message.contains("none is left to train on"), "{message}");
    let message = train(without_labels(communities()), &config(ModelKind::Gcn, 1)).unwrap_err().to_string();
    assert!(message.contains("task links"), "{message}");
    let grid = ProcessGrid::new(Scheme::OneD, 2, 1).unwrap();
    let ranks = RankOptions::new(grid, Exchange::Auto, Duration::from_secs(60));
    let session = SessionOptions::default();
    let (config, mut observe) = (gcn(), |_: Event<'_>| Control::Continue);
    let job = TrainJob::new(communities(), &config, &ranks, &session, &mut observe);
    let on_ranks = job.on_threads(Cpu::new).unwrap_err();
    assert!(on_ranks.to_string().contains("--ranks"), "{on_ranks}");
}
