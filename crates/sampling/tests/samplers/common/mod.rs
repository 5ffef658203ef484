//! Graphs that tests sample from, statistics, and a plain reference implementation of sampling.

use std::collections::{BTreeSet, HashMap};

use girih_graph_format::{Coo, Csr, Duplicates, NodeId};
use girih_random::{Key, Stream, purpose};
use girih_sampling::relabel::NewNodes;
use girih_sampling::{DrawKey, Expand, FanOut, NeighborOptions, Neighbors};
use proptest::prelude::*;

/// Adjacency with these edges, `(destination, source)`.
pub fn graph_of(n: usize, edges: impl IntoIterator<Item = (NodeId, NodeId)>) -> Csr {
    let (rows, cols) = edges.into_iter().unzip();
    Coo::new(n, n, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap()
}

/// Star: a node with neighbors `1..=degree`, which have none.
pub fn star(degree: usize) -> Csr {
    graph_of(degree + 1, (1..=degree as u32).map(|leaf| (0, leaf)))
}

/// Graph with hubs, for statistical tests.
pub fn hubs(n: u32) -> Csr {
    graph_of(
        n as usize,
        (0..n).flat_map(|v| (0..(1 + 4000 / (v + 1)).min(n)).map(move |i| (v, (v * 7 + i * i + i) % n))),
    )
}

/// Graphs of up to 60 nodes: sparse to dense, with loops and isolated nodes.
pub fn graphs() -> impl Strategy<Value = Csr> {
    (1..60usize).prop_flat_map(|n| {
        prop::collection::vec((0..n as u32, 0..n as u32), 0..8 * n).prop_map(move |edges| graph_of(n, edges))
    })
}

/// Graph and some of its nodes, in any order.
pub fn graphs_and_seeds() -> impl Strategy<Value = (Csr, Vec<NodeId>)> {
    graphs().prop_flat_map(|graph| {
        let n = graph.n_rows();
        let seeds = Just((0..n as u32).collect::<Vec<_>>()).prop_shuffle();
        (Just(graph), seeds, 0..=n).prop_map(|(graph, mut seeds, len)| {
            seeds.truncate(len);
            (graph, seeds)
        })
    })
}

/// Fan-outs of one to three hops.
pub fn fan_outs() -> impl Strategy<Value = FanOut> {
    let hop = prop_oneof![5 => (1..9u32).prop_map(Neighbors::Count), 1 => Just(Neighbors::All), 1 => Just(Neighbors::Count(70))];
    prop::collection::vec(hop, 1..4).prop_map(|hops| FanOut::new(hops).unwrap())
}

/// Σ (found − expected)² / variance; of `n` sums that are nearly independent and normal this is about n ± √(2n).
pub fn chi_square(found: &[f64], expected: impl Fn(usize) -> (f64, f64)) -> f64 {
    found.iter().enumerate().map(|(i, f)| (f - expected(i).0).powi(2) / expected(i).1).sum()
}

/// Fails if fair draws exceed `chi_square` less than once in a hundred thousand times.
pub fn assert_fair(chi_square: f64, degrees_of_freedom: f64) {
    let far = 4.3 * (2.0 * degrees_of_freedom).sqrt();
    let distance = chi_square - degrees_of_freedom;
    assert!(distance < far + 8.0 && distance > -far, "chi-square {chi_square} for {degrees_of_freedom}");
}

/// Fails when the means of estimates differ from the expected values by more than chance explains, and by more than
/// `tolerance` of them.
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

/// Block of the reference: nodes, and for each row its columns and edges.
#[derive(Debug, PartialEq)]
pub struct PlainBlock {
    pub nodes: Vec<NodeId>,
    pub rows: Vec<Vec<(NodeId, u64)>>,
}

/// Mini-batch by the definition in `docs/draws.md`: blocks from the inputs on. `weights` are exact as integers.
pub fn plain_sample(
    graph: &Csr,
    seeds: &[NodeId],
    key: DrawKey,
    fan_out: &FanOut,
    options: NeighborOptions,
    weights: Option<&[u64]>,
    excluded: &BTreeSet<u64>,
) -> Vec<PlainBlock> {
    let key_of_epoch = Key::new(key.seed, purpose::SAMPLING).child(1).child(u64::from(key.epoch));
    let mut nodes = seeds.to_vec();
    let mut kept: HashMap<NodeId, Vec<u64>> = HashMap::new();
    let mut blocks = Vec::new();
    for (hop, &neighbors) in fan_out.hops().iter().enumerate() {
        let mut edges = Vec::new();
        for &node in &nodes {
            let draw = || {
                let stream = key_of_epoch.stream(((hop as u64) << 32) + u64::from(node), u64::from(key.batch) << 32);
                plain_draw(graph, node, neighbors, options.replace, weights, excluded, stream)
            };
            edges.push(match options.expand {
                Expand::PerLayer => draw(),
                Expand::Once => kept.entry(node).or_insert_with(draw).clone(),
            });
        }
        let mut new: Vec<NodeId> = Vec::new();
        for &edge in edges.iter().flatten() {
            let source = graph.indices()[edge as usize];
            if !nodes.contains(&source) && !new.contains(&source) {
                new.push(source);
            }
        }
        if options.new_nodes == NewNodes::Ascending {
            new.sort_unstable();
        }
        nodes.extend(new);
        let place = |edge: u64| nodes.iter().position(|&v| v == graph.indices()[edge as usize]).unwrap() as NodeId;
        let rows = edges.iter().map(|row| row.iter().map(|&edge| (place(edge), edge)).collect()).collect();
        blocks.push(PlainBlock { nodes: nodes.clone(), rows });
    }
    blocks.reverse();
    blocks
}

/// Position below `bound` that one word decides: in graphs this small, all but one of a hundred million words do.
fn plain_position(stream: &mut Stream, bound: usize) -> usize {
    let product = u64::from(stream.next_u32()) * bound as u64;
    assert!(product % (1 << 32) >= (1 << 32) % bound as u64, "the rare word that does not decide");
    (product >> 32) as usize
}

/// Edges that one node draws.
fn plain_draw(
    graph: &Csr,
    node: NodeId,
    neighbors: Neighbors,
    replace: bool,
    weights: Option<&[u64]>,
    excluded: &BTreeSet<u64>,
    mut stream: Stream,
) -> Vec<u64> {
    let row = graph.row_range(node as usize);
    let mut left: Vec<u64> = row.map(|edge| edge as u64).filter(|edge| !excluded.contains(edge)).collect();
    let weight = |edge: u64| weights.map_or(1, |weights| weights[edge as usize]);
    let degree = left.len();
    let count = match neighbors {
        Neighbors::Count(count) if replace || (count as usize) < degree => count as usize,
        _ => return left.into_iter().filter(|&edge| weight(edge) > 0).collect(),
    };
    let mut drawn = Vec::new();
    match weights {
        Some(_) => {
            for _ in 0..count {
                let total: u64 = left.iter().map(|&edge| weight(edge)).sum();
                if total == 0 {
                    break;
                }
                let mut place = stream.below(total);
                let at = left.iter().position(|&edge| {
                    let is_here = place < weight(edge);
                    place = place.wrapping_sub(weight(edge));
                    is_here
                });
                drawn.push(left[at.unwrap()]);
                if !replace {
                    left.remove(at.unwrap());
                }
            }
        }
        None if replace => {
            for _ in 0..if degree == 0 { 0 } else { count } {
                drawn.push(left[plain_position(&mut stream, degree)]);
            }
        }
        None => {
            for i in 0..count {
                let last = degree - count + i;
                let position = plain_position(&mut stream, last + 1);
                let is_taken = drawn.contains(&left[position]);
                drawn.push(left[if is_taken { last } else { position }]);
            }
        }
    }
    drawn
}
