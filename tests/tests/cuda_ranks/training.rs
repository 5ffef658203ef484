//! Training over partitions, replicas and patches.

use std::iter;

use super::*;
use girih_comm::GpuTransport;
use girih_compute::Dtype;
use girih_compute::testing::piece;
use girih_datasets::{LoadOptions, load};
use girih_features::{CacheShares, Hotness};
use girih_kernels::Cuda;
use girih_partition::{Exchange, LinkRates, ProcessGrid, Scheme, Stages};
use girih_tests::gpus::{deadline, gpus, ranks_per_gpu, several};
use girih_tests::losses_of;
use girih_trainer::distributed::{
    GraphPlacement, Links, Network, RankJob, RankOptions, RankPlanner, SymbolicGraph, TrainJob,
};
use girih_trainer::{
    BatchConfig, BatchKind, CacheConfig, DataSizes, ModelConfig, ModelKind, Outcome, PlanDevice, ScoreBy,
    SessionOptions, TrainConfig, parse_codec,
};

/// Partitions over `n` GPUs.
fn partitions(n: usize) -> Vec<Partition> {
    let mut partitions = vec![
        (Scheme::OneD, Exchange::Dense, Stages::Parts(1), 1),
        (Scheme::OneD, Exchange::Rows, Stages::Parts(1), 1),
        (Scheme::OneD, Exchange::Dense, Stages::Parts(4), 1),
        (Scheme::OneD, Exchange::Rows, Stages::Parts(3), 1),
        (Scheme::OneD, Exchange::Dense, Stages::Steps, 1),
        (Scheme::OneD, Exchange::Dense, Stages::Turns, 1),
        // All ranks hold all rows, and their partial sums are added.
        (Scheme::OneAndHalfD, Exchange::Dense, Stages::Parts(1), 3),
    ];
    if n > 2 {
        partitions.push((Scheme::OneAndHalfD, Exchange::Auto, Stages::Parts(1), 1));
    }
    match n {
        4 => partitions.extend([
            (Scheme::TwoD, Exchange::Dense, Stages::Parts(2), 1),
            (Scheme::TwoD, Exchange::Dense, Stages::Parts(1), 4),
        ]),
        8 => partitions.extend([
            (Scheme::ThreeD, Exchange::Dense, Stages::Parts(2), 1),
            (Scheme::ThreeD, Exchange::Rows, Stages::Parts(1), 3),
        ]),
        _ => {}
    }
    partitions
}

/// Losses of all epochs on the GPUs of a partition, and the number of steps that each GPU ran as CUDA graphs.
fn losses(
    gpus: &[Cuda],
    config: &TrainConfig,
    ((scheme, exchange, stages, chunks), transport): (Partition, GpuTransport),
) -> (Vec<f32>, Vec<u64>) {
    let spec = "synth:planted,nodes=3001,degree=12,features=24,classes=5";
    let dataset = load(spec, &LoadOptions::default()).expect("a generated data set");
    let session = SessionOptions::default();
    let losses = losses_of(|observe| {
        if let [gpu] = gpus {
            return girih_trainer::train(gpu, dataset, config, &session, observe);
        }
        let replication = if scheme == Scheme::OneAndHalfD { 2 } else { 1 };
        let grid = ProcessGrid::new(scheme, gpus.len(), replication).expect("ranks that can be arranged");
        let ranks = RankOptions { stages, chunks, ..RankOptions::new(grid, exchange, deadline()) };
        let connect = |cuda: &Cuda, world| connect(cuda, world, transport);
        TrainJob::new(dataset, config, &ranks, &session, observe).on_devices(gpus, connect)
    })
    .expect("training on GPUs");
    (losses, gpus.iter().map(Cuda::n_repeated).collect())
}

/// Published settings. A GCN has three layers, whose hidden rows are wide enough to be exchanged in parts.
fn with_parts(kind: ModelKind) -> TrainConfig {
    let base = TrainConfig::for_model(kind);
    match kind {
        ModelKind::Gcn => TrainConfig { model: ModelConfig { hidden: 320, layers: 3, ..base.model.clone() }, ..base },
        _ => base,
    }
}

