//! Cache plans fit the memory that they divide, and training places rows as they say.

use girih_compress::CodecSpec;
use girih_compute::Cpu;
use girih_datasets::{Dataset, Features, LoadOptions, load};
use girih_features::{
    CacheShares, Hotness, MemoryBudget, Planner, Rates, RowPlacement, Storage, Tier, TierPlan, TierUse,
};
use girih_graph_format::{Csr, NodeId, Norm};
use girih_trainer::testing::{Placements, frequencies_and_reads};
use girih_trainer::{
    Adjacency, BatchConfig, BatchKind, CacheConfig, CachePlan, CacheReport, DataSizes, ModelConfig, ModelKind,
    Neighborhoods, Plan, RowsOnDevice, ScoreBy, TrainConfig,
};

use crate::{build, dims};

/// Data with more nodes than are scored at a time, of which a batch reads few. Features take twelve times the
/// memory of neighbors. There is no prefetch, so that all data take more memory than divided data.
fn data(codec: Option<CodecSpec>) -> (Dataset, TrainConfig) {
    let spec = "synth:planted,nodes=120000,degree=6,features=72,classes=4";
    let dataset = load(spec, &LoadOptions { codec, ..LoadOptions::default() }).unwrap();
    let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![4, 3], prefetch: 0, ..BatchConfig::default() };
    let model = ModelConfig { kind: ModelKind::Sage, hidden: 64, ..ModelConfig::default() };
    (dataset, TrainConfig { model, batch, batch_size: Some(64), codec, ..TrainConfig::default() })
}

fn budget(n_gpus: usize, gpu_bytes: u64) -> MemoryBudget {
    MemoryBudget { n_gpus, gpu_bytes, host_bytes: None }
}

/// Device bytes of training alone, and of training with all rows placed.
fn ends(dataset: &Dataset, config: &TrainConfig) -> (u64, u64) {
    let sizes = DataSizes::of(dataset);
    let (least, rows) = (Plan::beside_rows(config, &sizes).unwrap().device_bytes(), CacheConfig::on_host());
    let config = TrainConfig { tiers: rows, ..config.clone() };
    let all = RowsOnDevice { features: sizes.n_nodes, neighbors: sizes.n_edges };
    (least, Plan::on_cuda_with(&config, &sizes, all).unwrap().device_bytes())
}

/// Device bytes with which a device holds some of both. Without a cache, all fits with little more than the
/// middle of the range: scores then read rows in place, and nothing is prefetched.
fn some((least, most): (u64, u64)) -> u64 {
    least + (most - least) * 2 / 5
}

fn planned(dataset: &Dataset, config: &TrainConfig, rows: RowsOnDevice) -> u64 {
    Plan::on_cuda_with(config, &DataSizes::of(dataset), rows).unwrap().device_bytes()
}

/// Graph that batches are sampled from, as in training.
fn drawn_from(dataset: &Dataset, config: &TrainConfig) -> Neighborhoods {
    let adjacency = build(&Cpu::new(), config, dims(dataset)).0.input_spec().graph.unwrap();
    Neighborhoods::new(&dataset.graph, adjacency).unwrap()
}

fn seeds(dataset: &Dataset) -> &[NodeId] {
    &dataset.splits[0].train
}

/// Expected contents and reads of each kind of memory.
fn expected(planned: &TierPlan) -> Vec<CacheReport> {
    let reports = |(of, part): (&'static str, &RowPlacement)| {
        let report = |used: &TierUse| CacheReport {
            of,
            tier: used.tier,
            n_nodes: used.n_nodes,
            bytes: used.bytes,
            reads: used.expected,
        };
        part.tiers.iter().map(report).collect::<Vec<_>>()
    };
    [("features", &planned.features), ("neighbors", &planned.topology)].into_iter().flat_map(reports).collect()
}

/// Compares a cache plan with the budget, with the plan of the resulting configuration, and with the placement in
/// training.
fn check(dataset: &Dataset, config: &TrainConfig, budget: MemoryBudget, reserved: u64) -> CachePlan {
    let division = CachePlan::new(dataset, config, budget, reserved).unwrap();
    let config = TrainConfig { tiers: division.tiers, ..config.clone() };
    config.validate().unwrap();
    assert!(division.needed_bytes <= budget.gpu_bytes, "{division:?} in {budget:?}");
    let rows = RowsOnDevice::of(dataset, &config, budget.n_gpus).unwrap();
    assert_eq!(rows, division.rows);
    assert_eq!(planned(dataset, &config, rows) + reserved, division.needed_bytes);
    let row_bytes = DataSizes::of(dataset).code_bytes.unwrap_or(4 * 72);
    let neighborhoods = drawn_from(dataset, &config);
    let placed = (seeds(dataset), row_bytes);
    let placed = Placements::new(&neighborhoods, placed, &config, Some(budget.n_gpus)).unwrap();
    let sizes = |share: &CacheReport| (share.of, share.tier, share.n_nodes, share.bytes);
    let is_placed = |share: &&CacheReport| match share.of {
        "features" => config.tiers.features.is_some(),
        _ => config.tiers.topology.is_some(),
    };
    let expected: Vec<_> = division.shares.iter().filter(is_placed).map(sizes).collect();
    assert_eq!(placed.shares.iter().map(sizes).collect::<Vec<_>>(), expected);
    for of in ["features", "neighbors"] {
        let of: Vec<_> = division.shares.iter().filter(|share| share.of == of).collect();
        assert_eq!(of.iter().map(|share| share.n_nodes).sum::<usize>(), dataset.n_nodes());
        assert!((of.iter().map(|share| share.reads).sum::<f64>() - 1.0).abs() < 1e-9, "{of:?}");
    }
    division
}

