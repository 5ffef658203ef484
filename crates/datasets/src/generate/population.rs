//! [`Population`]: nodes planted in communities of uneven size, with power-law weights and shuffled ids.

use std::ops::Range;

use girih_graph_format::NodeId;
use girih_random::{Key, unit_f64};
use rayon::prelude::*;

use super::decision::{Decision, Keys};
use super::recipes::PlantedSettings;

/// Standard deviation of the logarithm of a community's size, and the range of sizes around the median.
const SIZE_SPREAD: f64 = 0.8;
const SIZE_RANGE: (f64, f64) = (0.1, 10.0);

/// Nodes of a graph or of a type, planted in order of community. A position in that order has a random id.
pub(super) struct Population {
    /// Id of every position.
    pub(super) ids: Vec<NodeId>,
    /// Weight of every position, at least one; degrees are proportional to it.
    pub(super) weights: Vec<f32>,
    /// Consecutive positions of every community; few nodes may leave some empty.
    pub(super) members: Vec<Range<usize>>,
}

impl Population {
    /// Plants `n_nodes` nodes. Communities have the same shares of all types.
    pub(super) fn new(n_nodes: usize, settings: &PlantedSettings, keys: Keys) -> Self {
        let mut ids: Vec<NodeId> = (0..n_nodes as NodeId).collect();
        keys.key(Decision::Permutation).stream(0, 0).shuffle(&mut ids);
        let weights = weights(n_nodes, settings.gamma, keys.key(Decision::Weight));
        Self { ids, weights, members: members(n_nodes, settings) }
    }

    /// Ids of `n` nodes of the largest weight; all, if there are fewer.
    pub(super) fn hubs(&self, n: usize) -> Vec<NodeId> {
        let mut positions: Vec<usize> = (0..self.ids.len()).collect();
        positions.par_sort_by(|&a, &b| self.weights[b].total_cmp(&self.weights[a]));
        positions.into_iter().take(n).map(|position| self.ids[position]).collect()
    }

    /// Every position with its community, in order.
    pub(super) fn positions(&self) -> impl Iterator<Item = (usize, usize)> {
        let communities = self.members.iter().enumerate();
        communities.flat_map(|(community, range)| range.clone().map(move |position| (position, community)))
    }

    /// Community of every node, by its id.
    pub(super) fn community_by_node(&self) -> Vec<u32> {
        let mut by_node = vec![0; self.ids.len()];
        for (position, community) in self.positions() {
            by_node[self.ids[position] as usize] = community as u32;
        }
        by_node
    }
}

/// Positions of every community; sizes are log-normal.
fn members(n_nodes: usize, settings: &PlantedSettings) -> Vec<Range<usize>> {
    let mut stream = Decision::CommunitySize.key(settings.seed).stream(0, 0);
    let sizes: Vec<f64> = (0..settings.communities)
        .map(|_| (SIZE_SPREAD * f64::from(stream.normal())).exp().clamp(SIZE_RANGE.0, SIZE_RANGE.1))
        .collect();
    let scale = n_nodes as f64 / sizes.iter().sum::<f64>();
    let (mut start, mut total) = (0, 0.0);
    let mut members: Vec<Range<usize>> = Vec::with_capacity(sizes.len());
    for size in sizes {
        total += size * scale;
        let end = (total.round() as usize).clamp(start, n_nodes);
        members.push(start..end);
        start = end;
    }
    if let Some(last) = members.last_mut() {
        last.end = n_nodes;
    }
    members
}

/// Pareto weights of exponent `gamma`.
fn weights(n_nodes: usize, gamma: f64, key: Key) -> Vec<f32> {
    let power = -1.0 / (gamma - 1.0);
    let weight = |position: u64| {
        let words = key.block(0, position).map(u64::from);
        let tail = 1.0 - unit_f64(words[0] << 32 | words[1]);
        tail.powf(power) as f32
    };
    (0..n_nodes as u64).into_par_iter().map(weight).collect()
}
