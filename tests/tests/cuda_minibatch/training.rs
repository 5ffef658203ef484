//! Runs on mini-batches, wherever graph and features are.

use girih_compute::testing::piece;
use girih_compute::{Cpu, Dtype};
use girih_datasets::{Dataset, Features, LoadOptions, load};
use girih_features::{CacheShares, HostReads, MiniBatchBackend};
use girih_graph_format::{Coo, Duplicates};
use girih_kernels::{Cuda, Device};
use girih_tests::{cuda, losses_of};
use girih_trainer::{
    Aggregator, BatchConfig, BatchKind, CacheConfig, Control, Event, ModelConfig, ModelKind, NormKind, Observer,
    ScoreBy, Scores, SessionOptions, TaskKind, TrainConfig, parse_codec, train,
};

fn planted() -> Dataset {
    load("synth:planted,nodes=1500,degree=12,features=24,classes=5", &LoadOptions::default()).expect("a data set")
}

fn config(kind: ModelKind, batch: BatchKind, change: impl FnOnce(&mut ModelConfig)) -> TrainConfig {
    let batch_size = (batch != BatchKind::Cluster).then_some(100);
    let mut config = TrainConfig { epochs: 4, batch_size, ..TrainConfig::for_model(kind) };
    config.model.dropout = 0.0;
    config.batch = BatchConfig { kind: batch, ..BatchConfig::default() };
    change(&mut config.model);
    config
}

fn losses<B: MiniBatchBackend>(backend: &B, config: &TrainConfig) -> Vec<f32> {
    losses_of(|observe| train(backend, planted(), config, &SessionOptions::default(), observe)).expect("training")
}

/// Cache configuration with shares of features and of rows of the graph on every device.
fn tiers(features: Option<f64>, topology: Option<f64>) -> CacheConfig {
    let on_every_gpu = |share: f64| CacheShares { every_gpu: share, one_gpu: 0.0 };
    CacheConfig { features: features.map(on_every_gpu), topology: topology.map(on_every_gpu), ..CacheConfig::default() }
}

/// Checks that a device learns as the CPU does. Each call is a case of a test.
fn check_run(cuda: &Cuda, config: &TrainConfig) {
    if piece([()]).next().is_none() {
        return;
    }
    let (found, expected) = (losses(cuda, config), losses(&Cpu::new(), config));
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        let off = (found - expected).abs() / expected.abs().max(1e-3);
        assert!(off < 2e-3, "{found} for {expected}: {:?}, {:?}", config.model, config.batch);
    }
}

#[test]
fn batches_of_a_device_teach_what_those_of_the_cpu_do() {
    let Some(cuda) = cuda() else { return };
    for kind in [ModelKind::Sage, ModelKind::Gcn, ModelKind::Gat, ModelKind::Gin] {
        check_run(&cuda, &config(kind, BatchKind::Neighbor, |_| {}));
    }
    let deep = |model: &mut ModelConfig| (model.layers, model.residual) = (3, true);
    check_run(&cuda, &config(ModelKind::Gcn, BatchKind::Neighbor, deep));
    check_run(&cuda, &config(ModelKind::Sage, BatchKind::Neighbor, |model| model.aggregator = Aggregator::Pool));
    let replace = config(ModelKind::Sage, BatchKind::Neighbor, |_| {});
    check_run(&cuda, &TrainConfig { batch: BatchConfig { replace: true, ..replace.batch.clone() }, ..replace });
    for batch in [BatchKind::Layer, BatchKind::Cluster, BatchKind::Saint] {
        check_run(&cuda, &config(ModelKind::Sage, batch, |_| {}));
    }
    let links = config(ModelKind::Sage, BatchKind::Neighbor, |_| {});
    check_run(&cuda, &TrainConfig { task: TaskKind::Links, ..links });
}

#[test]
fn batches_teach_the_same_bits_again() {
    let Some(cuda) = cuda() else { return };
    for precision in [Dtype::F32, Dtype::Bf16] {
        let cuda = Cuda::new(Device::open(0).expect("a device")).storing(precision);
        let sage = config(ModelKind::Sage, BatchKind::Neighbor, |model| model.dropout = 0.3);
        let sage = TrainConfig { precision, ..sage };
        assert_eq!(losses(&cuda, &sage), losses(&cuda, &sage));
    }
    drop(cuda);
}

