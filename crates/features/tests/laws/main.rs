//! Laws of hotness, placements and plans.

mod cache_plan;
mod host_reads;
mod hotness;
mod messages;
mod placement;
mod rates;
mod shares;
mod visits;

use std::collections::BTreeSet;

use girih_graph_format::{Coo, Csr, Duplicates};
use proptest::prelude::*;

/// Graphs of 1 to `most` nodes; row `v` lists the sources of the edges to `v`.
fn graphs(most: usize) -> impl Strategy<Value = Csr> {
    (1..=most).prop_flat_map(|n| {
        let node = 0..n as u32;
        proptest::collection::btree_set((node.clone(), node), 0..4 * n).prop_map(move |edges| graph(n, &edges))
    })
}

fn graph(n: usize, edges: &BTreeSet<(u32, u32)>) -> Csr {
    let (rows, cols) = edges.iter().copied().unzip();
    Coo::new(n, n, rows, cols, None).unwrap().to_csr(Duplicates::Refuse).unwrap()
}

/// Skewed graph: the smaller `v` is, the more lists contain it.
fn skewed(n: u32) -> Csr {
    let edges = (0..n).flat_map(|v| (0..8u32).map(move |i| (v, (v / (i + 1)) * i % n))).collect();
    graph(n as usize, &edges)
}
