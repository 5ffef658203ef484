//! Compares training on mini-batches on a CUDA device, rows of sampled blocks and whole runs, with the CPU. Without a
//! device the tests report that and pass, unless `GIRIH_REQUIRE_GPU` is set: `cargo xtask gpu-test` sets it.

use std::time::{Duration, Instant};

use girih_compress::CompressedFeatures;
use girih_compute::prelude::*;
use girih_compute::testing::piece;
use girih_compute::{Cpu, Dtype, Epilogue, Reference, Shape, SparseOperand, Transpose};
use girih_datasets::{Dataset, Features, LoadOptions, load};
use girih_features::{
    CacheShares, FeatureDevice, FeatureStore, HostReads, MiniBatchBackend, Placement, SamplingDevice,
};
use girih_graph_format::{Coo, Csr, Duplicates, Matrix, NodeId, Norm, Scales};
use girih_kernels::{Cuda, Device};
use girih_sampling::{Columns, DrawKey, Expand, NeighborOptions, NeighborSampler, Sampler};
use girih_tests::batches::{check_batch, graph};
use girih_tests::{cuda, losses_of};
use girih_trainer::{
    Adjacency, Aggregator, BatchConfig, BatchKind, CacheConfig, Control, Event, ModelConfig, ModelKind, Neighborhoods,
    NormKind, Observer, ScoreBy, Scores, SessionOptions, TaskKind, TrainConfig, parse_codec, train,
};

fn sampler(fan_out: &str, inputs: Columns, expand: Expand) -> NeighborSampler {
    let options = NeighborOptions { edge_ids: true, inputs, expand, ..NeighborOptions::default() };
    NeighborSampler::new(fan_out.parse().unwrap(), options).unwrap()
}

#[test]
fn rows_of_the_device_are_those_of_the_host() {
    let Some(cuda) = cuda() else { return };
    for (weighted, self_loops, norm) in [
        (false, false, Norm::Row),
        (false, true, Norm::Symmetric),
        (false, false, Norm::None),
        (true, true, Norm::Symmetric),
        (true, false, Norm::Row),
    ] {
        let graph = graph(600, weighted);
        let neighborhoods = Neighborhoods::new(&graph, Adjacency::new(self_loops, norm)).unwrap();
        let on_device = cuda.neighbor_graph(&neighborhoods.operand()).unwrap().unwrap();
        for (fan_out, inputs, expand) in [
            ("5,3", Columns::Local, Expand::PerLayer),
            ("4,3,2", Columns::Global, Expand::PerLayer),
            ("-1,2", Columns::Local, Expand::PerLayer),
            ("6,3,2", Columns::Local, Expand::Once),
            ("40,2", Columns::Global, Expand::Once),
        ] {
            let sampler = sampler(fan_out, inputs, expand);
            let mut source = on_device.source(&cuda, &sampler, 64).unwrap().unwrap();
            for (batch, n_seeds) in piece([(0, 64), (1, 7), (2, 1), (3, 33)]) {
                let seeds: Vec<NodeId> = (0..n_seeds).map(|i| (i * 37 + batch * 5) % 600).collect();
                let key = DrawKey::new(9, 2, batch);
                source.request(&seeds, key).unwrap();
                let found = source.take().unwrap();
                let expected = sampler.sample(neighborhoods.graph(), &seeds, key).unwrap();
                check_batch(&cuda, &found, &expected.blocks, &neighborhoods);
                let n_inputs = if inputs == Columns::Global { 600 } else { expected.inputs().len() };
                assert_eq!((found.n_inputs, found.inputs.is_none()), (n_inputs, inputs == Columns::Global));
            }
        }
    }
}

