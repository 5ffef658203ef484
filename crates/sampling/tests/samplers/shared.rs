//! Laws of draws that nodes of a hop share: shares of a layer's fan-out, and LABOR.

use std::collections::{BTreeMap, BTreeSet};

use girih_graph_format::{Csr, NodeId};
use girih_random::{Key, bounded, purpose};
use girih_sampling::relabel::Relabel;
use girih_sampling::testing::{assert_fair, assert_unbiased, chi_square, graph_of, graphs_and_seeds, hubs};
use girih_sampling::{
    Bias, DrawKey, Draws, ExcludedEdges, Expand, MiniBatch, NeighborOptions, NeighborSampler, Sampler,
};
use proptest::prelude::*;

fn sampler(fan_out: &str, draws: Draws, replace: bool) -> NeighborSampler {
    let options = NeighborOptions { draws, replace, edge_ids: true, ..NeighborOptions::default() };
    NeighborSampler::new(fan_out.parse().unwrap(), options).unwrap()
}

/// Nodes 0, 1 and 2 with 2, 5 and 9 neighbors, which have none.
fn three_rows() -> Csr {
    graph_of(12, [(0, 2), (1, 5), (2, 9)].into_iter().flat_map(|(v, n)| (3..3 + n).map(move |u| (v, u))))
}

#[test]
fn every_edge_of_a_layer_is_equally_likely_to_be_drawn() {
    const BATCHES: u32 = 20_000;
    let (graph, sampler) = (three_rows(), sampler("6", Draws::PerLayer, true));
    let mut counts = [0.0; 16];
    for number in 0..BATCHES {
        let batch = sampler.sample(&graph, &[2, 0, 1], DrawKey::new(1, 0, number)).unwrap();
        assert_eq!(batch.n_edges(), 6);
        batch.blocks[0].edge_ids.iter().for_each(|&edge| counts[edge as usize] += 1.0);
    }
    let expected = f64::from(BATCHES) * 6.0 / 16.0;
    assert_fair(chi_square(&counts, |_| (expected, expected)), 15.0);
}

#[test]
fn weights_are_the_chances_of_shares_and_of_draws_in_them() {
    const BATCHES: u32 = 30_000;
    let graph = three_rows();
    // Row sums differ by more than the integer scale of one row covers.
    let weights: Vec<f32> = (0..16).map(|e| [0.25, 0.0, 1.5, 100.0, 8.0][e % 5]).collect();
    let sampler = sampler("4", Draws::PerLayer, true).weighted(Bias::new(&graph, &weights).unwrap());
    let excluded = ExcludedEdges::new(vec![3, 12]);
    let (mut counts, mut batch) = ([0.0; 16], MiniBatch::default());
    for number in 0..BATCHES {
        sampler.sample_excluding(&graph, &[0, 1, 2], DrawKey::new(2, 0, number), &excluded, &mut batch).unwrap();
        batch.blocks[0].edge_ids.iter().for_each(|&edge| counts[edge as usize] += 1.0);
    }
    let weight = |e: usize| if [3, 12].contains(&e) { 0.0 } else { f64::from(weights[e]) };
    let total: f64 = (0..16).map(weight).sum();
    let drawn: Vec<usize> = (0..16).filter(|&e| weight(e) > 0.0).collect();
    assert!((0..16).all(|e| weight(e) > 0.0 || counts[e] == 0.0));
    let found: Vec<f64> = drawn.iter().map(|&e| counts[e]).collect();
    let expected = |i: usize| 4.0 * f64::from(BATCHES) * weight(drawn[i]) / total;
    assert_fair(chi_square(&found, |i| (expected(i), expected(i))), drawn.len() as f64 - 1.0);
}

