//! Training on codes equals training on their decoded features, for all models, batches and ranks.

use std::time::Duration;

use girih_compress::{CodecSpec, CompressedFeatures, RowSource};
use girih_compute::{Cpu, Rates};
use girih_datasets::{Dataset, Features, LoadOptions, load};
use girih_features::CacheShares;
use girih_graph_format::Matrix;
use girih_partition::{Exchange, ProcessGrid, Scheme};
use girih_trainer::distributed::{RankJob, RankOptions, TrainJob};
use girih_trainer::{
    Aggregator, BatchConfig, BatchKind, CacheConfig, Checkpoint, Control, DataSizes, Event, ModelConfig, ModelKind,
    NormKind, OptimizerConfig, OptimizerKind, Plan, SessionOptions, TaskKind, TrainConfig, checkpoint_path,
};

use crate::{Stage, config, planted, train, train_into, with_bags_of_words, with_input_dropout};

const CODEC: CodecSpec = CodecSpec::Topk(8);

fn with_codec(config: &TrainConfig, codec: CodecSpec) -> TrainConfig {
    TrainConfig { codec: Some(codec), ..config.clone() }
}

/// Gradient descent with dropout, so that differences between two runs reflect differences of gradients. Adam would
/// divide these by the gradients' size.
fn descent(kind: ModelKind, epochs: u64) -> TrainConfig {
    let config = config(kind, epochs);
    // Unnormalised sums over neighbors and several layers of attention have steep losses.
    let lr = match kind {
        ModelKind::Gin => 0.0002,
        ModelKind::Rgat | ModelKind::Hgt => 0.005,
        _ => 0.05,
    };
    let optimizer = OptimizerConfig { kind: OptimizerKind::Sgd, lr, ..config.optimizer };
    TrainConfig { optimizer, ..config }
}

/// The data with codes as features, and with the decoded rows as features.
fn both(dataset: &Dataset) -> (Dataset, Dataset) {
    let encoded = dataset.features.clone().unwrap().encoded(CODEC, 0).unwrap();
    let Features::Compressed(codes) = &encoded else { panic!("compressed features") };
    let decoded = Features::Dense(decoded(codes));
    let with = |features| Dataset { features: Some(features), ..dataset.clone() };
    (with(encoded.clone()), with(decoded))
}

pub(crate) fn decoded(codes: &CompressedFeatures) -> Matrix {
    let mut values = vec![0.0; codes.n_rows() * codes.width()];
    codes.read_rows(0, &mut values).unwrap();
    Matrix::new(codes.n_rows(), codes.width(), values).unwrap()
}

/// Losses of all epochs, and the final score.
fn losses(dataset: &Dataset, config: &TrainConfig, ranks: Option<usize>) -> (Vec<f32>, f64) {
    let mut losses = Vec::new();
    let mut observe = |event: Event<'_>| {
        if let Event::Epoch { report, .. } = event {
            losses.push(report.train_loss);
        }
        Control::Continue
    };
    let (data, session) = (dataset.clone(), SessionOptions::default());
    let outcome = match ranks {
        None => girih_trainer::train(&Cpu::new(), data, config, &session, &mut observe),
        Some(ranks) => {
            let grid = ProcessGrid::new(Scheme::OneD, ranks, 1).unwrap();
            let ranks = RankOptions::new(grid, Exchange::Auto, Duration::from_secs(60));
            TrainJob::new(data, config, &ranks, &session, &mut observe).on_threads(Cpu::new)
        }
    };
    let last = outcome.unwrap().runs[0].last;
    (losses, last.test_accuracy.or(last.test_roc_auc).unwrap())
}

fn assert_same(dataset: &Dataset, config: &TrainConfig, ranks: Option<usize>, what: &str) {
    let (codes, dense) = both(dataset);
    let ((found, score), (expected, expected_score)) = (losses(&codes, config, ranks), losses(&dense, config, None));
    assert_eq!(found.len(), expected.len());
    for (epoch, (a, b)) in expected.iter().zip(&found).enumerate() {
        assert!((a - b).abs() <= 2e-5 * a.abs().max(0.1), "{what}: the loss of epoch {epoch} is {b} instead of {a}");
    }
    assert!((score - expected_score).abs() < 0.02, "{what}: scores differ");
}

