//! Mini-batch training: equal to full-batch training if nothing is left out. Results do not depend on prefetching,
//! the number of ranks, or interruptions.

mod neighborhoods;
mod on_ranks;

use std::path::Path;
use std::time::Duration;

use girih_compute::{Cpu, Dtype};
use girih_datasets::Dataset;
use girih_graph_format::Matrix;
use girih_partition::{Exchange, ProcessGrid, Scheme};
use girih_trainer::distributed::{GraphPlacement, RankJob, RankOptions, TrainJob};
use girih_trainer::{
    Aggregator, BatchConfig, BatchKind, CacheConfig, Checkpoint, Control, Event, Jump, ModelConfig, ModelKind,
    NormKind, OptimizerConfig, OptimizerKind, SaintKind, ScoreBy, SessionOptions, TrainConfig, checkpoint_path,
};

use crate::{config, densified, planted, small, train, with_bags_of_words};

/// Networks that train on blocks.
const LAYERED: [ModelKind; 5] = [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat, ModelKind::Gatv2, ModelKind::Gin];

fn batches(kind: BatchKind) -> BatchConfig {
    BatchConfig { kind, ..BatchConfig::default() }
}

/// Gradient descent without dropout, so that differences between two runs reflect differences of gradients.
pub(crate) fn plain(kind: ModelKind, epochs: u64) -> TrainConfig {
    let mut config = small(config(kind, epochs));
    // Unnormalised sums over neighbors have steep losses.
    let lr = if kind == ModelKind::Gin { 0.002 } else { 0.05 };
    config.optimizer = OptimizerConfig { kind: OptimizerKind::Sgd, lr, ..config.optimizer };
    config
}

/// Trains a configuration and loads its last checkpoint.
fn trained(dataset: &Dataset, config: &TrainConfig) -> Checkpoint {
    let folder = tempfile::tempdir().unwrap();
    let options = SessionOptions { checkpoints: Some(folder.path().to_owned()), ..SessionOptions::default() };
    girih_trainer::train(&Cpu::new(), dataset.clone(), config, &options, &mut |_| Control::Continue).unwrap();
    Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap()
}

