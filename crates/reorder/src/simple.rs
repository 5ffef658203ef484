//! Orders that look at degrees at most: [`Identity`], [`Random`] and [`Degree`].

use std::cmp::Reverse;

use girih_graph_format::{Csr, NodeId, Permutation};
use girih_random::{Key, purpose};

use crate::{Progress, Reorder, ReorderError, square};

/// The order that there is.
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

/// A random order: what others are held against.
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

/// By falling degree; nodes of equal degree keep their order.
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

/// Sorts nodes by falling degree; those of equal degree keep their order.
pub(crate) fn by_falling_degree(graph: &Csr, nodes: &mut [NodeId]) {
    nodes.sort_by_key(|&v| Reverse(graph.degree(v as usize)));
}

/// The permutation of an order of visit that lists every node once.
pub(crate) fn visited(order: Vec<NodeId>) -> Permutation {
    Permutation::from_order(order).expect("every node is visited once")
}
