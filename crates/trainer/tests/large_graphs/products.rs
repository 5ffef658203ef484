//! Compares products with a matrix of more than 2³¹ entries in memory with closed-form sums. Runs only with
//! `GIRIH_LARGE`, because it takes 10 GB of memory.

use girih_compute::prelude::*;
use girih_compute::{Cpu, Dtype, Epilogue, Shape, SparseOperand, Transpose};
use girih_graph_format::{Csr, Matrix, NodeId, Scales};

use crate::whole::LARGE;

/// Number of rows and columns.
const NODES: usize = 70_000;
/// Bandwidth: row `v` lists the nodes at most this far from `v`, so that the matrix is symmetric.
const REACH: usize = 18_000;
/// Number of columns of the dense operand.
const COLS: usize = 3;

fn row(v: usize) -> std::ops::Range<usize> {
    v.saturating_sub(REACH)..NODES.min(v + REACH + 1)
}

/// Value of the dense operand, so small that all sums are exact in `f32`.
fn value(v: usize, c: usize) -> f32 {
    ((v * (c + 3)) % 7) as f32
}

fn band() -> Csr {
    let mut indptr = vec![0u64];
    let mut indices: Vec<NodeId> = Vec::with_capacity((0..NODES).map(|v| row(v).len()).sum());
    for v in 0..NODES {
        indices.extend(row(v).map(|u| u as NodeId));
        indptr.push(indices.len() as u64);
    }
    Csr::new(NODES, NODES, indptr, indices, None).unwrap()
}

/// Expected product: sums over each row's columns, as differences of prefix sums.
fn sums(left: Option<&[f32]>) -> Vec<f64> {
    let first: Vec<[f64; COLS]> = std::iter::once([0.0; COLS])
        .chain((0..NODES).scan([0.0; COLS], |sum, v| {
            (0..COLS).for_each(|c| sum[c] += f64::from(value(v, c)));
            Some(*sum)
        }))
        .collect();
    let of_row = |v: usize, c: usize| {
        let row = row(v);
        (first[row.end][c] - first[row.start][c]) * left.map_or(1.0, |left| f64::from(left[v]))
    };
    (0..NODES).flat_map(|v| (0..COLS).map(move |c| (v, c))).map(|(v, c)| of_row(v, c)).collect()
}

#[test]
fn products_with_more_than_2_to_the_31_entries_are_those_in_closed_form() {
    if std::env::var_os(LARGE).is_none() {
        println!("skipped: set {LARGE}; it takes 10 GB of memory");
        return;
    }
    let csr = band();
    assert!(csr.nnz() > 1 << 31);
    let cpu = Cpu::new();
    let shape = Shape::new(NODES, COLS);
    let values: Vec<f32> = (0..NODES * COLS).map(|i| value(i / COLS, i % COLS)).collect();
    let x = Matrix::new(NODES, COLS, values).unwrap();
    let on_cpu = cpu.upload(&x, Dtype::F32).unwrap();
    // Powers of two, so that scaled sums stay exact.
    let left: Vec<f32> = (0..NODES).map(|v| if v % 2 == 0 { 0.5 } else { 2.0 }).collect();
    let scales = Scales { left: Some(left), right: None };
    for (scales, transpose) in
        [(Scales::default(), Transpose::No), (Scales::default(), Transpose::Yes), (scales, Transpose::No)]
    {
        let expected = sums(scales.left.as_deref());
        let a = cpu.upload_sparse(&SparseOperand { csr: &csr, scales, symmetric: true, names: None }).unwrap();
        let mut out = cpu.zeros(shape, Dtype::F32).unwrap();
        cpu.spmm((&a, transpose), None, &on_cpu, Epilogue::default(), &mut out).unwrap();
        let found = cpu.download(&out).unwrap();
        assert!(found.data().iter().map(|&value| f64::from(value)).eq(expected));
    }
    let a = cpu.upload_sparse(&SparseOperand { csr: &csr, scales: Scales::default(), symmetric: true, names: None });
    let (a, mut most) = (a.unwrap(), cpu.zeros(shape, Dtype::F32).unwrap());
    cpu.segment_max(&a, &on_cpu, &mut most, None).unwrap();
    assert!(cpu.download(&most).unwrap().data().iter().all(|&value| value == 6.0));
}
