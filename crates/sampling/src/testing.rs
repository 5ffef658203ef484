//! Laws of samplers, strategies of graphs and fairness of draws, for tests of samplers from anywhere.
//!
//! ```
//! use girih_sampling::testing::{check_sampler, check_uniform};
//! use girih_sampling::{NeighborOptions, NeighborSampler};
//!
//! let sampler = NeighborSampler::new("3,2".parse()?, NeighborOptions::default())?;
//! check_sampler(&sampler);
//! check_uniform(&sampler, 3);
//! # Ok::<(), girih_sampling::SampleError>(())
//! ```

use std::collections::HashSet;

use girih_graph_format::{Coo, Csr, Duplicates, EdgeType, NodeType, Schema, TypedGraph};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseResult, TestRunner};

use crate::{Block, Columns, DrawKey, FanOut, MiniBatch, Neighbors, NodeId, Sampler, Subgraph, SubgraphSampler};

/// Number of random graphs that a law is checked on.
const CASES: u32 = 64;
/// Number of batches whose draws are counted.
const BATCHES: u32 = 20_000;
/// Number of neighbors from which [`check_uniform`] lets a node draw.
const DEGREE: usize = 40;

/// Adjacency with these edges, `(destination, source)`, each once.
///
/// # Panics
/// When an id is not below `n`.
#[must_use]
pub fn graph_of(n: usize, edges: impl IntoIterator<Item = (NodeId, NodeId)>) -> Csr {
    let (rows, cols) = edges.into_iter().unzip();
    let edges = Coo::new(n, n, rows, cols, None).expect("edges are pairs of nodes");
    edges.to_csr(Duplicates::Merge).expect("few edges")
}

/// Star: node 0 with the neighbors `1..=degree`, which have none.
#[must_use]
pub fn star(degree: usize) -> Csr {
    graph_of(degree + 1, (1..=degree as NodeId).map(|leaf| (0, leaf)))
}

/// Graph of `n` nodes whose degrees fall from hubs to leaves.
#[must_use]
pub fn hubs(n: NodeId) -> Csr {
    let row = |v: NodeId| (0..(1 + 4000 / (v + 1)).min(n)).map(move |i| (v, (v * 7 + i * i + i) % n));
    graph_of(n as usize, (0..n).flat_map(row))
}

/// Graphs of up to 60 nodes: sparse to dense, with self-loops and isolated nodes.
pub fn graphs() -> impl Strategy<Value = Csr> {
    (1..60usize).prop_flat_map(|n| {
        let edges = prop::collection::vec((0..n as NodeId, 0..n as NodeId), 0..8 * n);
        edges.prop_map(move |edges| graph_of(n, edges))
    })
}

/// Graph and some of its nodes, in any order.
pub fn graphs_and_seeds() -> impl Strategy<Value = (Csr, Vec<NodeId>)> {
    graphs().prop_flat_map(|graph| {
        let n = graph.n_rows();
        let seeds = Just((0..n as NodeId).collect::<Vec<_>>()).prop_shuffle();
        (Just(graph), seeds, 0..=n).prop_map(|(graph, mut seeds, len)| {
            seeds.truncate(len);
            (graph, seeds)
        })
    })
}

/// Typed graphs of one to three node types, which may be empty, and one to five relations, to some of which reverses are
/// added.
pub fn typed_graphs() -> impl Strategy<Value = TypedGraph> {
    let relation = (0..3usize, 0..3usize, prop::collection::vec(any::<(u16, u16)>(), 0..80), any::<bool>());
    let parts = (prop::collection::vec(0..25usize, 1..4), prop::collection::vec(relation, 1..6));
    parts.prop_map(|(sizes, relations)| {
        let node_types: Vec<NodeType> = sizes
            .iter()
            .enumerate()
            .map(|(number, &n_nodes)| NodeType { name: format!("type{number}"), n_nodes })
            .collect();
        let (mut edge_types, mut adjacencies) = (Vec::new(), Vec::new());
        for (number, (source, destination, pairs, _)) in relations.iter().enumerate() {
            let (source, destination) = (source % sizes.len(), destination % sizes.len());
            let (n_rows, n_cols) = (sizes[destination], sizes[source]);
            let is_empty = n_rows == 0 || n_cols == 0;
            let pairs = if is_empty { &[][..] } else { pairs };
            let of_pair = |&(v, u): &(u16, u16)| ((v as usize % n_rows) as NodeId, (u as usize % n_cols) as NodeId);
            let (rows, cols) = pairs.iter().map(of_pair).unzip();
            let edges = Coo::new(n_rows, n_cols, rows, cols, None).expect("pairs are in range");
            adjacencies.push(edges.to_csr(Duplicates::Merge).expect("few edges"));
            edge_types.push(EdgeType { relation: format!("r{number}"), source, destination, reverse_of: None });
        }
        let schema = Schema::new(node_types, edge_types).expect("names are unique");
        let graph = TypedGraph::new(schema, adjacencies).expect("shapes are those of the types");
        graph.with_reverses_of(|number| relations[number].3).expect("no relation has the name of a reverse")
    })
}