#[test]
fn gpus_learn_what_one_gpu_does() {
    let Some(n) = several().map(|gpus| gpus.len()) else { return };
    let partitions = partitions(n);
    for kind in [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat, ModelKind::Sgc] {
        let config = TrainConfig { epochs: EPOCHS, eval_every: EPOCHS, ..with_parts(kind) };
        let (single, _) = losses(&gpus(1), &config, (partitions[0], GpuTransport::Nccl));
        for &partition in piece(&partitions) {
            let (shared, repeated) = losses(&gpus(n), &config, (partition, GpuTransport::Nccl));
            assert_eq!(single.len(), shared.len());
            for (epoch, (a, b)) in single.iter().zip(&shared).enumerate() {
                assert!(
                    (a - b).abs() <= 1e-4 * a.abs(),
                    "{kind:?} on {partition:?}, epoch {epoch}: {b}, on one GPU {a}"
                );
            }
            println!("{kind:?} on {partition:?}: {repeated:?} steps repeated");
            assert!(repeated.iter().all(|&n| n == repeated[0]), "all GPUs repeat steps, or none does");
        }
    }
}

/// Rows are sent in their storage type, and operands are those of one GPU. Partial sums are added in another order,
/// and then rounded to bf16.
#[test]
fn gpus_learn_in_bf16_what_one_gpu_does() {
    let Some(n) = several().map(|gpus| gpus.len()) else { return };
    let storing = |gpus: Vec<Cuda>| -> Vec<Cuda> { gpus.into_iter().map(|gpu| gpu.storing(Dtype::Bf16)).collect() };
    for kind in [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat] {
        let base = TrainConfig::for_model(kind);
        let config = TrainConfig { epochs: 20, eval_every: 20, precision: Dtype::Bf16, ..base };
        let (single, _) = losses(
            &storing(gpus(1)),
            &config,
            ((Scheme::OneD, Exchange::Dense, Stages::Parts(1), 1), GpuTransport::Nccl),
        );
        for exchange in piece([Exchange::Dense, Exchange::Rows]) {
            let (shared, _) =
                losses(&storing(gpus(n)), &config, ((Scheme::OneD, exchange, Stages::Parts(1), 1), GpuTransport::Nccl));
            assert_eq!(single.len(), shared.len());
            for (epoch, (a, b)) in single.iter().zip(&shared).enumerate() {
                assert!((a - b).abs() <= 1e-2 * a.abs(), "{kind:?}, {exchange}, epoch {epoch}: {b}, on one GPU {a}");
            }
        }
    }
}

#[test]
fn gpus_learn_the_same_bits_again() {
    let Some(n) = several().map(|gpus| gpus.len()) else { return };
    let base = TrainConfig::for_model(ModelKind::Gcn);
    let model = ModelConfig { hidden: 64, layers: 3, ..base.model.clone() };
    let config = TrainConfig { epochs: 10, model, ..base };
    let run = || losses(&gpus(n), &config, ((Scheme::OneD, Exchange::Auto, Stages::Parts(1), 1), GpuTransport::Nccl)).0;
    assert_eq!(run(), run());
}

/// The transport neither rounds values nor changes the order of sums.
#[test]
fn rows_copied_from_memory_teach_the_same_bits() {
    let ([_, GpuTransport::Peer], Some(n)) = (&transports()[..], several().map(|gpus| gpus.len())) else { return };
    for (kind, precision) in [(ModelKind::Gcn, Dtype::F32), (ModelKind::Gcn, Dtype::Bf16), (ModelKind::Gat, Dtype::F32)]
    {
        let config = TrainConfig { epochs: 20, eval_every: 5, precision, ..with_parts(kind) };
        for partition in piece(partitions(n)) {
            let by = |transport| {
                let gpus: Vec<Cuda> = gpus(n).into_iter().map(|gpu| gpu.storing(precision)).collect();
                losses(&gpus, &config, (partition, transport))
            };
            let (sent, copied) = (by(GpuTransport::Nccl), by(GpuTransport::Peer));
            assert_eq!(sent.0, copied.0, "losses of {kind:?} in {precision:?} on {partition:?}");
            assert_eq!(sent.1, copied.1, "steps repeated, {kind:?} on {partition:?}");
        }
    }
}

