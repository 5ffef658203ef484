//! Compares batches that devices sample with those of the host.

use girih_compute::prelude::*;
use girih_compute::{Dtype, Epilogue, Shape, Transpose, checks};
use girih_features::NeighborBatch;
use girih_graph_format::{Coo, Csr, Duplicates, Matrix, NodeId};
use girih_kernels::Cuda;
use girih_sampling::Block;
use girih_trainer::Neighborhoods;

/// Graph of `n` nodes with some frequent neighbors, some isolated nodes, and a self-loop on every third node.
///
/// # Panics
/// When there are too few nodes.
#[must_use]
pub fn graph(n: u32, weighted: bool) -> Csr {
    let edges =
        (0..n).filter(|v| v % 11 != 5).flat_map(|v| (1..=2 + v % 9).map(move |k| (v, (v * 7 + k * k * 3 + k) % n)));
    let famous = (0..n).map(|v| (v, v % 3));
    let loops = (0..n).step_by(3).map(|v| (v, v));
    let (rows, cols): (Vec<u32>, Vec<u32>) = edges.chain(famous).filter(|(v, u)| v != u).chain(loops).unzip();
    let graph = Coo::new(n as usize, n as usize, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap();
    let weights = (0..graph.nnz()).map(|e| 0.5 + (e % 7) as f32 / 4.0).collect::<Vec<_>>();
    graph.with_values(weighted.then(|| weights.into())).unwrap()
}

/// Dense form of a sparse matrix: its product with the identity, which is exact.
fn dense(cuda: &Cuda, rows: &<Cuda as Memory>::Sparse, transpose: Transpose) -> Matrix {
    let shape = checks::read(cuda.sparse_shape(rows), transpose);
    let identity: Vec<f32> =
        (0..shape.cols * shape.cols).map(|i| f32::from(u8::from(i % (shape.cols + 1) == 0))).collect();
    let identity = cuda.upload(&Matrix::new(shape.cols, shape.cols, identity).unwrap(), Dtype::F32).unwrap();
    let mut out = cuda.zeros(Shape::new(shape.rows, shape.cols), Dtype::F32).unwrap();
    cuda.spmm((rows, transpose), None, &identity, Epilogue::default(), &mut out).unwrap();
    cuda.download(&out).unwrap()
}

/// Checks that a batch of the device equals that of the host, bit by bit, in both directions.
///
/// # Panics
/// When they differ.
pub fn check_batch(cuda: &Cuda, found: &NeighborBatch<Cuda>, expected: &[Block], neighborhoods: &Neighborhoods) {
    assert_eq!(found.blocks.len(), expected.len());
    for (at, (found, expected)) in found.blocks.iter().zip(expected).enumerate() {
        let rows = neighborhoods.rows(expected).unwrap();
        let full = Matrix::from_sparse(&rows);
        assert_eq!(found.n_destinations, expected.n_destinations);
        assert_eq!(cuda.nnz(&found.rows), rows.nnz(), "block {at}");
        assert_eq!(dense(cuda, &found.rows, Transpose::No).data(), full.data(), "block {at}");
        let transposed = dense(cuda, &found.rows, Transpose::Yes);
        let as_it_is = |i: usize| full.row(i % full.n_rows())[i / full.n_rows()];
        assert!(transposed.data().iter().enumerate().all(|(i, &value)| value == as_it_is(i)), "block {at} transposed");
        let ids: Vec<f32> = (0..neighborhoods.graph().n_rows()).map(|v| v as f32).collect();
        let ids = cuda.upload(&Matrix::new(ids.len(), 1, ids).unwrap(), Dtype::F32).unwrap();
        if let Some(destinations) = &found.destinations {
            let mut own = cuda.zeros(Shape::new(expected.n_destinations, 1), Dtype::F32).unwrap();
            cuda.gather_rows(&ids, destinations, &mut own).unwrap();
            let own: Vec<NodeId> = cuda.download(&own).unwrap().data().iter().map(|&v| v as NodeId).collect();
            assert_eq!(own, expected.destinations());
        }
    }
}
