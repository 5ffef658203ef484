//! Local moves: nodes join the community of a neighbour as long as that raises modularity.

use std::cell::RefCell;

use girih_graph_format::NodeId;
use rayon::prelude::*;
use thread_local::ThreadLocal;

use super::network::Network;
use crate::Progress;

/// Nodes move in as many rounds as this, one after the other; those of a round see the same communities. Results so do
/// not depend on threads, and neighbours hardly ever swap places for ever.
const N_ROUNDS: usize = 16;
/// Sweeps over the nodes at most.
const N_SWEEPS: usize = 8;
/// A sweep that moves fewer than this share of nodes is the last.
const FEW: f64 = 0.005;

/// The community of every node of `network`, as numbers below that of nodes.
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
                network.neighbours(v as usize).for_each(|(u, _)| is_active[u as usize] = true);
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
    /// What one end counts against another, in edges.
    weight: f64,
    scratch: ThreadLocal<RefCell<Scratch>>,
}

/// Edges of a node to each community; zero but while one is looked at.
struct Scratch {
    edges: Vec<u32>,
    touched: Vec<NodeId>,
}

impl State<'_> {
    /// The nodes among `nodes` that want to move, and where.
    fn best_moves(&self, nodes: &[NodeId]) -> Vec<(NodeId, NodeId)> {
        let new = || RefCell::new(Scratch { edges: vec![0; self.network.n_nodes()], touched: Vec::new() });
        let best = |&v: &NodeId| {
            let mut scratch = self.scratch.get_or(new).borrow_mut();
            let to = self.best(v, &mut scratch);
            (to != self.community[v as usize]).then_some((v, to))
        };
        nodes.par_iter().with_min_len(256).filter_map(best).collect()
    }

    /// The community that a node gains most from; its own unless another is better, and of equals the first.
    fn best(&self, v: NodeId, scratch: &mut Scratch) -> NodeId {
        let own = self.community[v as usize];
        for (u, weight) in self.network.neighbours(v as usize) {
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