/// Data with rows so wide that they are decoded in several blocks.
fn wide() -> Dataset {
    load("synth:planted,degree=10,nodes=700,features=4000,classes=4,signal=8", &LoadOptions::default()).unwrap()
}

#[test]
fn every_model_trains_on_codes_as_on_what_they_decode_to() {
    let dataset = wide();
    for kind in ModelKind::classifiers() {
        for input_dropout in [0.0, 0.5] {
            let config = with_input_dropout(descent(kind, 4), input_dropout);
            assert_same(&dataset, &config, None, &format!("{kind:?}, input dropout {input_dropout}"));
        }
        if !kind.reads_relations() {
            assert_same(&dataset, &descent(kind, 3), Some(2), &format!("{kind:?} on two ranks"));
        }
    }
}

#[test]
fn stacks_and_aggregators_do_too() {
    let dataset = planted("nodes=307");
    let of = |model: ModelConfig| TrainConfig { model, ..descent(ModelKind::Gcn, 4) };
    for aggregator in [Aggregator::Pool, Aggregator::Lstm] {
        let model = ModelConfig { kind: ModelKind::Sage, aggregator, hidden: 8, ..ModelConfig::default() };
        assert_same(&dataset, &of(model), None, &format!("{aggregator:?}"));
    }
    for (kind, norm) in [(ModelKind::Gcn, NormKind::Layer), (ModelKind::Gin, NormKind::Batch)] {
        let model = ModelConfig { kind, norm, residual: true, layers: 3, ..ModelConfig::default() };
        assert_same(&dataset, &of(model), None, &format!("{kind:?}, residual"));
    }
    let wider = ModelConfig { hidden: 100, ..ModelConfig::default() };
    assert_same(&dataset, &of(wider), None, "a first layer that widens");
}

#[test]
fn every_kind_of_batch_does_too() {
    let dataset = planted("nodes=500");
    let kinds = [BatchKind::Neighbor, BatchKind::Layer, BatchKind::Cluster, BatchKind::Saint];
    for kind in [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat, ModelKind::Gatv2, ModelKind::Gin] {
        for batch in kinds {
            for input_dropout in [0.0, 0.5] {
                let fanout = if batch.has_blocks() { vec![4, 3] } else { Vec::new() };
                let batch = BatchConfig { kind: batch, fanout, ..BatchConfig::default() };
                let batch_size = (batch.kind != BatchKind::Cluster).then_some(60);
                let base = with_input_dropout(descent(kind, 2), input_dropout);
                let config = TrainConfig { batch: batch.clone(), batch_size, ..base };
                let what = format!("{kind:?}, {:?} batches, input dropout {input_dropout}", batch.kind);
                assert_same(&dataset, &config, None, &what);
            }
        }
    }
    let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![-1, -1], ..BatchConfig::default() };
    let shared = TrainConfig { batch, ..with_input_dropout(descent(ModelKind::Sage, 2), 0.0) };
    let shared = TrainConfig { model: ModelConfig { dropout: 0.0, ..shared.model }, ..shared };
    assert_same(&dataset, &shared, Some(2), "neighbor batches on two ranks");
}

#[test]
fn links_are_predicted_from_codes_too() {
    let dataset = planted("nodes=300");
    let full = TrainConfig { epochs: 3, ..TrainConfig::for_task(TaskKind::Links, ModelKind::Gcn) };
    assert_same(&dataset, &full, None, "links");
    let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![4, 3], ..BatchConfig::default() };
    assert_same(&dataset, &TrainConfig { batch, batch_size: Some(200), ..full }, None, "links in batches");
}

/// The configuration's codec equals a codec of the data, for dense and sparse features and existing codes.
#[test]
fn a_codec_in_the_configuration_encodes_what_is_not_encoded() {
    let sparse = with_bags_of_words(&planted("nodes=300"));
    for dataset in [planted("nodes=300"), sparse] {
        for codec in ["f16", "int8", "topk:8", "topk-residual:8", "pca:6", "pq:6", "auto:16"] {
            let config = with_codec(&config(ModelKind::Sage, 3), codec.parse().unwrap());
            let features = dataset.features.clone().unwrap().encoded(config.codec.unwrap(), config.seed).unwrap();
            let encoded = Dataset { features: Some(features), ..dataset.clone() };
            let plain = TrainConfig { codec: None, ..config.clone() };
            let (by_config, by_hand) = (losses(&dataset, &config, None), losses(&encoded, &plain, None));
            assert_eq!(by_config, by_hand, "{codec}");
            assert_eq!(losses(&encoded, &config, None), by_hand, "{codec}, asked for again");
        }
    }
}