/// Losses and outcome on GPUs that share the training of `config`, by NCCL.
fn outcome(gpus: &[Cuda], config: &TrainConfig, how: impl FnOnce(RankOptions) -> RankOptions) -> (Vec<f32>, Outcome) {
    outcome_on("synth:planted,nodes=3001,degree=12,features=24,classes=5", gpus, config, how)
}

fn outcome_on(
    spec: &str,
    gpus: &[Cuda],
    config: &TrainConfig,
    how: impl FnOnce(RankOptions) -> RankOptions,
) -> (Vec<f32>, Outcome) {
    let dataset = load(spec, &LoadOptions::default()).expect("a generated data set");
    let grid = ProcessGrid::new(Scheme::OneD, gpus.len(), 1).expect("ranks that can be arranged");
    let ranks = how(RankOptions { stages: Stages::Parts(1), ..RankOptions::new(grid, Exchange::Rows, deadline()) });
    let (session, mut outcome) = (SessionOptions::default(), None);
    let losses = losses_of(|observe| {
        let connect = |cuda: &Cuda, world| connect(cuda, world, GpuTransport::Nccl);
        let done = TrainJob::new(dataset, config, &ranks, &session, observe).on_devices(gpus, connect)?;
        outcome = Some(done.clone());
        Ok(done)
    });
    (losses.expect("training on GPUs"), outcome.expect("just trained"))
}

/// Rows for products and for attention are rounded on the wire, and the error is measured after the last step.
#[test]
fn rounding_on_the_wire_is_small_on_gpus() {
    let Some(n) = several().map(|gpus| gpus.len()) else { return };
    for kind in piece([ModelKind::Gcn, ModelKind::Gat]) {
        let config = TrainConfig { epochs: 10, eval_every: 5, ..TrainConfig::for_model(kind) };
        let on = |wire| outcome(&gpus(n), &config, |ranks| RankOptions { wire, ..ranks });
        let ((exact, none), (rounded, some)) = (on(Dtype::F32), on(Dtype::Bf16));
        assert_eq!(none.wire_error, None);
        let error = some.wire_error.expect("what is rounded is measured");
        assert!((1e-5..2e-2).contains(&error), "{kind:?}: {error}");
        assert!(exact.iter().zip(&rounded).all(|(a, b)| (a - b).abs() < 1e-2 * a), "{kind:?}: {exact:?}, {rounded:?}");
    }
}

/// Mini-batches that GPUs share: clusters of each step, and seeds of patches, prefetched or not. GPUs sample, or the
/// host if draws may collide or rows are rounded. Rows are exchanged, read in place, or sent by the measured faster
/// transport.
#[test]
fn gpus_share_subgraphs_and_patches() {
    let Some(n) = several().map(|gpus| gpus.len()) else { return };
    let cluster = BatchConfig { kind: BatchKind::Cluster, subgraphs_per_step: n, ..BatchConfig::default() };
    let neighbor = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![5, 4], ..BatchConfig::default() };
    let base = |kind, batch| {
        let base = TrainConfig::for_model(kind);
        let model = ModelConfig { dropout: 0.0, ..base.model.clone() };
        TrainConfig { epochs: 3, eval_every: 3, batch, model, ..base }
    };
    let in_turn = BatchConfig { prefetch: 0, ..neighbor.clone() };
    let replaced = BatchConfig { replace: true, ..neighbor.clone() };
    let codec = parse_codec("topk:4").expect("a codec");
    let coded = TrainConfig { codec, ..base(ModelKind::Sage, neighbor.clone()) };
    // The hottest rows are on every GPU, the others on hosts; this applies to the graph, too.
    let beside_hosts = |config: TrainConfig, every_gpu| {
        let share = |every_gpu| Some(CacheShares { every_gpu, one_gpu: 0.0 });
        let tiers = CacheConfig { features: share(every_gpu), topology: share(0.5), ..CacheConfig::default() };
        TrainConfig { tiers, ..config }
    };
    let sage = || base(ModelKind::Sage, neighbor.clone());
    for (config, layout, wire) in piece([
        (base(ModelKind::Sage, cluster), GraphPlacement::Replicated, Dtype::F32),
        (base(ModelKind::Sage, neighbor.clone()), GraphPlacement::Patches, Dtype::F32),
        (base(ModelKind::Gcn, neighbor.clone()), GraphPlacement::Patches, Dtype::F32),
        (base(ModelKind::Gat, in_turn), GraphPlacement::Patches, Dtype::F32),
        (base(ModelKind::Sage, replaced), GraphPlacement::Patches, Dtype::F32),
        (base(ModelKind::Sage, neighbor.clone()), GraphPlacement::Patches, Dtype::Bf16),
        (coded.clone(), GraphPlacement::Patches, Dtype::F32),
        (sage(), GraphPlacement::SplitFeatures, Dtype::F32),
        (coded.clone(), GraphPlacement::SplitFeatures, Dtype::F32),
        (beside_hosts(sage(), 0.0), GraphPlacement::SplitFeatures, Dtype::F32),
        (beside_hosts(base(ModelKind::Gcn, neighbor.clone()), 0.3), GraphPlacement::SplitFeatures, Dtype::F32),
        (
            beside_hosts(TrainConfig { precision: Dtype::Bf16, ..sage() }, 0.3),
            GraphPlacement::SplitFeatures,
            Dtype::Bf16,
        ),
        (beside_hosts(coded, 0.3), GraphPlacement::SplitFeatures, Dtype::F32),
    ]) {
        let (single, _) = losses(&gpus(1), &config, (partitions(n)[0], GpuTransport::Nccl));
        let has_choice = layout != GraphPlacement::Replicated && config.tiers.is_default();
        let told = transports().into_iter().map(Some).filter(|_| has_choice);
        for transport in iter::once(None).chain(told) {
            let (shared, _) = outcome(&gpus(n), &config, |ranks| RankOptions { layout, wire, transport, ..ranks });
            let bound = if wire == Dtype::F32 { 1e-3 } else { 2e-2 };
            assert_eq!(single.len(), shared.len());
            for (a, b) in single.iter().zip(&shared) {
                let case = (config.model.kind, config.batch.kind, transport);
                assert!((a - b).abs() <= bound * a.abs(), "{case:?}: {shared:?}, on one GPU {single:?}");
            }
        }
    }
}