#[test]
fn a_division_fits_its_room_and_is_what_training_places() {
    for codec in [None, Some(CodecSpec::Topk(4))] {
        let (dataset, config) = data(codec);
        let (least, most) = ends(&dataset, &config);
        for (n_gpus, reserved) in [(1, 0), (3, 1 << 20)] {
            let in_steps = (0..=4).map(|step| {
                // Offsets, and the indices of cached rows.
                let least = least + 21 * (3 * 8 * 120_001) / 20 + 1;
                let bytes = least + (most - least) * step / 4;
                check(&dataset, &config, budget(n_gpus, bytes + reserved), reserved)
            });
            let divisions: Vec<CachePlan> = in_steps.collect();
            let on_gpus = |division: &CachePlan| {
                let near = division.shares.iter().filter(|share| share.tier <= Tier::OneGpu);
                near.map(|share| share.n_nodes).sum::<usize>()
            };
            let (first, last) = (&divisions[0], &divisions[4]);
            assert!(on_gpus(first) < 2 * dataset.n_nodes() && !first.tiers.is_default(), "{first:?}");
            assert_eq!(on_gpus(last), 2 * dataset.n_nodes(), "{last:?}");
        }
        let all = check(&dataset, &config, budget(1, 4 << 30), 0);
        assert!(all.tiers.is_default() && all.host_bytes == 0, "{all:?}");
    }
}

#[test]
fn shares_are_those_of_the_planner() {
    let (dataset, config) = data(None);
    let bytes = some(ends(&dataset, &config));
    for hotness in Hotness::ALL {
        let config = TrainConfig { tiers: CacheConfig { hotness, ..CacheConfig::default() }, ..config.clone() };
        let budget = budget(1, bytes);
        let division = check(&dataset, &config, budget, 0);
        let sizes = DataSizes::of(&dataset);
        let CacheConfig { features, topology, .. } = CacheConfig::on_host();
        let tiers = CacheConfig { features, topology, hotness, ..CacheConfig::default() };
        let config = TrainConfig { tiers, ..config };
        let (neighborhoods, nodes) = (drawn_from(&dataset, &config), seeds(&dataset));
        let (frequencies, reads) = frequencies_and_reads(&neighborhoods, nodes, &config).unwrap();
        let left = Plan::beside_rows(&config, &sizes).unwrap().bytes_left(budget.gpu_bytes).unwrap();
        let planner = Planner {
            indptr: dataset.graph.indptr(),
            weighted: false,
            feature_bytes: 4 * 72,
            frequencies: &frequencies,
            reads,
            n_hops: 2,
            cut: None,
            budget,
            training_bytes: budget.gpu_bytes - left,
            storage: Storage::Copied,
            rates: Rates::h200(),
        };
        let planned = planner.plan(None).unwrap();
        assert_eq!(division.tiers.hotness, hotness);
        assert_eq!(division.shares, expected(&planned));
        let every = |part: &RowPlacement| (part.tiers[0].tier == Tier::EveryGpu).then_some(part.tiers[0].n_nodes);
        let shares = division.tiers.features.unwrap();
        assert_eq!(shares.of_nodes(dataset.n_nodes()), (every(&planned.features).unwrap_or(0), 0));
        assert!(planned.topology.gpu_bytes + planned.features.gpu_bytes <= left);
    }
}

#[test]
fn memory_of_training_is_named_where_it_does_not_fit() {
    let (dataset, config) = data(None);
    let (least, _) = ends(&dataset, &config);
    let refused = |budget| CachePlan::new(&dataset, &config, budget, 0).unwrap_err().to_string();
    let message = refused(budget(1, least - 1));
    for part in [&*format!("({least} bytes)"), &format!("({} bytes)", least - 1), "a smaller --batch-size"] {
        assert!(message.contains(part), "no {part}: {message}");
    }
    let no_lists = refused(budget(1, least));
    assert!(no_lists.contains("the index of cached rows"), "{no_lists}");
    let message = CachePlan::new(&dataset, &config, budget(1, least), 5).unwrap_err().to_string();
    assert!(message.contains(&format!("({} bytes)", least + 5)), "{message}");
}

