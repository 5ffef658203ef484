//! Pairs of the planted model: communities of uneven size, power-law degrees, ids shuffled.
//!
//! Nodes are planted in order of community and get a random id at the end. The first end of a pair is drawn by
//! weight. The second is also drawn by weight: from the whole graph with probability `mix`, else from the first one's
//! community. A hub whose community is too small for its degree draws from the whole graph more often.

use std::ops::Range;

use girih_graph_format::NodeId;
use girih_random::{Key, unit_f64};
use rayon::prelude::*;

use super::alias::{self, AliasTable, Fraction, Slot};
use super::assemble::PairSource;
use super::decision::Decision;
use super::recipes::Planted;

/// Standard deviation of the logarithm of a community's size, and the range of sizes around the median.
const SIZE_SPREAD: f64 = 0.8;
const SIZE_RANGE: (f64, f64) = (0.1, 10.0);
/// Largest weight of a node; the smallest is one.
const MAX_WEIGHT: f64 = 1000.0;
/// Largest expected fraction of a community that is joined to one member.
const MAX_COMMUNITY_SHARE: f64 = 0.25;
/// Largest expected fraction of the graph that is joined to one node.
const MAX_GRAPH_SHARE: f64 = 0.25;
/// Denominator of the probabilities.
const INSIDE_SCALE: u32 = 1 << 16;

/// Source of the pairs of one recipe.
pub(super) struct Pairs {
    key: Key,
    /// State of every planted position.
    nodes: Vec<Node>,
    /// Planted positions of every community.
    members: Vec<Range<usize>>,
    /// Table of all positions, by weight.
    anywhere: AliasTable,
    /// Table of the members of every community, by weight with a cap for hubs.
    inside: Vec<Slot>,
}

/// One planted position; its fields lie together, because a draw needs all of them.
#[derive(Clone, Copy)]
struct Node {
    id: NodeId,
    community: u32,
    /// Probability of a partner inside the community, times [`INSIDE_SCALE`].
    inside_probability: u32,
}

impl Pairs {
    pub(super) fn new(recipe: &Planted) -> Self {
        let members = communities(recipe);
        let weights = weights(recipe);
        let mean_weight = weights.iter().map(|&w| f64::from(w)).sum::<f64>() / (recipe.nodes as f64).max(1.0);
        // Expected degree of a node of weight one.
        let unit_degree = recipe.edges as f64 / (recipe.nodes as f64).max(1.0) / mean_weight;
        let satiety = |members: &Range<usize>| MAX_COMMUNITY_SHARE * members.len() as f64;

        let inside = members.par_iter().map(|range| {
            let most = (satiety(range) / unit_degree) as f32;
            let capped: Vec<f32> = weights[range.clone()].iter().map(|w| w.min(most)).collect();
            alias::build(&capped)
        });
        let mut ids: Vec<NodeId> = (0..recipe.nodes as NodeId).collect();
        Decision::Permutation.key(recipe.seed).stream(0, 0).shuffle(&mut ids);
        let node = |position: usize, community: usize| {
            let sated = satiety(&members[community]) / (f64::from(weights[position]) * unit_degree);
            Node {
                id: ids[position],
                community: community as u32,
                inside_probability: ((1.0 - recipe.mix).min(sated) * f64::from(INSIDE_SCALE)) as u32,
            }
        };
        let nodes = members.iter().enumerate().flat_map(|(c, range)| range.clone().map(move |position| (position, c)));
        Self {
            key: Decision::Pair.key(recipe.seed),
            nodes: nodes.map(|(position, community)| node(position, community)).collect(),
            inside: inside.collect::<Vec<_>>().concat(),
            anywhere: AliasTable::new(&weights),
            members,
        }
    }

    /// Community of every node, by its final id.
    pub(super) fn community_by_node(&self) -> Vec<u32> {
        let mut by_node = vec![0; self.nodes.len()];
        for node in &self.nodes {
            by_node[node.id as usize] = node.community;
        }
        by_node
    }
}

impl PairSource for Pairs {
    fn n_nodes(&self) -> usize {
        self.nodes.len()
    }

    #[inline]
    fn pair(&self, draw: u64) -> (NodeId, NodeId) {
        let words = self.key.block(0, draw).map(u64::from);
        let u = self.nodes[self.anywhere.draw(&mut Fraction(words[0] << 32 | words[1])) as usize];
        let mut fraction = Fraction(words[2] << 32 | words[3]);
        let v = if fraction.take(INSIDE_SCALE) < u.inside_probability {
            let members = self.members[u.community as usize].clone();
            members.start + alias::draw(&self.inside[members], &mut fraction) as usize
        } else {
            self.anywhere.draw(&mut fraction) as usize
        };
        (u.id, self.nodes[v].id)
    }
}

/// Consecutive positions of every community; sizes are log-normal, and a tiny graph may leave some empty.
fn communities(recipe: &Planted) -> Vec<Range<usize>> {
    let mut stream = Decision::CommunitySize.key(recipe.seed).stream(0, 0);
    let sizes: Vec<f64> = (0..recipe.communities)
        .map(|_| (SIZE_SPREAD * f64::from(stream.normal())).exp().clamp(SIZE_RANGE.0, SIZE_RANGE.1))
        .collect();
    let scale = recipe.nodes as f64 / sizes.iter().sum::<f64>();
    let (mut start, mut total) = (0, 0.0);
    let mut members: Vec<Range<usize>> = Vec::with_capacity(sizes.len());
    for size in sizes {
        total += size * scale;
        let end = (total.round() as usize).clamp(start, recipe.nodes);
        members.push(start..end);
        start = end;
    }
    if let Some(last) = members.last_mut() {
        last.end = recipe.nodes;
    }
    members
}

/// Pareto weights of exponent `gamma`, capped to bound the expected degree of every node.
fn weights(recipe: &Planted) -> Vec<f32> {
    let key = Decision::Weight.key(recipe.seed);
    let mean_degree = recipe.edges as f64 / recipe.nodes.max(1) as f64;
    // The mean weight is at least one, so this bound on the weight bounds the degree.
    let most = (MAX_GRAPH_SHARE * recipe.nodes as f64 / mean_degree.max(1.0)).clamp(1.0, MAX_WEIGHT);
    let power = -1.0 / (recipe.gamma - 1.0);
    (0..recipe.nodes as u64)
        .into_par_iter()
        .map(|position| {
            let words = key.block(0, position).map(u64::from);
            let tail = 1.0 - unit_f64(words[0] << 32 | words[1]);
            tail.powf(power).min(most) as f32
        })
        .collect()
}
