//! Graphs with degrees of zero or below are refused, or normalised by absolute weights, in every way of training.

use girih_compute::Cpu;
use girih_datasets::Dataset;
use girih_graph_format::{Degrees, Norm};
use girih_partition::Exchange;
use girih_trainer::distributed::{RankJob, TrainJob};
use girih_trainer::{
    Aggregator, BatchConfig, BatchKind, BuildModel, Checkpoint, Control, ModelConfig, ModelKind, ParamInit,
    SessionOptions, TaskKind, TrainConfig, apply, checkpoint_path,
};

use crate::batches::{assert_same_training, plain};
use crate::distributed::{GRIDS, assert_same, options};
use crate::{config, planted, small, train, train_into};

/// Classifiers that normalise by degree.
fn normalizing() -> impl Iterator<Item = ModelKind> {
    ModelKind::classifiers().filter(|&kind| config(kind, 1).model.normalizes())
}

/// A graph with symmetric weights, as a function of an edge's ends. The last node has no edge.
fn weighted(nodes: usize, weight: impl Fn(u32, u32) -> f32 + Sync) -> Dataset {
    let dataset = planted(&format!("nodes={nodes}"));
    let last = nodes as u32 - 1;
    let graph = dataset.graph.filtered(|r, c| r as u32 != last && c != last);
    let weights: Vec<f32> = (0..graph.n_rows())
        .flat_map(|r| graph.row(r).iter().map(|&c| weight((r as u32).min(c), (r as u32).max(c))).collect::<Vec<_>>())
        .collect();
    let graph = graph.with_values(Some(weights.into())).unwrap();
    Dataset { graph, ..dataset }
}

/// A signed graph, with mostly negative weights.
fn signed(nodes: usize) -> Dataset {
    weighted(nodes, |u, v| if (u * 7 + v * 3) % 5 < 2 { 1.0 } else { -1.5 })
}

fn absolute(config: TrainConfig) -> TrainConfig {
    TrainConfig { model: ModelConfig { normalization: Degrees::Absolute, ..config.model }, ..config }
}

fn in_batches(config: TrainConfig, kind: BatchKind) -> TrainConfig {
    TrainConfig { batch: BatchConfig { kind, ..BatchConfig::default() }, ..config }
}

fn assert_refused(what: &str, message: &str) {
    for told in ["the weights of the edges into node", "sum to ", "--normalization absolute"] {
        assert!(message.contains(told), "{what}: {message}");
    }
}

#[test]
fn sums_of_weights_below_zero_are_refused_with_what_helps() {
    let dataset = signed(150);
    for kind in normalizing() {
        let base = small(config(kind, 2));
        assert_refused(kind.name(), &train(dataset.clone(), &base).unwrap_err().to_string());
        let (ranks, session) = (options(GRIDS[0].0, 2, 1, Exchange::Auto), SessionOptions::default());
        let mut observe = |_: girih_trainer::Event<'_>| Control::Continue;
        let job = TrainJob::new(dataset.clone(), &base, &ranks, &session, &mut observe);
        assert_refused(kind.name(), &job.on_threads(Cpu::new).unwrap_err().to_string());
    }
    for kind in [BatchKind::Neighbor, BatchKind::Layer, BatchKind::Cluster, BatchKind::Saint] {
        let message = train(dataset.clone(), &in_batches(small(config(ModelKind::Gcn, 2)), kind)).unwrap_err();
        assert_refused(kind.name(), &message.to_string());
    }
    let links = TrainConfig { task: TaskKind::Links, ..small(config(ModelKind::Gcn, 2)) };
    assert_refused("links", &train(dataset, &links).unwrap_err().to_string());
}

