//! Plain reference implementation of sampling.

use std::collections::{BTreeSet, HashMap};

use girih_graph_format::{Csr, NodeId};
use girih_random::{Key, Stream, purpose};
use girih_sampling::relabel::NewNodes;
use girih_sampling::{DrawKey, Expand, FanOut, NeighborOptions, Neighbors};

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
pub fn plain_draw(
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