#[test]
fn hosts_hold_what_is_not_whole_on_devices() {
    let (dataset, config) = data(None);
    let bytes = some(ends(&dataset, &config));
    let of_host = |host_bytes| CachePlan::new(&dataset, &config, MemoryBudget { host_bytes, ..budget(1, bytes) }, 0);
    // Rows of the hidden layer take memory during scoring.
    let layers = 4 * 64 * dataset.n_nodes() as u64;
    let message = of_host(Some(layers - 1)).unwrap_err().to_string();
    assert!(message.contains(&format!("({layers} bytes)")) && message.contains("give a smaller --hidden"), "{message}");
    let message = of_host(Some(layers + 1000)).unwrap_err().to_string();
    assert!(message.contains("(1000 bytes)") && message.contains("compress the features"), "{message}");
    let named = message.split("which leaves ").nth(1).and_then(|rest| rest.split(['(', ' ']).nth(3)).unwrap();
    let named = layers + named.parse::<u64>().unwrap();
    assert!(of_host(Some(named - 1)).is_err());
    assert!(of_host(Some(named)).unwrap().host_bytes <= named);
}

#[test]
fn scores_of_the_whole_graph_are_planned_for() {
    let (dataset, config) = data(None);
    let batch = BatchConfig { score_by: Some(ScoreBy::Graph), ..config.batch.clone() };
    let by_graph = TrainConfig { batch, ..config.clone() };
    let (least, most) = ends(&dataset, &by_graph);
    assert!(least > ends(&dataset, &config).0);
    check(&dataset, &by_graph, budget(1, least + (most - least) / 2), 0);
}

#[test]
fn runs_without_tiers_are_refused_as_tiers_are() {
    let (dataset, config) = data(None);
    let refused = |dataset: &Dataset, config: &TrainConfig| {
        CachePlan::new(dataset, config, budget(1, 1 << 40), 0).unwrap_err().to_string()
    };
    let of_kind = |kind| {
        let batch = BatchConfig { kind, ..BatchConfig::default() };
        refused(&dataset, &TrainConfig { batch, batch_size: None, ..config.clone() })
    };
    assert!(of_kind(BatchKind::Full).contains("full batches read the whole graph"));
    assert!(of_kind(BatchKind::Cluster).contains("GPUs sample neighbor batches"));
    let (coded, config_of_codes) = data(Some(CodecSpec::Int8));
    assert!(refused(&coded, &config_of_codes).contains("topk:8"));
    let indptr: Vec<u64> = (0..=dataset.n_nodes() as u64).collect();
    let sparse = Csr::new(dataset.n_nodes(), 9, indptr, vec![1; dataset.n_nodes()], None).unwrap();
    let sparse = Dataset { features: Some(Features::Sparse(sparse)), ..dataset.clone() };
    assert!(refused(&sparse, &config).contains("these are sparse: leave it out"));
    assert!(Plan::beside_rows(&TrainConfig::default(), &DataSizes::of(&dataset)).is_err());
}

#[test]
fn shares_are_of_all_nodes_bytes_and_reads() {
    let spec = "synth:planted,nodes=3000,degree=20,features=4,classes=3";
    let dataset = load(spec, &LoadOptions::default()).unwrap();
    let neighborhoods = Neighborhoods::new(&dataset.graph, Adjacency::new(false, Norm::Row)).unwrap();
    let tiers = CacheConfig {
        features: Some(CacheShares { every_gpu: 0.1, one_gpu: 0.4 }),
        topology: Some(CacheShares { every_gpu: 0.2, one_gpu: 0.0 }),
        ..CacheConfig::default()
    };
    let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![5, 5], ..BatchConfig::default() };
    let config = TrainConfig { tiers, batch, batch_size: Some(100), ..TrainConfig::default() };
    let seeds = &dataset.splits[0].train;
    let placed = Placements::new(&neighborhoods, (seeds, 16), &config, Some(2)).unwrap();
    let all_of = |of: &str| placed.shares.iter().filter(|share| share.of == of).collect::<Vec<_>>();
    for (of, names, bytes) in [
        ("features", &["every-gpu", "one-gpu", "host"][..], 3000 * 16),
        ("neighbors", &["every-gpu", "host"][..], 4 * dataset.graph.nnz() as u64),
    ] {
        let shares = all_of(of);
        assert_eq!(shares.iter().map(|share| share.tier.name()).collect::<Vec<_>>(), names);
        assert_eq!(shares.iter().map(|share| share.n_nodes).sum::<usize>(), 3000);
        assert_eq!(shares.iter().map(|share| share.bytes).sum::<u64>(), bytes);
        assert!((shares.iter().map(|share| share.reads).sum::<f64>() - 1.0).abs() < 1e-9);
        // The hottest tenth or fifth serves more than its share, and less than all.
        assert!(shares[0].reads > shares[0].n_nodes as f64 / 3000.0 * 1.2 && shares[0].reads < 0.9, "{shares:?}");
    }
}