#[test]
fn a_checkpoint_keeps_the_codec() {
    let (dataset, folder) = (planted("nodes=300"), tempfile::tempdir().unwrap());
    let config = with_codec(&config(ModelKind::Gcn, 6), CODEC);
    let outcome = train_into(folder.path(), dataset.clone(), &config, Some(3));
    assert!(outcome.stopped);
    let resumed = train_into(folder.path(), dataset.clone(), &config, None);
    assert_eq!(resumed.runs, train(dataset.clone(), &config).unwrap().runs);

    let checkpoint = Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
    assert_eq!(checkpoint.progress.config.codec, Some(CODEC));
    let (scores, ..) = girih_trainer::apply(&Cpu::new(), dataset.clone(), &checkpoint).unwrap();
    assert_eq!(scores.test_accuracy, resumed.runs[0].best.test_accuracy);
    let options =
        SessionOptions { checkpoints: Some(folder.path().to_owned()), resume: true, ..SessionOptions::default() };
    let other = with_codec(&config, CodecSpec::Int8);
    let error = girih_trainer::train(&Cpu::new(), dataset, &other, &options, &mut |_| Control::Continue).unwrap_err();
    assert!(error.to_string().contains("other"), "{error}");
}

#[test]
fn unsupported_settings_of_codecs_are_refused() {
    let dataset = planted("nodes=300");
    let refused = |dataset: &Dataset, config: &TrainConfig, parts: &[&str]| {
        let error = train(dataset.clone(), config).unwrap_err().to_string();
        parts.iter().for_each(|part| assert!(error.contains(part), "no {part:?}: {error}"));
    };
    let gcn = config(ModelKind::Gcn, 2);
    refused(&both(&dataset).0, &with_codec(&gcn, CodecSpec::Int8), &["topk:8", "int8", "already"]);
    refused(&dataset, &with_codec(&gcn, CodecSpec::Topk(0)), &["codec", "1 to 128"]);
    refused(&dataset, &with_codec(&gcn, CodecSpec::Pca(49)), &["pca:49", "48"]);
    let recommender = TrainConfig::for_model(ModelKind::LightGcn);
    refused(&dataset, &with_codec(&recommender, CODEC), &["codec", "lightgcn"]);
    let bare = Dataset { features: None, ..dataset };
    refused(&bare, &with_codec(&gcn, CODEC), &["has no features"]);
}

