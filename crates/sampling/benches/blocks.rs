//! Benchmark of blocks of three hops on a generated graph, for each relabelling operator. It samples on one thread,
//! and on two threads with a batch each. Batches of the other samplers are timed on one thread.
//!
//! Run it with `cargo bench -p girih-sampling`. `GIRIH_GRAPH` replaces the graph `synth:reddit,degree=98,features=0`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use girih_datasets::{LoadOptions, load};
use girih_graph_format::Csr;
use girih_sampling::relabel::{NewNodes, Relabel};
use girih_sampling::{
    ClusterSampler, Columns, DrawKey, Draws, EpochPlan, LayerSampler, LoaderOptions, MiniBatch, NeighborOptions,
    NeighborSampler, NodeId, RandomWalks, SaintSampler, Sampler, SeedLoader, SubgraphSampler, WalkOptions,
};

const FAN_OUT: &str = "15,10,5";

/// Compared variants: the operators as in their papers (new nodes as first seen), and variants of the fastest.
fn variants() -> Vec<(String, NeighborOptions)> {
    let plain = NeighborOptions::default();
    let first_seen = NeighborOptions { new_nodes: NewNodes::FirstSeen, ..plain };
    let hashing = Relabel::ALL.into_iter().filter(|&relabel| relabel != Relabel::Rank);
    let mut variants: Vec<_> =
        hashing.map(|relabel| (relabel.to_string(), NeighborOptions { relabel, ..first_seen })).collect();
    variants.push(("fused, ascending".into(), NeighborOptions { relabel: Relabel::Fused, ..plain }));
    variants.push(("rank".into(), plain));
    variants.push(("rank, edge ids".into(), NeighborOptions { edge_ids: true, ..plain }));
    variants.push(("rank, global inputs".into(), NeighborOptions { inputs: Columns::Global, ..plain }));
    variants
}

/// Duration of sampling `n_batches` batches, divided among threads.
fn sample(sampler: &NeighborSampler, graph: &Csr, plan: &EpochPlan, n_batches: usize, n_threads: usize) -> Duration {
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..n_threads {
            scope.spawn(|| {
                let mut batch = MiniBatch::default();
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= n_batches {
                        return;
                    }
                    let at = at % plan.n_batches();
                    sampler.sample_into(graph, plan.seeds(at), plan.key(at), &mut batch).expect("a valid batch");
                }
            });
        }
    });
    start.elapsed()
}

fn generated_graph() -> Csr {
    let spec = std::env::var("GIRIH_GRAPH").unwrap_or_else(|_| "synth:reddit,degree=98,features=0".into());
    load(&spec, &LoadOptions::default()).expect("a graph").graph
}

fn blocks(criterion: &mut Criterion) {
    let graph = generated_graph();
    for batch_size in [1000, 8000] {
        let options = LoaderOptions { batch_size, drop_last: true, ..LoaderOptions::default() };
        for (name, neighbor_options) in variants() {
            let sampler =
                NeighborSampler::new(FAN_OUT.parse().expect("a fan-out"), neighbor_options).expect("a sampler");
            let seeds = (0..graph.n_rows() as u32).collect();
            let loader = SeedLoader::new(&graph, sampler, seeds, options).expect("a loader");
            let (sampler, plan) = (loader.sampler(), loader.plan(0));
            let edges = sampler.sample(&graph, plan.seeds(0), plan.key(0)).expect("a batch").n_edges();
            let mut group = criterion.benchmark_group(format!("{FAN_OUT} of {batch_size}"));
            group.sample_size(15).measurement_time(Duration::from_millis(800)).warm_up_time(Duration::from_millis(300));
            group.throughput(Throughput::Elements(edges as u64));
            for threads in [1, 2] {
                group.bench_function(format!("{name}, {threads} threads"), |bencher| {
                    bencher.iter_custom(|batches| sample(sampler, &graph, &plan, batches as usize, threads));
                });
            }
        }
    }
}

/// Sampler of one batch; returns the number of edges of the batch.
type Batches<'a> = Box<dyn FnMut(DrawKey) -> usize + Send + 'a>;