#[test]
fn shares_without_replacement_end_at_the_degree() {
    let (graph, sampler) = (three_rows(), sampler("30", Draws::PerLayer, false));
    for number in 0..200 {
        let batch = sampler.sample(&graph, &[0, 1, 2, 11], DrawKey::new(3, 0, number)).unwrap();
        let block = &batch.blocks[0];
        for row in 0..3 {
            let distinct: BTreeSet<NodeId> = block.row(row).iter().copied().collect();
            assert_eq!(distinct.len(), block.row(row).len());
            assert!(distinct.len() <= graph.degree(row));
        }
        assert!(block.row(3).is_empty());
    }
}

/// Edges of a hop by the definition of LABOR.
fn plain_labor(
    graph: &Csr,
    nodes: &[NodeId],
    k: u64,
    hop: u64,
    key: DrawKey,
    excluded: &BTreeSet<u64>,
) -> Vec<Vec<u64>> {
    let key_of_epoch = Key::new(key.seed, purpose::SAMPLING).child(1).child(u64::from(key.epoch));
    let number = |u: NodeId| key_of_epoch.stream((hop << 32) + u64::from(u), u64::from(key.batch) << 32).next_u64();
    let row = |&v: &NodeId| {
        let left: Vec<u64> = graph.row_range(v as usize).map(|e| e as u64).filter(|e| !excluded.contains(e)).collect();
        let d = left.len() as u64;
        left.into_iter().filter(|&e| d <= k || bounded(number(graph.indices()[e as usize]), d) < k).collect()
    };
    nodes.iter().map(row).collect()
}

proptest! {
    #[test]
    fn labor_takes_the_edges_of_its_definition((graph, seeds) in graphs_and_seeds(), k in 1..6u32, seed: u64, excludes: bool, relabel in 0..4usize) {
        let options = NeighborOptions { draws: Draws::Labor, edge_ids: true, relabel: Relabel::ALL[relabel], ..NeighborOptions::default() };
        let sampler = NeighborSampler::new(format!("{k},{k}").parse().unwrap(), options).unwrap();
        let excluded: BTreeSet<u64> = (0..graph.nnz() as u64).filter(|e| excludes && e % 4 == 1).collect();
        let edges = ExcludedEdges::new(excluded.iter().copied().collect());
        let (key, mut batch) = (DrawKey::new(seed, 3, 4), MiniBatch::default());
        for _ in 0..2 {
            sampler.sample_excluding(&graph, &seeds, key, &edges, &mut batch).unwrap();
            for (hop, block) in batch.blocks.iter().rev().enumerate() {
                let expected = plain_labor(&graph, block.destinations(), u64::from(k), hop as u64, key, &excluded);
                prop_assert_eq!(&block.edge_ids, &expected.concat());
                let mut weights = Vec::new();
                for (row, &v) in block.destinations().iter().enumerate() {
                    prop_assert_eq!(block.row(row).len(), expected[row].len());
                    let degree = graph.row_range(v as usize).filter(|e| !excluded.contains(&(*e as u64))).count();
                    weights.resize(weights.len() + block.row(row).len(), (degree as f64 / f64::from(k)).max(1.0) as f32);
                }
                prop_assert_eq!(&block.weights, &weights);
            }
        }
    }

    #[test]
    fn every_way_to_relabel_gives_the_same_blocks((graph, seeds) in graphs_and_seeds(), once: bool, labor: bool, seed: u64) {
        let expand = if once { Expand::Once } else { Expand::PerLayer };
        let draws = if labor { Draws::Labor } else { Draws::PerLayer };
        let batches = Relabel::ALL.map(|relabel| {
            let options = NeighborOptions { draws, expand, relabel, edge_ids: true, ..NeighborOptions::default() };
            let sampler = NeighborSampler::new("4,9,-1".parse().unwrap(), options).unwrap();
            sampler.sample(&graph, &seeds, DrawKey::new(seed, 0, 0)).unwrap()
        });
        prop_assert!(batches.iter().all(|batch| batch == &batches[0]));
        for block in &batches[0].blocks {
            prop_assert_eq!(block.weights.len(), if labor { block.n_edges() } else { 0 });
            let edges: BTreeSet<u64> = block.edge_ids.iter().copied().collect();
            prop_assert_eq!(edges.len(), block.n_edges());
        }
        if once {
            // Edges drawn in an earlier hop stay, with equal weights.
            for pair in batches[0].blocks.windows(2) {
                prop_assert_eq!(&pair[0].edge_ids[..pair[1].n_edges()], &pair[1].edge_ids[..]);
                prop_assert_eq!(&pair[0].weights[..pair[1].weights.len()], &pair[1].weights[..]);
            }
        }
    }
}