/// Fan-outs of one to three hops.
pub fn fan_outs() -> impl Strategy<Value = FanOut> {
    let count = (1..9u32).prop_map(Neighbors::Count);
    let hop = prop_oneof![5 => count, 1 => Just(Neighbors::All), 1 => Just(Neighbors::Count(70))];
    prop::collection::vec(hop, 1..4).prop_map(|hops| FanOut::new(hops).expect("counts are positive"))
}

/// Checks that the blocks of a batch belong together and to the graph.
///
/// - The destinations of the last block are the seeds, in their order.
/// - The nodes of a block are the destinations of the block before it. Each occurs once.
/// - Offsets ascend, columns are in range, and each edge is one of the graph. Edge ids, if any, name it.
///
/// # Errors
/// At the first law that does not hold.
pub fn check_blocks(graph: &Csr, seeds: &[NodeId], batch: &MiniBatch) -> TestCaseResult {
    prop_assert!(!batch.blocks.is_empty(), "a batch without blocks");
    prop_assert_eq!(batch.seeds(), seeds, "the last block computes the seeds");
    for pair in batch.blocks.windows(2) {
        prop_assert_eq!(pair[0].destinations(), &pair[1].nodes[..], "a block computes what the next one reads");
    }
    batch.blocks.iter().try_for_each(|block| check_block(graph, block))
}

fn check_block(graph: &Csr, block: &Block) -> TestCaseResult {
    let n_nodes = graph.n_rows();
    let distinct: HashSet<NodeId> = block.nodes.iter().copied().collect();
    prop_assert_eq!(distinct.len(), block.nodes.len(), "a node is listed twice: {:?}", block.nodes);
    prop_assert!(block.nodes.iter().all(|&node| (node as usize) < n_nodes), "a node that the graph has not");
    let n_columns = if block.columns == Columns::Local { block.nodes.len() } else { n_nodes };
    prop_assert_eq!(block.n_columns, n_columns, "number of columns");
    prop_assert_eq!(block.indptr.len(), block.n_destinations + 1, "number of offsets");
    prop_assert_eq!((block.indptr[0], block.indptr.last()), (0, Some(&(block.n_edges() as u64))), "ends of indptr");
    prop_assert!(block.indptr.is_sorted(), "offsets descend");
    prop_assert!(block.indices.iter().all(|&column| (column as usize) < n_columns), "a column out of range");
    for lengths in [block.edge_ids.len(), block.weights.len()] {
        prop_assert!(lengths == 0 || lengths == block.n_edges(), "edge ids or weights of some edges only");
    }
    for (row, &node) in block.destinations().iter().enumerate() {
        for at in block.indptr[row] as usize..block.indptr[row + 1] as usize {
            let source = block.node_of_column(block.indices[at]);
            prop_assert!(graph.row(node as usize).contains(&source), "the graph has no edge {source} → {node}");
            if let Some(&edge) = block.edge_ids.get(at) {
                prop_assert!(graph.row_range(node as usize).contains(&(edge as usize)), "edge {edge} in row {node}");
                prop_assert_eq!(graph.indices()[edge as usize], source, "source of edge {}", edge);
            }
        }
    }
    Ok(())
}

/// Checks the laws of [`Sampler`] on random graphs, seeds and keys.
///
/// - Blocks belong together and to the graph ([`check_blocks`]).
/// - One key gives one batch: again, on another thread, and in memory that another batch has used.
/// - Seeds that are listed twice or no nodes, and matrices that are no adjacency, are errors.
///
/// # Panics
/// When a law does not hold, with the smallest graph for which it fails.
pub fn check_sampler(sampler: &dyn Sampler) {
    let inputs = (graphs_and_seeds(), any::<(u64, u32, u32)>());
    check_on(inputs, |((graph, seeds), (seed, epoch, batch))| {
        let key = DrawKey::new(seed, epoch, batch);
        let found = sampler.sample(&graph, &seeds, key)?;
        check_blocks(&graph, &seeds, &found)?;
        let elsewhere = std::thread::scope(|scope| scope.spawn(|| sampler.sample(&graph, &seeds, key)).join());
        let elsewhere = elsewhere.expect("sampling does not panic")?;
        prop_assert_eq!(&elsewhere, &found, "another thread samples another batch");
        let mut reused = sampler.sample(&hubs(30), &[3, 1, 4], DrawKey::default())?;
        sampler.sample_into(&graph, &seeds, key, &mut reused)?;
        prop_assert_eq!(&reused, &found, "memory of another batch changes this one");
        Ok(())
    });
    let graph = star(3);
    for seeds in [&[4][..], &[0, 4], &[1, 1]] {
        let outcome = sampler.sample(&graph, seeds, DrawKey::default());
        assert!(outcome.is_err(), "seeds {seeds:?} of a graph of 4 nodes are not refused");
    }
    let outcome = sampler.sample(&Csr::empty(2, 3).expect("sizes"), &[0], DrawKey::default());
    assert!(outcome.is_err(), "a matrix of 2 × 3 is not refused");
}