/// Rows of hidden layers are gathered on every GPU, or are in host memory that all GPUs write.
#[test]
fn gpus_take_turns_at_scores_layer_by_layer() {
    let Some(n) = several().map(|gpus| gpus.len()) else { return };
    // Several rounds, each with several times the number of nodes that are processed at once.
    let spec = "synth:planted,nodes=150001,degree=8,features=24,classes=5";
    let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![5, 4], ..BatchConfig::default() };
    for kind in piece([ModelKind::Sage, ModelKind::Gcn, ModelKind::Gat]) {
        let scores = |score_by, every_gpu: Option<f64>| {
            let batch = BatchConfig { score_by, ..batch.clone() };
            let features = every_gpu.map(|every_gpu| CacheShares { every_gpu, one_gpu: 0.0 });
            let tiers = CacheConfig { features, ..CacheConfig::default() };
            let config = TrainConfig { epochs: 2, eval_every: 2, batch, tiers, ..TrainConfig::for_model(kind) };
            outcome_on(spec, &gpus(n), &config, |ranks| ranks).1.runs[0].last
        };
        let expected = scores(Some(ScoreBy::Graph), None);
        for (found, what) in
            [(scores(Some(ScoreBy::Layers), None), "on GPUs"), (scores(None, Some(0.3)), "on the host")]
        {
            let pairs = [(expected.val_loss, found.val_loss), (expected.test_loss, found.test_loss)];
            let is_near = |(a, b): (Option<f64>, Option<f64>)| (a.unwrap() - b.unwrap()).abs() < 2e-3 * a.unwrap();
            assert!(pairs.into_iter().all(is_near), "{kind:?}, {what}: {found:?}, of the graph {expected:?}");
        }
    }
}

