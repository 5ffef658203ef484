//! Mini-batches: edges exist in the graph, fan-outs are respected, and blocks are valid.

use std::collections::BTreeSet;

use girih_graph_format::Csr;
use girih_sampling::relabel::{NewNodes, Relabel};
use girih_sampling::{
    Bias, Block, Columns, DrawKey, Draws as Share, ExcludedEdges, Expand, FanOut, LayerSampler, MiniBatch,
    NeighborOptions, NeighborSampler, Neighbors, NodeId, Sampler,
};

use crate::campaign::for_each_seed;
use crate::graphs::{Draws, SmallGraph};

#[test]
fn neighbors_are_as_many_as_asked_for_and_of_the_graph() {
    for_each_seed("neighbor sampler", 400, check_neighbors);
}

#[test]
fn all_neighbors_are_those_of_a_plain_search() {
    for_each_seed("neighbor sampler without a limit", 400, check_all_neighbors);
}

#[test]
fn layers_have_all_edges_from_the_nodes_drawn() {
    for_each_seed("layer sampler", 400, check_layers);
}

/// Distinct random seeds in random order, possibly none.
pub fn seeds(draws: &mut Draws, graph: &SmallGraph) -> Vec<NodeId> {
    let all = draws.shuffled((0..graph.n as u32).collect());
    let n_seeds = draws.below(graph.n + 1);
    all.into_iter().take(n_seeds).collect()
}

pub fn key(draws: &mut Draws) -> DrawKey {
    DrawKey::new(draws.below(5) as u64, draws.below(3) as u32, draws.below(3) as u32)
}

fn fan_out(draws: &mut Draws, one_in_all: usize) -> FanOut {
    let n_hops = draws.between(1, 3);
    let hop = |draws: &mut Draws| {
        if draws.one_in(one_in_all) { Neighbors::All } else { Neighbors::Count(draws.between(1, 6) as u32) }
    };
    FanOut::new((0..n_hops).map(|_| hop(draws)).collect::<Vec<_>>()).unwrap()
}

fn options(draws: &mut Draws) -> NeighborOptions {
    let share = draws.one_of(&[Share::PerNode, Share::PerNode, Share::PerLayer, Share::Labor]);
    let relabel = draws.one_of(&[Relabel::ToBlock, Relabel::ToBlockFast, Relabel::Fused, Relabel::Rank]);
    let new_nodes = if relabel == Relabel::Rank {
        NewNodes::default()
    } else {
        draws.one_of(&[NewNodes::FirstSeen, NewNodes::Ascending])
    };
    NeighborOptions {
        replace: share != Share::Labor && draws.one_in(3),
        draws: share,
        expand: draws.one_of(&[Expand::PerLayer, Expand::Once]),
        edge_ids: true,
        inputs: draws.one_of(&[Columns::Local, Columns::Local, Columns::Global]),
        relabel,
        new_nodes,
    }
}

/// Edges that may be drawn, by row: not excluded and, for weighted sampling, of positive weight.
struct Available {
    edges: Vec<Vec<u64>>,
}

impl Available {
    fn new(csr: &Csr, excluded: &[u64], weighted: bool) -> Self {
        let may = |edge: u64| {
            let weighs = !weighted || csr.values().is_none_or(|values| values[edge as usize] > 0.0);
            weighs && !excluded.contains(&edge)
        };
        let row = |v: usize| csr.row_range(v).map(|edge| edge as u64).filter(|&edge| may(edge)).collect();
        Self { edges: (0..csr.n_rows()).map(row).collect() }
    }

    fn of(&self, v: NodeId) -> &[u64] {
        &self.edges[v as usize]
    }
}

fn check_neighbors(seed: u64) {
    let draws = &mut Draws::new(seed, 1);
    let graph = SmallGraph::new(draws);
    let (options, fan_out) = (options(draws), fan_out(draws, 6));
    let (seeds, key) = (seeds(draws, &graph), key(draws));
    let weighted = options.draws != Share::Labor && !graph.has_negative() && draws.one_in(3);
    let excluded: Vec<u64> =
        if draws.one_in(3) { (0..graph.csr.nnz() as u64).filter(|_| draws.one_in(4)).collect() } else { Vec::new() };
    let mut sampler = NeighborSampler::new(fan_out.clone(), options).unwrap();
    if weighted {
        sampler = sampler.weighted(Bias::of(&graph.csr).unwrap());
    }
    let sample = |sampler: &NeighborSampler, batch: &mut MiniBatch| {
        let excluded = ExcludedEdges::new(excluded.clone());
        sampler.sample_excluding(&graph.csr, &seeds, key, &excluded, batch).unwrap();
    };
    let (mut batch, mut again) = (MiniBatch::default(), MiniBatch::default());
    sample(&sampler, &mut batch);
    sample(&sampler, &mut again);
    assert_eq!(batch, again, "the same key");
    assert_eq!(batch.digest(), again.digest());

    let available = Available::new(&graph.csr, &excluded, weighted);
    check_frontiers(&batch, &seeds, graph.n);
    for (hop, &neighbors) in fan_out.hops().iter().enumerate() {
        let block = &batch.blocks[fan_out.hops().len() - 1 - hop];
        check_edges(&graph.csr, block, &available);
        // With `Once`, nodes of the previous hop keep their neighbors.
        let n_kept = match (options.expand, hop) {
            (Expand::Once, 1..) => {
                let nearer = &batch.blocks[fan_out.hops().len() - hop];
                assert_eq!(block.edge_ids[..nearer.n_edges()], nearer.edge_ids[..]);
                nearer.n_destinations
            }
            _ => 0,
        };
        check_counts(block, n_kept, neighbors, options, &available);
    }
}