/// Checks the laws of [`SubgraphSampler`] on one graph, for the batches of an epoch: nodes ascend, the block has all
/// edges among them and no others, and one key gives one subgraph.
///
/// # Panics
/// When a law does not hold, or a batch below `n_batches` is refused.
pub fn check_subgraph_sampler(sampler: &dyn SubgraphSampler, graph: &Csr, n_batches: u32) {
    for batch in 0..n_batches {
        let key = DrawKey::new(1, 0, batch);
        let found = sampler.sample(graph, key).expect("a batch of the epoch");
        assert!(found.nodes().is_sorted_by(|a, b| a < b), "nodes of batch {batch} do not ascend");
        assert_eq!(sampler.batch_nodes(graph, key).expect("its nodes"), found.nodes(), "nodes of batch {batch}");
        let all = Subgraph::induced(graph, found.nodes()).expect("distinct nodes").block;
        assert_eq!((&found.block.indptr, &found.block.indices), (&all.indptr, &all.indices), "edges of batch {batch}");
        assert_eq!(sampler.sample(graph, key).expect("the same batch"), found, "batch {batch} is not the same again");
    }
}

/// Checks that a node draws `count` of 40 neighbors, without replacement, each as likely as any other.
///
/// # Panics
/// When it draws another number, or frequencies differ by more than chance explains.
pub fn check_uniform(sampler: &dyn Sampler, count: usize) {
    let graph = star(DEGREE);
    let mut counts = vec![0.0; DEGREE];
    for number in 0..BATCHES {
        let batch = sampler.sample(&graph, &[0], DrawKey::new(1, 0, number)).expect("a seed of the graph");
        let block = batch.blocks.last().expect("a block");
        let mut drawn: Vec<NodeId> = block.row(0).iter().map(|&column| block.node_of_column(column)).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), count, "neighbors that batch {number} draws");
        drawn.iter().for_each(|&leaf| counts[leaf as usize - 1] += 1.0);
    }
    let (degree, share) = (DEGREE as f64, count as f64 / DEGREE as f64);
    let expected = f64::from(BATCHES) * share;
    // Counts of one batch are negatively correlated: var = p (1 − p), cov = −p (1 − p) / (d − 1).
    let variance = expected * (1.0 - share) * degree / (degree - 1.0);
    assert_fair(chi_square(&counts, |_| (expected, variance)), degree - 1.0);
}

/// Σ (found − expected)² / variance, where `expected` gives both for each position. Of `n` nearly independent normal
/// sums it is about n ± √(2n).
pub fn chi_square(found: &[f64], expected: impl Fn(usize) -> (f64, f64)) -> f64 {
    found.iter().enumerate().map(|(i, f)| (f - expected(i).0).powi(2) / expected(i).1).sum()
}

/// Checks a value of [`chi_square`]. Fair draws fail less than once in a hundred thousand times.
///
/// # Panics
/// When it is too large, or too small to be of random draws.
pub fn assert_fair(chi_square: f64, degrees_of_freedom: f64) {
    let far = 4.3 * (2.0 * degrees_of_freedom).sqrt();
    let distance = chi_square - degrees_of_freedom;
    assert!(distance < far + 8.0 && distance > -far, "chi-square {chi_square} for {degrees_of_freedom}");
}

/// Checks that means of estimates are the expected values, within what chance explains and `tolerance` of them.
///
/// # Panics
/// When a mean is not.
pub fn assert_unbiased(estimates: impl Iterator<Item = Vec<f64>>, expected: &[f64], tolerance: f64) {
    let (mut n, mut sums, mut squares) = (0.0, vec![0.0; expected.len()], vec![0.0; expected.len()]);
    for estimate in estimates {
        n += 1.0;
        for (i, value) in estimate.into_iter().enumerate() {
            sums[i] += value;
            squares[i] += value * value;
        }
    }
    for (i, &expected) in expected.iter().enumerate() {
        let mean = sums[i] / n;
        let deviation = ((squares[i] / n - mean * mean).max(0.0) / n).sqrt();
        let far = 4.5 * deviation + tolerance * expected.abs() + 1e-5 * expected.abs();
        assert!((mean - expected).abs() <= far, "{i}: {mean} ± {deviation}, not {expected}");
    }
}

/// Runs a law on random inputs, the same in each call.
fn check_on<S: Strategy>(inputs: S, law: impl Fn(S::Value) -> TestCaseResult) {
    let config = Config { cases: CASES, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Config::default() };
    if let Err(failure) = TestRunner::new(config).run(&inputs, law) {
        panic!("{failure}");
    }
}