/// Sources with long transposed rows. One occurs in nearly every row: its list is longer than those that the host
/// splits into segments. The others are about as long as the lists that single threads and thread blocks sort.
#[test]
fn columns_may_be_long() {
    let Some(cuda) = cuda() else { return };
    let n = 3000u32;
    let sizes = [2800, 127, 128, 129, 255, 256, 257, 700];
    let named = |v: u32| {
        let hubs = sizes.iter().enumerate().filter(move |&(_, &size)| v < size).map(|(hub, _)| hub as u32);
        hubs.chain([n - 1 - v % 100]).map(move |to| (v, to))
    };
    let (rows, cols) = (0..n).flat_map(named).unzip();
    let graph = Coo::new(n as usize, n as usize, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap();
    let neighborhoods = Neighborhoods::new(&graph, Adjacency::new(false, Norm::Row)).unwrap();
    let sampler = sampler("-1", Columns::Local, Expand::PerLayer);
    let on_device = cuda.neighbor_graph(&neighborhoods.operand()).unwrap().unwrap();
    let mut source = on_device.source(&cuda, &sampler, 2800).unwrap().unwrap();
    let (seeds, key): (Vec<NodeId>, _) = ((0..2800).collect(), DrawKey::new(1, 0, 0));
    source.request(&seeds, key).unwrap();
    let found = source.take().unwrap();
    let expected = sampler.sample(&graph, &seeds, key).unwrap();
    check_batch(&cuda, &found, &expected.blocks, &neighborhoods);
}

#[test]
fn what_was_not_asked_for_is_not_given() {
    let Some(cuda) = cuda() else { return };
    let graph = graph(60, false);
    let neighborhoods = Neighborhoods::new(&graph, Adjacency::new(false, Norm::Row)).unwrap();
    let sampler = sampler("2", Columns::Local, Expand::PerLayer);
    let on_device = cuda.neighbor_graph(&neighborhoods.operand()).unwrap().unwrap();
    let mut source = on_device.source(&cuda, &sampler, 4).unwrap().unwrap();
    assert!(source.take().is_err());
    let key = DrawKey::new(1, 0, 0);
    assert!(source.request(&[1, 60], key).is_err_and(|error| error.to_string().contains("60")));
    assert!(source.take().is_err());
    source.request(&[5, 5], key).unwrap();
    assert!(source.take().is_err_and(|error| error.to_string().contains("seed twice")));
    source.request(&[5, 6], key).unwrap();
    assert_eq!(source.take().unwrap().blocks[0].n_destinations, 2);
    let with_replacement = NeighborOptions { replace: true, ..NeighborOptions::default() };
    let sampler = NeighborSampler::new("2".parse().unwrap(), with_replacement).unwrap();
    assert!(on_device.source(&cuda, &sampler, 4).unwrap().is_none());
}

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
    let on_every_card = |share: f64| CacheShares { every_gpu: share, one_gpu: 0.0 };
    CacheConfig {
        features: features.map(on_every_card),
        topology: topology.map(on_every_card),
        ..CacheConfig::default()
    }
}

