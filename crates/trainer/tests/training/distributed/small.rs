//! Small graphs, data and partitions that tests of ranks share.

use std::time::Duration;

use girih_compute::Dtype;
use girih_datasets::{Dataset, LoadOptions, load};
use girih_graph_format::{Coo, Csr, Duplicates, Matrix, Norm};
use girih_partition::{Cuts, Exchange, LinkRates, ProcessGrid, Scheme, Stages};
use girih_trainer::Adjacency;
use girih_trainer::distributed::{Links, Network, RankOptions};

/// Number of nodes.
pub(super) const N: usize = 53;
/// Number of columns: several cache lines, so that operands are sent in feature chunks, and some columns more.
pub(super) const COLS: usize = 272;

/// Directed graph without weights.
pub(super) fn graph() -> Csr {
    let (rows, cols): (Vec<u32>, Vec<u32>) =
        (0..N as u32).flat_map(|v| [(v, (v * v + 1) % 53), (v, (7 * v + 3) % 53), (v % 9, v)]).unzip();
    Coo::new(N, N, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap()
}

/// Operand of products with the graph.
pub(super) fn operand() -> Matrix {
    Matrix::new(N, COLS, (0..N * COLS).map(|i| (i % 13) as f32 - 6.0).collect::<Vec<_>>()).unwrap()
}

/// Adjacencies that are symmetric or not, with weights or without.
pub(super) fn adjacencies() -> [(Csr, Adjacency); 3] {
    let weights: Vec<f32> = (0..graph().nnz()).map(|e| 0.25 + (e % 7) as f32).collect();
    let weighted = graph().with_values(Some(weights.into())).unwrap();
    let looped = Adjacency::new(true, Norm::Symmetric);
    let rows = Adjacency::new(false, Norm::Row);
    [(graph(), rows), (weighted.symmetrized(), looped), (weighted, looped)]
}

/// `A`, with self loops if the adjacency has them.
pub(super) fn looped(graph: &Csr, adjacency: Adjacency) -> Csr {
    if adjacency.self_loops { graph.with_self_loops() } else { graph.clone() }
}

/// Data set that is trained on.
pub(super) fn few() -> Dataset {
    load("synth:planted,nodes=83,degree=6,features=12,classes=3", &LoadOptions::default()).unwrap()
}

/// Network of one host with fast links.
pub(super) fn network(overlaps: bool) -> Network {
    Network::one_host(Links::alike(LinkRates { latency: 1e-6, bytes_per_second: 1e10 }), overlaps)
}

/// Partitions with every kind of cut and exchange.
pub(super) fn sharings() -> Vec<RankOptions> {
    let partitions = [(Scheme::OneD, 3, 1), (Scheme::OneAndHalfD, 4, 2), (Scheme::TwoD, 4, 1), (Scheme::ThreeD, 8, 1)];
    let mut sharings = Vec::new();
    for (scheme, p, r) in partitions {
        for exchange in [Exchange::Dense, Exchange::Rows, Exchange::Auto] {
            for (cuts, stages, chunks, wire) in [
                (Cuts::Equal, Stages::Steps, 1, Dtype::F32),
                (Cuts::Weighted, Stages::Turns, 1, Dtype::F32),
                (Cuts::Weighted, Stages::Parts(1), 2, Dtype::F32),
                (Cuts::Equal, Stages::Parts(2), 3, Dtype::Bf16),
                (Cuts::Equal, Stages::Parts(3), 1, Dtype::F32),
            ] {
                let grid = ProcessGrid::new(scheme, p, r).unwrap();
                let options = RankOptions::new(grid, exchange, Duration::from_secs(30));
                sharings.push(RankOptions { cuts, stages, chunks, wire, ..options });
            }
        }
    }
    sharings
}
