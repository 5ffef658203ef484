//! Orders that use at most degrees: [`Identity`], [`Random`] and [`Degree`].

use std::cmp::Reverse;

use girih_graph_format::{Csr, NodeId, Permutation};
use girih_random::{Key, purpose};

use crate::{Progress, Reorder, ReorderError, square};

/// Identity order: node ids stay as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity;

impl Reorder for Identity {
    fn name(&self) -> String {
        "none".to_owned()
    }

    fn order_with(&self, graph: &Csr, _: &Progress<'_>) -> Result<Permutation, ReorderError> {
        square(graph)?;
        Ok(Permutation::identity(graph.n_rows()))
    }
}

/// Random order: a baseline for other orders.
#[derive(Clone, Copy, Debug, Default)]
pub struct Random {
    /// Seed of the draws.
    pub seed: u64,
}

impl Reorder for Random {
    fn name(&self) -> String {
        "random".to_owned()
    }

    fn order_with(&self, graph: &Csr, _: &Progress<'_>) -> Result<Permutation, ReorderError> {
        square(graph)?;
        let mut order: Vec<NodeId> = (0..graph.n_rows() as NodeId).collect();
        Key::new(self.seed, purpose::ORDER).stream(0, 0).shuffle(&mut order);
        Ok(visited(order))
    }
}

/// Order by falling degree; nodes of equal degree keep their order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Degree;

impl Reorder for Degree {
    fn name(&self) -> String {
        "degree".to_owned()
    }

    fn order_with(&self, graph: &Csr, _: &Progress<'_>) -> Result<Permutation, ReorderError> {
        square(graph)?;
        let mut order: Vec<NodeId> = (0..graph.n_rows() as NodeId).collect();
        by_falling_degree(graph, &mut order);
        Ok(visited(order))
    }
}

/// Sorts nodes by falling degree; nodes of equal degree keep their order. Counting sort in O(nodes) if no degree
/// exceeds the number of nodes.
pub(crate) fn by_falling_degree(graph: &Csr, nodes: &mut [NodeId]) {
    let degree = |v: NodeId| graph.degree(v as usize);
    let most = nodes.iter().map(|&v| degree(v)).max().unwrap_or(0);
    if most > nodes.len() {
        nodes.sort_by_key(|&v| Reverse(degree(v)));
        return;
    }
    // First free place of the nodes of each degree: after the nodes of all larger degrees.
    let mut places = vec![0; most + 1];
    nodes.iter().for_each(|&v| places[degree(v)] += 1);
    let mut end = 0usize;
    for place in places.iter_mut().rev() {
        (*place, end) = (end, end + *place);
    }
    let mut sorted = vec![0; nodes.len()];
    for &v in nodes.iter() {
        let place = &mut places[degree(v)];
        sorted[*place] = v;
        *place += 1;
    }
    nodes.copy_from_slice(&sorted);
}

/// Permutation of a visiting order that lists every node once.
pub(crate) fn visited(order: Vec<NodeId>) -> Permutation {
    Permutation::from_order(order).expect("every node is visited once")
}