fn largest_difference(a: &Checkpoint, b: &Checkpoint) -> f32 {
    let of = |a: &Matrix, b: &Matrix| a.data().iter().zip(b.data()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert_eq!(a.params.len(), b.params.len());
    a.params.iter().map(|(name, matrix)| of(matrix, &b.params[name])).fold(0.0, f32::max)
}

pub(crate) fn assert_same_training(dataset: &Dataset, full: &TrainConfig, sampled: &TrainConfig, what: &str) {
    let (expected, found) = (trained(dataset, full), trained(dataset, sampled));
    let difference = largest_difference(&expected, &found);
    assert!(difference < 2e-5, "{what}: parameters differ by {difference}");
    let (a, b) = (expected.progress.train_loss, found.progress.train_loss);
    assert!((a - b).abs() < 1e-5 * a.abs().max(1.0), "{what}: the loss is {b} instead of {a}");
    let accuracy = |checkpoint: &Checkpoint| checkpoint.progress.last.unwrap().test_accuracy.unwrap();
    assert!((accuracy(&expected) - accuracy(&found)).abs() < 0.02, "{what}: scores differ");
}

#[test]
fn all_neighbors_of_all_seeds_make_the_step_of_the_whole_graph() {
    let sparse = with_bags_of_words(&planted("nodes=300"));
    for dataset in [&sparse, &densified(&sparse)] {
        for kind in LAYERED {
            for layers in [1, 2] {
                let mut full = plain(kind, 3);
                full.model.layers = layers;
                let batch = BatchConfig { fanout: vec![-1; layers], ..batches(BatchKind::Neighbor) };
                let sampled = TrainConfig { batch, batch_size: Some(1000), ..full.clone() };
                assert_same_training(dataset, &full, &sampled, &format!("{kind:?}, {layers} layers"));
            }
        }
        let full = plain(ModelKind::Gcn, 3);
        let batch = BatchConfig { fanout: vec![-1; 2], ..batches(BatchKind::Layer) };
        let sampled = TrainConfig { batch, ..full.clone() };
        assert_same_training(dataset, &full, &sampled, "all nodes of each layer");
    }
    for (aggregator, dataset) in [(Aggregator::Pool, &sparse), (Aggregator::Lstm, &densified(&sparse))] {
        let mut full = plain(ModelKind::Sage, 2);
        full.model.aggregator = aggregator;
        let batch = BatchConfig { fanout: vec![-1; 2], ..batches(BatchKind::Neighbor) };
        let sampled = TrainConfig { batch, ..full.clone() };
        if aggregator == Aggregator::Pool {
            assert_same_training(dataset, &full, &sampled, "pool");
        } else {
            // An LSTM draws its reading order by row index, which differs in a batch.
            assert!(train(dataset.clone(), &sampled).unwrap().runs[0].train_loss.is_finite());
        }
    }
}

#[test]
fn stacks_around_blocks_are_those_around_the_whole_graph() {
    let dataset = planted("nodes=300");
    for jump in [Jump::None, Jump::Concat, Jump::Max] {
        for (residual, norm) in [(true, NormKind::Layer), (false, NormKind::None)] {
            let mut full = plain(ModelKind::Gcn, 3);
            full.model = ModelConfig { layers: 3, residual, norm, jump, ..full.model };
            let batch = BatchConfig { fanout: vec![-1; 3], ..batches(BatchKind::Neighbor) };
            let sampled = TrainConfig { batch, ..full.clone() };
            assert_same_training(&dataset, &full, &sampled, &format!("{jump:?}, residual {residual}"));
        }
    }
}

#[test]
fn one_batch_of_all_clusters_is_the_whole_graph() {
    let dataset = planted("nodes=300");
    for kind in LAYERED.into_iter().chain([ModelKind::Ngcn, ModelKind::Appnp]) {
        let full = plain(kind, 3);
        let batch = BatchConfig { clusters: Some(5), clusters_per_batch: Some(5), ..batches(BatchKind::Cluster) };
        assert_same_training(&dataset, &full, &TrainConfig { batch, ..full.clone() }, &format!("{kind:?}"));
    }
}

/// Configurations of every kind of batches, with several batches per epoch and dropout.
fn of_every_kind() -> Vec<TrainConfig> {
    let fanout = vec![4, 3];
    let cluster = BatchConfig { clusters: Some(9), clusters_per_batch: Some(2), ..batches(BatchKind::Cluster) };
    let saint = |saint| BatchConfig { saint, ..batches(BatchKind::Saint) };
    let kinds = [
        (ModelKind::Gcn, BatchConfig { fanout: fanout.clone(), replace: true, ..batches(BatchKind::Neighbor) }),
        (ModelKind::Gat, BatchConfig { fanout: fanout.clone(), ..batches(BatchKind::Neighbor) }),
        (ModelKind::Sage, BatchConfig { fanout: vec![60, 90], ..batches(BatchKind::Layer) }),
        (ModelKind::Gin, cluster.clone()),
        (ModelKind::Gcn, BatchConfig { subgraphs_per_step: 2, ..cluster }),
        (ModelKind::Sage, saint(SaintKind::Node)),
        (ModelKind::Gcn, saint(SaintKind::Edge)),
        (ModelKind::Gcn, saint(SaintKind::Walk)),
    ];
    let with = |(kind, batch): (ModelKind, BatchConfig)| {
        let batch_size = (batch.kind != BatchKind::Cluster).then_some(25);
        TrainConfig { batch, batch_size, ..config(kind, 3) }
    };
    kinds.into_iter().map(with).collect()
}

#[test]
fn results_do_not_depend_on_how_far_batches_are_made_ahead() {
    let dataset = planted("nodes=300");
    for config in of_every_kind() {
        let ahead = |prefetch: usize| {
            let batch = BatchConfig { prefetch, ..config.batch.clone() };
            trained(&dataset, &TrainConfig { batch, ..config.clone() })
        };
        let (none, some) = (ahead(0), ahead(3));
        assert_eq!(none.params, some.params, "{:?}", config.batch);
        assert_eq!(none.progress.train_loss.to_bits(), some.progress.train_loss.to_bits());
    }
}

/// Trains into `folder`, resuming existing checkpoints, and stops after `stop_after` batches if given.
fn train_batches(folder: &Path, dataset: &Dataset, config: &TrainConfig, stop_after: Option<u64>) -> bool {
    let options = SessionOptions { checkpoints: Some(folder.to_owned()), resume: true, ..SessionOptions::default() };
    let mut n_batches = 0;
    let mut observe = |event: Event<'_>| {
        n_batches += u64::from(matches!(event, Event::Batch { .. } | Event::Epoch { .. }));
        if stop_after.is_some_and(|stop| n_batches >= stop) { Control::Stop } else { Control::Continue }
    };
    girih_trainer::train(&Cpu::new(), dataset.clone(), config, &options, &mut observe).unwrap().stopped
}

