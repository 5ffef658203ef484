//! Pairs of the planted model: power-law degrees, and partners in the same community.
//!
//! The first end of a pair is drawn by weight. The second is also drawn by weight: from all nodes with probability
//! `mix`, else from the first one's community. A hub whose community is too small for its degree draws from all nodes
//! more often. Without types both ends are the same nodes; in a relation the first is the destination.

use std::ops::Range;
use std::sync::Arc;

use girih_graph_format::NodeId;
use girih_random::Key;
use rayon::prelude::*;

use super::alias::{self, AliasTable, Fraction, Slot};
use super::assemble::PairSource;
use super::decision::{Decision, Keys};
use super::population::Population;
use super::recipes::{Planted, PlantedSettings, RelationDraws, Typed};

/// Largest weight of a node; the smallest is one.
const MAX_WEIGHT: f64 = 1000.0;
/// Largest expected fraction of a community that is joined to one node.
const MAX_COMMUNITY_SHARE: f64 = 0.25;
/// Largest expected fraction of all possible partners that are joined to one node.
const MAX_GRAPH_SHARE: f64 = 0.25;
/// Denominator of the probabilities.
const INSIDE_SCALE: u32 = 1 << 16;

/// Source of the pairs of one graph or relation.
pub(super) struct Pairs {
    key: Key,
    first: Arc<End>,
    second: Arc<End>,
    /// Table of the second end's members of every community, by weight with a cap for hubs.
    inside: Vec<Slot>,
}

/// Nodes that one end of a pair is drawn from.
struct End {
    /// State of every planted position.
    nodes: Vec<Node>,
    /// Planted positions of every community.
    members: Vec<Range<usize>>,
    /// Table of all positions, by weight.
    anywhere: AliasTable,
}

/// One planted position; its fields lie together, because a draw needs all of them.
#[derive(Clone, Copy)]
struct Node {
    id: NodeId,
    community: u32,
    /// Probability of a partner inside the community, times [`INSIDE_SCALE`], where this is the first end.
    inside_probability: u32,
}

impl Pairs {
    /// Pairs of a graph without types; both ends are drawn from `nodes`.
    pub(super) fn of_graph(recipe: &Planted, nodes: &Population) -> Self {
        let keys = Keys::of_all(recipe.settings.seed);
        let weights = Weights::new(nodes, recipe.nodes, recipe.edges);
        let end = Arc::new(End::new(nodes, &weights, nodes, recipe.settings.mix));
        let inside = inside(nodes, &weights, nodes);
        Self { key: keys.key(Decision::Pair), first: end.clone(), second: end, inside }
    }

    /// Pairs of destination and source of a relation, by ids inside their types.
    pub(super) fn of_relation(recipe: &Typed, number: usize, nodes: &[Population]) -> Self {
        let RelationDraws { source, destination, edges, .. } = recipe.relations[number];
        let PlantedSettings { seed, mix, .. } = recipe.settings;
        let ends = [&nodes[destination], &nodes[source]];
        let weights = [0, 1].map(|end| Weights::new(ends[end], ends[1 - end].ids.len(), edges));
        let end_of = |end: usize| Arc::new(End::new(ends[end], &weights[end], ends[1 - end], mix));
        let inside = inside(ends[1], &weights[1], ends[0]);
        let key = Keys::of_one(seed, number).key(Decision::Pair);
        Self { key, first: end_of(0), second: end_of(1), inside }
    }
}

impl End {
    /// Positions of `nodes`, whose partners are `partners`.
    fn new(nodes: &Population, weights: &Weights, partners: &Population, mix: f64) -> Self {
        let node = |(position, community): (usize, usize)| {
            let sated = satiety(&partners.members[community])
                / (f64::from(weights.of_positions[position]) * weights.unit_degree);
            Node {
                id: nodes.ids[position],
                community: community as u32,
                inside_probability: ((1.0 - mix).min(sated) * f64::from(INSIDE_SCALE)) as u32,
            }
        };
        Self {
            nodes: nodes.positions().map(node).collect(),
            members: nodes.members.clone(),
            anywhere: AliasTable::new(&weights.of_positions),
        }
    }
}

/// Largest expected number of partners of one node among these members of its community.
fn satiety(partners: &Range<usize>) -> f64 {
    MAX_COMMUNITY_SHARE * partners.len() as f64
}

/// Tables of the members of every community, by weights that are capped by the members that `partners` have there.
fn inside(nodes: &Population, weights: &Weights, partners: &Population) -> Vec<Slot> {
    let tables = nodes.members.par_iter().zip(&partners.members).map(|(range, partners)| {
        let most = (satiety(partners) / weights.unit_degree) as f32;
        let capped: Vec<f32> = weights.of_positions[range.clone()].iter().map(|w| w.min(most)).collect();
        alias::build(&capped)
    });
    tables.collect::<Vec<_>>().concat()
}

impl PairSource for Pairs {
    fn shape(&self) -> (usize, usize) {
        (self.first.nodes.len(), self.second.nodes.len())
    }

    #[inline]
    fn pair(&self, draw: u64) -> (NodeId, NodeId) {
        let words = self.key.block(0, draw).map(u64::from);
        let u = self.first.nodes[self.first.anywhere.draw(&mut Fraction(words[0] << 32 | words[1])) as usize];
        let mut fraction = Fraction(words[2] << 32 | words[3]);
        let v = if fraction.take(INSIDE_SCALE) < u.inside_probability {
            let members = self.second.members[u.community as usize].clone();
            members.start + alias::draw(&self.inside[members], &mut fraction) as usize
        } else {
            self.second.anywhere.draw(&mut fraction) as usize
        };
        (u.id, self.second.nodes[v].id)
    }
}

/// Weights of the positions at one end of all pairs.
struct Weights {
    of_positions: Vec<f32>,
    /// Expected degree of a node of weight one.
    unit_degree: f64,
}

impl Weights {
    /// Weights of `nodes`, capped to bound the expected degree of every node.
    fn new(nodes: &Population, n_partners: usize, edges: u64) -> Self {
        let n_nodes = nodes.ids.len();
        let mean_degree = edges as f64 / n_nodes.max(1) as f64;
        // The mean weight is at least one, so this bound on the weight bounds the degree.
        let most = (MAX_GRAPH_SHARE * n_partners as f64 / mean_degree.max(1.0)).clamp(1.0, MAX_WEIGHT) as f32;
        let of_positions: Vec<f32> = nodes.weights.par_iter().map(|weight| weight.min(most)).collect();
        let mean_weight = of_positions.iter().map(|&w| f64::from(w)).sum::<f64>() / (n_nodes as f64).max(1.0);
        let unit_degree = edges as f64 / (n_nodes as f64).max(1.0) / mean_weight;
        Self { of_positions, unit_degree }
    }
}
