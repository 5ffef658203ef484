//! Subgraphs: clusters and GraphSAINT samples have all edges among their nodes, with the published weights.

use std::collections::BTreeSet;

use girih_sampling::{ClusterSampler, DrawKey, NodeId, SaintSampler, Subgraph, SubgraphSampler};

use crate::campaign::for_each_seed;
use crate::graphs::{Draws, SmallGraph};
use crate::samplers::{key, seeds};

#[test]
fn clusters_share_all_nodes_out() {
    for_each_seed("clusters", 400, check_clusters);
}

#[test]
fn saint_weights_are_the_chances_of_the_paper() {
    for_each_seed("GraphSAINT", 400, check_saint);
}

/// Checks that a subgraph has all edges among `nodes`, in node order.
fn check_induced(graph: &SmallGraph, subgraph: &Subgraph, nodes: &[NodeId]) {
    let block = &subgraph.block;
    assert_eq!(subgraph.nodes(), nodes);
    assert_eq!((block.n_destinations, block.n_columns), (nodes.len(), nodes.len()));
    assert_eq!(block.indptr.len(), nodes.len() + 1);
    for (v, &node) in nodes.iter().enumerate() {
        let edges = block.indptr[v] as usize..block.indptr[v + 1] as usize;
        let found: Vec<(u64, NodeId)> = edges.map(|e| (block.edge_ids[e], nodes[block.indices[e] as usize])).collect();
        let expected: Vec<(u64, NodeId)> = graph
            .csr
            .row_range(node as usize)
            .map(|edge| (edge as u64, graph.csr.indices()[edge]))
            .filter(|(_, source)| nodes.contains(source))
            .collect();
        assert_eq!(found, expected, "edges of node {node}");
    }
}

fn check_clusters(seed: u64) {
    let draws = &mut Draws::new(seed, 5);
    let graph = SmallGraph::new(draws);
    let listed = seeds(draws, &graph);
    check_induced(&graph, &Subgraph::induced(&graph.csr, &listed).unwrap(), &listed);
    let n_clusters = draws.between(1, graph.n + 2);
    let cluster_of: Vec<u32> = (0..graph.n).map(|_| draws.below(n_clusters) as u32).collect();
    let sampler = ClusterSampler::new(&cluster_of, n_clusters, draws.between(1, n_clusters + 1)).unwrap();
    let key = key(draws);
    let mut seen = Vec::new();
    for batch in 0..sampler.n_batches() as u32 {
        let key = DrawKey { batch, ..key };
        let clusters = sampler.clusters(key).unwrap();
        let nodes: Vec<NodeId> = (0..graph.n as u32).filter(|&v| clusters.contains(&cluster_of[v as usize])).collect();
        check_induced(&graph, &sampler.sample(&graph.csr, key).unwrap(), &nodes);
        seen.extend(nodes);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..graph.n as u32).collect::<Vec<_>>(), "an epoch has each node once");
    assert!(sampler.clusters(DrawKey { batch: sampler.n_batches() as u32, ..key }).is_err());
}