#[test]
fn a_run_goes_on_in_the_middle_of_an_epoch_as_if_it_had_not_stopped() {
    let dataset = planted("nodes=300");
    for config in of_every_kind() {
        let expected = trained(&dataset, &config);
        for stop_after in [1, 3, 4] {
            let folder = tempfile::tempdir().unwrap();
            let mut n_sessions = 1;
            while train_batches(folder.path(), &dataset, &config, Some(stop_after)) {
                n_sessions += 1;
                assert!(n_sessions < 200, "it never ends");
            }
            assert!(n_sessions > 2, "it stopped several times");
            let found = Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
            assert!(found == expected, "{:?}, stopping after {stop_after} batches", config.batch);
        }
    }
}

#[test]
fn a_stop_keeps_what_was_done_of_the_epoch() {
    let (dataset, folder) = (planted("nodes=300"), tempfile::tempdir().unwrap());
    let config = of_every_kind().remove(0);
    assert!(train_batches(folder.path(), &dataset, &config, Some(2)));
    let kept = Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
    assert_eq!((kept.progress.epoch, kept.progress.partial.batches, kept.progress.n_steps), (0, 2, 2));
    assert_eq!(kept.progress.partial.n_losses, 50);
}

#[test]
fn every_kind_of_batches_learns() {
    let dataset = planted("nodes=600");
    let accuracy = |config: &TrainConfig| train(dataset.clone(), config).unwrap().runs[0].best.test_accuracy.unwrap();
    for sampled in of_every_kind() {
        // Small subgraphs have hardly any edges.
        let batch_size = if sampled.batch.kind == BatchKind::Saint { Some(200) } else { sampled.batch_size };
        let sampled = TrainConfig { epochs: 40, batch_size, ..sampled };
        let whole = TrainConfig { batch: BatchConfig::default(), batch_size: None, epochs: 60, ..sampled.clone() };
        let (found, full) = (accuracy(&sampled), accuracy(&whole));
        assert!(found > full - 0.06, "{:?}, {:?}: {found} instead of {full}", sampled.model.kind, sampled.batch);
    }
}