/// Samplers of blocks for a thousand seeds.
fn of_seeds(graph: &Csr) -> Vec<(&'static str, Batches<'_>)> {
    let seeds: Vec<NodeId> = (0..1000).map(|i| i * (graph.n_rows() as NodeId / 1000)).collect();
    let neighbors = |draws| {
        let options = NeighborOptions { draws, ..NeighborOptions::default() };
        let fan_out = if draws == Draws::PerLayer { "15000,100000,300000" } else { FAN_OUT };
        Box::new(NeighborSampler::new(fan_out.parse().expect("a fan-out"), options).expect("a sampler"))
    };
    let sizes = || "4000,8000,16000".parse().expect("sizes");
    let samplers: [(_, Box<dyn Sampler>); 7] = [
        ("per node", neighbors(Draws::PerNode)),
        ("per layer", neighbors(Draws::PerLayer)),
        ("LABOR", neighbors(Draws::Labor)),
        ("FastGCN", Box::new(LayerSampler::fast_gcn(graph, sizes(), true).expect("a sampler"))),
        ("FastGCN, Poisson", Box::new(LayerSampler::fast_gcn(graph, sizes(), false).expect("a sampler"))),
        ("LADIES", Box::new(LayerSampler::ladies(sizes(), true))),
        ("LADIES, Poisson", Box::new(LayerSampler::ladies(sizes(), false))),
    ];
    let batches = samplers.map(|(name, sampler)| {
        let (seeds, mut batch) = (seeds.clone(), MiniBatch::default());
        let batches: Batches<'_> = Box::new(move |key| {
            sampler.sample_into(graph, &seeds, key, &mut batch).expect("a batch");
            batch.n_edges()
        });
        (name, batches)
    });
    batches.into()
}

/// Samplers of subgraphs of about six thousand nodes, and of walks.
fn of_subgraphs(graph: &Csr) -> Vec<(&'static str, Batches<'_>)> {
    let cluster_of: Vec<u32> = (0..graph.n_rows() as u32).map(|v| v / 300).collect();
    let n_clusters = cluster_of.last().map_or(0, |&last| last as usize + 1);
    let samplers: [(_, Box<dyn SubgraphSampler>); 4] = [
        ("clusters", Box::new(ClusterSampler::new(&cluster_of, n_clusters, 20).expect("a sampler"))),
        ("SAINT nodes", Box::new(SaintSampler::nodes(graph, 6000).expect("a sampler"))),
        ("SAINT edges", Box::new(SaintSampler::edges(graph, 3000).expect("a sampler"))),
        ("SAINT walks", Box::new(SaintSampler::walks(graph, 2000, 2, 20, 1).expect("a sampler"))),
    ];
    let batches = samplers.map(|(name, sampler)| {
        let mut subgraph = Default::default();
        let batches: Batches<'_> = Box::new(move |key| {
            sampler.sample_into(graph, key, &mut subgraph).expect("a batch");
            subgraph.block.n_edges()
        });
        (name, batches)
    });
    let (walks, starts) =
        (RandomWalks::new(WalkOptions::new(20)).expect("walks"), (0..10_000).collect::<Vec<NodeId>>());
    let walked: Batches<'_> =
        Box::new(move |key| walks.walk(graph, &starts, key).expect("walks").nodes.len() - starts.len());
    batches.into_iter().chain([("walks of 20 steps", walked)]).collect()
}

fn others(criterion: &mut Criterion) {
    let graph = generated_graph();
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    for (name, mut batches) in of_seeds(&graph).into_iter().chain(of_subgraphs(&graph)) {
        let mut group = criterion.benchmark_group("one thread");
        group.sample_size(10).measurement_time(Duration::from_millis(800)).warm_up_time(Duration::from_millis(300));
        group.throughput(Throughput::Elements(batches(DrawKey::new(0, 0, 0)) as u64));
        let mut number = 0;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                number = (number + 1) % 30;
                let key = DrawKey::new(0, 0, number);
                one_thread.install(|| batches(key))
            });
        });
    }
}

criterion_group!(benches, blocks, others);
criterion_main!(benches);
