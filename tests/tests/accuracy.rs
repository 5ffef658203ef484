//! Accuracy on real graphs, with the settings of the papers.
//!
//! Bounds are below the published means by the variance of few runs, and above the scores of a broken model. The
//! control without a graph shows the accuracy of features alone.

use girih_datasets::{FeatureNorm, LoadOptions};
use girih_tests::{mean_test_accuracy, train_on_real, train_on_real_as};
use girih_trainer::{
    Aggregator, BatchConfig, BatchKind, ModelConfig, ModelKind, OptimizerConfig, TaskKind, TrainConfig,
};

/// Settings of Kipf and Welling: two layers, 16 hidden columns, dropout 0.5, Adam at 0.01, decay on the first layer.
fn planetoid(kind: ModelKind, runs: u64) -> TrainConfig {
    TrainConfig { model: ModelConfig { kind, ..ModelConfig::default() }, runs, ..TrainConfig::default() }
}

/// Checks the mean over runs, each of which trains the full number of epochs.
fn assert_mean_in(range: std::ops::Range<f64>, data: &str, config: &TrainConfig) {
    assert_mean_of(range, (data, LoadOptions::default()), config);
}

/// As [`assert_mean_in`], for data that is loaded with options.
fn assert_mean_of(range: std::ops::Range<f64>, (data, options): (&str, LoadOptions), config: &TrainConfig) {
    let Some(outcome) = train_on_real_as(data, config, options) else { return };
    assert_eq!(outcome.runs.len() as u64, config.runs);
    let mean = mean_test_accuracy(&outcome);
    println!("{} on {data}: {:.2} % over {} runs", config.model.kind.name(), 100.0 * mean, config.runs);
    assert!(range.contains(&mean), "{} on {data}: {mean}, expected {range:?}", config.model.kind.name());
}

#[test]
fn gcn_on_cora() {
    assert_mean_in(0.805..0.84, "cora", &planetoid(ModelKind::Gcn, 5));
}

#[test]
fn sgc_on_cora() {
    assert_mean_in(0.795..0.84, "cora", &planetoid(ModelKind::Sgc, 5));
}

#[test]
fn sage_on_cora() {
    assert_mean_in(0.78..0.84, "cora", &planetoid(ModelKind::Sage, 5));
}

/// Configuration with wider layers and more dropout than the others: its aggregators have their own weights.
fn sage_with(aggregator: Aggregator, runs: u64) -> TrainConfig {
    let config = planetoid(ModelKind::Sage, runs);
    TrainConfig { model: ModelConfig { aggregator, hidden: 64, dropout: 0.7, ..config.model }, ..config }
}

#[test]
fn sage_with_pooling_on_cora() {
    assert_mean_in(0.765..0.83, "cora", &sage_with(Aggregator::Pool, 5));
}

#[test]
fn sage_with_lstm_on_cora() {
    let config = TrainConfig { epochs: 120, ..sage_with(Aggregator::Lstm, 2) };
    assert_mean_in(0.765..0.83, "cora", &config);
}

/// Without the graph the accuracy is far lower: the other models use the graph.
#[test]
fn mlp_on_cora_is_the_control() {
    assert_mean_in(0.50..0.62, "cora", &planetoid(ModelKind::Mlp, 5));
}

/// The test index of Citeseer has gaps: a loader that shifts rows fails here.
#[test]
fn gcn_on_citeseer() {
    assert_mean_in(0.685..0.74, "citeseer", &planetoid(ModelKind::Gcn, 5));
}

#[test]
fn gcn_on_coauthor_physics() {
    let config = TrainConfig { epochs: 60, ..planetoid(ModelKind::Gcn, 2) };
    assert_mean_in(0.91..0.96, "coauthor-physics", &config);
}

/// Published: 95.83 ± 0.62 % (Schlichtkrull et al., ESWC 2018); a test person is 2.8 points. 42 % of the persons are of
/// the largest class.
#[test]
fn rgcn_on_aifb() {
    assert_mean_in(0.93..0.99, "hetero/aifb", &TrainConfig { runs: 10, ..TrainConfig::for_model(ModelKind::Rgcn) });
}

/// Published: 73.23 ± 0.48 %, with bases; 66 % of the molecules are of the larger class.
#[test]
fn rgcn_on_mutag() {
    let published = TrainConfig::for_model(ModelKind::Rgcn);
    let optimizer = OptimizerConfig { weight_decay: 5e-4, ..published.optimizer };
    let config = TrainConfig { optimizer, runs: 5, ..published };
    assert_mean_in(0.71..0.80, "hetero/mutag", &config);
}

/// Settings of the examples of other libraries: two layers of 64, the split with 60 labels a class. Features of words are
/// fractions, and nothing masks them.
fn of_node_types(kind: ModelKind, epochs: u64) -> (TrainConfig, LoadOptions) {
    let base = TrainConfig::for_model(kind);
    let model = ModelConfig { input_dropout: Some(0.0), ..base.model };
    let options = LoadOptions { feature_norm: Some(FeatureNorm::Sum), split: Some(2), ..LoadOptions::default() };
    (TrainConfig { model, epochs, patience: Some(20), ..base }, options)
}

