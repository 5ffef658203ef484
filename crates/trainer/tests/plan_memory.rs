//! Compares the planned memory with the memory that training allocates, as counted by the allocator.
//!
//! This is the only test of the program: other tests would allocate at the same time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use girih_compress::CodecSpec;
use girih_compute::{Cpu, Dtype, Rates};
use girih_datasets::{Dataset, LoadOptions, load};
use girih_trainer::models::{BuildModel, Model};
use girih_trainer::{
    BatchConfig, BatchKind, Control, DataSizes, Dims, Event, FullBatch, Inputs, ModelConfig, ModelKind, ParamInit,
    Params, Plan, Run, ScoreBy, SessionOptions, Targets, Task, TaskKind, TrainConfig,
};

/// System allocator that counts live and peak bytes.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded to `System` unchanged; counting does not touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `pointer` came from `System` with this layout, as the caller guarantees.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn dataset() -> Dataset {
    load("synth:planted,nodes=10000,degree=20,features=100,classes=10", &LoadOptions::default()).unwrap()
}

fn sizes(dataset: &Dataset) -> DataSizes {
    let (n_nodes, n_edges) = (dataset.n_nodes(), dataset.n_edges());
    DataSizes {
        n_train: dataset.splits[0].train.len(),
        n_scored: dataset.splits[0].nodes().len(),
        ..DataSizes::undirected(n_nodes, n_edges, dataset.n_features(), dataset.n_classes())
    }
}

fn build(cpu: &Cpu, config: &TrainConfig, dims: Dims) -> (Box<dyn Model<Cpu>>, Params<Cpu>) {
    let mut init = ParamInit::new(cpu, config.seed, 0);
    let model = config.model.build(dims, &mut init).unwrap();
    (model, init.finish())
}

/// Peak of live bytes during epochs: inputs, parameters and a step's buffers, without the host's copies, which are
/// already freed.
fn measured_peak(config: &TrainConfig) -> usize {
    let cpu = Cpu::new();
    let baseline = LIVE.load(Ordering::Relaxed);
    let dataset = dataset();
    let dims = Dims::of(&dataset);
    let labels = dataset.labels.unwrap();
    let targets = Targets::upload(&cpu, &labels).unwrap();
    let (model, params) = build(&cpu, config, dims);
    let input_spec = model.input_spec();
    let inputs =
        Inputs::prepare(&cpu, dataset.graph, dataset.features.unwrap(), &input_spec, config.precision).unwrap();
    PEAK.store(LIVE.load(Ordering::Relaxed), Ordering::Relaxed);
    let task = Task::new(&cpu, &labels, &targets, &dataset.splits[0]).unwrap();
    let mut run = FullBatch::new(&cpu, &inputs, task, config, model, params, 0).unwrap();
    for _ in 0..2 {
        run.epoch().unwrap();
    }
    PEAK.load(Ordering::Relaxed) - baseline
}

/// As [`measured_peak`], but for a whole session, from the moment when graph and features are prepared.
fn measured_session_peak(dataset: Dataset, config: &TrainConfig) -> usize {
    let (cpu, baseline) = (Cpu::new(), LIVE.load(Ordering::Relaxed));
    let mut observe = |event: Event<'_>| {
        if matches!(event, Event::Prepared) {
            PEAK.store(LIVE.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Control::Continue
    };
    girih_trainer::train(&cpu, dataset, config, &SessionOptions::default(), &mut observe).unwrap();
    PEAK.load(Ordering::Relaxed) - baseline
}

/// Uses one thread, so that its scratch memory, unknown to plans, is allocated once and before the first measurement.
#[test]
fn the_planned_peak_is_within_a_factor_of_two_of_the_measured_one() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    pool.install(compare_plans);
    pool.install(compare_plans_of_types);
}

