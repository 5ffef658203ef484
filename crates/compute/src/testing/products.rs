//! Laws of dense and sparse products.

use girih_graph_format::{Csr, Norm, Scales};
use girih_random::Key;
use proptest::prelude::*;

use super::inputs::{Draws, EpilogueCase, dtype, epilogue, middle, n_rows, slope, width};
use super::law::{Law, Output, Results};
use crate::checks::{COLUMNS, read};
use crate::{ActivationGrad, Backend, Dropout, Dtype, EpilogueGrad, Shape, SparseOperand, Transpose};

/// Sum of two dense products.
pub(super) struct GemmPair;

#[derive(Debug)]
pub(super) struct GemmPairCase {
    /// Rows and columns of the result, and both inner dimensions.
    dimensions: (usize, usize, usize, usize),
    epilogue: EpilogueCase,
    dtypes: [Dtype; 6],
    seed: u64,
}

impl Law for GemmPair {
    const NAME: &'static str = "gemm_pair";
    const TOLERANCE: f64 = 4e-5;
    type Case = GemmPairCase;

    fn cases(rows_max: usize) -> impl Strategy<Value = GemmPairCase> {
        let dtypes = [dtype(), dtype(), dtype(), dtype(), dtype(), dtype()];
        ((n_rows(rows_max), width(), width(), width()), epilogue(), dtypes, any::<u64>())
            .prop_map(|(dimensions, epilogue, dtypes, seed)| GemmPairCase { dimensions, epilogue, dtypes, seed })
    }

    fn run<B: Backend>(backend: &B, case: &GemmPairCase) -> Results {
        let (mut draws, (rows, cols, x_cols, y_cols)) = (Draws::new(case.seed), case.dimensions);
        let shapes = [(rows, x_cols), (x_cols, cols), (rows, y_cols), (y_cols, cols), (1, cols), (rows, cols)];
        let mut at = 0;
        let [x, w, y, v, bias, mut out] = shapes.map(|(rows, cols)| {
            at += 1;
            draws.matrix(backend, Shape::new(rows, cols), case.dtypes[at - 1])
        });
        backend.gemm_pair((&x, &w), (&y, &v), case.epilogue.with(&bias), &mut out).expect("gemm_pair");
        vec![Output::of(backend, &out)]
    }
}

/// Dense products: `NN`, `NT`, `TN`, with and without dropout.
pub(super) struct Gemm;

#[derive(Debug)]
pub(super) struct GemmCase {
    /// Rows of the result, columns of the result, inner dimension.
    dimensions: (usize, usize, usize),
    transposes: (Transpose, Transpose),
    dropout: Option<f32>,
    epilogue: EpilogueCase,
    dtypes: [Dtype; 4],
    seed: u64,
}

impl Law for Gemm {
    const NAME: &'static str = "gemm";
    // Sums of up to 600 products below 1: the 600 rounding errors rarely have the same sign.
    const TOLERANCE: f64 = 2e-5;
    type Case = GemmCase;

    fn cases(rows_max: usize) -> impl Strategy<Value = GemmCase> {
        let products = prop_oneof![
            (n_rows(rows_max), width(), width()).prop_map(|dimensions| (dimensions, (Transpose::No, Transpose::No))),
            (n_rows(rows_max), width(), width()).prop_map(|dimensions| (dimensions, (Transpose::No, Transpose::Yes))),
            (width(), width(), n_rows(rows_max)).prop_map(|dimensions| (dimensions, (Transpose::Yes, Transpose::No))),
        ];
        let dtypes = [dtype(), dtype(), dtype(), dtype()];
        (products, prop::option::of(0.0f32..0.9), epilogue(), dtypes, any::<u64>()).prop_map(
            |((dimensions, transposes), dropout, epilogue, dtypes, seed)| GemmCase {
                dimensions,
                transposes,
                dropout,
                epilogue,
                dtypes,
                seed,
            },
        )
    }

    fn run<B: Backend>(backend: &B, case: &GemmCase) -> Results {
        let (mut draws, (rows, cols, depth)) = (Draws::new(case.seed), case.dimensions);
        let a = draws.matrix(backend, read(Shape::new(rows, depth), case.transposes.0), case.dtypes[0]);
        let b = draws.matrix(backend, read(Shape::new(depth, cols), case.transposes.1), case.dtypes[1]);
        let bias = draws.matrix(backend, Shape::new(1, cols), case.dtypes[2]);
        let mut out = draws.matrix(backend, Shape::new(rows, cols), case.dtypes[3]);
        let dropout = case.dropout.map(|p| Dropout::new(p, Key::new(case.seed, 0)).from_row(case.seed as usize % 3));
        let operands = ((&a, case.transposes.0), (&b, case.transposes.1));
        backend.gemm(operands.0, dropout, operands.1, case.epilogue.with(&bias), &mut out).expect("gemm");
        vec![Output::of(backend, &out)]
    }
}

