//! Compares training on a CUDA device with training on the CPU. Without a device the tests report that and pass,
//! unless `GIRIH_REQUIRE_GPU` is set: `cargo xtask gpu-test` sets it.

use girih_compute::testing::piece;
use girih_compute::{Cpu, Dtype};
use girih_datasets::{LoadOptions, load};
use girih_features::{CacheShares, MiniBatchBackend};
use girih_kernels::Cuda;
use girih_tests::{cuda, in_pieces, losses_of};
use girih_trainer::{
    Aggregator, BatchConfig, BatchKind, CacheConfig, Control, DataSizes, ModelConfig, ModelKind, Plan, ScoreBy,
    SessionOptions, TrainConfig, parse_codec,
};

const EPOCHS: u64 = 20;

/// Small graph on which all models train quickly.
const SMALL: &str = "synth:planted,nodes=1500,degree=12,features=24,classes=5";

/// Training losses of all epochs.
fn losses<B: MiniBatchBackend>(backend: &B, spec: &str, config: &TrainConfig) -> Vec<f32> {
    let dataset = load(spec, &LoadOptions::default()).expect("a generated data set");
    let options = SessionOptions::default();
    losses_of(|observe| girih_trainer::train(backend, dataset, config, &options, observe)).expect("training")
}

#[test]
fn models_learn_on_a_device_what_they_learn_on_the_cpu() {
    let Some(cuda) = cuda() else { return };
    let kinds = [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat, ModelKind::Gatv2, ModelKind::Gin, ModelKind::Sgc];
    for kind in piece(kinds.into_iter().chain([ModelKind::Ngcn, ModelKind::Appnp, ModelKind::Mlp])) {
        let config = TrainConfig { epochs: EPOCHS, eval_every: EPOCHS, ..TrainConfig::for_model(kind) };
        check_losses(&cuda, SMALL, &config);
    }
}

/// The host decodes rows block by block, and steps do not run as CUDA graphs.
#[test]
fn models_learn_from_codes_on_a_device_what_they_learn_on_the_cpu() {
    let Some(cuda) = cuda() else { return };
    let codec = Some("topk:4".parse().expect("a codec"));
    for kind in piece([ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat, ModelKind::Gin, ModelKind::Sgc, ModelKind::Mlp])
    {
        let config = TrainConfig { codec, epochs: EPOCHS, eval_every: EPOCHS, ..TrainConfig::for_model(kind) };
        check_losses(&cuda, SMALL, &config);
    }
}

/// Checks that losses of a device are close to those of the CPU, and repeatable.
fn check_losses(cuda: &Cuda, spec: &str, config: &TrainConfig) {
    let (expected, found) = (losses(&Cpu::new(), spec, config), losses(cuda, spec, config));
    let kind = config.model.kind;
    for (epoch, (a, b)) in expected.iter().zip(&found).enumerate() {
        assert!((a - b).abs() < 1e-4 * a.abs(), "{kind:?}, epoch {epoch}: {b}, on the CPU {a}");
    }
    assert_eq!(found, losses(cuda, spec, config), "{kind:?}: the same bits again");
}

#[test]
fn large_graphs_are_learned_alike() {
    let Some(cuda) = cuda() else { return };
    // Features fill pinned buffers several times over, in rows with gaps. Products are long, and every thread block
    // has several tiles.
    let spec = "synth:planted,nodes=70000,degree=40,features=602,classes=41";
    let (base, epochs) = (TrainConfig::for_model(ModelKind::Gcn), if in_pieces() { 2 } else { 10 });
    for aggregate_once in piece([true, false]) {
        let model = ModelConfig { hidden: 128, aggregate_once, ..base.model.clone() };
        check_losses(&cuda, spec, &TrainConfig { epochs, eval_every: epochs, model, ..base.clone() });
    }
}

/// Bytes that a plan may fall short of: the workspace of cuBLAS, and partial sums.
const WORKSPACE_BYTES: u64 = 64 << 20;

/// Configurations in which temporary allocations of operations exceed the workspace.
fn plans_to_hold() -> Vec<TrainConfig> {
    let kinds = [ModelKind::Gcn, ModelKind::Sage, ModelKind::Gat, ModelKind::Gatv2, ModelKind::Gin, ModelKind::Sgc];
    let wide = |kind, precision| {
        let hidden = if matches!(kind, ModelKind::Gat | ModelKind::Gatv2) { 16 } else { 128 };
        let base = TrainConfig::for_model(kind);
        TrainConfig { epochs: 2, eval_every: 1, precision, model: ModelConfig { hidden, ..base.model.clone() }, ..base }
    };
    let mut plans: Vec<TrainConfig> =
        kinds.into_iter().flat_map(|kind| [Dtype::F32, Dtype::Bf16].map(|precision| wide(kind, precision))).collect();
    for aggregator in [Aggregator::Pool, Aggregator::Lstm] {
        let mut config = wide(ModelKind::Sage, Dtype::F32);
        config.model = ModelConfig { aggregator, hidden: 32, ..config.model };
        plans.push(config);
    }
    let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![15, 10], ..BatchConfig::default() };
    for codec in [None, parse_codec("topk:8").expect("a codec")] {
        let sampled = wide(ModelKind::Sage, Dtype::F32);
        plans.push(TrainConfig { codec, batch: batch.clone(), batch_size: Some(4096), ..sampled });
    }
    // Rows that arrive while a step still uses its own: decoded, for a layer that cannot aggregate codes, and cached.
    let attention = wide(ModelKind::Gat, Dtype::F32);
    plans.push(TrainConfig { codec: parse_codec("topk:8").expect("a codec"), batch: batch.clone(), ..attention });
    let all = Some(CacheShares { every_gpu: 1.0, one_gpu: 0.0 });
    let tiers = CacheConfig { features: all, ..CacheConfig::default() };
    plans.push(TrainConfig { tiers, batch, batch_size: Some(8192), ..wide(ModelKind::Sage, Dtype::F32) });
    // The host samples, and the device holds all data for scores.
    let batch = BatchConfig { kind: BatchKind::Saint, score_by: Some(ScoreBy::Layers), ..BatchConfig::default() };
    plans.push(TrainConfig { batch, ..wide(ModelKind::Sage, Dtype::F32) });
    plans
}

#[test]
fn training_on_a_device_takes_no_more_memory_than_its_plan() {
    let Some(mut cuda) = cuda() else { return };
    let dataset =
        load("synth:planted,nodes=100000,degree=20,features=128,classes=10", &LoadOptions::default()).unwrap();
    let sizes = DataSizes::of(&dataset);
    for config in piece(plans_to_hold()) {
        let planned = Plan::on_cuda(&config, &sizes).unwrap().peak_bytes;
        cuda = cuda.storing(config.precision);
        cuda.device().reset_peak().unwrap();
        let session = SessionOptions::default();
        girih_trainer::train(&cuda, dataset.clone(), &config, &session, &mut |_| Control::Continue).unwrap();
        let measured = cuda.device().peak_bytes().unwrap();
        let TrainConfig { model, precision, codec, batch, .. } = &config;
        let what = format!("{:?} {:?} {precision:?} {codec:?} {:?}", model.kind, model.aggregator, batch.kind);
        println!("{what}: planned {planned}, measured {measured}");
        assert!(measured <= planned + WORKSPACE_BYTES, "{what}: planned {planned}, measured {measured}");
        assert!(2 * planned <= 5 * measured, "{what}: planned {planned}, measured only {measured}");
    }
}