/// Checks that blocks follow each other from the seeds outward, without duplicate nodes.
fn check_frontiers(batch: &MiniBatch, seeds: &[NodeId], n: usize) {
    let mut destinations = seeds;
    for block in batch.blocks.iter().rev() {
        assert_eq!(block.destinations(), destinations, "sources of the next block");
        let distinct: BTreeSet<NodeId> = block.nodes.iter().copied().collect();
        assert_eq!(distinct.len(), block.nodes.len(), "a node twice");
        assert!(distinct.iter().all(|&v| (v as usize) < n));
        assert_eq!(block.indptr.len(), block.n_destinations + 1);
        assert_eq!((block.indptr[0], *block.indptr.last().unwrap()), (0, block.n_edges() as u64));
        assert!(block.indptr.is_sorted());
        let n_columns = if block.columns == Columns::Global { n } else { block.nodes.len() };
        assert_eq!(block.n_columns, n_columns);
        assert!(block.indices.iter().all(|&column| (column as usize) < n_columns));
        if block.columns == Columns::Local {
            let sources: BTreeSet<NodeId> = block.indices.iter().copied().collect();
            assert!((block.n_destinations..block.nodes.len()).all(|local| sources.contains(&(local as NodeId))));
        }
        let csr = block.to_csr().unwrap();
        assert_eq!((csr.n_rows(), csr.n_cols()), (block.n_destinations, n_columns));
        destinations = &block.nodes;
    }
}

fn row_of(block: &Block, v: usize) -> std::ops::Range<usize> {
    block.indptr[v] as usize..block.indptr[v + 1] as usize
}

/// Checks that every edge may be drawn for its row, and has the right source.
fn check_edges(csr: &Csr, block: &Block, available: &Available) {
    for (v, &node) in block.destinations().iter().enumerate() {
        for e in row_of(block, v) {
            let edge = block.edge_ids[e];
            assert!(available.of(node).contains(&edge), "edge {edge} of node {node}");
            assert_eq!(csr.indices()[edge as usize], block.node_of_column(block.indices[e]));
        }
    }
}

/// Checks the number of edges against the fan-out, their weights, and their distinctness unless drawn with
/// replacement.
fn check_counts(block: &Block, n_kept: usize, neighbors: Neighbors, options: NeighborOptions, available: &Available) {
    let mut total = 0;
    for (v, &node) in block.destinations().iter().enumerate().skip(n_kept) {
        let (drawn, n_available) = (&block.edge_ids[row_of(block, v)], available.of(node).len());
        total += drawn.len();
        let distinct: BTreeSet<u64> = drawn.iter().copied().collect();
        match (neighbors, options.draws) {
            (Neighbors::All, _) => assert_eq!((drawn, distinct.len()), (available.of(node), n_available)),
            (Neighbors::Count(count), Share::PerNode) if options.replace => {
                assert_eq!(drawn.len(), if n_available == 0 { 0 } else { count as usize });
            }
            (Neighbors::Count(count), Share::PerNode) => {
                assert_eq!((drawn.len(), distinct.len()), (n_available.min(count as usize), drawn.len()));
            }
            (_, Share::PerLayer) => assert!(options.replace || distinct.len() == drawn.len()),
            (Neighbors::Count(count), Share::Labor) => {
                assert_eq!(distinct.len(), drawn.len());
                assert!(n_available > count as usize || drawn.len() == n_available, "all where there are few");
                let weight = (n_available as f32 / count as f32).max(1.0);
                let weights = &block.weights[row_of(block, v)];
                assert!(weights.iter().all(|w| (w - weight).abs() <= 1e-6 * weight), "{weights:?}, {weight}");
            }
        }
    }
    if let (Neighbors::Count(count), Share::PerLayer) = (neighbors, options.draws) {
        let frontier = &block.destinations()[n_kept..];
        let any = frontier.iter().any(|&node| !available.of(node).is_empty());
        let asked = if any { count as usize } else { 0 };
        assert!(if options.replace { total == asked } else { total <= asked }, "{total} of {asked} draws");
    }
}