/// Dense products with scaled rows, and with the backward pass of an epilogue: for all columns of its result, or for
/// those from a multiple of eight on.
pub(super) struct GemmOfRows;

#[derive(Debug)]
pub(super) struct GemmOfRowsCase {
    /// Rows, columns of the epilogue's result, inner dimension.
    dimensions: (usize, usize, usize),
    transpose: Transpose,
    slope: ActivationGrad,
    /// Storage types of `A`, `B`, results and column sums.
    dtypes: [Dtype; 4],
    seed: u64,
}

impl Law for GemmOfRows {
    const NAME: &'static str = "gemm_scaled, gemm_backward";
    const TOLERANCE: f64 = Gemm::TOLERANCE;
    type Case = GemmOfRowsCase;

    /// A backend may round once in a fused pass; others round after the product, the activation and the factors.
    fn tolerance(case: &GemmOfRowsCase) -> f64 {
        if case.dtypes[2] == Dtype::Bf16 { 0.02 } else { Self::TOLERANCE }
    }

    fn cases(rows_max: usize) -> impl Strategy<Value = GemmOfRowsCase> {
        let transpose = prop_oneof![Just(Transpose::No), Just(Transpose::Yes)];
        let dtypes = [dtype(), dtype(), dtype(), dtype()];
        ((n_rows(rows_max), width(), width()), transpose, slope(), dtypes, any::<u64>()).prop_map(
            |(dimensions, transpose, slope, dtypes, seed)| GemmOfRowsCase {
                dimensions,
                transpose,
                slope,
                dtypes,
                seed,
            },
        )
    }

    fn run<B: Backend>(backend: &B, case: &GemmOfRowsCase) -> Results {
        let (mut draws, (rows, width, depth)) = (Draws::new(case.seed), case.dimensions);
        let [of_a, of_b, of_out, of_sums] = case.dtypes;
        let factors = draws.matrix(backend, Shape::new(rows, 1), Dtype::F32);
        let a = draws.matrix(backend, Shape::new(rows, depth), of_a);
        let y = draws.matrix(backend, Shape::new(rows, width), of_out);
        let mut results = Vec::new();
        for (first, factors) in [(0, None), (0, Some(&factors)), (middle(width), Some(&factors))] {
            let cols = width - first;
            let b = draws.matrix(backend, read(Shape::new(depth, cols), case.transpose), of_b);
            let (a, b) = ((&a, Transpose::No), (&b, case.transpose));
            let mut out = draws.matrix(backend, Shape::new(rows, cols), of_out);
            if let Some(factors) = factors {
                backend.gemm_scaled(factors, a, b, &mut out).expect("gemm_scaled");
                results.push(Output::of(backend, &out));
            }
            for wants_sums in [true, false] {
                let mut sums = draws.matrix(backend, Shape::new(1, cols), of_sums);
                let epilogue_grad = EpilogueGrad { slope: case.slope, y: &y, first, factors };
                let bias_grad = wants_sums.then_some(&mut sums);
                backend.gemm_backward(a, b, epilogue_grad, &mut out, bias_grad).expect("gemm_backward");
                results.extend([&out, &sums].map(|matrix| Output::of(backend, matrix)));
            }
        }
        results
    }
}

/// Sparse products with a matrix and its transpose: binary, valued, weighted, scaled, symmetric.
pub(super) struct Spmm;

/// Kind of sparse operand.
#[derive(Clone, Copy, Debug)]
enum Pattern {
    General { valued: bool, scaled: bool },
    Symmetric { norm: Norm },
}

#[derive(Debug)]
pub(super) struct SpmmCase {
    shape: Shape,
    pattern: Pattern,
    transpose: Transpose,
    weighted: bool,
    width: usize,
    epilogue: EpilogueCase,
    dtypes: [Dtype; 4],
    seed: u64,
}

fn pattern() -> impl Strategy<Value = Pattern> {
    prop_oneof![
        2 => (any::<bool>(), any::<bool>()).prop_map(|(valued, scaled)| Pattern::General { valued, scaled }),
        1 => prop_oneof![Just(Norm::None), Just(Norm::Symmetric)].prop_map(|norm| Pattern::Symmetric { norm }),
    ]
}

impl SpmmCase {
    fn operand(&self, draws: &mut Draws) -> (Csr, Scales, bool) {
        match self.pattern {
            Pattern::General { valued, scaled } => {
                let csr = draws.csr(self.shape, valued);
                let mut scale = |n| scaled.then(|| draws.values(n));
                let scales = Scales { left: scale(self.shape.rows), right: scale(self.shape.cols) };
                (csr, scales, false)
            }
            Pattern::Symmetric { norm } => {
                let csr = draws.symmetric_csr(self.shape.rows);
                let scales = csr.scales(norm);
                (csr, scales, true)
            }
        }
    }
}

impl Law for Spmm {
    const NAME: &'static str = "spmm";
    const TOLERANCE: f64 = 2e-5;
    type Case = SpmmCase;