#[test]
fn labor_takes_each_edge_with_its_chance_and_nodes_of_one_row_together() {
    const BATCHES: u32 = 20_000;
    // Nodes 0 and 1 have ten equal neighbors, and node 2 has five of them.
    let graph = graph_of(13, (3..13).flat_map(|u| [(0, u), (1, u)]).chain((3..8).map(|u| (2, u))));
    let sampler = sampler("3", Draws::Labor, false);
    let mut counts: BTreeMap<u64, f64> = BTreeMap::new();
    for number in 0..BATCHES {
        let batch = sampler.sample(&graph, &[0, 1, 2], DrawKey::new(4, 0, number)).unwrap();
        let block = &batch.blocks[0];
        assert_eq!(block.row(0), block.row(1));
        // A node that takes an edge with a chance of 3/10 also takes it with one of 3/5.
        let few: BTreeSet<NodeId> = block.row(2).iter().map(|&c| block.nodes[c as usize]).collect();
        assert!(block.row(0).iter().map(|&c| block.nodes[c as usize]).all(|u| u >= 8 || few.contains(&u)));
        block.edge_ids.iter().for_each(|&edge| *counts.entry(edge).or_default() += 1.0);
    }
    for (edges, chance) in [(0..10, 0.3), (20..25, 0.6)] {
        let found: Vec<f64> = edges.map(|edge| counts[&edge]).collect();
        let expected = f64::from(BATCHES) * chance;
        assert_fair(chi_square(&found, |_| (expected, expected * (1.0 - chance))), found.len() as f64);
    }
}

#[test]
fn labor_is_unbiased_and_finds_fewer_nodes() {
    let graph = hubs(300);
    let seeds: Vec<NodeId> = (0..12).collect();
    let (labor, own) = (sampler("5", Draws::Labor, false), sampler("5", Draws::PerNode, false));
    let full: Vec<f64> = seeds.iter().map(|&v| graph.row(v as usize).iter().map(|&u| f64::from(u)).sum()).collect();
    let (mut by_labor, mut by_own) = (0, 0);
    let estimates = (0..20_000).map(|number| {
        let key = DrawKey::new(6, 0, number);
        let (batch, other) = (labor.sample(&graph, &seeds, key).unwrap(), own.sample(&graph, &seeds, key).unwrap());
        by_labor += batch.inputs().len();
        by_own += other.inputs().len();
        let block = &batch.blocks[0];
        let row = |v: usize| block.indptr[v] as usize..block.indptr[v + 1] as usize;
        let term = |e: usize| f64::from(block.weights[e]) * f64::from(block.nodes[block.indices[e] as usize]);
        (0..seeds.len()).map(|v| row(v).map(term).sum()).collect()
    });
    assert_unbiased(estimates, &full, 0.0);
    assert!(3 * by_labor < 2 * by_own, "{by_labor} {by_own}");
}

#[test]
fn unsupported_options_of_labor_are_refused() {
    let options = NeighborOptions { draws: Draws::Labor, replace: true, ..NeighborOptions::default() };
    let error = NeighborSampler::new("3".parse().unwrap(), options).err().unwrap().to_string();
    assert!(error.contains("never twice"), "{error}");
    let graph = three_rows();
    let weighted = sampler("3", Draws::Labor, false).weighted(Bias::of(&graph).unwrap());
    let error = weighted.sample(&graph, &[0], DrawKey::default()).unwrap_err().to_string();
    assert!(error.contains("without weights"), "{error}");
}
