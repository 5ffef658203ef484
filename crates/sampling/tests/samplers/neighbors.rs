//! Laws of node-wise samples: they equal the definition for every relabelling operator, and their frequencies match
//! the requested ones.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{PlainBlock, plain_sample};
use girih_graph_format::{Csr, NodeId};
use girih_sampling::relabel::{NewNodes, Relabel};
use girih_sampling::testing::{assert_fair, chi_square};
use girih_sampling::testing::{fan_outs, graph_of, graphs, graphs_and_seeds, hubs, star};
use girih_sampling::{
    Bias, Block, Columns, DrawKey, ExcludedEdges, Expand, FanOut, MiniBatch, NeighborOptions, NeighborSampler, Sampler,
};
use proptest::prelude::*;
use rayon::prelude::*;

fn plain(batch: &MiniBatch) -> Vec<PlainBlock> {
    batch.blocks.iter().map(plain_block).collect()
}

fn plain_block(block: &Block) -> PlainBlock {
    let edges = |row: usize| block.indptr[row] as usize..block.indptr[row + 1] as usize;
    let rows = (0..block.n_destinations).map(|row| edges(row).map(|e| (block.indices[e], block.edge_ids[e])).collect());
    PlainBlock { nodes: block.nodes.clone(), rows: rows.collect() }
}

