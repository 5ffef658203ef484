//! Ranks against those of petgraph and against their definition.

use girih_features::{AccessFrequency, Hotness, PageRank, page_rank, reverse_page_rank};
use girih_graph_format::{Csr, NodeId};
use petgraph::algo::page_rank as petgraph_page_rank;
use petgraph::graph::DiGraph;
use proptest::prelude::*;

use crate::{graphs, skewed};

/// Options for exactly `iterations` iterations.
fn steps(damping: f64, iterations: usize) -> PageRank {
    PageRank { damping, tolerance: 0.0, iterations }
}

/// Iterates by definition; `steps_of(v)` lists the nodes that a walk can go to from `v`.
fn by_definition(steps_of: &dyn Fn(NodeId) -> Vec<NodeId>, home: &[f64], damping: f64, iterations: usize) -> Vec<f64> {
    let mut rank = home.to_vec();
    for _ in 0..iterations {
        let mut next: Vec<f64> = home.iter().map(|home| (1.0 - damping) * home).collect();
        for (v, rank) in rank.iter().enumerate() {
            let to = steps_of(v as NodeId);
            to.iter().for_each(|&u| next[u as usize] += damping * rank / to.len() as f64);
            if to.is_empty() {
                next.iter_mut().zip(home).for_each(|(next, home)| *next += damping * rank * home);
            }
        }
        rank = next;
    }
    rank
}

fn assert_close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (v, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).abs() < 1e-12, "node {v}: {a} for {b}");
    }
}

fn destinations_of(graph: &Csr, u: NodeId) -> Vec<NodeId> {
    (0..graph.n_rows() as NodeId).filter(|&v| graph.row(v as usize).contains(&u)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// petgraph lets walks restart only at nodes to which a node has no edge; without restarts it computes the same
    /// ranks.
    #[test]
    fn walks_that_go_on_end_where_petgraph_says(graph in graphs(12), n_steps in 1usize..20) {
        let mut theirs = DiGraph::<(), ()>::new();
        let nodes: Vec<_> = (0..graph.n_rows()).map(|_| theirs.add_node(())).collect();
        for v in 0..graph.n_rows() {
            graph.row(v).iter().for_each(|&u| { theirs.add_edge(nodes[u as usize], nodes[v], ()); });
        }
        assert_close(&page_rank(&graph, steps(1.0, n_steps)), &petgraph_page_rank(&theirs, 1.0, n_steps));
    }

    #[test]
    fn ranks_are_what_their_definition_says(graph in graphs(12), n_steps in 0usize..20, damping in 0.0..1.0) {
        let n = graph.n_rows();
        let home = vec![1.0 / n as f64; n];
        let along = by_definition(&|u| destinations_of(&graph, u), &home, damping, n_steps);
        assert_close(&page_rank(&graph, steps(damping, n_steps)), &along);
        let seeds: Vec<NodeId> = (0..n as NodeId).step_by(3).collect();
        let mut home = vec![0.0; n];
        seeds.iter().for_each(|&seed| home[seed as usize] = 1.0 / seeds.len() as f64);
        let against = by_definition(&|v| graph.row(v as usize).to_vec(), &home, damping, n_steps);
        assert_close(&reverse_page_rank(&graph, &seeds, steps(damping, n_steps)), &against);
    }

    #[test]
    fn orders_name_every_node_once_and_cool_down(frequency in proptest::collection::vec(0u8..4, 0..40)) {
        let frequency: Vec<f64> = frequency.into_iter().map(f64::from).collect();
        let degrees: Vec<u32> = (0..frequency.len() as u32).map(|v| v % 3).collect();
        let heat = AccessFrequency::new(frequency.clone(), &degrees);
        let key = |&v: &NodeId| (-frequency[v as usize], -(f64::from(degrees[v as usize])), f64::from(v));
        let keys: Vec<_> = heat.order().iter().map(key).collect();
        prop_assert!(keys.is_sorted() && keys.len() == frequency.len());
    }
}

#[test]
fn threads_change_no_bit_of_ranks() {
    let graph = skewed(30_000);
    let with = |n_threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        pool.install(|| {
            (page_rank(&graph, PageRank::default()), reverse_page_rank(&graph, &[5, 9], PageRank::default()))
        })
    };
    let (one, three) = (with(1), with(3));
    assert_eq!(one, three);
    assert!((one.0.iter().sum::<f64>() - 1.0).abs() < 1e-9);
}

#[test]
fn names_are_read_back() {
    for hotness in Hotness::ALL {
        assert_eq!(hotness.to_string().parse(), Ok(hotness));
    }
}
