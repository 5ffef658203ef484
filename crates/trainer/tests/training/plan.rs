//! Plans predict what training then does.

use girih_compute::{Dtype, Rates};
use girih_datasets::Dataset;
use girih_features::CacheShares;
use girih_trainer::{
    BatchConfig, BatchKind, CacheConfig, DataSizes, ModelConfig, ModelKind, Plan, ScoreBy, TrainConfig,
};

use crate::{Stage, config, densified, planted, with_bags_of_words, with_input_dropout};

const RATES: Rates = Rates { stream_bytes: 1e10, gather_bytes: 2e10, flops: 1e11 };

fn plan(config: &TrainConfig, dataset: &Dataset) -> Plan {
    Plan::new(config, &DataSizes::of(dataset), RATES).unwrap()
}

#[test]
fn a_plan_knows_when_the_first_aggregation_is_a_constant() {
    let sparse = with_bags_of_words(&planted("nodes=300"));
    for dataset in [densified(&sparse), sparse] {
        for kind in ModelKind::classifiers().filter(|kind| kind.reads("aggregate_once")) {
            for (p, aggregate_once) in [(0.0, true), (0.0, false), (0.5, true)] {
                let mut config = with_input_dropout(config(kind, 10), p);
                config.model.aggregate_once = aggregate_once;
                let planned = plan(&config, &dataset).aggregates_once;
                let done = Stage::new(dataset.clone(), &config).inputs.propagated.is_some();
                assert_eq!(
                    planned,
                    done,
                    "{kind:?}, dropout {p}, once {aggregate_once}, sparse {}",
                    DataSizes::of(&dataset).feature_nnz.is_some()
                );
            }
        }
    }
}

#[test]
fn plans_grow_with_what_they_plan() {
    let (small, large) = (planted("nodes=1000"), planted("nodes=2000"));
    let base = config(ModelKind::Gcn, 10);
    let (one, two) = (plan(&base, &small), plan(&base, &large));
    assert!(two.input_bytes > one.input_bytes && two.peak_bytes > one.peak_bytes);
    assert_eq!(one.parameter_bytes, two.parameter_bytes, "parameters do not depend on the graph");
    assert!(one.peak_bytes >= one.input_bytes + one.parameter_bytes);

    let rounded = plan(&TrainConfig { precision: Dtype::Bf16, ..base.clone() }, &small);
    assert!(rounded.input_bytes < one.input_bytes);
    let longer = plan(&TrainConfig { epochs: 20, ..base }, &small);
    let epochs = |plan: &Plan| plan.total_seconds - plan.prepare_seconds;
    assert!((epochs(&longer) - 2.0 * epochs(&one)).abs() < 1e-6 * epochs(&longer));
}

/// Sizes of data whose rows of all nodes in every layer exceed any GPU.
fn large() -> DataSizes {
    DataSizes {
        n_nodes: 111_000_000,
        n_edges: 3_200_000_000,
        n_features: 128,
        n_classes: 172,
        n_train: 1_200_000,
        n_scored: 1_500_000,
        ..DataSizes::of(&planted("nodes=300"))
    }
}

#[test]
fn scores_layer_by_layer_need_no_room_for_rows_of_all_nodes() {
    let batch = |score_by| BatchConfig {
        kind: BatchKind::Neighbor,
        fanout: vec![15, 10, 5],
        score_by,
        ..BatchConfig::default()
    };
    let cached = CacheConfig { features: Some(CacheShares { every_gpu: 0.1, one_gpu: 0.0 }), ..CacheConfig::default() };
    let base = config(ModelKind::Sage, 1);
    let model = ModelConfig { layers: 3, hidden: 256, dropout: 0.0, ..base.model.clone() };
    let of = |score_by, tiers| {
        let config = TrainConfig {
            model: model.clone(),
            batch: batch(score_by),
            batch_size: Some(1024),
            precision: Dtype::Bf16,
            tiers,
            ..base.clone()
        };
        Plan::on_cuda(&config, &large())
    };
    let peak = |score_by, tiers| of(score_by, tiers).unwrap().peak_bytes as f64 / 1e9;
    let (graph, layers) = (Some(ScoreBy::Graph), Some(ScoreBy::Layers));
    assert!(peak(graph, cached) > 200.0, "{}", peak(graph, cached));
    // The sampled graph, a tenth of the features and a batch; rows of layers are on the host.
    assert!((15.0..40.0).contains(&peak(layers, cached)), "{}", peak(layers, cached));
    assert_eq!(peak(None, cached), peak(layers, cached));
    // Rows of two layers, and the features.
    let on_gpu = peak(layers, CacheConfig::default());
    assert!((150.0..200.0).contains(&on_gpu), "{on_gpu}");
}

