//! Laws of the operations for recommenders: scaling, the ranking loss, its penalty, and the largest elements of each
//! row.

use girih_graph_format::{Csr, Matrix};
use proptest::prelude::*;

use super::inputs::{host, n_rows, n_rows_some};
use super::law::{Law, Output, Results};
use super::passes::{PassCase, passes};
use crate::{Backend, Dtype, Shape};

/// Scaled copy `out = factor · x`, and zeros.
pub(super) struct Scaled;

impl Law for Scaled {
    const NAME: &'static str = "scale, set_zero";
    const TOLERANCE: f64 = 1e-6;
    type Case = (PassCase, f32);

    fn cases(rows_max: usize) -> impl Strategy<Value = Self::Case> {
        (passes(n_rows(rows_max)), -2.0f32..2.0)
    }

    fn run<B: Backend>(backend: &B, (case, factor): &Self::Case) -> Results {
        let mut draws = case.draws();
        let mut x = draws.matrix(backend, case.shape, case.dtypes[0]);
        let mut out = draws.matrix(backend, case.shape, case.dtypes[1]);
        backend.scale(*factor, &x, &mut out).expect("scale");
        backend.set_zero(&mut x).expect("set_zero");
        vec![Output::of(backend, &out), Output::of(backend, &x)]
    }
}

/// Ranking loss with and without its gradient, on rows of a given magnitude.
pub(super) struct BprLoss;

impl Law for BprLoss {
    const NAME: &'static str = "bpr_loss";
    const TOLERANCE: f64 = 2e-5;
    type Case = (PassCase, f32);

    fn cases(rows_max: usize) -> impl Strategy<Value = Self::Case> {
        let scale = prop_oneof![4 => 0.1f32..2.0, 1 => 2.0f32..10.0];
        (passes(n_rows_some(rows_max / 3)), scale)
    }

    fn run<B: Backend>(backend: &B, (case, scale): &Self::Case) -> Results {
        let mut draws = case.draws();
        let shape = Shape::new(3 * case.shape.rows, case.shape.cols);
        let values: Vec<f32> = draws.values(shape.len()).into_iter().map(|value| scale * value).collect();
        let triples = backend.upload(&host(shape, values), case.dtypes[0]).expect("upload");
        let mut grad = draws.matrix(backend, shape, case.dtypes[1]);
        let [mut loss, mut loss_alone] = [(); 2].map(|()| draws.matrix(backend, Shape::new(1, 1), Dtype::F32));
        backend.bpr_loss(&triples, Some(&mut grad), &mut loss).expect("bpr_loss");
        backend.bpr_loss(&triples, None, &mut loss_alone).expect("bpr_loss");
        [loss, loss_alone, grad].iter().map(|matrix| Output::of(backend, matrix)).collect()
    }
}

/// Penalty with and without its gradient; it is added to the old loss in both cases.
pub(super) struct L2Penalty;

impl Law for L2Penalty {
    const NAME: &'static str = "l2_penalty";
    const TOLERANCE: f64 = 2e-6;
    type Case = (PassCase, f32);

    fn cases(rows_max: usize) -> impl Strategy<Value = Self::Case> {
        (passes(n_rows(rows_max)), 0.0f32..0.1)
    }

    fn run<B: Backend>(backend: &B, (case, weight): &Self::Case) -> Results {
        let mut draws = case.draws();
        let x = draws.matrix(backend, case.shape, case.dtypes[0]);
        let mut grad = draws.matrix(backend, case.shape, case.dtypes[1]);
        let mut loss = draws.matrix(backend, Shape::new(1, 1), Dtype::F32);
        backend.l2_penalty(*weight, &x, Some(&mut grad), &mut loss).expect("l2_penalty");
        backend.l2_penalty(*weight, &x, None, &mut loss).expect("l2_penalty");
        vec![Output::of(backend, &loss), Output::of(backend, &grad)]
    }
}

/// Largest elements of each row: with ties, with fully excluded rows, and with `k` above the number of columns left.
pub(super) struct TopK;

impl Law for TopK {
    const NAME: &'static str = "top_k_rows";
    const TOLERANCE: f64 = 0.0;
    type Case = (PassCase, usize);

    fn cases(rows_max: usize) -> impl Strategy<Value = Self::Case> {
        (passes(n_rows(rows_max)), prop_oneof![Just(0usize), Just(1), 2..30usize])
    }

    fn run<B: Backend>(backend: &B, (case, k): &Self::Case) -> Results {
        let mut draws = case.draws();
        // Only a few values, so that there are ties, and some that are never returned.
        let level = |value: f32| if value > 0.9 { f32::NEG_INFINITY } else { (4.0 * value).round() };
        let levels = draws.values(case.shape.len()).into_iter().map(level).collect();
        let x = backend.upload(&host(case.shape, levels), case.dtypes[0]).expect("upload");
        let excluded: Csr = draws.csr(case.shape, false);
        let found = backend.top_k_rows(&x, *k, &excluded).expect("top_k_rows");
        let columns: Vec<f32> = found.into_iter().map(|column| column as f32).collect();
        let values = Matrix::new(case.shape.rows, *k, columns).expect("k columns a row");
        vec![Output { values, rounded: false }]
    }
}
