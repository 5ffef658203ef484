//! [`SlashBurn`]: hubs first, cut-off components last.

use std::cmp::Reverse;

use girih_graph_format::{Csr, NodeId, Permutation};

use crate::simple::visited;
use crate::{Progress, Reorder, ReorderError, square, undirected};

/// SlashBurn: hubs move to the front and the components that their removal cuts off to the back. This repeats in the
/// giant component (Lim, Kang and Faloutsos, IEEE TKDE 2014).
///
/// Each round removes the `⌈share·n⌉` nodes of highest degree from the giant component. The largest remaining
/// component is the next giant one. The others move to the back, larger ones before smaller ones. An edge counts in
/// both directions; degrees count edges inside the giant component.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlashBurn {
    /// Share of all nodes that each round removes as hubs, in `0.0..=1.0` without 0; the paper uses 0.005.
    pub share: f64,
}

impl Default for SlashBurn {
    fn default() -> Self {
        Self { share: 0.005 }
    }
}

impl Reorder for SlashBurn {
    fn name(&self) -> String {
        "slashburn".to_owned()
    }

    fn order_with(&self, graph: &Csr, progress: &Progress<'_>) -> Result<Permutation, ReorderError> {
        square(graph)?;
        if !(self.share > 0.0 && self.share <= 1.0) {
            return Err(ReorderError::invalid(format!("the share of hubs is {}; it lies in 0..1", self.share)));
        }
        let graph = undirected(graph);
        let n = graph.n_rows();
        let hubs_per_round = ((self.share * n as f64).ceil() as usize).max(1);
        let mut burn = Burn { graph: &graph, is_alive: vec![true; n], stack: Vec::new() };
        let (mut front, mut back) = (Vec::new(), Vec::new());
        let mut giant: Vec<NodeId> = (0..n as NodeId).collect();
        while giant.len() > hubs_per_round {
            let hubs = burn.remove_hubs(&giant, hubs_per_round);
            front.extend_from_slice(&hubs);
            let mut components = burn.components(&giant);
            components.sort_by_key(|component| (Reverse(component.len()), component[0]));
            let mut components = components.into_iter();
            giant = components.next().unwrap_or_default();
            // The back grows towards the front, so the smallest component of this round is the round's last.
            let cut_off: Vec<NodeId> = components.flatten().collect();
            cut_off.iter().for_each(|&v| burn.is_alive[v as usize] = false);
            back.push(cut_off);
            progress(1.0 - giant.len() as f64 / n as f64);
        }
        front.extend(giant);
        front.extend(back.into_iter().rev().flatten());
        Ok(visited(front))
    }
}

struct Burn<'g> {
    graph: &'g Csr,
    /// Whether each node is in the giant component.
    is_alive: Vec<bool>,
    stack: Vec<NodeId>,
}

impl Burn<'_> {
    /// Removes the nodes of highest degree from the giant component and returns them, highest degree first.
    fn remove_hubs(&mut self, giant: &[NodeId], n_hubs: usize) -> Vec<NodeId> {
        let degree = |&v: &NodeId| self.graph.row(v as usize).iter().filter(|&&u| self.is_alive[u as usize]).count();
        let mut ranked: Vec<(Reverse<usize>, NodeId)> = giant.iter().map(|v| (Reverse(degree(v)), *v)).collect();
        ranked.select_nth_unstable(n_hubs - 1);
        ranked.truncate(n_hubs);
        ranked.sort_unstable();
        let hubs: Vec<NodeId> = ranked.into_iter().map(|(_, v)| v).collect();
        hubs.iter().for_each(|&v| self.is_alive[v as usize] = false);
        hubs
    }

    /// Components of the rest of `giant`, each in ascending order.
    fn components(&mut self, giant: &[NodeId]) -> Vec<Vec<NodeId>> {
        let mut components = Vec::new();
        let mut is_seen = vec![false; self.graph.n_rows()];
        for &start in giant {
            if !self.is_alive[start as usize] || std::mem::replace(&mut is_seen[start as usize], true) {
                continue;
            }
            let mut component = Vec::new();
            self.stack.push(start);
            while let Some(v) = self.stack.pop() {
                component.push(v);
                for &u in self.graph.row(v as usize) {
                    if self.is_alive[u as usize] && !std::mem::replace(&mut is_seen[u as usize], true) {
                        self.stack.push(u);
                    }
                }
            }
            component.sort_unstable();
            components.push(component);
        }
        components
    }
}