#[test]
fn a_configuration_names_its_codec_as_users_do() {
    let config = with_codec(&config(ModelKind::Gcn, 2), CodecSpec::TopkResidual(4));
    let text = serde_json::to_string(&config).unwrap();
    assert!(text.contains(r#""codec":"topk-residual:4""#), "{text}");
    assert_eq!(serde_json::from_str::<TrainConfig>(&text).unwrap(), config);
    assert!(!serde_json::to_string(&TrainConfig::default()).unwrap().contains("codec"));
    assert_eq!(serde_json::from_str::<TrainConfig>(r#"{"codec":"none"}"#).unwrap(), TrainConfig::default());
    let error = serde_json::from_str::<TrainConfig>(r#"{"codec":"zip"}"#).unwrap_err().to_string();
    assert!(error.contains("topk:K") && error.contains("none"), "{error}");
}

/// Half precision changes almost nothing, a small code book changes more. Every layer is reported.
#[test]
fn layers_on_codes_are_compared_with_those_on_features() {
    let (dataset, folder) = (planted("nodes=300"), tempfile::tempdir().unwrap());
    let cpu = Cpu::new();
    for (kind, n_layers) in [(ModelKind::Sage, 2), (ModelKind::Gat, 2), (ModelKind::Sgc, 1), (ModelKind::Appnp, 3)] {
        let folder = folder.path().join(kind.name());
        std::fs::create_dir(&folder).unwrap();
        let config = with_codec(&config(kind, 5), CODEC);
        train_into(&folder, dataset.clone(), &config, None);
        let checkpoint = Checkpoint::load(&checkpoint_path(&folder, 0)).unwrap();
        let compare = |codec| girih_trainer::similarity(&cpu, dataset.clone(), &checkpoint, codec).unwrap();
        let (half, few) = (compare(Some(CodecSpec::F16)), compare(None));
        assert_eq!((few.codec, few.initial.len(), few.trained.len()), (CODEC, n_layers, n_layers), "{kind:?}");
        for (half, few) in [(&half.initial, &few.initial), (&half.trained, &few.trained)] {
            assert!(half.iter().all(|cosine| (0.9999..1.0001).contains(cosine)), "{kind:?}: {half:?}");
            // SGC's weights start at zero, and so do its logits.
            let starts_at_zero = kind == ModelKind::Sgc && *few == [1.0];
            let differ = few.iter().all(|cosine| (0.3..0.9999).contains(cosine));
            assert!(starts_at_zero || differ, "{kind:?}: {few:?}");
        }
        assert!(half.inputs > 0.9999 && (0.5..0.99).contains(&few.inputs), "{kind:?}: {}", few.inputs);
        assert_ne!(few.initial, few.trained, "{kind:?}");

        let refused = girih_trainer::similarity(&cpu, both(&dataset).0, &checkpoint, None).unwrap_err().to_string();
        assert!(refused.contains("compressed already"), "{refused}");
    }
    let plain = folder.path().join("plain");
    std::fs::create_dir(&plain).unwrap();
    train_into(&plain, dataset.clone(), &config(ModelKind::Gcn, 2), None);
    let checkpoint = Checkpoint::load(&checkpoint_path(&plain, 0)).unwrap();
    let error = girih_trainer::similarity(&cpu, dataset, &checkpoint, None).unwrap_err().to_string();
    assert!(error.contains("name one"), "{error}");
}

/// Plans are equal for existing and future codes. Codes replace the features, and nothing is aggregated before
/// training.
#[test]
fn a_plan_counts_codes() {
    let (dataset, rates) = (wide(), Rates { stream_bytes: 1e10, gather_bytes: 2e10, flops: 1e11 });
    for kind in ModelKind::classifiers() {
        let base = with_input_dropout(config(kind, 10), 0.0);
        let plan = |config: &TrainConfig, dataset: &Dataset| Plan::new(config, &DataSizes::of(dataset), rates).unwrap();
        let (codes, _) = both(&dataset);
        let (dense, later, now) =
            (plan(&base, &dataset), plan(&with_codec(&base, CODEC), &dataset), plan(&base, &codes));
        assert_eq!(later, now, "{kind:?}");
        let done = Stage::new(codes, &base).inputs.propagated.is_some();
        assert_eq!(now.aggregates_once, done, "{kind:?}");
        if kind != ModelKind::Sgc && !kind.reads_relations() {
            assert!(now.input_bytes + 700 * 3900 * 4 < dense.input_bytes, "{kind:?}: {now:?} {dense:?}");
        }
    }
}

/// A CPU has one memory: cache settings leave codes in place, and results report this.
#[test]
fn tiers_of_a_cpu_are_its_memory() {
    let dataset = planted("nodes=300");
    let cached = Some(CacheShares { every_gpu: 0.5, one_gpu: 0.0 });
    for kind in [BatchKind::Neighbor, BatchKind::Cluster] {
        let batch_size = (kind == BatchKind::Neighbor).then_some(50);
        let batch = BatchConfig { kind, ..BatchConfig::default() };
        let tiers = CacheConfig { features: cached, ..CacheConfig::default() };
        let codec = Some("topk:4".parse().unwrap());
        let config = TrainConfig { batch, batch_size, tiers, codec, ..config(ModelKind::Sage, 1) };
        let outcome = train(dataset.clone(), &config).unwrap();
        let [share] = &outcome.tiers[..] else { panic!("{:?}", outcome.tiers) };
        assert_eq!((share.of, share.tier.name(), share.n_nodes, share.reads), ("features", "host", 300, 1.0));
    }
}