#[test]
fn patches_take_no_more_of_gpus_than_their_plan() {
    let Some(n) = several().map(|gpus| gpus.len()) else { return };
    let spec = "synth:planted,nodes=100000,degree=20,features=128,classes=10";
    let dataset = load(spec, &LoadOptions::default()).expect("a generated data set");
    let sizes = DataSizes::of(&dataset);
    let links = Links::alike(LinkRates { latency: 1e-6, bytes_per_second: 1e11 });
    let codec = parse_codec("topk:8").expect("a codec");
    let share = Some(CacheShares { every_gpu: 0.25, one_gpu: 0.0 });
    for (layout, features, codec) in piece([
        (GraphPlacement::Patches, None, None),
        (GraphPlacement::Patches, None, codec),
        (GraphPlacement::SplitFeatures, None, None),
        (GraphPlacement::SplitFeatures, share, None),
        (GraphPlacement::SplitFeatures, share, codec),
    ]) {
        let base = TrainConfig::for_model(ModelKind::Sage);
        let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![15, 10], ..BatchConfig::default() };
        let (model, tiers) =
            (ModelConfig { hidden: 128, ..base.model.clone() }, CacheConfig { features, ..base.tiers });
        let config = TrainConfig { epochs: 2, batch, batch_size: Some(4096), model, tiers, codec, ..base };
        let graph = SymbolicGraph::of(&dataset.graph, &config, &sizes).expect("a graph to plan for");
        let (device, network) = (PlanDevice::Gpu(None), Network::one_host(links, true));
        let planner = RankPlanner { config: &config, data: &sizes, graph: &graph, devices: &[device], network };
        let grid = ProcessGrid::new(Scheme::OneD, n, 1).expect("ranks that can be arranged");
        let ranks =
            RankOptions { stages: Stages::Parts(1), layout, ..RankOptions::new(grid, Exchange::Rows, deadline()) };
        let planned = planner.plan_patches(&ranks).expect("a plan").most(|plan| plan.peak_bytes);
        // A device joins ranks only once, so devices are opened here.
        let gpus = gpus(n);
        gpus.iter().for_each(|cuda| cuda.device().reset_peak().expect("a GPU"));
        let session = SessionOptions::default();
        losses_of(|observe| {
            let connect = |cuda: &Cuda, world| connect(cuda, world, GpuTransport::Nccl);
            TrainJob::new(dataset.clone(), &config, &ranks, &session, observe).on_devices(&gpus, connect)
        })
        .expect("training on GPUs");
        let measured = gpus.iter().map(|cuda| cuda.device().peak_bytes().expect("a GPU")).max().expect("GPUs");
        // Ranks that share a GPU need its memory several times.
        let planned = planned * ranks_per_gpu() as u64;
        let what = format!("{} {features:?} {codec:?}", layout.name());
        println!("{what}: planned {planned}, measured {measured}");
        assert!(measured <= planned + WORKSPACE_BYTES, "{what}: planned {planned}, measured {measured}");
        assert!(planned <= 4 * measured, "{what}: planned {planned}, measured only {measured}");
    }
}

/// Mini-batches: graph and features may be on any GPU, or on the host, and all GPUs learn the same bits.
#[test]
fn rows_may_lie_on_any_gpu() {
    let Some(n) = several().map(|gpus| gpus.len()) else { return };
    let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![5, 4], ..BatchConfig::default() };
    let of_kind = |kind| TrainConfig { epochs: 2, eval_every: 2, batch: batch.clone(), ..TrainConfig::for_model(kind) };
    let learnt = |config: &TrainConfig| losses(&gpus(n), config, (partitions(n)[0], GpuTransport::Nccl)).0;
    for config in [of_kind(ModelKind::Sage), of_kind(ModelKind::Gcn)] {
        let shares = |every_gpu, one_gpu| Some(CacheShares { every_gpu, one_gpu });
        let placed = |features, topology| {
            let hotness = Hotness::InDegree;
            let tiers = CacheConfig { features, topology, hotness, ..CacheConfig::default() };
            learnt(&TrainConfig { tiers, ..config.clone() })
        };
        let expected = placed(shares(0.0, 0.0), None);
        for (features, topology) in piece([
            (shares(0.0, 1.0), None),
            (shares(0.2, 0.5), shares(0.0, 1.0)),
            (shares(0.3, 0.0), shares(0.1, 0.6)),
            (shares(1.0, 0.0), shares(0.0, 0.0)),
        ]) {
            assert_eq!(placed(features, topology), expected, "{features:?}, {topology:?}");
        }
        let everywhere = learnt(&config);
        assert!(
            everywhere.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 2e-3 * b),
            "{everywhere:?}, {expected:?}"
        );
        assert_eq!(placed(None, shares(0.0, 1.0)), everywhere);
        assert_eq!(placed(None, shares(0.0, 0.0)), everywhere);
    }
}