/// Batches of a graph with types, of which the plan knows mean numbers of neighbors.
fn compare_plans_of_types() {
    let data = || load("synth:ogbn-mag@0.006", &LoadOptions::default()).unwrap();
    let (sizes, rates) = (DataSizes::of(&data()), Rates { stream_bytes: 1e10, gather_bytes: 2e10, flops: 1e11 });
    for kind in [ModelKind::Hsage, ModelKind::Rgat] {
        for (fanout, score_by) in
            [(vec![5, 5], ScoreBy::Samples), (vec![5, 5], ScoreBy::Graph), (vec![2, 9, 3], ScoreBy::Samples)]
        {
            let usual = TrainConfig::for_model(kind);
            let model = ModelConfig { hidden: 16, layers: fanout.len(), ..usual.model.clone() };
            let batch =
                BatchConfig { kind: BatchKind::Neighbor, fanout, score_by: Some(score_by), ..usual.batch.clone() };
            let config = TrainConfig { model, batch, batch_size: Some(40), epochs: 1, ..usual };
            let planned = Plan::new(&config, &sizes, rates).unwrap().peak_bytes as f64;
            let ratio = planned / measured_session_peak(data(), &config) as f64;
            let fanout = &config.batch.fanout;
            assert!((0.8..4.0).contains(&ratio), "{kind:?} {fanout:?} {score_by:?}: plan / measured {ratio}");
        }
    }
}

fn compare_plans() {
    measured_peak(&TrainConfig::default());
    let sizes = sizes(&dataset());
    let rates = Rates { stream_bytes: 1e10, gather_bytes: 2e10, flops: 1e11 };
    for kind in [ModelKind::Gcn, ModelKind::Sgc, ModelKind::Sage, ModelKind::Mlp] {
        for input_dropout in [Some(0.0), None] {
            for precision in [Dtype::F32, Dtype::Bf16] {
                let model = ModelConfig { kind, hidden: 64, input_dropout, ..ModelConfig::default() };
                let config = TrainConfig { model, precision, ..TrainConfig::default() };
                let planned = Plan::new(&config, &sizes, rates).unwrap().peak_bytes as f64;
                let ratio = planned / measured_peak(&config) as f64;
                assert!(
                    (0.5..2.0).contains(&ratio),
                    "{kind:?} {input_dropout:?} {precision:?}: plan / measured {ratio}"
                );
            }
        }
    }
    for (kind, input_dropout) in [(ModelKind::Sage, Some(0.0)), (ModelKind::Gcn, None)] {
        for (batch_kind, codec, score_by) in [
            (BatchKind::Neighbor, None, None),
            (BatchKind::Neighbor, None, Some(ScoreBy::Layers)),
            (BatchKind::Saint, None, None),
            (BatchKind::Saint, None, Some(ScoreBy::Layers)),
            (BatchKind::Neighbor, Some(CodecSpec::Topk(8)), None),
            (BatchKind::Neighbor, Some(CodecSpec::Topk(8)), Some(ScoreBy::Layers)),
            (BatchKind::Full, Some(CodecSpec::Topk(8)), None),
            (BatchKind::Full, Some(CodecSpec::Int8), None),
            (BatchKind::Full, None, None),
        ] {
            let model = ModelConfig { kind, hidden: 64, input_dropout, ..ModelConfig::default() };
            let batch = BatchConfig { kind: batch_kind, score_by, ..BatchConfig::default() };
            let batch_size = (batch_kind != BatchKind::Full).then_some(500);
            let config = TrainConfig { model, batch, batch_size, codec, epochs: 2, ..TrainConfig::default() };
            let planned = Plan::new(&config, &sizes, rates).unwrap().peak_bytes as f64;
            let ratio = planned / measured_session_peak(dataset(), &config) as f64;
            let within = if batch_kind == BatchKind::Full { 0.7..2.0 } else { 0.9..4.0 };
            assert!(within.contains(&ratio), "{kind:?} {batch_kind:?} {codec:?} {score_by:?}: plan / measured {ratio}");
        }
    }
    for (batch_kind, batch_size) in [(BatchKind::Full, None), (BatchKind::Neighbor, Some(2000))] {
        let links = TrainConfig::for_task(TaskKind::Links, ModelKind::Gcn);
        let batch = BatchConfig { kind: batch_kind, ..BatchConfig::default() };
        let config = TrainConfig { batch, batch_size, epochs: 2, ..links };
        let planned = Plan::new(&config, &sizes, rates).unwrap().peak_bytes as f64;
        let ratio = planned / measured_session_peak(dataset(), &config) as f64;
        assert!((0.5..4.0).contains(&ratio), "links, {batch_kind:?}: plan / measured {ratio}");
    }
}
