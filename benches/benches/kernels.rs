//! Micro-benchmarks on a small graph that fits the caches, for work on one kernel. `cargo xtask bench` measures
//! realistic sizes.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use girih_benches::graphs;
use girih_compute::prelude::*;
use girih_compute::{Cpu, Dtype, Epilogue, Shape, SparseOperand, Transpose};
use girih_graph_format::{Coo, Csr, Duplicates, Matrix, NodeId, Norm};

const WIDTH: usize = 64;

fn graph() -> Csr {
    graphs::load(graphs::SMALL).expect("the small graph can be generated").graph
}

fn ramp(rows: usize, cols: usize) -> Matrix {
    let values: Vec<f32> = (0..rows * cols).map(|i| (i % 251) as f32 / 251.0 - 0.5).collect();
    Matrix::new(rows, cols, values).expect("the values fill the shape")
}

fn spmm(criterion: &mut Criterion) {
    let (backend, csr) = (Cpu::default(), graph());
    let operand = SparseOperand { csr: &csr, scales: csr.scales(Norm::Symmetric), symmetric: true, names: None };
    let sparse = backend.upload_sparse(&operand).expect("the graph fits");
    let mut group = criterion.benchmark_group("spmm");
    group.throughput(Throughput::Elements((csr.nnz() * WIDTH) as u64));
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let x = backend.upload(&ramp(csr.n_cols(), WIDTH), dtype).expect("the operand fits");
        let mut out = backend.zeros(Shape::new(csr.n_rows(), WIDTH), Dtype::F32).expect("the result fits");
        group.bench_function(format!("{dtype:?}"), |bencher| {
            bencher.iter(|| backend.spmm((&sparse, Transpose::No), None, &x, Epilogue::default(), &mut out));
        });
    }
}

fn gemm(criterion: &mut Criterion) {
    const ROWS: usize = 4096;
    let backend = Cpu::default();
    let upload = |rows, cols| backend.upload(&ramp(rows, cols), Dtype::F32).expect("the operand fits");
    let (x, w, g) = (upload(ROWS, 256), upload(256, WIDTH), upload(ROWS, WIDTH));
    let mut group = criterion.benchmark_group("gemm");
    group.throughput(Throughput::Elements((ROWS * 256 * WIDTH) as u64));
    let mut y = upload(ROWS, WIDTH);
    group.bench_function("nn", |bencher| {
        bencher.iter(|| backend.gemm((&x, Transpose::No), None, (&w, Transpose::No), Epilogue::default(), &mut y));
    });
    let mut dw = upload(256, WIDTH);
    group.bench_function("tn", |bencher| {
        bencher.iter(|| backend.gemm((&x, Transpose::Yes), None, (&g, Transpose::No), Epilogue::default(), &mut dw));
    });
}

fn coo_to_csr(criterion: &mut Criterion) {
    let csr = graph();
    let rows: Vec<NodeId> = (0..csr.n_rows()).flat_map(|v| vec![v as NodeId; csr.degree(v)]).collect();
    let edges =
        || Coo::new(csr.n_rows(), csr.n_cols(), csr.indices().to_vec(), rows.clone(), None).expect("valid edges");
    let mut group = criterion.benchmark_group("coo_to_csr");
    group.throughput(Throughput::Elements(csr.nnz() as u64));
    group.bench_function("transposed", |bencher| {
        bencher.iter_batched(edges, |coo| coo.to_csr(Duplicates::Refuse), BatchSize::LargeInput);
    });
}

criterion_group!(kernels, spmm, gemm, coo_to_csr);
criterion_main!(kernels);