#[test]
fn settings_that_do_not_go_together_are_refused_by_name() {
    let neighbor = || batches(BatchKind::Neighbor);
    let sampled = |kind, batch| TrainConfig { batch, ..config(kind, 1) };
    let wrong = [
        (sampled(ModelKind::Gcn, BatchConfig { fanout: vec![5], ..neighbor() }), "2 layers"),
        (sampled(ModelKind::Gcn, BatchConfig { fanout: vec![5, 0], ..neighbor() }), "takes 0"),
        (sampled(ModelKind::Gcn, BatchConfig { fanout: vec![5, -2], ..neighbor() }), "-2"),
        (sampled(ModelKind::Sgc, neighbor()), "sgc"),
        (sampled(ModelKind::Mlp, batches(BatchKind::Saint)), "mlp"),
        (sampled(ModelKind::Appnp, neighbor()), "cluster, saint or full"),
        (sampled(ModelKind::Ngcn, batches(BatchKind::Layer)), "cluster, saint or full"),
        (sampled(ModelKind::Gat, BatchConfig { replace: true, ..neighbor() }), "counts a neighbor once"),
        (sampled(ModelKind::Gcn, BatchConfig { clusters: Some(4), ..neighbor() }), "batch.clusters"),
        (sampled(ModelKind::Gcn, BatchConfig { clusters: Some(0), ..batches(BatchKind::Cluster) }), "at least 1"),
        (sampled(ModelKind::Gcn, BatchConfig { fanout: vec![5, 5], ..batches(BatchKind::Saint) }), "batch.fanout"),
        (sampled(ModelKind::Gcn, BatchConfig { subgraphs_per_step: 2, ..neighbor() }), "batch.subgraphs_per_step"),
        (sampled(ModelKind::Gcn, BatchConfig { subgraphs_per_step: 2, ..BatchConfig::default() }), "batch kind"),
        (sampled(ModelKind::Gcn, BatchConfig { subgraphs_per_step: 0, ..batches(BatchKind::Saint) }), "at least 1"),
        (sampled(ModelKind::Gcn, BatchConfig { fanout: vec![5, 5], ..BatchConfig::default() }), "batch kind"),
        (sampled(ModelKind::Gcn, BatchConfig { prefetch: 4, ..BatchConfig::default() }), "batch kind"),
        (sampled(ModelKind::Gcn, BatchConfig { saint: SaintKind::Edge, ..neighbor() }), "batch.saint"),
        (sampled(ModelKind::Gcn, BatchConfig { walk_length: 3, ..batches(BatchKind::Cluster) }), "batch.walk_length"),
        (
            sampled(
                ModelKind::Gcn,
                BatchConfig { walk_length: 3, saint: SaintKind::Node, ..batches(BatchKind::Saint) },
            ),
            "only saint batches of random walks",
        ),
        (TrainConfig { batch_size: Some(5), ..config(ModelKind::Gcn, 1) }, "batch_size"),
        (TrainConfig { batch_size: Some(5), ..sampled(ModelKind::Gcn, batches(BatchKind::Cluster)) }, "batch_size"),
    ];
    for (config, told) in wrong {
        let message = config.validate().unwrap_err().to_string();
        assert!(message.contains(told), "{message}");
    }
}

/// Configurations of everything that layer-wise inference supports: networks, options around layers, kinds of
/// batches.
fn scored_by_layers() -> Vec<TrainConfig> {
    let neighbor = || BatchConfig { fanout: vec![3, 4], ..batches(BatchKind::Neighbor) };
    let sampled = |kind, batch| TrainConfig { batch, batch_size: Some(200), ..config(kind, 2) };
    let mut configs: Vec<TrainConfig> = LAYERED.map(|kind| sampled(kind, neighbor())).into();
    configs.push(TrainConfig { batch_size: None, ..sampled(ModelKind::Gcn, batches(BatchKind::Cluster)) });
    configs.push(sampled(ModelKind::Gat, batches(BatchKind::Saint)));
    configs.push(sampled(ModelKind::Sage, batches(BatchKind::Layer)));
    let mut residual = sampled(ModelKind::Gcn, neighbor());
    residual.model = ModelConfig { residual: true, norm: NormKind::Layer, ..residual.model };
    configs.push(residual);
    let mut pooling = sampled(ModelKind::Sage, neighbor());
    pooling.model.aggregator = Aggregator::Pool;
    configs.push(pooling);
    configs.push(TrainConfig { codec: Some("topk:4".parse().unwrap()), ..sampled(ModelKind::Sage, neighbor()) });
    configs
}