/// Placement of a share of `n_nodes` nodes, the last ones, on a device.
fn placement(n_nodes: NodeId, every_gpu: f64) -> Placement {
    let order: Vec<NodeId> = (0..n_nodes).rev().collect();
    Placement::of_shares(&order, CacheShares { every_gpu, one_gpu: 0.0 }, 1)
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
fn batches_of_a_device_teach_what_those_of_the_processor_do() {
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
fn neighbours_may_be_drawn_from_memory_of_the_host() {
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

/// Adds a node with so many neighbours that its row is split into segments.
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
fn rows_that_a_device_writes_to_the_host_are_read_as_they_were() {
    let Some(cuda) = cuda() else { return };
    for (cols, dtype) in [(16, Dtype::F32), (5, Dtype::F32), (40, Dtype::Bf16), (3, Dtype::Bf16)] {
        let values =
            |first: usize, n: usize| (first * cols..(first + n) * cols).map(|i| (i % 127) as f32 - 60.0).collect();
        let mut store = cuda.row_store(Shape::new(300, cols), dtype, false).unwrap().expect("memory of the host");
        for (first, n) in [(0, 130), (130, 1), (131, 169)] {
            let rows = cuda.upload(&Matrix::new(n, cols, values(first, n)).unwrap(), dtype).unwrap();
            store.write(&cuda, first, &rows).unwrap();
        }
        let ids: Vec<NodeId> = (0..500).map(|i| (i * 13 + 5) % 300).collect();
        let mut out = cuda.zeros(Shape::new(ids.len(), cols), dtype).unwrap();
        store.gather(&cuda, &cuda.upload_ids(&ids).unwrap(), &mut out).unwrap();
        let all: Vec<f32> = values(0, 300);
        let found = cuda.download(&out).unwrap();
        let as_written =
            |(row, &id): (usize, &NodeId)| found.row(row) == &all[id as usize * cols..(id as usize + 1) * cols];
        assert!(ids.iter().enumerate().all(as_written), "{cols} columns of {}", dtype.name());
        let other = if dtype == Dtype::F32 { Dtype::Bf16 } else { Dtype::F32 };
        for (first, n, cols, dtype) in [(299, 2, cols, dtype), (0, 1, cols + 1, dtype), (0, 1, cols, other)] {
            let rows = cuda.zeros(Shape::new(n, cols), dtype).unwrap();
            assert!(store.write(&cuda, first, &rows).is_err_and(|error| error.to_string().contains("a store of 300")));
        }
    }
    assert!(Cpu::new().row_store(Shape::new(1, 1), Dtype::F32, false).unwrap().is_none());
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

#[test]
fn rows_by_id_are_what_the_host_decodes() {
    let Some(cuda) = cuda() else { return };
    let ids: Vec<NodeId> = (0..700).map(|i| (i * 13 + 5) % 300).collect();
    for (width, codec) in [(600, "topk:8"), (300, "topk-residual:5"), (7, "topk:2"), (7, "topk:4"), (20, "topk:100")] {
        let values = (0..300 * width).map(|i| ((i * 7919 + 13) % 1009) as f32 / 64.0 - 8.0).collect::<Vec<_>>();
        let rows = Matrix::new(300, width, values).unwrap();
        let codes = CompressedFeatures::fitted(parse_codec(codec).unwrap().unwrap(), &rows, 1).unwrap();
        let on_device = cuda.upload_ids(&ids).unwrap();
        let mut expected = vec![0.0; ids.len() * width];
        codes.gather(&ids, &mut expected).unwrap();
        for (share, reads) in [
            (None, HostReads::Auto),
            (Some(0.0), HostReads::Staged),
            (Some(0.01), HostReads::Staged),
            (Some(1.0), HostReads::Staged),
            (Some(0.0), HostReads::InPlace),
            (Some(0.01), HostReads::InPlace),
        ] {
            let placement = share.map(|share| placement(300, share));
            let placed = placement.as_ref().map(|placement| (placement, reads));
            let reader = cuda.code_rows(&codes, Dtype::F32, placed).unwrap().expect("a code book");
            let mut out = cuda.zeros(Shape::new(ids.len(), width), Dtype::F32).unwrap();
            reader.gather(&cuda, &on_device, &mut out).unwrap();
            assert_eq!(cuda.download(&out).unwrap().data(), expected, "{codec} of {width} features");
            let mut halves = cuda.zeros(Shape::new(ids.len(), width), Dtype::Bf16).unwrap();
            assert!(reader.gather(&cuda, &on_device, &mut halves).is_err());
        }
        for (dtype, share, reads) in [
            (Dtype::F32, 0.5, HostReads::InPlace),
            (Dtype::F32, 0.5, HostReads::Staged),
            (Dtype::F32, 0.0, HostReads::Staged),
            (Dtype::Bf16, 0.5, HostReads::InPlace),
            (Dtype::Bf16, 0.5, HostReads::Staged),
            (Dtype::Bf16, 0.0, HostReads::Staged),
        ] {
            let far =
                cuda.host_features(&rows, dtype, (&placement(300, share), reads)).unwrap().expect("memory of the host");
            let mut out = cuda.zeros(Shape::new(ids.len(), width), dtype).unwrap();
            far.reader.begin(&cuda, &on_device, None, &mut out).unwrap();
            far.reader.finish(&cuda).unwrap();
            let mut on_host = vec![0.0; width];
            let all = cuda.download(&out).unwrap();
            assert!(ids.iter().enumerate().all(|(row, &id)| {
                far.on_host.read(id as usize, &mut on_host);
                all.row(row) == on_host
            }));
        }
    }
    let (one, nowhere) = (Matrix::new(1, 1, vec![1.0]).unwrap(), placement(1, 0.0));
    assert!(Cpu::new().host_features(&one, Dtype::F32, (&nowhere, HostReads::Auto)).unwrap().is_none());
}

/// Block of 90 rows: one is longer than rows that are split into segments, one is empty.
fn block(n_columns: usize) -> Csr {
    let columns_of = |row: usize| match row {
        0 => (0..n_columns).collect::<Vec<_>>(),
        1 => Vec::new(),
        _ => (0..row % 40).map(|k| (row * 7 + k * 13) % n_columns).collect(),
    };
    let entries = (0..90).flat_map(|row| columns_of(row).into_iter().map(move |column| (row as u32, column as u32)));
    let (rows, columns) = entries.unzip();
    let block = Coo::new(90, n_columns, rows, columns, None).unwrap().to_csr(Duplicates::Merge).unwrap();
    assert!(block.degree(0) > 1024);
    block
}

#[test]
fn sums_of_codes_are_those_of_the_rows_that_they_stand_for() {
    let Some(cuda) = cuda() else { return };
    let ids: Vec<NodeId> = (0..1500).map(|i| (i * 13 + 5) % 300).collect();
    let plain = block(ids.len());
    let weights: Vec<f32> = (0..plain.nnz()).map(|e| 0.5 + (e % 5) as f32 / 4.0).collect();
    let weighted = plain.clone().with_values(Some(weights.into())).unwrap();
    let of_rows = Scales { left: Some((0..90).map(|row| 1.0 / (row + 1) as f32).collect()), right: None };
    let of_both = Scales { right: Some((0..1500).map(|column| (column % 7) as f32).collect()), ..of_rows.clone() };
    let blocks = [(&plain, Scales::default()), (&plain, of_rows), (&weighted, of_both)];
    for (width, codec, dtype) in [
        (600, "topk:8", Dtype::F32),
        (600, "topk:8", Dtype::Bf16),
        (300, "topk-residual:5", Dtype::F32),
        (300, "topk-residual:5", Dtype::Bf16),
        (7, "topk:2", Dtype::F32),
        // An odd number of bytes per row.
        (7, "topk:4", Dtype::F32),
        (20, "topk:100", Dtype::Bf16),
    ] {
        let values = (0..300 * width).map(|i| ((i * 7919 + 13) % 1009) as f32 / 64.0 - 8.0).collect::<Vec<_>>();
        let codes = parse_codec(codec).unwrap().unwrap();
        let codes = CompressedFeatures::fitted(codes, &Matrix::new(300, width, values).unwrap(), 1).unwrap();
        let on_device = cuda.upload_ids(&ids).unwrap();
        let mut decoded = cuda.zeros(Shape::new(ids.len(), width), dtype).unwrap();
        cuda.code_rows(&codes, dtype, None).unwrap().unwrap().gather(&cuda, &on_device, &mut decoded).unwrap();
        let rows = cuda.download(&decoded).unwrap();
        for (csr, scales) in &blocks {
            let operand = SparseOperand { csr, scales: scales.clone(), symmetric: false, names: None };
            let expected = Reference.upload_sparse(&operand).and_then(|block| {
                let x = Reference.upload(&rows, Dtype::F32)?;
                let mut out = Reference.zeros(Shape::new(90, width), Dtype::F32)?;
                Reference.spmm((&block, Transpose::No), None, &x, Epilogue::default(), &mut out)?;
                Reference.download(&out)
            });
            let (expected, block) = (expected.unwrap(), cuda.upload_sparse(&operand).unwrap());
            let mut first: Option<Matrix> = None;
            for (share, reads) in [
                (None, HostReads::Auto),
                (Some(0.0), HostReads::Staged),
                (Some(0.3), HostReads::Staged),
                (Some(1.0), HostReads::Staged),
                (Some(0.0), HostReads::InPlace),
                (Some(0.3), HostReads::InPlace),
            ] {
                let placement = share.map(|share| placement(300, share));
                let reader = cuda.code_rows(&codes, dtype, placement.as_ref().map(|placement| (placement, reads)));
                let reader = reader.unwrap().expect("a code book");
                let of_codes = reader.sums().expect("rows that fit");
                let mut own = cuda.zeros(Shape::new(90, width), dtype).unwrap();
                let mut sums = [(); 2].map(|()| cuda.zeros(Shape::new(90, width), dtype).unwrap());
                // Two requests are in flight at a time; the second one does not ask for the features of its own rows.
                (0..2).for_each(|_| of_codes.begin(&cuda, &on_device).unwrap());
                of_codes.finish(&cuda, (&block, &on_device), Some(&mut own), &mut sums[0]).unwrap();
                of_codes.finish(&cuda, (&block, &on_device), None, &mut sums[1]).unwrap();
                let what = format!("{codec} of {width} features as {}, {share:?}, {reads}", dtype.name());
                let [found, again] = sums.each_ref().map(|sums| cuda.download(sums).unwrap());
                assert_eq!(found.data(), again.data(), "{what}");
                assert_eq!(cuda.download(&own).unwrap().data(), &rows.data()[..90 * width], "{what}");
                assert_eq!(
                    found.data(),
                    first.get_or_insert(found.clone()).data(),
                    "where codes lie changes no bit: {what}"
                );
                let largest = expected.data().iter().fold(1.0, |most: f32, value| most.max(value.abs()));
                let bound = largest * if dtype == Dtype::F32 { 1e-5 } else { 5e-3 };
                let far = found.data().iter().zip(expected.data()).find(|(a, b)| (*a - *b).abs() > bound);
                assert!(far.is_none(), "{what}: {far:?}");
                // An output of the wrong shape is refused, and its request is over.
                of_codes.begin(&cuda, &on_device).unwrap();
                let mut narrow = cuda.zeros(Shape::new(90, width - 1), dtype).unwrap();
                assert!(of_codes.finish(&cuda, (&block, &on_device), None, &mut narrow).is_err());
                assert!(of_codes.finish(&cuda, (&block, &on_device), None, &mut sums[0]).is_err());
            }
        }
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

/// Rows that fill all pinned buffers several times over arrive complete, while those of the next batch are in flight.
/// The output memory holds other values before.
#[test]
fn buffers_are_not_written_while_they_are_read() {
    let Some(cuda) = cuda() else { return };
    let (n_rows, width) = (3000, 1021);
    let values = (0..n_rows * width).map(|i| (i % 8191) as f32).collect::<Vec<_>>();
    let rows = Matrix::new(n_rows, width, values).unwrap();
    for (share, reads, reuses_previous_batch) in [
        (0.0, HostReads::Staged, false),
        (0.3, HostReads::Staged, false),
        (0.3, HostReads::InPlace, false),
        (0.0, HostReads::Staged, true),
        (0.3, HostReads::Staged, true),
        (0.0, HostReads::InPlace, true),
        (0.3, HostReads::InPlace, true),
    ] {
        let far = cuda.host_features(&rows, Dtype::F32, (&placement(n_rows as NodeId, share), reads)).unwrap();
        let reader = far.expect("memory of the host").reader;
        assert!(reader.reuses_previous_batch());
        let batches: Vec<Vec<NodeId>> =
            (1..=6).map(|b| (0..4000 * b).map(|i| ((i * 13 + b * 5) % n_rows) as NodeId).collect()).collect();
        let named: Vec<_> = batches.iter().map(|ids| cuda.upload_ids(ids).unwrap()).collect();
        let poisoned = |ids: &Vec<NodeId>| {
            let nan = Matrix::new(ids.len(), width, vec![f32::NAN; ids.len() * width]).unwrap();
            cuda.upload(&nan, Dtype::F32).unwrap()
        };
        let mut outs: Vec<_> = batches.iter().map(poisoned).collect();
        reader.begin(&cuda, &named[0], None, &mut outs[0]).unwrap();
        for at in 0..batches.len() {
            if at + 1 < batches.len() {
                let (done, next) = outs.split_at_mut(at + 1);
                let before = reuses_previous_batch.then_some((&named[at], &done[at]));
                reader.begin(&cuda, &named[at + 1], before, &mut next[0]).unwrap();
            }
            reader.finish(&cuda).unwrap();
            let found = cuda.download(&outs[at]).unwrap();
            let is_whole = |(row, &id): (usize, &NodeId)| found.row(row) == rows.row(id as usize);
            assert!(
                batches[at].iter().enumerate().all(is_whole),
                "batch {at}, {share} on the device, {reads}, {reuses_previous_batch}"
            );
        }
        // A request that is neither finished nor waited for.
        reader.begin(&cuda, &named[5], None, &mut outs[5]).unwrap();
        drop(reader);
    }
}

/// Rows of the previous batch are reused, and no others. Rows that are on the GPU anyway may come from either place.
#[test]
fn rows_come_from_the_batch_before() {
    let Some(cuda) = cuda() else { return };
    let n_rows = 500;
    let first: Vec<NodeId> = (0..400).map(|i| (i * 7) % 250).collect();
    let second: Vec<NodeId> = (0..450).map(|i| (i * 11 + 3) % n_rows).collect();
    for (width, dtype) in [(3, Dtype::F32), (64, Dtype::F32), (21, Dtype::Bf16), (64, Dtype::Bf16)] {
        let values = (0..n_rows as usize * width).map(|i| (i % 251) as f32).collect::<Vec<_>>();
        let rows = Matrix::new(n_rows as usize, width, values).unwrap();
        // The sign tells reused rows from rows that are read elsewhere.
        let negative = |nodes: &[NodeId]| {
            let values = nodes.iter().flat_map(|&node| rows.row(node as usize)).map(|value| -value - 1.0);
            cuda.upload(&Matrix::new(nodes.len(), width, values.collect::<Vec<_>>()).unwrap(), dtype).unwrap()
        };
        let check = |reader: &dyn FeatureStore<Cuda>, is_on_card: &dyn Fn(NodeId) -> bool, what: &str| {
            let [ids, ids_before] = [&second, &first].map(|ids| cuda.upload_ids(ids).unwrap());
            let before = negative(&first);
            let mut out = cuda.zeros(Shape::new(second.len(), width), dtype).unwrap();
            // Positions that one list has recorded are cleared after it.
            for before in [Some((&ids_before, &before)), None, Some((&ids_before, &before))] {
                reader.begin(&cuda, &ids, before, &mut out).unwrap();
                reader.finish(&cuda).unwrap();
                let found = cuda.download(&out).unwrap();
                for (at, &node) in second.iter().enumerate() {
                    let (plain, row) = (rows.row(node as usize), found.row(at));
                    let is_kept = row.iter().zip(plain).all(|(found, plain)| *found == -plain - 1.0);
                    let has_before = before.is_some() && node < 250;
                    assert!(is_kept || row == plain, "row {node}, {what}");
                    assert!(is_kept == has_before || is_on_card(node), "row {node}, {what}");
                }
            }
            let mut narrow = cuda.zeros(Shape::new(first.len(), width + 1), dtype).unwrap();
            assert!(reader.begin(&cuda, &ids, Some((&ids_before, &narrow)), &mut out).is_err());
            assert!(reader.begin(&cuda, &ids, None, &mut narrow).is_err());
        };
        for (share, reads) in
            [0.0, 0.3].into_iter().flat_map(|share| [HostReads::Staged, HostReads::InPlace].map(|reads| (share, reads)))
        {
            let placed = placement(n_rows, share);
            let n_on_card = (share * f64::from(n_rows)) as u32;
            let on_card: Vec<NodeId> = (0..n_on_card).map(|at| placed.node(at)).collect();
            let far = cuda.host_features(&rows, dtype, (&placed, reads)).unwrap().expect("memory of the host");
            let what = format!("{share} on the device, {reads}, {width} values of {}", dtype.name());
            check(&*far.reader, &|node| on_card.contains(&node), &what);
        }
        let mut store =
            cuda.row_store(Shape::new(n_rows as usize, width), dtype, false).unwrap().expect("memory of the host");
        store.write(&cuda, 0, &cuda.upload(&rows, dtype).unwrap()).unwrap();
        check(&*store, &|_| false, "written by the device");
        let on_cards = cuda.host_features(&rows, dtype, (&placement(n_rows, 1.0), HostReads::Auto)).unwrap();
        assert!(!on_cards.expect("a placement").reader.reuses_previous_batch(), "nothing is far");
    }
}

/// A step waits for the rows of its own batch, not for those of the next one, whose transfer it should hide. With a
/// wait for both, the first batch is never much earlier. A correct wait may be delayed by chance, so it is retried.
#[test]
fn rows_that_are_begun_later_hold_up_nothing() {
    let Some(cuda) = cuda() else { return };
    let (n_rows, width, tries) = (2000, 1024, 10);
    let rows = Matrix::new(n_rows, width, vec![1.0; n_rows * width]).unwrap();
    let ids = |n: usize| (0..n).map(|i| (i * 13 % n_rows) as NodeId).collect::<Vec<_>>();
    for (share, reads) in [(0.0, HostReads::InPlace), (0.3, HostReads::InPlace), (0.0, HostReads::Staged)] {
        let far = cuda.host_features(&rows, Dtype::F32, (&placement(n_rows as NodeId, share), reads)).unwrap();
        let reader = far.expect("memory of the host").reader;
        // The second request takes milliseconds.
        let batches = [16, 100_000].map(|n| (n, cuda.upload_ids(&ids(n)).unwrap()));
        let mut outs = batches.each_ref().map(|&(n, _)| cuda.zeros(Shape::new(n, width), Dtype::F32).unwrap());
        let mut first_and_both = || {
            cuda.synchronize().unwrap();
            for ((_, ids), out) in batches.iter().zip(&mut outs) {
                reader.begin(&cuda, ids, None, out).unwrap();
            }
            let start = Instant::now();
            [(); 2].map(|()| {
                reader.finish(&cuda).unwrap();
                cuda.synchronize().unwrap();
                start.elapsed()
            })
        };
        let times: Vec<_> = (0..tries).map(|_| first_and_both()).collect();
        let is_sooner = |[first, both]: &[Duration; 2]| *first < *both / 2;
        assert!(times.iter().any(is_sooner), "{times:?}, {share} on the device, {reads}");
    }
}