/// PyG in the same settings: 87.4 ± 0.6 % (five runs).
#[test]
fn hsage_on_acm() {
    let (config, options) = of_node_types(ModelKind::Hsage, 100);
    assert_mean_of(0.86..0.92, ("hetero/acm", options), &config);
}

/// PyG in the same settings: 88.8 ± 2.1 % (five runs).
#[test]
fn rgat_on_acm() {
    let (config, options) = of_node_types(ModelKind::Rgat, 100);
    assert_mean_of(0.86..0.92, ("hetero/acm", options), &config);
}

/// PyG in the same settings: 94.5 ± 0.3 % (five runs).
#[test]
fn hsage_on_dblp() {
    let (config, options) = of_node_types(ModelKind::Hsage, 60);
    // Terms have rows with negative values, whose sums may be close to zero.
    let options = LoadOptions { feature_norm: Some(FeatureNorm::Length), ..options };
    assert_mean_of(0.92..0.96, ("hetero/dblp", options), &config);
}

/// The file is directed and ships no split: a loader without symmetrisation, or a split that leaks, fails here.
#[test]
fn gcn_on_amazon_computers() {
    let config = TrainConfig { epochs: 100, ..planetoid(ModelKind::Gcn, 1) };
    assert_mean_in(0.72..0.88, "amazon-computers", &config);
}

/// Short run in large batches at a higher rate. The published numbers (recall 0.1824, NDCG 0.1547) take many more
/// epochs. Popular items alone, the control, reach a recall of 0.042.
#[test]
fn lightgcn_on_gowalla() {
    let published = TrainConfig::for_model(ModelKind::LightGcn);
    let optimizer = OptimizerConfig { lr: 0.02, ..published.optimizer };
    let config = TrainConfig { optimizer, epochs: 4, eval_every: 4, batch_size: Some(32_768), ..published };
    let Some(outcome) = train_on_real("gowalla", &config) else { return };
    let ranking = outcome.runs[0].last.ranking.expect("test items were ranked");
    println!("lightgcn on gowalla: {ranking:?}");
    assert!((0.12..0.183).contains(&ranking.recall_at_20), "{ranking:?}");
    assert!((0.105..0.156).contains(&ranking.ndcg_at_20), "{ranking:?}");
}

/// Checks ROC-AUC on the test links of Cora. Auto-encoders of the same shape reach 0.91 ± 0.02 (Kipf and Welling,
/// 2016). Features alone, the control, reach less.
fn assert_links_of_cora(range: std::ops::Range<f64>, kind: ModelKind, batch: Option<BatchConfig>, epochs: u64) {
    let mut config = TrainConfig { epochs, ..TrainConfig::for_task(TaskKind::Links, kind) };
    if let Some(batch) = batch {
        config = TrainConfig { batch, batch_size: Some(512), ..config };
    }
    let Some(outcome) = train_on_real("cora", &config) else { return };
    let best = outcome.runs[0].best;
    let auc = best.test_roc_auc.expect("test links were scored");
    println!("{} on the links of cora, {} batches: {best:?}", kind.name(), config.batch.kind.name());
    assert!(range.contains(&auc), "{}: {auc}, expected {range:?}", kind.name());
}

#[test]
fn links_of_cora() {
    assert_links_of_cora(0.86..0.97, ModelKind::Gcn, None, 100);
    assert_links_of_cora(0.85..0.97, ModelKind::Sage, None, 100);
}

#[test]
fn links_of_cora_on_batches() {
    let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![15, 10], ..BatchConfig::default() };
    assert_links_of_cora(0.85..0.97, ModelKind::Sage, Some(batch), 10);
}

/// Published settings of a model, with fewer runs.
fn published(kind: ModelKind, runs: u64) -> TrainConfig {
    TrainConfig { runs, ..TrainConfig::for_model(kind) }
}

#[test]
fn gat_on_cora() {
    let config = TrainConfig { epochs: 250, ..published(ModelKind::Gat, 2) };
    assert_mean_in(0.81..0.85, "cora", &config);
}

#[test]
fn gatv2_on_cora() {
    let config = TrainConfig { epochs: 200, ..published(ModelKind::Gatv2, 1) };
    assert_mean_in(0.79..0.85, "cora", &config);
}

#[test]
fn ngcn_on_cora() {
    assert_mean_in(0.79..0.84, "cora", &published(ModelKind::Ngcn, 3));
}

#[test]
fn appnp_on_cora() {
    assert_mean_in(0.82..0.85, "cora", &published(ModelKind::Appnp, 3));
}

/// Short run.
#[test]
fn residual_gcn_on_tolokers() {
    let config = TrainConfig { epochs: 80, eval_every: 10, ..TrainConfig::heterophilous() };
    let Some(outcome) = train_on_real("tolokers", &config) else { return };
    let auc = outcome.over_runs(|run| run.best.test_roc_auc).expect("two classes").mean;
    assert!((0.74..0.87).contains(&auc), "test ROC-AUC {auc}");
}