pub(crate) fn assert_scored_alike(dataset: &Dataset, config: &TrainConfig, method: ScoreBy) {
    let by = |score_by| {
        let batch = BatchConfig { score_by: Some(score_by), ..config.batch.clone() };
        trained(dataset, &TrainConfig { batch, ..config.clone() })
    };
    let (graph, layers) = (by(ScoreBy::Graph), by(method));
    let what = format!("{:?}, {:?}", config.model.kind, config.batch.kind);
    assert_eq!(largest_difference(&graph, &layers), 0.0, "{what}: scores change no training");
    let [a, b] = [&graph, &layers].map(|checkpoint| checkpoint.progress.last.unwrap());
    let losses = [(a.val_loss, b.val_loss), (a.test_loss, b.test_loss)];
    let of_training = if method == ScoreBy::Samples { a.train_accuracy } else { b.train_accuracy };
    assert!(method != ScoreBy::Samples || b.train_accuracy.is_none(), "{what}");
    let accuracies =
        [(a.train_accuracy, of_training), (a.val_accuracy, b.val_accuracy), (a.test_accuracy, b.test_accuracy)];
    for ((a, b), most) in losses.map(|pair| (pair, 1e-5)).into_iter().chain(accuracies.map(|pair| (pair, 0.011))) {
        let (a, b) = (a.unwrap(), b.unwrap());
        assert!((a - b).abs() <= most * a.abs().max(1.0), "{what}: {b} by {method:?}, {a} on the graph");
    }
    let [a, b] =
        [&graph, &layers].map(|checkpoint| girih_trainer::apply(&Cpu::new(), dataset.clone(), checkpoint).unwrap());
    assert_eq!((b.2.n_rows(), b.2.n_cols()), (dataset.n_nodes(), dataset.n_classes()), "{what}");
    for (at, (a, b)) in a.2.data().iter().zip(b.2.data()).enumerate() {
        assert!((a - b).abs() < 1e-4 * a.abs().max(1.0), "{what}: logit {at} is {b} by {method:?}, {a} on the graph");
    }
}

#[test]
fn scores_layer_by_layer_are_those_of_the_graph() {
    let dataset = planted("nodes=300");
    for config in scored_by_layers() {
        assert_scored_alike(&dataset, &config, ScoreBy::Layers);
    }
    let sparse = with_bags_of_words(&planted("nodes=300"));
    for kind in [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat] {
        let batch = BatchConfig { fanout: vec![3, 4], ..batches(BatchKind::Neighbor) };
        let config = TrainConfig { batch, batch_size: Some(100), ..config(kind, 2) };
        assert_scored_alike(&sparse, &config, ScoreBy::Layers);
    }
}

#[test]
fn a_layer_is_computed_for_some_nodes_after_the_others() {
    // More nodes than one chunk, in the last layer as well.
    let dataset = girih_datasets::load(
        "synth:planted,nodes=70000,degree=3,features=6,classes=3",
        &girih_datasets::LoadOptions::default(),
    );
    let batch = BatchConfig { fanout: vec![2, 2], ..batches(BatchKind::Neighbor) };
    let config = TrainConfig { batch, batch_size: Some(30_000), epochs: 1, ..config(ModelKind::Sage, 1) };
    assert_scored_alike(&dataset.unwrap(), &config, ScoreBy::Layers);
}

#[test]
fn models_that_read_beyond_the_previous_layer_are_not_scored_by_layers() {
    let batch = BatchConfig { score_by: Some(ScoreBy::Layers), fanout: vec![3, 3], ..batches(BatchKind::Neighbor) };
    let of = |model: ModelConfig| TrainConfig { model, batch: batch.clone(), ..config(ModelKind::Gcn, 1) };
    let model = config(ModelKind::Gcn, 1).model;
    let wrong = [
        of(ModelConfig { norm: NormKind::Batch, ..model.clone() }),
        of(ModelConfig { jump: Jump::Max, ..model.clone() }),
        TrainConfig {
            batch: BatchConfig { kind: BatchKind::Cluster, fanout: Vec::new(), ..batch.clone() },
            ..config(ModelKind::Appnp, 1)
        },
    ];
    for config in wrong {
        let message = train(planted("nodes=60"), &config).unwrap_err().to_string();
        assert!(message.contains("--score-by layers") && message.contains("give --score-by graph"), "{message}");
    }
    let full =
        TrainConfig { batch: BatchConfig { score_by: Some(ScoreBy::Layers), ..BatchConfig::default() }, ..of(model) };
    assert!(full.validate().unwrap_err().to_string().contains("--score-by"));
}
