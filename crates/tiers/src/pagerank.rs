//! [`page_rank`] and [`reverse_page_rank`]: where walks end up, by power iteration.

use girih_graph_format::{Csr, NodeId};
use rayon::prelude::*;

use crate::hotness::n_lists;

/// Numbers that one task sums; tasks are added in order, so that threads change nothing.
const SUMMED: usize = 1 << 13;

/// How ranks are computed (Brin and Page, Computer Networks 30, 1998).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageRank {
    /// The chance that a walk goes on rather than begin anew.
    pub damping: f64,
    /// Stop when ranks, which sum to one, change by less than this in sum.
    pub tolerance: f64,
    /// The most iterations.
    pub iterations: usize,
}

impl Default for PageRank {
    fn default() -> Self {
        Self { damping: 0.85, tolerance: 1e-6, iterations: 100 }
    }
}

/// Ranks of walks along edges, from sources to destinations: row `v` of `graph` lists the nodes that lead to `v`. Walks
/// begin anywhere; at a node that leads nowhere they begin anew.
///
/// The same on any number of threads. They sum to one.
///
/// # Panics
/// When the graph is not square.
#[must_use]
pub fn page_rank(graph: &Csr, options: PageRank) -> Vec<f64> {
    assert!(graph.is_square(), "ranks are of nodes");
    let n = graph.n_rows();
    iterate(graph, &n_lists(graph), &vec![1.0 / n as f64; n], options)
}

/// Ranks of walks against edges, from destinations to the neighbours that they list, as sampling goes; walks begin at
/// `seeds` (Min et al., Graph neural network training and data tiering, KDD 2022, section 4). Without seeds they begin
/// anywhere.
///
/// # Panics
/// When the graph is not square, or a seed is none of its nodes.
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

/// Row `v` of `into` lists the nodes with a step to `v`; node `u` has `n_steps[u]` of them to choose from. Walks begin
/// at `home`, a distribution.
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

/// The sum of `n` numbers, in an order that threads do not change.
fn sum(n: usize, of: impl Fn(usize) -> f64 + Sync) -> f64 {
    let parts: Vec<f64> = (0..n.div_ceil(SUMMED))
        .into_par_iter()
        .map(|part| (part * SUMMED..n.min((part + 1) * SUMMED)).map(&of).sum())
        .collect();
    parts.iter().sum()
}