/// Networks that normalise take the degrees of the setting, and say in the table that they do.
#[test]
fn a_network_normalises_by_the_degrees_of_its_setting_if_its_properties_say_so() {
    let (cpu, dims) = (Cpu::new(), crate::dims(&planted("nodes=30")));
    for kind in ModelKind::ALL {
        for aggregator in [Aggregator::Mean, Aggregator::Pool] {
            let base = config(kind, 1).model;
            let model = ModelConfig { aggregator, normalization: Degrees::Absolute, ..base };
            let graph = model.build(dims.clone(), &mut ParamInit::new(&cpu, 0, 0)).unwrap().input_spec().graph;
            let normalised = graph.filter(|graph| graph.norm != Norm::None);
            assert_eq!(normalised.is_some(), model.normalizes(), "{kind:?} {aggregator:?}");
            assert!(normalised.is_none_or(|graph| graph.degrees == Degrees::Absolute), "{kind:?} {aggregator:?}");
        }
    }
}

#[test]
fn networks_that_do_not_normalise_train_on_any_weights() {
    let pool = || {
        let base = small(config(ModelKind::Sage, 3));
        TrainConfig { model: ModelConfig { aggregator: Aggregator::Pool, ..base.model }, ..base }
    };
    let configs = [ModelKind::Gat, ModelKind::Gatv2, ModelKind::Gin, ModelKind::Mlp].map(|kind| small(config(kind, 3)));
    for config in configs.into_iter().chain([pool()]) {
        assert!(train(signed(150), &config).unwrap().runs[0].train_loss.is_finite());
        let says = !config.notes(true).is_empty();
        assert_eq!(says, config.model.kind != ModelKind::Gin, "gin alone reads weights");
        assert!(config.notes(false).is_empty());
        let message = absolute(config).validate().unwrap_err().to_string();
        assert!(message.contains("`normalization`"), "{message}");
    }
    for kind in normalizing() {
        assert!(config(kind, 1).notes(true).is_empty(), "{kind:?} reads weights");
    }
}

#[test]
fn absolute_weights_train_the_same_on_ranks_and_on_batches() {
    let dataset = signed(151);
    for kind in normalizing() {
        for (scheme, ranks, replication) in [GRIDS[1], GRIDS[3], GRIDS[5]] {
            let ranks = options(scheme, ranks, replication, Exchange::Auto);
            assert_same(&dataset, &absolute(small(config(kind, 4))), &ranks);
        }
    }
    for kind in [ModelKind::Gcn, ModelKind::Sage] {
        let mut full = absolute(plain(kind, 2));
        full.model.layers = 2;
        let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![-1, -1], ..BatchConfig::default() };
        let sampled = TrainConfig { batch, batch_size: Some(1000), ..full.clone() };
        assert_same_training(&dataset, &full, &sampled, kind.name());
    }
    for kind in [BatchKind::Layer, BatchKind::Cluster, BatchKind::Saint] {
        let config = in_batches(absolute(small(config(ModelKind::Gcn, 2))), kind);
        assert!(train(dataset.clone(), &config).unwrap().runs[0].train_loss.is_finite(), "{kind:?}");
    }
}

#[test]
fn absolute_weights_give_outputs_that_differ_and_checkpoints_keep_them() {
    let dataset = signed(150);
    for kind in normalizing() {
        let folder = tempfile::tempdir().unwrap();
        train_into(folder.path(), dataset.clone(), &absolute(small(config(kind, 4))), None);
        let checkpoint = Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
        assert_eq!(checkpoint.progress.config.model.normalization, Degrees::Absolute);
        let (scores, _, logits) = apply(&Cpu::new(), dataset.clone(), &checkpoint).unwrap();
        assert_eq!(Some(scores), checkpoint.progress.best.map(|(_, scores)| scores), "{kind:?}");
        let column = |v: usize| logits.row(v)[0];
        let (least, most) =
            (0..150).map(column).fold((f32::MAX, f32::MIN), |(least, most), x| (least.min(x), most.max(x)));
        assert!(most - least > 1e-3, "{kind:?}: all logits are {least}");
    }
}

#[test]
fn of_weights_above_zero_absolute_ones_are_the_same() {
    let dataset = weighted(120, |u, v| 0.5 + ((u + v) % 3) as f32);
    for kind in normalizing() {
        let loss = |config: &TrainConfig| train(dataset.clone(), config).unwrap().runs[0].train_loss;
        assert_eq!(loss(&small(config(kind, 3))), loss(&absolute(small(config(kind, 3)))), "{kind:?}");
    }
}