/// Nodes within `n_steps` steps of the seeds, from the edge list.
fn reached(graph: &SmallGraph, seeds: &[NodeId], n_steps: usize) -> BTreeSet<NodeId> {
    let mut reached: BTreeSet<NodeId> = seeds.iter().copied().collect();
    for _ in 0..n_steps {
        let more: Vec<NodeId> = graph.edges.iter().filter(|(v, ..)| reached.contains(v)).map(|&(_, u, _)| u).collect();
        reached.extend(more);
    }
    reached
}

fn check_all_neighbors(seed: u64) {
    let draws = &mut Draws::new(seed, 2);
    let graph = SmallGraph::new(draws);
    let (seeds, key, n_hops) = (seeds(draws, &graph), key(draws), draws.between(1, 4));
    let limit = draws.one_of(&[Neighbors::All, Neighbors::Count(24), Neighbors::Count(FanOut::MAX)]);
    let options = NeighborOptions { inputs: Columns::Local, replace: false, ..options(draws) };
    let options =
        NeighborOptions { draws: if limit == Neighbors::All { options.draws } else { Share::PerNode }, ..options };
    let sampler = NeighborSampler::new(FanOut::new(vec![limit; n_hops]).unwrap(), options).unwrap();
    let batch = sampler.sample(&graph.csr, &seeds, key).unwrap();
    check_frontiers(&batch, &seeds, graph.n);
    for (hop, block) in batch.blocks.iter().rev().enumerate() {
        let nodes: BTreeSet<NodeId> = block.nodes.iter().copied().collect();
        assert_eq!(nodes, reached(&graph, &seeds, hop + 1), "after {hop} hops");
        for (v, &node) in block.destinations().iter().enumerate() {
            let mut sources: Vec<NodeId> = block.row(v).iter().map(|&c| block.node_of_column(c)).collect();
            sources.sort_unstable();
            assert_eq!(sources, graph.csr.row(node as usize));
        }
    }
}

fn check_layers(seed: u64) {
    let draws = &mut Draws::new(seed, 3);
    let graph = SmallGraph::new(draws);
    let (sizes, seeds, key) = (fan_out(draws, 4), seeds(draws, &graph), key(draws));
    let (replace, ladies) = (draws.one_in(2), draws.one_in(2));
    let sampler = match ladies {
        true => LayerSampler::ladies(sizes.clone(), replace),
        false => LayerSampler::fast_gcn(&graph.csr, sizes.clone(), replace).unwrap(),
    };
    let batch = sampler.sample(&graph.csr, &seeds, key).unwrap();
    assert_eq!(batch, sampler.sample(&graph.csr, &seeds, key).unwrap(), "the same key");
    check_frontiers(&batch, &seeds, graph.n);
    for (block, &size) in batch.blocks.iter().rev().zip(sizes.hops()) {
        check_layer(&graph.csr, block, size, replace);
    }
}

/// Checks that a block has all edges from the drawn nodes to the destinations, with one weight per source.
fn check_layer(csr: &Csr, block: &Block, size: Neighbors, replace: bool) {
    let drawn: BTreeSet<NodeId> = block.indices.iter().map(|&column| block.node_of_column(column)).collect();
    let mut weight_of = std::collections::BTreeMap::new();
    for (v, &node) in block.destinations().iter().enumerate() {
        let edges = row_of(block, v);
        let sources: Vec<NodeId> = edges.clone().map(|e| csr.indices()[block.edge_ids[e] as usize]).collect();
        let listed: Vec<NodeId> = edges.clone().map(|e| block.node_of_column(block.indices[e])).collect();
        assert_eq!(sources, listed);
        let expected: Vec<NodeId> = csr.row(node as usize).iter().copied().filter(|u| drawn.contains(u)).collect();
        assert_eq!(listed, expected, "edges of node {node}");
        assert!(edges.clone().all(|e| csr.row_range(node as usize).contains(&(block.edge_ids[e] as usize))));
        for e in edges {
            let weight = block.weights[e];
            assert!(weight.is_finite() && weight > 0.0);
            assert_eq!(*weight_of.entry(block.indices[e]).or_insert(weight), weight, "one weight for a source");
        }
    }
    match size {
        Neighbors::All => {
            let all: BTreeSet<NodeId> =
                block.destinations().iter().flat_map(|&v| csr.row(v as usize)).copied().collect();
            assert_eq!(drawn, all);
            assert!(block.weights.iter().all(|&w| w == 1.0));
        }
        Neighbors::Count(count) => assert!(!replace || drawn.len() <= count as usize),
    }
}
