//! Laws of layers that are drawn as a whole: weighted sums have the full sum as their expectation.

use std::collections::{BTreeMap, BTreeSet};

use girih_graph_format::{Csr, NodeId};
use girih_random::{Key, purpose};
use girih_sampling::testing::{assert_fair, assert_unbiased, chi_square, graph_of, graphs_and_seeds, hubs, star};
use girih_sampling::{Block, DrawKey, FanOut, LayerSampler, MiniBatch, Sampler};
use proptest::prelude::*;
use rayon::prelude::*;

fn sizes(text: &str) -> FanOut {
    text.parse().unwrap()
}

/// FastGCN and LADIES, with and without replacement.
fn samplers(graph: &Csr, text: &str) -> [LayerSampler; 4] {
    [
        LayerSampler::fast_gcn(graph, sizes(text), true).unwrap(),
        LayerSampler::fast_gcn(graph, sizes(text), false).unwrap(),
        LayerSampler::ladies(sizes(text), true),
        LayerSampler::ladies(sizes(text), false),
    ]
}

/// Weighted sums over the rows of a block.
fn sums(block: &Block, operand: &[f64]) -> Vec<f64> {
    let row = |v: usize| block.indptr[v] as usize..block.indptr[v + 1] as usize;
    let edge = |e: usize| f64::from(block.weights[e]) * operand[block.indices[e] as usize];
    (0..block.n_destinations).map(|v| row(v).map(edge).sum()).collect()
}

/// Result of two layers of weighted sums over the node numbers.
fn two_layers(batch: &MiniBatch) -> Vec<f64> {
    let operand: Vec<f64> = batch.inputs().iter().map(|&v| 1.0 + f64::from(v)).collect();
    sums(&batch.blocks[1], &sums(&batch.blocks[0], &operand))
}

#[test]
fn estimates_have_the_full_sum_as_their_expectation() {
    let edges =
        (0..30u32).flat_map(|v| (1..4 + v % 5).map(move |i| (v, (v + i * i) % 30))).chain((1..20).map(|v| (v, 0)));
    let graph = graph_of(30, edges);
    let seeds = [4, 0, 17, 25];
    let full =
        two_layers(&LayerSampler::ladies(sizes("-1,-1"), true).sample(&graph, &seeds, DrawKey::default()).unwrap());
    let layer =
        |x: &[f64]| -> Vec<f64> { (0..30).map(|v| graph.row(v).iter().map(|&u| x[u as usize]).sum()).collect() };
    let expected = layer(&layer(&(0..30).map(|v| 1.0 + f64::from(v)).collect::<Vec<_>>()));
    assert_eq!(full, seeds.map(|v| expected[v as usize]));
    for sampler in samplers(&graph, "8,10") {
        let sample = |number| sampler.sample(&graph, &seeds, DrawKey::new(1, 0, number)).unwrap();
        assert_unbiased((0..20_000).map(|number| two_layers(&sample(number))), &full, 0.0);
    }
}

/// Graph of two destinations: 0 has the neighbors 2 to 5, 1 has 4 to 9. All edges weigh 1, except one of 3 and one
/// of 0.
fn bipartite() -> Csr {
    let graph = graph_of(10, (2..6).map(|u| (0, u)).chain((4..10).map(|u| (1, u))));
    graph.with_values(Some(vec![1.0, 3.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0].into())).unwrap()
}

/// Measure in proportion to which candidates 2 to 9 are drawn, when both rows are requested.
fn norms() -> [f64; 8] {
    let (a, b) = (1.0 / 36.0, 1.0 / 25.0);
    [a, 9.0 * a, a + b, a + b, b, 0.0, b, b]
}

#[test]
fn nodes_are_drawn_as_often_as_their_columns_are_large() {
    const BATCHES: u32 = 30_000;
    let graph = bipartite();
    let total: f64 = norms().iter().sum();
    let share = norms().map(|norm| norm / total);
    for (sampler, replace) in samplers(&graph, "2").into_iter().zip([true, false, true, false]) {
        let (mut counts, mut weights) = ([0.0; 8], [0.0; 8]);
        for number in 0..BATCHES {
            let batch = sampler.sample(&graph, &[1, 0], DrawKey::new(2, 0, number)).unwrap();
            let block = &batch.blocks[0];
            let of_column: BTreeMap<NodeId, f32> =
                block.indices.iter().map(|&c| block.nodes[c as usize]).zip(block.weights.iter().copied()).collect();
            for (node, weight) in of_column {
                counts[node as usize - 2] += 1.0;
                weights[node as usize - 2] += f64::from(weight) / f64::from(BATCHES);
            }
        }
        assert_eq!(counts[5], 0.0);
        let found: Vec<f64> = (0..8).filter(|&i| i != 5).map(|i| counts[i]).collect();
        let share: Vec<f64> = (0..8).filter(|&i| i != 5).map(|i| share[i]).collect();
        // Two draws, or two nodes on average.
        let chance = |i: usize| if replace { 1.0 - (1.0 - share[i]).powi(2) } else { 2.0 * share[i] };
        let expected = |i: usize| f64::from(BATCHES) * chance(i);
        assert_fair(chi_square(&found, |i| (expected(i), expected(i) * (1.0 - chance(i)))), 7.0);
        // A weight is one on average, zero where a node is left out.
        assert!(weights.iter().enumerate().all(|(i, weight)| i == 5 || (weight - 1.0).abs() < 0.06), "{weights:?}");
    }
}

