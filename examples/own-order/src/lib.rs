//! [`BreadthFirst`]: an order of nodes outside of girih.

use std::cmp::Reverse;
use std::collections::VecDeque;

use girih_graph_format::{Csr, NodeId, Permutation};
use girih_reorder::{Progress, Reorder, ReorderError};

/// Order in which a breadth-first search meets the nodes. It starts at the node with the most neighbors, and again
/// at the next such node where none is left to reach.
#[derive(Clone, Copy, Debug, Default)]
pub struct BreadthFirst;

impl Reorder for BreadthFirst {
    fn name(&self) -> String {
        "breadth-first".to_owned()
    }

    fn order_with(&self, graph: &Csr, progress: &Progress<'_>) -> Result<Permutation, ReorderError> {
        if !graph.is_square() {
            return Err(ReorderError::invalid("a matrix that is not square has no order of nodes"));
        }
        let n = graph.n_rows();
        let mut starts: Vec<NodeId> = (0..n as NodeId).collect();
        starts.sort_by_key(|&node| Reverse(graph.row(node as usize).len()));
        let (mut order, mut is_met, mut queue) = (Vec::with_capacity(n), vec![false; n], VecDeque::new());
        for start in starts {
            queue.extend((!is_met[start as usize]).then_some(start));
            is_met[start as usize] = true;
            while let Some(node) = queue.pop_front() {
                order.push(node);
                for &next in graph.row(node as usize) {
                    if !is_met[next as usize] {
                        is_met[next as usize] = true;
                        queue.push_back(next);
                    }
                }
            }
            progress(order.len() as f64 / n as f64);
        }
        Permutation::from_order(order).map_err(|error| ReorderError::invalid(error.to_string()))
    }
}
