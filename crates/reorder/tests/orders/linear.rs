//! Metrics and orders take time linear in nodes and entries: a graph of 4 million nodes and one edge takes seconds.

use std::time::{Duration, Instant};

use girih_graph_format::{Coo, Csr, Duplicates, Permutation, ReuseCurve, TileHistogram, TileMatrix};
use girih_reorder::quality::{Block, Gaps, Quality, READS_LOOKED_AT, WINDOWS, coverage, coverage_of, window_reuse};
use girih_reorder::{Community, Degree, Reorder, ReverseCuthillMckee};

/// Number of nodes: a counter for each pair of blocks would take minutes.
const N: usize = 4_000_001;
/// Time limit: far above each method's time on a busy machine, and below that of scanning all blocks on an idle one.
const LIMIT: Duration = Duration::from_secs(20);

fn one_edge() -> Csr {
    Coo::new(N, N, vec![N as u32 - 1], vec![0], None).unwrap().to_csr(Duplicates::Refuse).unwrap()
}

/// Returns the result of `work`, which must finish within [`LIMIT`].
fn in_time<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    let taken = start.elapsed();
    println!("{what}: {taken:.2?}");
    assert!(taken < LIMIT, "{what} took {taken:.2?}");
    result
}

#[test]
fn figures_of_a_graph_with_few_edges_take_seconds() {
    let graph = in_time("list to matrix", one_edge);
    let graph = &graph;
    assert_eq!(in_time("gaps", || Gaps::of(graph)).bandwidth, N - 1);
    for rows in WINDOWS {
        assert_eq!(in_time("window reuse", || window_reuse(graph, rows)), 1.0);
    }
    assert_eq!(in_time("tile histogram", || TileHistogram::of(graph)).n_tiles.iter().sum::<u64>(), 1);
    assert_eq!(in_time("tiles", || TileMatrix::from_csr(graph, 0.5).unwrap()).n_tiles(), 0);
    for block in [Block::SMALL, Block::MEDIUM, Block::LARGE] {
        assert_eq!(
            in_time("coverage", || coverage(graph, block, 1.0 / 1024.0)),
            f64::from(u8::from(block == Block::SMALL))
        );
    }
    let identity = Permutation::identity(N);
    assert_eq!(in_time("coverage of an order", || coverage_of(graph, &identity, Block::LARGE, 0.0)), 1.0);
    assert_eq!(in_time("reuse", || ReuseCurve::of(graph, READS_LOOKED_AT)).hit_rate(N), 0.0);
    assert!(!in_time("symmetric", || graph.is_symmetric()));
    assert_eq!(in_time("symmetrised", || graph.symmetrized()).nnz(), 2);
    assert_eq!(in_time("all figures", || Quality::with_cache(graph, 1000)).tiles, 1);
}

#[test]
fn orders_of_a_graph_with_few_edges_take_seconds() {
    let graph = one_edge();
    let order = in_time("degree", || Degree.order(&graph).unwrap());
    assert_eq!(order.map(N as u32 - 1), 0);
    let permuted = in_time("permuted", || graph.permuted(&order));
    assert_eq!(permuted.degree(0), 1);
    in_time("reverse Cuthill-McKee", || ReverseCuthillMckee.order(&graph).unwrap());
    in_time("communities", || Community::default().order(&graph).unwrap());
}
