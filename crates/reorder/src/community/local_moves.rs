//! Local moves: nodes join the community of a neighbor as long as that raises modularity.

use std::cell::RefCell;

use girih_graph_format::NodeId;
use rayon::prelude::*;
use thread_local::ThreadLocal;

use super::network::Network;
use crate::Progress;

/// Number of rounds per sweep. Nodes of a round move at once and see one state of the communities. Results therefore
/// do not depend on threads, and neighbors rarely swap communities forever.
const N_ROUNDS: usize = 16;
/// Maximum number of sweeps over the nodes.
const N_SWEEPS: usize = 8;
/// A sweep that moves less than this share of the nodes is the last.
const FEW: f64 = 0.005;

/// Community of every node of `network`, as numbers below the number of nodes.
pub(super) fn communities(network: &Network<'_>, resolution: f64, progress: &Progress<'_>) -> Vec<NodeId> {
    let n = network.n_nodes();
    let mut state = State {
        network,
        community: (0..n as NodeId).collect(),
        ends: network.ends.clone(),
        weight: resolution / network.ends.iter().sum::<u64>().max(1) as f64,
        scratch: ThreadLocal::new(),
    };
    let mut is_active = vec![true; n];
    for sweep in 0..N_SWEEPS {
        let mut n_moved = 0;
        for round in 0..N_ROUNDS {
            let nodes: Vec<NodeId> =
                (round..n).step_by(N_ROUNDS).filter(|&v| is_active[v]).map(|v| v as NodeId).collect();
            nodes.iter().for_each(|&v| is_active[v as usize] = false);
            let moves = state.best_moves(&nodes);
            n_moved += moves.len();
            for (v, to) in moves {
                state.apply(v, to);
                network.neighbors(v as usize).for_each(|(u, _)| is_active[u as usize] = true);
            }
            progress((sweep * N_ROUNDS + round + 1) as f64 / (N_SWEEPS * N_ROUNDS) as f64);
        }
        if (n_moved as f64) < FEW * n as f64 {
            break;
        }
    }
    state.community
}

struct State<'n> {
    network: &'n Network<'n>,
    community: Vec<NodeId>,
    /// Ends of edges in each community.
    ends: Vec<u64>,
    /// Penalty of a pair of edge ends in the modularity gain, in edges: resolution over the total number of ends.
    weight: f64,
    scratch: ThreadLocal<RefCell<Scratch>>,
}

/// Edges from a node to each community; all zero between uses.
struct Scratch {
    edges: Vec<u32>,
    touched: Vec<NodeId>,
}

impl State<'_> {
    /// Moves of the nodes among `nodes` that gain by one: node and new community.
    fn best_moves(&self, nodes: &[NodeId]) -> Vec<(NodeId, NodeId)> {
        let new = || RefCell::new(Scratch { edges: vec![0; self.network.n_nodes()], touched: Vec::new() });
        let best = |&v: &NodeId| {
            let mut scratch = self.scratch.get_or(new).borrow_mut();
            let to = self.best(v, &mut scratch);
            (to != self.community[v as usize]).then_some((v, to))
        };
        nodes.par_iter().with_min_len(256).filter_map(best).collect()
    }

    /// Community with the largest gain for a node. Its own community wins ties; of other equal ones the smallest
    /// number wins.
    fn best(&self, v: NodeId, scratch: &mut Scratch) -> NodeId {
        let own = self.community[v as usize];
        for (u, weight) in self.network.neighbors(v as usize) {
            let community = self.community[u as usize];
            let edges = &mut scratch.edges[community as usize];
            if *edges == 0 {
                scratch.touched.push(community);
            }
            *edges += weight;
        }
        let ends = self.network.ends[v as usize];
        let gain = |community: NodeId, edges: u32| {
            let others = self.ends[community as usize] - if community == own { ends } else { 0 };
            f64::from(edges) - ends as f64 * others as f64 * self.weight
        };
        let (mut best, mut most) = (own, gain(own, scratch.edges[own as usize]));
        for community in scratch.touched.drain(..) {
            let edges = std::mem::take(&mut scratch.edges[community as usize]);
            let gained = gain(community, edges);
            if gained > most || (gained == most && best != own && community < best) {
                (best, most) = (community, gained);
            }
        }
        best
    }

    fn apply(&mut self, v: NodeId, to: NodeId) {
        let from = std::mem::replace(&mut self.community[v as usize], to);
        let ends = self.network.ends[v as usize];
        self.ends[from as usize] -= ends;
        self.ends[to as usize] += ends;
    }
}
