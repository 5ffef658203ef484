//! Blocks of three hops on a generated graph, by each way to relabel, on one thread and with a batch on each of two.
//!
//! `cargo bench -p girih-sampling`; `GIRIH_GRAPH` names another graph than `synth:reddit,degree=98,features=0`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use girih_datasets::{LoadOptions, load};
use girih_graph_format::Csr;
use girih_sampling::relabel::{NewNodes, Relabel};
use girih_sampling::{Columns, EpochPlan, Loader, LoaderOptions, MiniBatch, NeighborOptions, NeighborSampler, Sampler};

const FAN_OUT: &str = "15,10,5";

/// What is compared: the operators as their papers have them (new nodes as first seen), and variants of the fastest.
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

/// Seconds for `n_batches` batches, shared out over threads.
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

fn blocks(criterion: &mut Criterion) {
    let spec = std::env::var("GIRIH_GRAPH").unwrap_or_else(|_| "synth:reddit,degree=98,features=0".into());
    let graph = load(&spec, &LoadOptions::default()).expect("a graph").graph;
    for batch_size in [1000, 8000] {
        let options = LoaderOptions { batch_size, drop_last: true, ..LoaderOptions::default() };
        for (name, neighbor_options) in variants() {
            let sampler =
                NeighborSampler::new(FAN_OUT.parse().expect("a fan-out"), neighbor_options).expect("a sampler");
            let seeds = (0..graph.n_rows() as u32).collect();
            let loader = Loader::new(&graph, sampler, seeds, options).expect("a loader");
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

criterion_group!(benches, blocks);
criterion_main!(benches);
