//! [`Normalisation`]: chances of nodes and edges to be in a subgraph, and the weights that follow.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use girih_graph_format::Csr;

use crate::chances::Chances;
use crate::{NodeId, Subgraph};

/// Chances of nodes and edges to be in a subgraph.
pub(super) enum Normalisation {
    /// Computed, for draws that are independent of each other.
    Exact(Drawn),
    /// Estimated from counts.
    Counted(Counts),
}

impl Normalisation {
    /// Sets the weights of a subgraph (Zeng et al., GraphSAINT, section 3.2).
    pub(super) fn weigh(&self, graph: &Csr, subgraph: &mut Subgraph) {
        let Subgraph { block, loss_weights } = subgraph;
        loss_weights.clear();
        for (row, &node) in block.nodes.iter().enumerate() {
            let of_node = self.of_node(node);
            loss_weights.push((1.0 / (graph.n_rows() as f64 * of_node)) as f32);
            let range = block.indptr[row] as usize..block.indptr[row + 1] as usize;
            block.weights.extend(block.edge_ids[range].iter().map(|&edge| match self {
                Self::Exact(drawn) => (of_node / drawn.both(graph, graph.indices()[edge as usize], node)) as f32,
                Self::Counted(counts) => counts.weight(node, edge),
            }));
        }
    }

    /// Chance that a subgraph has a node.
    fn of_node(&self, node: NodeId) -> f64 {
        match self {
            Self::Exact(drawn) => drawn.hit[node as usize],
            Self::Counted(counts) => counts.of_node(node),
        }
    }
}

/// Exact chances, for a number of independent draws.
pub(super) struct Drawn {
    n_draws: u32,
    /// Chance that one draw takes a node.
    covered: Vec<f64>,
    /// Chance that at least one draw takes a node.
    hit: Vec<f64>,
    /// Number of rows from which an edge is drawn; `None` for draws of single nodes.
    n_rows: Option<usize>,
}

impl Drawn {
    /// Chances for draws of single nodes.
    pub(super) fn of_nodes(chances: &Chances, n_draws: u32) -> Self {
        Self::new((0..chances.len()).map(|node| chances.of(node)).collect(), n_draws, None)
    }

    fn new(covered: Vec<f64>, n_draws: u32, n_rows: Option<usize>) -> Self {
        let hit = covered.iter().map(|&chance| at_least_once(chance, n_draws)).collect();
        Self { n_draws, covered, hit, n_rows }
    }

    /// Chances for draws of one of `n_rows` rows that have neighbors, and of a neighbor.
    pub(super) fn of_edges(graph: &Csr, n_rows: usize, n_draws: u32) -> Self {
        let mut covered = vec![0.0; graph.n_rows()];
        for row in (0..graph.n_rows()).filter(|&row| graph.degree(row) > 0) {
            covered[row] += 1.0;
            for &source in graph.row(row).iter().filter(|&&source| source as usize != row) {
                covered[source as usize] += 1.0 / graph.degree(row) as f64;
            }
        }
        covered.iter_mut().for_each(|covered| *covered /= n_rows as f64);
        Self::new(covered, n_draws, Some(n_rows))
    }

    /// Chance that the draws take both ends of an edge.
    fn both(&self, graph: &Csr, source: NodeId, destination: NodeId) -> f64 {
        let [a, b] = [source, destination].map(|node| self.covered[node as usize]);
        let [hit_a, hit_b] = [source, destination].map(|node| self.hit[node as usize]);
        if source == destination || a >= 1.0 {
            return hit_b;
        }
        if b >= 1.0 {
            return hit_a;
        }
        // A subgraph misses both nodes with the chance (1 − a − b + ab')ⁿ, where ab' is the chance that one draw
        // takes both. This equals (1 − a)ⁿ (1 − b)ⁿ (1 − z)ⁿ with the z below. Chances to hit avoid a small
        // difference of large numbers.
        let z = (a * b - self.together(graph, source, destination)) / ((1.0 - a) * (1.0 - b));
        hit_a * hit_b - (1.0 - hit_a) * (1.0 - hit_b) * at_least_once(z, self.n_draws)
    }

    /// Chance that one draw takes both of two nodes.
    fn together(&self, graph: &Csr, u: NodeId, v: NodeId) -> f64 {
        let Some(n_rows) = self.n_rows else { return 0.0 };
        let drawn_from = |row: NodeId, neighbor: NodeId| {
            let row = graph.row(row as usize);
            if row.binary_search(&neighbor).is_ok() { 1.0 / row.len() as f64 } else { 0.0 }
        };
        (drawn_from(u, v) + drawn_from(v, u)) / n_rows as f64
    }
}

/// `1 − (1 − chance)ⁿ`, precise for arbitrarily small chances. It uses additions and multiplications alone, so that
/// every machine computes equal bits.
fn at_least_once(chance: f64, n_draws: u32) -> f64 {
    let either = |a: f64, b: f64| a + b * (1.0 - a);
    let (mut hit, mut power, mut left) = (0.0, chance, n_draws);
    while left > 0 {
        if left & 1 == 1 {
            hit = either(hit, power);
        }
        power = either(power, power);
        left >>= 1;
    }
    hit
}

/// Numbers of subgraphs that contain each node and each edge.
pub(super) struct Counts {
    n_subgraphs: u32,
    nodes: Vec<AtomicU32>,
    edges: Vec<AtomicU32>,
}

impl Counts {
    pub(super) fn new(graph: &Csr, n_subgraphs: u32) -> Self {
        let zeros = |n| std::iter::repeat_with(AtomicU32::default).take(n).collect();
        Self { n_subgraphs, nodes: zeros(graph.n_rows()), edges: zeros(graph.nnz()) }
    }

    /// Counts a subgraph; sums do not depend on the order of threads.
    pub(super) fn add(&self, subgraph: &Subgraph) {
        for &node in subgraph.nodes() {
            self.nodes[node as usize].fetch_add(1, Relaxed);
        }
        for &edge in &subgraph.block.edge_ids {
            self.edges[edge as usize].fetch_add(1, Relaxed);
        }
    }

    /// Count of a node or edge; zero counts as one.
    fn met(counts: &[AtomicU32], at: usize) -> f64 {
        f64::from(counts[at].load(Relaxed).max(1))
    }

    fn of_node(&self, node: NodeId) -> f64 {
        Self::met(&self.nodes, node as usize) / f64::from(self.n_subgraphs)
    }

    fn weight(&self, destination: NodeId, edge: u64) -> f32 {
        (Self::met(&self.nodes, destination as usize) / Self::met(&self.edges, edge as usize)) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_chances_keep_their_precision() {
        for (chance, n, expected) in [(0.5, 3, 0.875), (1.0, 7, 1.0), (0.0, 9, 0.0), (0.25, 1, 0.25), (-1.0, 2, -3.0)] {
            assert_eq!(at_least_once(chance, n), expected);
        }
        // n · chance, less the chance of two hits.
        let (chance, n) = (1e-12, 1_000_000);
        let expected = 1e-6 - 0.5e-12;
        assert!((at_least_once(chance, n) / expected - 1.0).abs() < 1e-12);
    }
}
