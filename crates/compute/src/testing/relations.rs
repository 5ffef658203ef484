//! Laws of products of rows that have types.

use girih_graph_format::Matrix;
use proptest::prelude::*;

use super::inputs::{Draws, dtype, n_rows, width};
use super::law::{Law, Output, Results};
use crate::backend::composed;
use crate::{Backend, BasisOperands, Dtype, RelationRows, Shape, Transpose};

/// Case of runs: number of rows and of runs, widths of operand and result, storage types, and a seed for the rest.
#[derive(Debug)]
pub(super) struct RunsCase {
    n_rows: usize,
    n_runs: usize,
    widths: (usize, usize),
    dtypes: [Dtype; 2],
    accumulate: bool,
    seed: u64,
}

/// Products of runs, some of which are empty, and the gradients of their weights.
pub(super) struct Runs;

impl Law for Runs {
    const NAME: &'static str = "gemm_runs, gemm_runs_backward";
    const TOLERANCE: f64 = 1e-4;
    type Case = RunsCase;

    fn cases(rows_max: usize) -> impl Strategy<Value = RunsCase> {
        let widths = (1..20usize, 1..20usize);
        (n_rows(rows_max), 1..8usize, widths, [dtype(), dtype()], any::<bool>(), any::<u64>()).prop_map(
            |(n_rows, n_runs, widths, dtypes, accumulate, seed)| RunsCase {
                n_rows,
                n_runs,
                widths,
                dtypes,
                accumulate,
                seed,
            },
        )
    }

    fn run<B: Backend>(backend: &B, case: &RunsCase) -> Results {
        let (mut draws, n, (k, d)) = (Draws::new(case.seed), case.n_rows, case.widths);
        let mut runs: Vec<usize> = draws.ids(case.n_runs - 1, n + 1).into_iter().map(|end| end as usize).collect();
        runs.extend([0, n]);
        runs.sort_unstable();
        let x = draws.matrix(backend, Shape::new(n, k), case.dtypes[0]);
        let weights = draws.matrix(backend, Shape::new(case.n_runs, k * d), Dtype::F32);
        let [mut out, mut composed_out] = [(); 2].map(|()| draws.matrix(backend, Shape::new(n, d), case.dtypes[1]));
        let by = (&weights, Transpose::No);
        backend.gemm_runs(&runs, &x, by, &mut out).expect("gemm_runs");
        composed::gemm_runs(backend, &runs, &x, by, &mut composed_out).expect("gemm_runs");
        let grad = draws.matrix(backend, Shape::new(n, d), case.dtypes[1]);
        let mut x_grad = draws.matrix(backend, Shape::new(n, k), case.dtypes[0]);
        backend.gemm_runs(&runs, &grad, (&weights, Transpose::Yes), &mut x_grad).expect("gemm_runs");
        let before = draws.values(case.n_runs * k * d);
        let [mut weight_grads, mut composed_grads] = [(); 2].map(|()| {
            let before = Matrix::new(case.n_runs, k * d, before.clone()).expect("as many values");
            backend.upload(&before, Dtype::F32).expect("upload")
        });
        backend.gemm_runs_backward(&runs, &x, &grad, case.accumulate, &mut weight_grads).expect("gemm_runs_backward");
        composed::gemm_runs_backward(backend, &runs, &x, &grad, case.accumulate, &mut composed_grads)
            .expect("gemm_runs_backward");
        let all = [out, composed_out, x_grad, weight_grads, composed_grads];
        all.iter().map(|matrix| Output::of(backend, matrix)).collect()
    }
}

/// Case of bases: numbers of rows, pairs, relations and bases, their width, whether to accumulate, and a seed.
#[derive(Debug)]
pub(super) struct BasesCase {
    n_rows: usize,
    n_pairs: usize,
    n_relations: usize,
    n_bases: usize,
    width: usize,
    accumulate: [bool; 2],
    seed: u64,
}

/// Sums of bases, and their gradients. Rows may have no pair, or the same relation twice.
pub(super) struct Bases;

impl Law for Bases {
    const NAME: &'static str = "basis_rows, basis_rows_backward";
    const TOLERANCE: f64 = 1e-4;
    type Case = BasesCase;

    fn cases(rows_max: usize) -> impl Strategy<Value = BasesCase> {
        let sizes = (1..rows_max.max(2), n_rows(rows_max), 1..6usize, 1..6usize, width());
        (sizes, any::<[bool; 2]>(), any::<u64>()).prop_map(
            |((n_rows, n_pairs, n_relations, n_bases, width), accumulate, seed)| BasesCase {
                n_rows,
                n_pairs,
                n_relations,
                n_bases,
                width,
                accumulate,
                seed,
            },
        )
    }

    fn run<B: Backend>(backend: &B, case: &BasesCase) -> Results {
        let mut draws = Draws::new(case.seed);
        let mut rows = draws.ids(case.n_pairs, case.n_rows);
        rows.sort_unstable();
        let relations = draws.ids(case.n_pairs, case.n_relations);
        let pairs = RelationRows::upload(backend, &rows, &relations).expect("pairs");
        let of_coefficients = Shape::new(case.n_relations, case.n_bases);
        let (of_x, of_out) = (Shape::new(case.n_rows, case.n_bases * case.width), Shape::new(case.n_pairs, case.width));
        let coefficients = draws.matrix(backend, of_coefficients, Dtype::F32);
        let (x, grad) = (draws.matrix(backend, of_x, Dtype::F32), draws.matrix(backend, of_out, Dtype::F32));
        let before = [draws.values(of_coefficients.len()), draws.values(of_x.len())];
        let upload = |shape: Shape, values: &[f32]| {
            let values = Matrix::new(shape.rows, shape.cols, values.to_vec()).expect("as many values");
            backend.upload(&values, Dtype::F32).expect("upload")
        };
        let mut all = Vec::new();
        for composes in [false, true] {
            let mut out = draws.matrix(backend, of_out, Dtype::F32);
            let mut coefficients_grad = upload(of_coefficients, &before[0]);
            let mut x_grad = upload(of_x, &before[1]);
            let operands = &BasisOperands { pairs: &pairs, coefficients: &coefficients, x: &x };
            let [adds, x_adds] = case.accumulate;
            let (of_coefficients, of_x) = ((&mut coefficients_grad, adds), (&mut x_grad, x_adds));
            if composes {
                composed::basis_rows(backend, operands, &mut out).expect("basis_rows");
                composed::basis_rows_backward(backend, operands, &grad, of_coefficients, of_x)
                    .expect("basis_rows_backward");
            } else {
                backend.basis_rows(operands, &mut out).expect("basis_rows");
                backend.basis_rows_backward(operands, &grad, of_coefficients, of_x).expect("basis_rows_backward");
            }
            all.extend([out, coefficients_grad, x_grad]);
        }
        all.iter().map(|matrix| Output::of(backend, matrix)).collect()
    }
}