/// Integers in proportion to weights, as `docs/draws.md` defines them.
fn integers(weights: &[f64]) -> Vec<u64> {
    let largest = weights.iter().copied().fold(0.0, f64::max);
    let scale = if largest > 0.0 { 2f64.powi(31 - largest.log2().floor() as i32) } else { 0.0 };
    weights.iter().map(|&w| if w > 0.0 { ((w * scale).round_ties_even() as u64).max(1) } else { 0 }).collect()
}

/// Weight of each node of a hop, zero for nodes that it does not take, by the definition in `docs/draws.md`.
fn plain_weights(
    graph: &Csr,
    destinations: &[NodeId],
    k: usize,
    hop: u64,
    key: DrawKey,
    (is_ladies, replace): (bool, bool),
) -> Vec<f64> {
    let n = graph.n_rows();
    let key_of_epoch = Key::new(key.seed, purpose::SAMPLING).child(6).child(u64::from(key.epoch));
    let stream = |node: NodeId| key_of_epoch.stream((hop << 32) + u64::from(node), u64::from(key.batch) << 32);
    let candidates: BTreeSet<NodeId> = destinations.iter().flat_map(|&v| graph.row(v as usize)).copied().collect();
    let all: Vec<NodeId> = (0..n as NodeId).collect();
    let mut norms = vec![0.0; n];
    for &v in if is_ladies { destinations } else { &all } {
        let degree = graph.degree(v as usize) as f64;
        graph.row(v as usize).iter().for_each(|&u| norms[u as usize] += (1.0 / degree) * (1.0 / degree));
    }
    let integers = integers(&norms);
    let mut weights = vec![0.0; n];
    if replace {
        let (total, mut draws) = (integers.iter().sum::<u64>(), stream(NodeId::MAX));
        for _ in 0..if total > 0 { k } else { 0 } {
            let mut place = draws.below(total);
            let found = integers.iter().position(|&i| {
                let is_here = place < i;
                place = place.wrapping_sub(i);
                is_here
            });
            let u = found.unwrap();
            weights[u] += 1.0 / (k as f64 * (integers[u] as f64 / total as f64));
        }
    } else {
        let mut c = 0.0;
        loop {
            let (sure, others): (Vec<f64>, Vec<f64>) = integers.iter().map(|&i| i as f64).partition(|i| c * i >= 1.0);
            let rest: f64 = others.iter().sum();
            let next = if rest == 0.0 { f64::INFINITY } else { (k as f64 - sure.len() as f64) / rest };
            if next <= c {
                break;
            }
            c = next;
        }
        for &u in candidates.iter().filter(|&&u| integers[u as usize] > 0) {
            let chance = (c * integers[u as usize] as f64).min(1.0);
            if stream(u).unit_f64() < chance {
                weights[u as usize] = 1.0 / chance;
            }
        }
    }
    (0..n as NodeId).map(|u| if candidates.contains(&u) { weights[u as usize] } else { 0.0 }).collect()
}