fn check_saint(seed: u64) {
    let draws = &mut Draws::new(seed, 6);
    let graph = SmallGraph::new(draws);
    let (key, n_draws, kind) = (key(draws), draws.between(1, 9) as u32, draws.below(3));
    let sampler = match kind {
        0 => SaintSampler::nodes(&graph.csr, n_draws),
        1 => SaintSampler::edges(&graph.csr, n_draws),
        _ => SaintSampler::walks(&graph.csr, n_draws, draws.below(4) as u32, 20, 7),
    };
    let norms = squared_norms(&graph);
    let has_chances = graph.csr.nnz() > 0 && (kind != 0 || norms.iter().any(|&norm| norm > 0.0));
    let sampler = match sampler {
        Ok(sampler) if has_chances => sampler,
        Err(_) if !has_chances => return,
        Ok(_) => panic!("a graph without edges that weigh is taken"),
        Err(error) => panic!("{error}"),
    };
    let subgraph = sampler.sample(&graph.csr, key).unwrap();
    assert_eq!(subgraph, sampler.sample(&graph.csr, key).unwrap(), "the same key");
    let nodes = sampler.batch_nodes(&graph.csr, key).unwrap();
    let distinct: BTreeSet<NodeId> = nodes.iter().copied().collect();
    assert!(!nodes.is_empty() && nodes.is_sorted() && distinct.len() == nodes.len());
    check_induced(&graph, &subgraph, &nodes);
    match kind {
        0 => {
            assert!(nodes.len() <= n_draws as usize);
            let all: f64 = norms.iter().sum();
            let covered: Vec<f64> = norms.iter().map(|norm| norm / all).collect();
            check_weights(&graph, &subgraph, &covered, |_, _| 0.0, n_draws);
        }
        1 => {
            assert!(nodes.len() <= 2 * n_draws as usize);
            let (covered, together) = chances_of_edges(&graph);
            check_weights(&graph, &subgraph, &covered, |u, v| together[u][v], n_draws);
        }
        _ => {
            let positive = |weights: &[f32]| weights.iter().all(|w| w.is_finite() && *w > 0.0);
            assert!(positive(&subgraph.loss_weights) && positive(&subgraph.block.weights));
        }
    }
}

/// Squared column norms of the mean aggregation matrix.
fn squared_norms(graph: &SmallGraph) -> Vec<f64> {
    let mut norms = vec![0.0; graph.n];
    for row in graph.dense() {
        let all: f64 = row.iter().flatten().map(|w| w.abs()).sum();
        for (u, weight) in row.iter().enumerate().filter(|_| all > 0.0) {
            norms[u] += weight.map_or(0.0, |w| (w / all).powi(2));
        }
    }
    norms
}

/// Probabilities that one edge draw takes each node, and each pair of nodes, by enumeration.
fn chances_of_edges(graph: &SmallGraph) -> (Vec<f64>, Vec<Vec<f64>>) {
    let rows: Vec<usize> = (0..graph.n).filter(|&v| graph.csr.degree(v) > 0).collect();
    let (mut covered, mut together) = (vec![0.0; graph.n], vec![vec![0.0; graph.n]; graph.n]);
    for &v in &rows {
        for &u in graph.csr.row(v) {
            let (u, chance) = (u as usize, 1.0 / (rows.len() * graph.csr.degree(v)) as f64);
            covered[v] += chance;
            if u != v {
                covered[u] += chance;
                together[u][v] += chance;
                together[v][u] += chance;
            }
        }
    }
    (covered, together)
}

/// Checks the weights of the loss and of edges (Zeng et al., section 3.2) from the probabilities of one draw.
fn check_weights(
    graph: &SmallGraph,
    subgraph: &Subgraph,
    covered: &[f64],
    together: impl Fn(usize, usize) -> f64,
    n_draws: u32,
) {
    let power = |x: f64| x.max(0.0).powi(n_draws as i32);
    let near = |found: f32, expected: f64| (f64::from(found) - expected).abs() <= 1e-4 * expected.abs();
    let block = &subgraph.block;
    for (row, &v) in subgraph.nodes().iter().enumerate() {
        let v = v as usize;
        // Small probabilities are differences of larger numbers here, with sixteen digits.
        if covered[v] < 1e-9 {
            continue;
        }
        let of_node = 1.0 - power(1.0 - covered[v]);
        let weight = subgraph.loss_weights[row];
        assert!(near(weight, 1.0 / (graph.n as f64 * of_node)), "loss of node {v}: {weight}, chance {of_node}");
        for e in block.indptr[row] as usize..block.indptr[row + 1] as usize {
            let u = subgraph.nodes()[block.indices[e] as usize] as usize;
            let either = 1.0 - covered[u] - covered[v] + together(u, v);
            let both = 1.0 - power(1.0 - covered[u]) - power(1.0 - covered[v]) + power(either);
            let both = if u == v { of_node } else { both };
            if both > 1e-9 {
                assert!(near(block.weights[e], of_node / both), "edge {u} → {v}: {}, {both}", block.weights[e]);
            }
        }
    }
}