#[test]
fn features_may_stay_on_the_host() {
    let Some(cuda) = cuda() else { return };
    let sage = config(ModelKind::Sage, BatchKind::Neighbor, |_| {});
    let cached = |share| TrainConfig { tiers: tiers(Some(share), None), ..sage.clone() };
    let expected = losses(&Cpu::new(), &sage);
    let in_bf16 = Cuda::new(Device::open(0).expect("a device")).storing(Dtype::Bf16);
    let reading =
        |config: TrainConfig, host_reads| TrainConfig { tiers: CacheConfig { host_reads, ..config.tiers }, ..config };
    let far = losses(&cuda, &cached(0.0));
    assert!(far.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 2e-3 * b), "{far:?} for {expected:?}");
    let rounded = TrainConfig { precision: Dtype::Bf16, ..cached(0.3) };
    let in_place = losses(&in_bf16, &reading(rounded.clone(), HostReads::InPlace));
    assert!(in_place.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 5e-2 * b), "{in_place:?} for {expected:?}");
    assert_eq!(losses(&in_bf16, &reading(rounded, HostReads::Staged)), in_place);
    for host_reads in [HostReads::Staged, HostReads::InPlace] {
        for share in piece([0.0, 0.3, 1.0]) {
            let found = losses(&cuda, &reading(cached(share), host_reads));
            assert_eq!(found, far, "where a row lies changes no bit: {host_reads}, {share}");
        }
    }
    // The host samples here, and reads the same memory.
    let mut replaced = cached(0.3);
    replaced.batch.replace = true;
    assert!(losses(&cuda, &replaced).iter().all(|loss| loss.is_finite()));
}

#[test]
fn neighbors_may_be_drawn_from_memory_of_the_host() {
    let Some(cuda) = cuda() else { return };
    for kind in [ModelKind::Sage, ModelKind::Gcn] {
        let all = config(kind, BatchKind::Neighbor, |_| {});
        let expected = losses(&cuda, &all);
        for (features, topology) in piece([(None, 0.0), (None, 0.4), (Some(0.2), 0.7), (Some(1.0), 1.0)]) {
            let placed = TrainConfig { tiers: tiers(features, Some(topology)), ..all.clone() };
            let found = losses(&cuda, &placed);
            // Features that are read by id are not an operand of the first layer, which then sums in another order.
            let far = |(a, b): (&f32, &f32)| if features.is_none() { a != b } else { (a - b).abs() > 2e-3 * b };
            assert!(!found.iter().zip(&expected).any(far), "{found:?} for {expected:?}, {features:?}, {topology}");
        }
        let nothing_ahead = BatchConfig { prefetch: 0, ..all.batch.clone() };
        assert_eq!(losses(&cuda, &TrainConfig { batch: nothing_ahead, ..all }), expected);
    }
    let codec = parse_codec("int8").unwrap();
    let on_host = config(ModelKind::Sage, BatchKind::Neighbor, |_| {});
    let refused = TrainConfig { codec, tiers: tiers(None, Some(0.5)), ..on_host };
    let refused = train(&cuda, planted(), &refused, &SessionOptions::default(), &mut |_| Control::Continue);
    let message = refused.map(drop).unwrap_err().to_string();
    assert!(message.contains("does not sample with these features"), "{message}");
}

/// Last scores of a run.
fn scores<B: MiniBatchBackend>(backend: &B, dataset: &Dataset, config: &TrainConfig) -> Scores {
    let mut last = None;
    train(backend, dataset.clone(), config, &SessionOptions::default(), &mut |event| {
        if let Event::Epoch { report, .. } = event {
            last = report.scores.or(last);
        }
        Control::Continue
    })
    .expect("training");
    last.expect("scores")
}

