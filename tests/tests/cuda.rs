//! Compares training on a CUDA device with training on the CPU. Without a device the tests report that and pass,
//! unless `GIRIH_REQUIRE_GPU` is set: `cargo xtask gpu-test` sets it.

use girih_compute::testing::piece;
use girih_compute::{Cpu, Dtype};
use girih_datasets::{Dataset, Features, Labels, LoadOptions, Split, TypeFeatures, TypedData, UNLABELLED, load};
use girih_features::{CacheShares, MiniBatchBackend};
use girih_graph_format::{Coo, Duplicates, EdgeType, Matrix, NodeType, Schema, TypedGraph};
use girih_kernels::Cuda;
use girih_random::Key;
use girih_tests::{cuda, in_pieces, losses_of};
use girih_trainer::{
    Aggregator, BatchConfig, BatchKind, CacheConfig, Control, DataSizes, ModelConfig, ModelKind, Plan, ScoreBy,
    SelfWeight, SessionOptions, TrainConfig, parse_codec,
};

const EPOCHS: u64 = 20;

/// Small graph on which all models train quickly.
const SMALL: &str = "synth:planted,nodes=1500,degree=12,features=24,classes=5";

/// Training losses of all epochs.
fn losses<B: MiniBatchBackend>(backend: &B, dataset: &Dataset, config: &TrainConfig) -> Vec<f32> {
    let options = SessionOptions::default();
    losses_of(|observe| girih_trainer::train(backend, dataset.clone(), config, &options, observe)).expect("training")
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

const OF_RELATIONS: [ModelKind; 4] = [ModelKind::Rgcn, ModelKind::Hsage, ModelKind::Rgat, ModelKind::Hgt];

/// Networks of relations, on one type of nodes and on three with dense, sparse and learned rows, also in mini-batches and on
/// codes.
#[test]
fn networks_of_relations_learn_on_a_device_what_they_learn_on_the_cpu() {
    let Some(cuda) = cuda() else { return };
    for kind in piece(OF_RELATIONS) {
        for self_weight in [SelfWeight::Type, SelfWeight::Relation] {
            let base = TrainConfig::for_model(kind);
            let self_weight = if kind == ModelKind::Hgt { base.model.self_weight } else { self_weight };
            let model = ModelConfig { hidden: 8, self_weight, ..base.model };
            let config = TrainConfig { model, epochs: EPOCHS, eval_every: EPOCHS, ..base };
            check_losses(&cuda, SMALL, &config);
            check_losses_on(&cuda, &typed(), &config);
            for codec in [None, Some("topk:4".parse().expect("a codec"))] {
                let batch = BatchConfig {
                    kind: BatchKind::Neighbor,
                    score_by: Some(ScoreBy::Layers),
                    ..BatchConfig::default()
                };
                let sampled =
                    TrainConfig { batch, batch_size: Some(40), codec, epochs: 5, eval_every: 5, ..config.clone() };
                check_losses_on(&cuda, &typed(), &sampled);
            }
        }
    }
}

/// Papers with dense features, authors with sparse ones, and topics without any.
fn typed() -> Dataset {
    let n_nodes = [300, 200, 9];
    let ends = [("written_by", 1, 0), ("writes", 0, 1), ("cites", 0, 0), ("has", 2, 0), ("of", 0, 2)];
    let node_type = |(i, &n_nodes): (usize, &usize)| NodeType { name: format!("type{i}"), n_nodes };
    let edge_type = |&(relation, source, destination): &(&str, usize, usize)| EdgeType {
        relation: relation.to_owned(),
        source,
        destination,
        reverse_of: None,
    };
    let schema = Schema::new(n_nodes.iter().enumerate().map(node_type).collect(), ends.iter().map(edge_type).collect());
    let mut stream = Key::new(3, 1).stream(0, 0);
    let mut pairs = |n_rows: usize, n_cols: usize, n: usize, values: Option<Vec<f32>>| {
        let mut ids = |below: usize| (0..n).map(|_| stream.below(below as u64) as u32).collect::<Vec<_>>();
        Coo::new(n_rows, n_cols, ids(n_rows), ids(n_cols), values).unwrap().to_csr(Duplicates::Merge).unwrap()
    };
    let relations = ends.iter().map(|&(_, source, to)| pairs(n_nodes[to], n_nodes[source], 900, None)).collect();
    let words = pairs(n_nodes[1], 60, 700, Some(vec![0.5; 700]));
    let rows = (0..n_nodes[0] * 12).map(|at| (at * 7919 % 101) as f32 / 50.0 - 1.0).collect::<Vec<f32>>();
    let features = vec![
        TypeFeatures::Given(Features::Dense(Matrix::new(n_nodes[0], 12, rows).unwrap())),
        TypeFeatures::Given(Features::Sparse(words)),
        TypeFeatures::None,
    ];
    let graph = TypedGraph::new(schema.unwrap(), relations).unwrap();
    let dataset = Dataset::of_typed("papers", TypedData { graph, features, target: 0 }).unwrap();
    let classes = (0..dataset.n_nodes()).map(|v| if v < n_nodes[0] { v as u32 % 3 } else { UNLABELLED }).collect();
    let split = Split { train: (0..150).collect(), val: (150..200).collect(), test: (200..300).collect() };
    let dataset = Dataset { labels: Some(Labels::Single { n_classes: 3, classes }), splits: vec![split], ..dataset };
    dataset.validate().unwrap();
    dataset
}

/// Checks that losses of a device are close to those of the CPU, and repeatable.
fn check_losses(cuda: &Cuda, spec: &str, config: &TrainConfig) {
    check_losses_on(cuda, &load(spec, &LoadOptions::default()).expect("a generated data set"), config);
}

fn check_losses_on(cuda: &Cuda, dataset: &Dataset, config: &TrainConfig) {
    let (expected, found) = (losses(&Cpu::new(), dataset, config), losses(cuda, dataset, config));
    let kind = config.model.kind;
    for (epoch, (a, b)) in expected.iter().zip(&found).enumerate() {
        assert!((a - b).abs() < 1e-4 * a.abs(), "{kind:?}, epoch {epoch}: {b}, on the CPU {a}");
    }
    assert_eq!(found, losses(cuda, dataset, config), "{kind:?}: the same bits again");
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