proptest! {
    #[test]
    fn layers_are_those_of_the_definition((graph, seeds) in graphs_and_seeds(), k in 1..20usize, seed: u64) {
        let kinds = [(false, true), (false, false), (true, true), (true, false)];
        let key = DrawKey::new(seed, 7, 9);
        for (sampler, kind) in samplers(&graph, &format!("{k},{k}")).into_iter().zip(kinds) {
            let batch = sampler.sample(&graph, &seeds, key).unwrap();
            for (hop, block) in batch.blocks.iter().rev().enumerate() {
                let weights = plain_weights(&graph, block.destinations(), k, hop as u64, key, kind);
                let mut expected = Vec::new();
                for &v in block.destinations() {
                    let edges = graph.row_range(v as usize).map(|e| (e as u64, weights[graph.indices()[e] as usize] as f32));
                    expected.extend(edges.filter(|&(_, weight)| weight > 0.0));
                }
                let found: Vec<(u64, f32)> = block.edge_ids.iter().copied().zip(block.weights.iter().copied()).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}

#[test]
fn nodes_without_replacement_are_as_many_as_asked_for_on_average() {
    const BATCHES: u32 = 4000;
    let graph = hubs(400);
    let seeds: Vec<NodeId> = (100..140).collect();
    let sampler = LayerSampler::ladies(sizes("50"), false);
    let mut n_drawn = 0;
    for number in 0..BATCHES {
        let batch = sampler.sample(&graph, &seeds, DrawKey::new(3, 0, number)).unwrap();
        n_drawn += batch.blocks[0].indices.iter().collect::<BTreeSet<_>>().len();
    }
    // The deviation of a batch is below √50, that of the mean below 0.12.
    let mean = n_drawn as f64 / f64::from(BATCHES);
    assert!((mean - 50.0).abs() < 0.5, "{mean}");
}

#[test]
fn more_nodes_than_there_are_is_all_of_them() {
    let graph = star(6);
    for sampler in [LayerSampler::ladies(sizes("6"), false), LayerSampler::fast_gcn(&graph, sizes("7"), false).unwrap()]
    {
        let block = &sampler.sample(&graph, &[0], DrawKey::default()).unwrap().blocks[0];
        assert_eq!((block.row(0), &block.weights[..]), (&[1, 2, 3, 4, 5, 6][..], &[1.0; 6][..]));
    }
}

proptest! {
    #[test]
    fn blocks_hold_together((graph, seeds) in graphs_and_seeds(), seed: u64, n in 1..30u32) {
        for sampler in samplers(&graph, &format!("{n},-1,{}", 2 * n)) {
            let batch = sampler.sample(&graph, &seeds, DrawKey::new(seed, 0, 1)).unwrap();
            prop_assert_eq!(batch.seeds(), &seeds[..]);
            prop_assert_eq!(batch.blocks.len(), 3);
            for pair in batch.blocks.windows(2) {
                prop_assert_eq!(pair[0].destinations(), &pair[1].nodes[..]);
            }
            for block in &batch.blocks {
                prop_assert_eq!((block.n_columns, block.weights.len()), (block.nodes.len(), block.n_edges()));
                prop_assert!(block.weights.iter().all(|weight| weight.is_finite() && *weight > 0.0));
                let new = &block.nodes[block.n_destinations..];
                prop_assert!(new.is_sorted_by(|a, b| a < b) && new.iter().all(|v| !block.destinations().contains(v)));
                let drawn: BTreeSet<NodeId> = block.indices.iter().map(|&column| block.nodes[column as usize]).collect();
                prop_assert!(new.iter().all(|v| drawn.contains(v)));
                // All edges from drawn nodes, and no others.
                for (row, &v) in block.destinations().iter().enumerate() {
                    let sources: Vec<NodeId> = block.row(row).iter().map(|&c| block.nodes[c as usize]).collect();
                    let expected: Vec<NodeId> = graph.row(v as usize).iter().copied().filter(|u| drawn.contains(u)).collect();
                    prop_assert_eq!(sources, expected);
                }
                prop_assert!(block.indices.iter().zip(&block.edge_ids).all(|(&c, &e)| graph.indices()[e as usize] == block.nodes[c as usize]));
            }
        }
    }
}

#[test]
fn batches_do_not_depend_on_threads_or_order() {
    let graph = hubs(1500);
    for sampler in samplers(&graph, "40,60,80") {
        let digest = |batch: u32| {
            let seeds: Vec<NodeId> = (0..50).map(|i| (batch * 50 + i) * 7 % 1500).collect();
            sampler.sample(&graph, &seeds, DrawKey::new(5, 1, batch)).unwrap().digest()
        };
        let expected: Vec<u64> = (0..12).map(digest).collect();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let found: Vec<u64> = pool.install(|| (0..12u32).into_par_iter().rev().map(digest).collect());
        assert!(found.iter().rev().eq(&expected));
        assert_eq!(expected.into_iter().collect::<BTreeSet<_>>().len(), 12);
    }
}

#[test]
fn bad_input_is_refused() {
    let graph = star(4);
    for sampler in samplers(&graph, "3") {
        let refused =
            |graph: &Csr, seeds: &[NodeId]| sampler.sample(graph, seeds, DrawKey::default()).unwrap_err().to_string();
        assert!(refused(&graph, &[5]).contains("node 5"));
        assert!(refused(&graph, &[1, 1]).contains("twice"));
        assert!(refused(&Csr::empty(2, 3).unwrap(), &[0]).contains("2 × 3"));
        // Seeds without neighbors keep their rows.
        let lonely = sampler.sample(&graph, &[4, 2], DrawKey::default()).unwrap();
        assert_eq!((lonely.inputs(), &lonely.blocks[0].indptr[..]), (&[4, 2][..], &[0, 0, 0][..]));
    }
    let error = LayerSampler::fast_gcn(&star(3), sizes("3"), true).unwrap().sample(&graph, &[0], DrawKey::default());
    assert!(error.unwrap_err().to_string().contains("made for 4 nodes"));
    assert!(LayerSampler::fast_gcn(&Csr::empty(2, 3).unwrap(), sizes("3"), true).is_err());
}