    /// A bf16 operand times its row factors may be rounded to bf16 again: an error of 2⁻⁹ in each of up to 600 terms,
    /// with signs that rarely agree.
    fn tolerance(case: &SpmmCase) -> f64 {
        let scaled = !matches!(case.pattern, Pattern::General { scaled: false, .. });
        if scaled && case.dtypes[0] == Dtype::Bf16 { 0.02 } else { Self::TOLERANCE }
    }

    /// Partial bf16 results are rounded to 2⁻⁹ of themselves, and may exceed their sum.
    fn tolerance_of_parts(case: &SpmmCase) -> f64 {
        if case.dtypes[3] == Dtype::Bf16 { 0.02 } else { Self::tolerance(case) }
    }

    fn cases(rows_max: usize) -> impl Strategy<Value = SpmmCase> {
        let shape = (n_rows(rows_max), 1..60usize).prop_map(|(rows, cols)| Shape::new(rows, cols));
        let transpose = prop_oneof![Just(Transpose::No), Just(Transpose::Yes)];
        let dtypes = [dtype(), dtype(), dtype(), dtype()];
        // Past 128 columns an operand is cut into panels.
        let width = prop_oneof![4 => width(), 1 => 70..300usize];
        (shape, pattern(), transpose, any::<bool>(), width, epilogue(), dtypes, any::<u64>()).prop_map(
            |(shape, pattern, transpose, weighted, width, epilogue, dtypes, seed)| {
                // A large symmetric matrix would take most of the reference's time.
                let shape = match pattern {
                    Pattern::General { .. } => shape,
                    Pattern::Symmetric { .. } => Shape::new(shape.cols, shape.cols),
                };
                SpmmCase { shape, pattern, transpose, weighted, width, epilogue, dtypes, seed }
            },
        )
    }

    fn run<B: Backend>(backend: &B, case: &SpmmCase) -> Results {
        let mut draws = Draws::new(case.seed);
        let (csr, scales, symmetric) = case.operand(&mut draws);
        let operand = SparseOperand { csr: &csr, scales, symmetric, names: None };
        let a = backend.upload_sparse(&operand).expect("upload");
        assert_eq!((backend.sparse_shape(&a), backend.nnz(&a)), (case.shape, csr.nnz()));
        let block = backend.upload_block(&operand).expect("upload");
        let read = read(case.shape, case.transpose);
        let x = draws.matrix(backend, Shape::new(read.cols, case.width), case.dtypes[0]);
        let weights = draws.matrix(backend, Shape::new(csr.nnz(), 1), case.dtypes[1]);
        let bias = draws.matrix(backend, Shape::new(1, case.width), case.dtypes[2]);
        let mut out = draws.matrix(backend, Shape::new(read.rows, case.width), case.dtypes[3]);
        let weights = case.weighted.then_some(&weights);
        backend.spmm((&a, case.transpose), weights, &x, case.epilogue.with(&bias), &mut out).expect("spmm");
        let mut by_block = draws.matrix(backend, Shape::new(read.rows, case.width), case.dtypes[3]);
        backend.spmm((&block, case.transpose), weights, &x, case.epilogue.with(&bias), &mut by_block).expect("spmm");
        vec![Output::of(backend, &out), Output::of(backend, &by_block)]
    }
}

/// Sparse products into some columns of the result: from the middle to the end, and from column eight to the middle.
/// The other columns stay.
pub(super) struct SpmmColumns;

impl Law for SpmmColumns {
    const NAME: &'static str = "spmm_columns";
    const TOLERANCE: f64 = Spmm::TOLERANCE;
    type Case = SpmmCase;

    fn tolerance(case: &SpmmCase) -> f64 {
        Spmm::tolerance(case)
    }

    fn tolerance_of_parts(case: &SpmmCase) -> f64 {
        Spmm::tolerance_of_parts(case)
    }

    fn cases(rows_max: usize) -> impl Strategy<Value = SpmmCase> {
        Spmm::cases(rows_max)
    }

    fn run<B: Backend>(backend: &B, case: &SpmmCase) -> Results {
        let mut draws = Draws::new(case.seed);
        let (csr, scales, symmetric) = case.operand(&mut draws);
        let a = backend.upload_sparse(&SparseOperand { csr: &csr, scales, symmetric, names: None }).expect("upload");
        let read = read(case.shape, case.transpose);
        let bias = draws.matrix(backend, Shape::new(1, case.width), case.dtypes[2]);
        let mut out = draws.matrix(backend, Shape::new(read.rows, case.width), case.dtypes[3]);
        let middle = middle(case.width);
        for columns in [middle..case.width, COLUMNS.min(middle)..middle] {
            let x = draws.matrix(backend, Shape::new(read.cols, columns.len()), case.dtypes[0]);
            let epilogue = case.epilogue.with(&bias);
            backend.spmm_columns((&a, case.transpose), &x, epilogue, (&mut out, columns.start)).expect("spmm_columns");
        }
        vec![Output::of(backend, &out)]
    }
}
