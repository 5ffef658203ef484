//! [`Dendrogram`]: the hierarchy of communities, and orders that visit it.

use std::cmp::Reverse;

use girih_graph_format::{Csr, NodeId};

use super::chain::chained;
use super::coarsen::{Members, coarsen};
use super::local_moves::communities;
use super::network::Network;
use crate::Progress;

/// Approximate share of the time that the finest level takes.
const SHARE_OF_FINEST: f64 = 0.8;

/// Levels of communities, finest first. The members of level 0 are nodes; the members of level `k` are communities of
/// level `k − 1`.
pub(super) struct Dendrogram {
    levels: Vec<Level>,
}

struct Level {
    members: Members,
    /// Network whose nodes are these communities.
    network: Network<'static>,
}

/// Order in which the communities inside one community are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Siblings {
    /// Communities with most edges first, so that they share tiles.
    Busiest,
    /// Each community is followed by one that shares many edges with the last ones, so that neighbors share windows.
    Chained,
}

impl Dendrogram {
    /// Louvain's method: nodes join communities, and communities become nodes, until no node joins another.
    pub(super) fn new(graph: &Csr, resolution: f64, progress: &Progress<'_>) -> Self {
        let mut levels: Vec<Level> = Vec::new();
        loop {
            let finest = Network::new(graph);
            let network = levels.last().map_or(&finest, |level| &level.network);
            let of_finest = |share| progress(SHARE_OF_FINEST * share);
            let progress: &Progress<'_> = if levels.is_empty() { &of_finest } else { &|_| () };
            let mut community = communities(network, resolution, progress);
            let members = Members::number(&mut community);
            if members.n_communities() == network.n_nodes() {
                return Self { levels };
            }
            let network = coarsen(network, &community, &members);
            levels.push(Level { members, network });
        }
    }

    /// All nodes, community by community. Communities of at most `leaf` nodes list them by falling degree.
    pub(super) fn order(&self, graph: &Csr, leaf: usize, siblings: Siblings) -> Vec<NodeId> {
        let mut visit = Visit { dendrogram: self, graph, leaf, siblings, order: Vec::with_capacity(graph.n_rows()) };
        let n_tops = self.levels.last().map_or(0, |top| top.members.n_communities());
        let tops: Vec<NodeId> = (0..n_tops as NodeId).collect();
        visit.open((0..graph.n_rows() as NodeId).collect(), self.levels.len(), &tops);
        visit.order
    }

    /// Appends the nodes of a community of `level`.
    fn collect(&self, level: usize, community: NodeId, nodes: &mut Vec<NodeId>) {
        let members = self.levels[level].members.of(community as usize);
        match level {
            0 => nodes.extend_from_slice(members),
            _ => members.iter().for_each(|&member| self.collect(level - 1, member, nodes)),
        }
    }
}

/// State of a visit that builds an order.
struct Visit<'d> {
    dendrogram: &'d Dendrogram,
    graph: &'d Csr,
    leaf: usize,
    siblings: Siblings,
    order: Vec<NodeId>,
}

impl Visit<'_> {
    /// Appends the `nodes` of a community, whose `members` are communities of level `above - 1`.
    fn open(&mut self, mut nodes: Vec<NodeId>, above: usize, members: &[NodeId]) {
        if above == 0 || nodes.len() <= self.leaf {
            nodes.sort_unstable_by_key(|&v| (Reverse(self.graph.degree(v as usize)), v));
            self.order.extend(nodes);
            return;
        }
        let level = above - 1;
        for community in self.arranged(level, members) {
            nodes.clear();
            self.dendrogram.collect(level, community, &mut nodes);
            self.open(nodes.clone(), level, self.dendrogram.levels[level].members.of(community as usize));
        }
    }

    /// Siblings in visiting order.
    fn arranged(&self, level: usize, members: &[NodeId]) -> Vec<NodeId> {
        let network = &self.dendrogram.levels[level].network;
        let mut busiest = members.to_vec();
        busiest.sort_unstable_by_key(|&c| (Reverse(network.ends[c as usize]), c));
        match self.siblings {
            Siblings::Busiest => busiest,
            Siblings::Chained => chained(network, &busiest),
        }
    }
}
