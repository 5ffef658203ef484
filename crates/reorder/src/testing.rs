//! Laws of orders and strategies of graphs, for tests of orders from anywhere.
//!
//! ```
//! use girih_reorder::testing::check_order;
//! use girih_reorder::SlashBurn;
//!
//! check_order(&SlashBurn::default());
//! ```

use std::sync::Mutex;

use girih_graph_format::{Coo, Csr, Duplicates, NodeId};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseResult, TestRunner};

use crate::Reorder;

/// Number of random graphs that [`check_order`] takes.
const CASES: u32 = 48;
/// Numbers of threads that have to find the same order.
const THREADS: [usize; 2] = [1, 3];

/// Graphs of up to 60 nodes: sparse to dense, with self-loops, isolated nodes and components. With `symmetric`, each
/// edge is there in both directions.
pub fn graphs(symmetric: bool) -> impl Strategy<Value = Csr> {
    (1..60usize).prop_flat_map(move |n| {
        prop::collection::vec((0..n as NodeId, 0..n as NodeId), 0..4 * n).prop_map(move |pairs| {
            let (rows, cols) = pairs.into_iter().unzip();
            let edges = Coo::new(n, n, rows, cols, None).expect("pairs of nodes");
            let csr = edges.to_csr(Duplicates::Merge).expect("few edges");
            if symmetric { csr.symmetrized() } else { csr }
        })
    })
}

/// Checks the laws of [`Reorder`] on random graphs, directed and not, on graphs without nodes or edges, and on a
/// matrix that is no adjacency.
///
/// # Panics
/// When a law does not hold, with the smallest graph for which it fails.
pub fn check_order(order: &dyn Reorder) {
    let config = Config { cases: CASES, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Config::default() };
    for symmetric in [false, true] {
        let outcome = TestRunner::new(config.clone()).run(&graphs(symmetric), |graph| check_order_of(order, &graph));
        if let Err(failure) = outcome {
            panic!("{}: {failure}", order.name());
        }
    }
    for n in [0, 1, 5] {
        let found = order.order(&Csr::empty(n, n).expect("sizes")).expect("a graph without edges has orders");
        assert_eq!(found.len(), n, "{}: nodes of a graph without edges", order.name());
    }
    let refused = order.order(&Csr::empty(3, 4).expect("sizes"));
    assert!(refused.is_err(), "{}: a matrix of 3 × 4 has no order of nodes", order.name());
}

/// Checks the laws of [`Reorder`] on one graph.
///
/// - Each node gets one new id, and each edge is there under the new ids.
/// - Any number of threads finds the same order, and so does a second call.
/// - Progress lies in `0.0..=1.0` and never falls.
///
/// # Errors
/// At the first law that does not hold.
pub fn check_order_of(order: &dyn Reorder, graph: &Csr) -> TestCaseResult {
    let reported = Mutex::new(Vec::new());
    let progress = |share: f64| reported.lock().expect("no panic").push(share);
    // The constructor of the permutation checks that ids are distinct.
    let found = order.order_with(graph, &progress)?;
    prop_assert_eq!(found.len(), graph.n_rows(), "number of nodes");
    let reported = reported.into_inner().expect("no panic");
    prop_assert!(reported.iter().all(|share| (0.0..=1.0).contains(share)), "progress of {:?}", reported);
    prop_assert!(reported.is_sorted(), "progress falls: {:?}", reported);
    let renamed = graph.permuted(&found);
    for node in 0..graph.n_rows() {
        let mut expected: Vec<NodeId> = graph.row(node).iter().map(|&neighbor| found.map(neighbor)).collect();
        expected.sort_unstable();
        prop_assert_eq!(renamed.row(found.map(node as NodeId) as usize), &expected[..], "neighbors of {}", node);
    }
    for n_threads in THREADS {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build()?;
        let again = pool.install(|| order.order(graph))?;
        prop_assert_eq!(again.new_of_old(), found.new_of_old(), "order by {} threads", n_threads);
    }
    Ok(())
}