/// Adds a node with so many neighbors that its row is split into segments.
fn with_hub(dataset: &Dataset) -> Dataset {
    let n = dataset.n_nodes() as u32;
    let edges = (0..n).flat_map(|v| dataset.graph.row(v as usize).iter().map(move |&to| (v, to)));
    let star = (1..2500).flat_map(|v| [(0, v), (v, 0)]);
    let (rows, cols) = edges.chain(star).unzip();
    let graph = Coo::new(n as usize, n as usize, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap();
    Dataset { graph, ..dataset.clone() }
}

#[test]
fn scores_layer_by_layer_are_those_of_the_graph() {
    let Some(cuda) = cuda() else { return };
    let dataset = planted();
    // More nodes than a layer processes at a time.
    let spec = "synth:planted,nodes=70000,degree=5,features=12,classes=3";
    let large = load(spec, &LoadOptions::default()).expect("a data set");
    let with_hub = with_hub(&large);
    let by = |config: &TrainConfig, score_by, tiers| {
        let batch = BatchConfig { score_by: Some(score_by), ..config.batch.clone() };
        TrainConfig { batch, tiers, ..config.clone() }
    };
    let mut runs = Vec::new();
    for kind in [ModelKind::Sage, ModelKind::Gcn, ModelKind::Gat, ModelKind::Gin] {
        for batch in [BatchKind::Neighbor, BatchKind::Cluster] {
            runs.push((&dataset, config(kind, batch, |_| {})));
        }
    }
    let deep = |model: &mut ModelConfig| (model.layers, model.residual, model.norm) = (3, true, NormKind::Layer);
    runs.push((&dataset, config(ModelKind::Gcn, BatchKind::Neighbor, deep)));
    let large_batches = |kind| {
        let config = config(kind, BatchKind::Neighbor, |_| {});
        TrainConfig { batch_size: Some(20_000), epochs: 1, ..config }
    };
    runs.push((&large, large_batches(ModelKind::Sage)));
    runs.extend([ModelKind::Sage, ModelKind::Gcn, ModelKind::Gat].map(|kind| (&with_hub, large_batches(kind))));
    for (dataset, config) in piece(runs) {
        let expected = scores(&cuda, dataset, &by(&config, ScoreBy::Graph, CacheConfig::default()));
        let mut ways = vec![CacheConfig::default()];
        if config.batch.kind == BatchKind::Neighbor {
            ways.extend([tiers(Some(0.2), None), tiers(None, Some(0.3)), tiers(Some(0.0), Some(0.0))]);
        }
        for tiers in ways {
            let found = scores(&cuda, dataset, &by(&config, ScoreBy::Layers, tiers));
            for (found, expected) in [(found.val_loss, expected.val_loss), (found.test_loss, expected.test_loss)] {
                let (found, expected) = (found.unwrap(), expected.unwrap());
                let off = (found - expected).abs() / expected.abs().max(1e-3);
                assert!(
                    off < 5e-3,
                    "{found} for {expected}: {:?}, {:?}, {tiers:?}",
                    config.model.kind,
                    config.batch.kind
                );
            }
        }
    }
}

#[test]
fn rows_that_are_read_ahead_are_those_that_are_read_in_turn() {
    let Some(cuda) = cuda() else { return };
    let sage = config(ModelKind::Sage, BatchKind::Neighbor, |_| {});
    let ahead = TrainConfig { tiers: tiers(Some(0.3), None), ..sage };
    let in_turn = TrainConfig { batch: BatchConfig { prefetch: 0, ..ahead.batch.clone() }, ..ahead.clone() };
    assert_eq!(losses(&cuda, &ahead), losses(&cuda, &in_turn));
    // A run that stops inside an epoch leaves prefetched rows that are never used.
    let mut n_batches = 0;
    let outcome = train(&cuda, planted(), &ahead, &SessionOptions::default(), &mut |event| {
        n_batches += u32::from(matches!(event, Event::Batch { .. }));
        if n_batches == 2 { Control::Stop } else { Control::Continue }
    });
    assert!(outcome.is_ok());
    assert_eq!(losses(&cuda, &ahead), losses(&cuda, &in_turn));
}

#[test]
fn codes_are_decoded_on_the_device() {
    let Some(cuda) = cuda() else { return };
    let of = |kind| config(kind, BatchKind::Neighbor, |_| {});
    let pool = |model: &mut ModelConfig| model.aggregator = Aggregator::Pool;
    // First layers that aggregate features as they are sum codes directly; others need rows.
    for (codec, config) in piece([
        ("topk:3", of(ModelKind::Sage)),
        ("topk-residual:2", of(ModelKind::Sage)),
        ("int8", of(ModelKind::Sage)),
        ("topk:3", of(ModelKind::Gcn)),
        ("topk:3", of(ModelKind::Gat)),
        ("topk:3", config(ModelKind::Sage, BatchKind::Neighbor, pool)),
    ]) {
        let codec = parse_codec(codec).unwrap();
        let with = |cache| TrainConfig { codec, tiers: tiers(cache, None), ..config.clone() };
        let device = losses(&cuda, &with(None));
        for host_reads in [HostReads::Staged, HostReads::InPlace] {
            for cache in [0.0, 0.4] {
                let placed = with(Some(cache));
                let found = TrainConfig { tiers: CacheConfig { host_reads, ..placed.tiers }, ..placed };
                assert_eq!(losses(&cuda, &found), device, "where a code lies changes no bit: {host_reads}, {cache}");
            }
        }
        let expected = losses(&Cpu::new(), &with(None));
        assert!(device.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 2e-3 * b), "{device:?} for {expected:?}");
        let nothing_ahead = BatchConfig { prefetch: 0, ..config.batch.clone() };
        assert_eq!(losses(&cuda, &TrainConfig { batch: nothing_ahead, ..with(Some(0.4)) }), device);
    }
}

/// Features of a folder are copied from the mapped file and rounded on the way; they are never fully in memory.
#[test]
fn features_may_stay_in_a_mapped_file() {
    let Some(cuda) = cuda() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("data");
    planted().save(&path).expect("a folder is written");
    let spec = path.to_str().expect("a path in letters");
    let mapped = load(spec, &LoadOptions::default()).expect("a data set");
    let Some(Features::Dense(rows)) = &mapped.features else { panic!("dense features") };
    assert!(rows.buffer().is_mapped());
    for precision in [Dtype::F32, Dtype::Bf16] {
        let cuda = Cuda::new(Device::open(0).expect("a device")).storing(precision);
        for share in piece([0.0, 0.3]) {
            let tiers = CacheConfig { host_reads: HostReads::Staged, ..tiers(Some(share), None) };
            let config = TrainConfig { precision, tiers, ..config(ModelKind::Sage, BatchKind::Neighbor, |_| {}) };
            let from_file =
                |observe: &mut Observer<'_>| train(&cuda, mapped.clone(), &config, &SessionOptions::default(), observe);
            assert_eq!(losses_of(from_file).expect("training"), losses(&cuda, &config), "{share} on the device");
        }
    }
    drop(cuda);
}
