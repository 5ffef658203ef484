//! [`page_rank`] and [`reverse_page_rank`]: stationary distributions of random walks, by power iteration.

use girih_graph_format::{Csr, NodeId};
use rayon::prelude::*;

use super::n_lists;

/// Number of values that one task sums. Sums of tasks are added in order, so that threads do not affect the result.
const SUMMED: usize = 1 << 13;

/// Options of the power iteration (Brin and Page, Computer Networks 30, 1998).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageRank {
    /// Probability that a walk continues instead of restarting.
    pub damping: f64,
    /// Threshold of the L1 change of the ranks below which iteration stops; ranks sum to 1.
    pub tolerance: f64,
    /// Maximum number of iterations.
    pub iterations: usize,
}

impl Default for PageRank {
    fn default() -> Self {
        Self { damping: 0.85, tolerance: 1e-6, iterations: 100 }
    }
}

/// Ranks of random walks along edges, from sources to destinations: row `v` of `graph` lists the sources of edges to
/// `v`. Walks start and restart at uniform nodes. At a node without outgoing edges they restart.
///
/// Ranks sum to 1, and do not depend on the number of threads.
///
/// # Panics
/// When the graph is not square.
#[must_use]
pub fn page_rank(graph: &Csr, options: PageRank) -> Vec<f64> {
    assert!(graph.is_square(), "ranks are of nodes");
    let n = graph.n_rows();
    iterate(graph, &n_lists(graph), &vec![1.0 / n as f64; n], options)
}

/// Ranks of random walks against edges, from destinations to their neighbors, as sampling goes. Walks start at
/// `seeds` (Min et al., Graph neural network training and data tiering, KDD 2022, section 4), or at uniform nodes if
/// there are no seeds.
///
/// # Panics
/// When the graph is not square, or a seed is not one of its nodes.
#[must_use]
pub fn reverse_page_rank(graph: &Csr, seeds: &[NodeId], options: PageRank) -> Vec<f64> {
    assert!(graph.is_square(), "ranks are of nodes");
    let n = graph.n_rows();
    let mut home = vec![if seeds.is_empty() { 1.0 / n as f64 } else { 0.0 }; n];
    seeds.iter().for_each(|&seed| home[seed as usize] += 1.0 / seeds.len() as f64);
    let degrees: Vec<u32> = (0..n).map(|v| graph.degree(v) as u32).collect();
    if graph.is_symmetric() {
        return iterate(graph, &degrees, &home, options);
    }
    iterate(&graph.transposed(), &degrees, &home, options)
}

/// Power iteration. Row `v` of `into` lists the nodes with a step to `v`; node `u` has `n_steps[u]` steps to choose
/// from. Walks restart at the distribution `home`.
fn iterate(into: &Csr, n_steps: &[u32], home: &[f64], options: PageRank) -> Vec<f64> {
    let PageRank { damping, tolerance, iterations } = options;
    let mut rank = home.to_vec();
    for _ in 0..iterations {
        let lost = sum(rank.len(), |v| if n_steps[v] == 0 { rank[v] } else { 0.0 });
        let share: Vec<f64> = rank.par_iter().zip(n_steps).map(|(rank, &n)| rank / f64::from(n.max(1))).collect();
        let again = 1.0 - damping + damping * lost;
        let of = |v: usize| again * home[v] + damping * into.row(v).iter().map(|&u| share[u as usize]).sum::<f64>();
        let next: Vec<f64> = (0..rank.len()).into_par_iter().map(of).collect();
        let change = sum(rank.len(), |v| (next[v] - rank[v]).abs());
        rank = next;
        if change < tolerance {
            break;
        }
    }
    rank
}

/// Sums `of(0)` to `of(n - 1)` in an order that does not depend on threads.
fn sum(n: usize, of: impl Fn(usize) -> f64 + Sync) -> f64 {
    let parts: Vec<f64> = (0..n.div_ceil(SUMMED))
        .into_par_iter()
        .map(|part| (part * SUMMED..n.min((part + 1) * SUMMED)).map(&of).sum())
        .collect();
    parts.iter().sum()
}