fn options() -> impl Strategy<Value = NeighborOptions> {
    (any::<bool>(), any::<bool>(), 0..4usize, any::<bool>()).prop_map(|(replace, once, relabel, first_seen)| {
        let relabel = Relabel::ALL[relabel];
        let first_seen = first_seen && relabel != Relabel::Rank;
        NeighborOptions {
            replace,
            expand: if once { Expand::Once } else { Expand::PerLayer },
            edge_ids: true,
            relabel,
            new_nodes: if first_seen { NewNodes::FirstSeen } else { NewNodes::Ascending },
            ..NeighborOptions::default()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn samples_are_those_of_the_definition(
        (graph, seeds) in graphs_and_seeds(),
        fan_out in fan_outs(),
        options in options(),
        (seed, epoch, batch) in any::<(u64, u32, u32)>(),
        is_weighted: bool,
        excludes: bool,
    ) {
        let key = DrawKey::new(seed, epoch, batch);
        // Powers of two are exact as integers: a row's largest is 2³¹, and only ratios matter.
        let weights: Vec<u64> = (0..graph.nnz() as u64).map(|e| [0, 1, 4, 16][(e * e % 7 % 4) as usize]).collect();
        let excluded: BTreeSet<u64> = (0..graph.nnz() as u64).filter(|e| excludes && e % 3 == seed % 3).collect();
        let mut sampler = NeighborSampler::new(fan_out.clone(), options).unwrap();
        let scaled = scaled_rows(&graph, &weights);
        if is_weighted {
            let weights: Vec<f32> = weights.iter().map(|&w| w as f32).collect();
            sampler = sampler.weighted(Bias::new(&graph, &weights).unwrap());
        }
        let mut found = MiniBatch::default();
        let edges = ExcludedEdges::new(excluded.iter().rev().copied().collect());
        // The second round would show state left behind by a batch.
        for _ in 0..2 {
            sampler.sample_excluding(&graph, &seeds, key, &edges, &mut found).unwrap();
            let expected =
                plain_sample(&graph, &seeds, key, &fan_out, options, is_weighted.then_some(&scaled[..]), &excluded);
            prop_assert_eq!(plain(&found), expected);
        }
        prop_assert_eq!(found.seeds(), &seeds[..]);
        for pair in found.blocks.windows(2) {
            prop_assert_eq!(pair[0].destinations(), &pair[1].nodes[..]);
        }
        for block in &found.blocks {
            prop_assert_eq!(block.n_columns, block.nodes.len());
            prop_assert!(block.to_csr().is_ok());
        }
    }

    #[test]
    fn global_columns_name_the_same_edges((graph, seeds) in graphs_and_seeds(), fan_out in fan_outs(), options in options()) {
        let key = DrawKey::new(1, 2, 3);
        let sample = |inputs| {
            let options = NeighborOptions { inputs, ..options };
            NeighborSampler::new(fan_out.clone(), options).unwrap().sample(&graph, &seeds, key).unwrap()
        };
        let (local, global) = (sample(Columns::Local), sample(Columns::Global));
        prop_assert_eq!(&local.blocks[1..], &global.blocks[1..]);
        let (local, global) = (&local.blocks[0], &global.blocks[0]);
        prop_assert_eq!(&global.nodes[..], local.destinations());
        prop_assert_eq!(global.n_columns, graph.n_cols());
        prop_assert_eq!((&global.indptr, &global.edge_ids), (&local.indptr, &local.edge_ids));
        let columns: Vec<NodeId> = local.indices.iter().map(|&column| local.node_of_column(column)).collect();
        prop_assert_eq!(&global.indices, &columns);
        prop_assert!(global.indices.iter().all(|&column| global.node_of_column(column) == column));
    }

    #[test]
    fn all_neighbors_are_the_neighborhood((graph, seeds) in graphs_and_seeds(), once: bool) {
        let expand = if once { Expand::Once } else { Expand::PerLayer };
        let options = NeighborOptions { expand, ..NeighborOptions::default() };
        let batch = NeighborSampler::new("-1,-1".parse().unwrap(), options)
            .unwrap()
            .sample(&graph, &seeds, DrawKey::default())
            .unwrap();
        for block in &batch.blocks {
            for (row, &node) in block.destinations().iter().enumerate() {
                let sources: Vec<NodeId> = block.row(row).iter().map(|&column| block.nodes[column as usize]).collect();
                prop_assert_eq!(&sources[..], graph.row(node as usize));
            }
        }
    }
}

/// Weights as integers relative to the largest of their row.
fn scaled_rows(graph: &Csr, weights: &[u64]) -> Vec<u64> {
    let mut scaled = weights.to_vec();
    for row in 0..graph.n_rows() {
        let range = graph.row_range(row);
        let largest = weights[range.clone()].iter().copied().max().unwrap_or(0).max(1);
        scaled[range].iter_mut().for_each(|w| *w *= (1 << 31) / largest);
    }
    scaled
}

#[test]
fn batches_do_not_depend_on_threads_or_order() {
    let graph = hubs(3000);
    for relabel in Relabel::ALL {
        let options = NeighborOptions { relabel, edge_ids: true, ..NeighborOptions::default() };
        let sampler = NeighborSampler::new("15,10,5".parse().unwrap(), options).unwrap();
        let digest = |batch: u32| {
            let seeds: Vec<NodeId> = (0..100).map(|i| (batch * 100 + i) * 11 % 3000).collect();
            sampler.sample(&graph, &seeds, DrawKey::new(5, 1, batch)).unwrap().digest()
        };
        let expected: Vec<u64> = (0..20).map(digest).collect();
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let found: Vec<u64> = pool.install(|| (0..20u32).into_par_iter().rev().map(digest).collect());
            assert!(found.iter().rev().eq(&expected), "{relabel} with {threads} threads");
        }
        // The digest is part of the format: it never changes.
        assert_eq!(expected[0], DIGEST, "{relabel}");
        let distinct: BTreeSet<u64> = expected.into_iter().collect();
        assert_eq!(distinct.len(), 20);
    }
}

const DIGEST: u64 = 5_284_645_311_103_069_027;

#[test]
fn graphs_too_large_for_an_array_of_nodes_give_the_same_blocks() {
    // Only the first and last nodes have neighbors: the rows between must cost nothing but offsets.
    let n = 5_000_000u64;
    let sources = |row: u64| if (1000..n - 1000).contains(&row) { 0 } else { 40 };
    let indptr: Vec<u64> = (0..=n).scan(0, |end, row| Some(std::mem::replace(end, *end + sources(row)))).collect();
    let indices: Vec<NodeId> = (0..n)
        .filter(|&row| sources(row) > 0)
        .flat_map(|row| {
            (0..40).map(move |i| {
                if i < 20 { i * 50 + (row * 7 + i * i) % 50 } else { n - 1 - (39 - i) * 50 - (row * 7 + i * i) % 50 }
            })
        })
        .map(|source| source as NodeId)
        .collect();
    let large = Csr::new(n as usize, n as usize, indptr, indices, None).unwrap();
    let small = hubs(500);
    let seeds = [4_999_999, 7, 4_999_100, 3_000_000, 0];
    let samplers = Relabel::ALL.map(|relabel| {
        NeighborSampler::new("15,10,5".parse().unwrap(), NeighborOptions { relabel, ..NeighborOptions::default() })
            .unwrap()
    });
    for batch in 0..3 {
        // Large and small graphs in turn: the memory of one serves the other.
        let digests = samplers.each_ref().map(|sampler| {
            let large = sampler.sample(&large, &seeds, DrawKey::new(1, 0, batch)).unwrap();
            assert!(large.inputs().len() > 500);
            (large.digest(), sampler.sample(&small, &[4, 2], DrawKey::new(1, 0, batch)).unwrap().digest())
        });
        assert!(digests.iter().all(|digest| *digest == digests[0]));
    }
}

#[test]
fn every_part_of_the_key_counts() {
    let graph = star(1000);
    let sampler = NeighborSampler::new("10".parse().unwrap(), NeighborOptions::default()).unwrap();
    let keys = [(0, 0, 0), (1, 0, 0), (1 << 40, 0, 0), (0, 1, 0), (0, 0, 1)];
    let samples: BTreeSet<Vec<NodeId>> = keys
        .iter()
        .map(|&(seed, epoch, batch)| {
            sampler.sample(&graph, &[0], DrawKey::new(seed, epoch, batch)).unwrap().blocks[0].nodes.clone()
        })
        .collect();
    assert_eq!(samples.len(), keys.len());
    // Both hops draw for node 0, independently.
    let twice = NeighborSampler::new("10,10".parse().unwrap(), NeighborOptions::default()).unwrap();
    let batch = twice.sample(&graph, &[0], DrawKey::default()).unwrap();
    assert_ne!(batch.blocks[0].row(0), batch.blocks[1].row(0));
}

/// Number of times that `n_batches` samples list each neighbor of the centre of a star.
fn frequencies(sampler: &NeighborSampler, graph: &Csr, excluded: &ExcludedEdges, n_batches: u32) -> Vec<f64> {
    let mut counts = vec![0.0; graph.nnz()];
    let mut batch = MiniBatch::default();
    for number in 0..n_batches {
        sampler.sample_excluding(graph, &[0], DrawKey::new(11, 0, number), excluded, &mut batch).unwrap();
        for &edge in &batch.blocks[0].edge_ids {
            counts[edge as usize] += 1.0;
        }
    }
    counts
}

fn star_sampler(count: u32, replace: bool) -> NeighborSampler {
    let options = NeighborOptions { replace, edge_ids: true, ..NeighborOptions::default() };
    NeighborSampler::new(FanOut::new([girih_sampling::Neighbors::Count(count)]).unwrap(), options).unwrap()
}

#[test]
fn neighbors_are_equally_likely() {
    const BATCHES: u32 = 20_000;
    for (degree, count, replace) in [(7, 3, false), (40, 15, false), (100, 70, false), (9, 5, true), (50, 70, true)] {
        let graph = star(degree);
        let counts = frequencies(&star_sampler(count, replace), &graph, &ExcludedEdges::default(), BATCHES);
        let (batches, share) = (f64::from(BATCHES), f64::from(count) / degree as f64);
        let (expected, statistic) = if replace {
            (batches * share, 1.0)
        } else {
            // Counts of one batch are negatively correlated: var = p (1 − p), cov = −p (1 − p) / (d − 1).
            (batches * share, (1.0 - share) * degree as f64 / (degree as f64 - 1.0))
        };
        assert_fair(chi_square(&counts, |_| (expected, expected * statistic)), degree as f64 - 1.0);
        assert_eq!(counts.iter().sum::<f64>(), batches * f64::from(count));
    }
}

#[test]
fn every_set_of_neighbors_is_equally_likely() {
    const BATCHES: u32 = 60_000;
    let (graph, sampler) = (star(6), star_sampler(3, false));
    let mut counts = BTreeMap::new();
    for number in 0..BATCHES {
        let batch = sampler.sample(&graph, &[0], DrawKey::new(3, 7, number)).unwrap();
        *counts.entry(batch.blocks[0].nodes.clone()).or_insert(0.0) += 1.0;
    }
    assert_eq!(counts.len(), 20);
    let expected = f64::from(BATCHES) / 20.0;
    assert_fair(chi_square(&counts.into_values().collect::<Vec<_>>(), |_| (expected, expected)), 19.0);
}

#[test]
fn weights_are_the_chances_of_a_draw() {
    const BATCHES: u32 = 60_000;
    let weights = [3.0f32, 0.0, 0.125, 1.0, 7.5, 0.0, 2.0, 1e-3];
    let graph = star(weights.len());
    let total: f64 = weights.iter().map(|&w| f64::from(w)).sum();
    let draws = f64::from(BATCHES);
    // One draw, or any number of draws with replacement.
    for (count, replace) in [(1, false), (5, true)] {
        let sampler = star_sampler(count, replace).weighted(Bias::new(&graph, &weights).unwrap());
        let counts = frequencies(&sampler, &graph, &ExcludedEdges::default(), BATCHES);
        assert_eq!((counts[1], counts[5]), (0.0, 0.0));
        let positive: Vec<usize> = (0..weights.len()).filter(|&e| weights[e] > 0.0).collect();
        let found: Vec<f64> = positive.iter().map(|&e| counts[e]).collect();
        let expected = |i: usize| draws * f64::from(count) * f64::from(weights[positive[i]]) / total;
        assert_fair(chi_square(&found, |i| (expected(i), expected(i))), positive.len() as f64 - 1.0);
    }
}

#[test]
fn weighted_sets_are_drawn_one_after_the_other() {
    const BATCHES: u32 = 60_000;
    let weights = [1.0f32, 2.0, 3.0, 4.0];
    let graph = star(4);
    let sampler = star_sampler(2, false).weighted(Bias::new(&graph, &weights).unwrap());
    let mut counts = BTreeMap::new();
    for number in 0..BATCHES {
        let mut batch = MiniBatch::default();
        sampler
            .sample_excluding(&graph, &[0], DrawKey::new(4, 0, number), &ExcludedEdges::default(), &mut batch)
            .unwrap();
        let edges = &batch.blocks[0].edge_ids;
        *counts.entry((edges[0] as usize, edges[1] as usize)).or_insert(0.0) += 1.0;
    }
    assert_eq!(counts.len(), 12);
    let (pairs, found): (Vec<_>, Vec<f64>) = counts.into_iter().unzip();
    let chance = |i: usize| {
        let (first, second) = (f64::from(weights[pairs[i].0]), f64::from(weights[pairs[i].1]));
        first / 10.0 * second / (10.0 - first)
    };
    let expected = |i: usize| f64::from(BATCHES) * chance(i);
    assert_fair(chi_square(&found, |i| (expected(i), expected(i))), 11.0);
}

#[test]
fn excluded_edges_are_never_drawn_and_the_rest_is_equally_likely() {
    const BATCHES: u32 = 20_000;
    let graph = star(30);
    let excluded = ExcludedEdges::new(vec![29, 0, 7, 8, 7, 400]);
    let counts = frequencies(&star_sampler(10, false), &graph, &excluded, BATCHES);
    assert!([0, 7, 8, 29].iter().all(|&edge| counts[edge as usize] == 0.0));
    let left: Vec<f64> = counts.into_iter().filter(|&count| count > 0.0).collect();
    assert_eq!(left.len(), 26);
    let share = 10.0 / 26.0;
    let expected = f64::from(BATCHES) * share;
    assert_fair(chi_square(&left, |_| (expected, expected * (1.0 - share) * 26.0 / 25.0)), 25.0);
}

#[test]
fn hubs_cost_what_small_nodes_cost() {
    // 200 draws from a hub list 200 distinct neighbors of a million, in far less time than reading them would take.
    let graph = star(1_000_000);
    let batch = star_sampler(200, false).sample(&graph, &[0], DrawKey::default()).unwrap();
    let distinct: BTreeSet<NodeId> = batch.blocks[0].indices.iter().copied().collect();
    assert_eq!(distinct.len(), 200);
    assert!(batch.blocks[0].nodes.iter().any(|&v| v > 900_000));
}

#[test]
fn seeds_without_neighbors_keep_their_rows() {
    let graph = graph_of(5, [(1, 0), (1, 2), (3, 1)]);
    for relabel in Relabel::ALL {
        for replace in [false, true] {
            let options = NeighborOptions { relabel, replace, ..NeighborOptions::default() };
            let sampler = NeighborSampler::new("2,3".parse().unwrap(), options).unwrap();
            let batch = sampler.sample(&graph, &[4, 0], DrawKey::default()).unwrap();
            for block in &batch.blocks {
                assert_eq!((&block.nodes[..], &block.indptr[..]), (&[4, 0][..], &[0, 0, 0][..]));
            }
            let nothing = sampler.sample(&graph, &[], DrawKey::default()).unwrap();
            assert!(nothing.blocks.len() == 2 && nothing.inputs().is_empty() && nothing.n_edges() == 0);
        }
    }
}

#[test]
fn bad_input_is_refused_and_the_sampler_goes_on() {
    let graph = star(4);
    let sampler = star_sampler(2, false);
    let refused = |seeds: &[NodeId]| sampler.sample(&graph, seeds, DrawKey::default()).unwrap_err().to_string();
    assert!(refused(&[0, 5]).contains("seed 1 is node 5, but the graph has 5 nodes"));
    assert!(refused(&[3, 1, 3]).contains("node 3 is a seed twice, at 0 and 2"));
    assert!(sampler.sample(&graph, &[0], DrawKey::default()).is_ok());

    let wide = Csr::empty(2, 3).unwrap();
    assert!(sampler.sample(&wide, &[0], DrawKey::default()).unwrap_err().to_string().contains("2 × 3"));

    let weights = |weights: &[f32]| Bias::new(&graph, weights).unwrap_err().to_string();
    assert!(weights(&[1.0]).contains("1 weights for 4 edges"));
    assert!(weights(&[1.0, 1.0, -0.5, 1.0]).contains("edge 3 → 0 (entry 2) is -0.5"));
    assert!(weights(&[f32::NAN, 1.0, 1.0, 1.0]).contains("edge 1 → 0 (entry 0) is NaN"));
    assert!(weights(&[1.0, 1.0, 1.0, f32::INFINITY]).contains("inf"));
    let other = star_sampler(2, false).weighted(Bias::of(&star(3)).unwrap());
    let error = other.sample(&graph, &[0], DrawKey::default()).unwrap_err().to_string();
    assert!(error.contains("weights for 3 edges, but the graph has 4"));

    let by_rank = NeighborOptions { new_nodes: NewNodes::FirstSeen, ..NeighborOptions::default() };
    assert!(NeighborSampler::new("2".parse().unwrap(), by_rank).is_err());
}

proptest! {
    #[test]
    fn bias_of_a_graph_is_that_of_its_weights(graph in graphs()) {
        let weights: Vec<f32> = (0..graph.nnz()).map(|e| (e % 5) as f32).collect();
        let weighted = graph.with_values(Some(weights.clone().into())).unwrap();
        let draw = |bias| {
            let sampler = star_sampler(3, true).weighted(bias);
            sampler.sample(&graph, &(0..graph.n_rows() as u32).collect::<Vec<_>>(), DrawKey::default()).unwrap().digest()
        };
        prop_assert_eq!(draw(Bias::of(&weighted).unwrap()), draw(Bias::new(&graph, &weights).unwrap()));
    }
}