/// Nodes with the most neighbors need more memory in layer-wise inference, but no more time, because they are few.
#[test]
fn scores_layer_by_layer_have_room_for_the_largest_nodes() {
    let batch = BatchConfig { kind: BatchKind::Neighbor, score_by: Some(ScoreBy::Layers), ..BatchConfig::default() };
    let config = TrainConfig { batch, ..config(ModelKind::Sage, 1) };
    let even = large();
    let skewed = DataSizes { n_edges_at_once: 100_000_000, ..even.clone() };
    let [even, skewed] = [even, skewed].map(|data| Plan::on_cuda(&config, &data).unwrap());
    assert_eq!(skewed.total_seconds, even.total_seconds);
    // At least two words per edge: one for the sampled edge, one for the product.
    let more = skewed.peak_bytes - even.peak_bytes;
    assert!((800_000_000 * 95 / 100..).contains(&more), "{more} bytes more");
}

#[test]
fn sizes_know_the_edges_of_the_largest_nodes() {
    let small = planted("nodes=300");
    assert_eq!(DataSizes::of(&small).n_edges_at_once, small.n_edges(), "all of them at once");
    let large = planted("nodes=40000");
    let mut degrees: Vec<u64> = large.graph.indptr().windows(2).map(|ends| ends[1] - ends[0]).collect();
    degrees.sort_unstable_by(|a, b| b.cmp(a));
    let most: u64 = degrees[..1 << 15].iter().sum();
    assert_eq!(DataSizes::of(&large).n_edges_at_once as u64, most);
}

#[test]
fn a_rank_needs_memory_for_its_share_of_a_step() {
    // Evaluation on the full graph takes more memory than steps, on one rank and on several.
    let peak = |config: &TrainConfig| Plan::on_cuda(config, &large()).unwrap().step_peak_bytes;
    let neighbor = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![10, 5], ..BatchConfig::default() };
    let neighbor = TrainConfig { batch: neighbor, ..config(ModelKind::Sage, 1) };
    assert_eq!(neighbor.of_one_rank(4).batch_size, Some(256));
    let clusters = BatchConfig {
        kind: BatchKind::Cluster,
        subgraphs_per_step: 6,
        clusters: Some(50_000),
        ..BatchConfig::default()
    };
    let clusters = TrainConfig { batch: clusters, ..config(ModelKind::Gcn, 1) };
    assert_eq!((clusters.of_one_rank(4).batch.subgraphs_per_step, clusters.of_one_rank(4).batch_size), (2, None));
    for config in [neighbor, clusters] {
        config.of_one_rank(4).validate().unwrap();
        assert_eq!(peak(&config.of_one_rank(1)), peak(&config));
        assert!(peak(&config.of_one_rank(4)) < peak(&config), "{:?}", config.batch);
    }
}

#[test]
fn cpus_have_one_memory() {
    let tiers = CacheConfig { topology: Some(CacheShares { every_gpu: 0.5, one_gpu: 0.0 }), ..CacheConfig::default() };
    let batch = BatchConfig { kind: BatchKind::Neighbor, ..BatchConfig::default() };
    let config = TrainConfig { tiers, batch, ..config(ModelKind::Sage, 1) };
    let refused = Plan::new(&config, &DataSizes::of(&planted("nodes=300")), RATES).unwrap_err().to_string();
    assert!(refused.contains("--topology-cache on the CPU"), "{refused}");
}
