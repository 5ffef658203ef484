//! Laws of element-wise functions and of shapes.

use proptest::prelude::*;

use super::inputs::n_rows;
use super::law::{Law, Output, Results};
use super::passes::{PassCase, passes};
use crate::{Backend, Function, Shape};

/// Values of a function, and its backward pass.
pub(super) struct Apply;

impl Law for Apply {
    const NAME: &'static str = "apply";
    const TOLERANCE: f64 = 5e-6;
    type Case = (PassCase, Function);

    fn cases(rows_max: usize) -> impl Strategy<Value = Self::Case> {
        (passes(n_rows(rows_max)), prop_oneof![Just(Function::Gelu), Just(Function::Sigmoid)])
    }

    fn run<B: Backend>(backend: &B, (case, function): &Self::Case) -> Results {
        let mut draws = case.draws();
        let x = draws.matrix(backend, case.shape, case.dtypes[0]);
        let mut out = draws.matrix(backend, case.shape, case.dtypes[1]);
        let mut grad = draws.matrix(backend, case.shape, case.dtypes[2]);
        backend.apply(*function, &x, &mut out).expect("apply");
        backend.apply_backward(*function, &x, &mut grad).expect("apply_backward");
        vec![Output::of(backend, &out), Output::of(backend, &grad)]
    }
}

/// Cosines and sines of angles.
pub(super) struct UnitCircle;

impl Law for UnitCircle {
    const NAME: &'static str = "unit_circle";
    const TOLERANCE: f64 = 5e-6;
    type Case = PassCase;

    fn cases(rows_max: usize) -> impl Strategy<Value = Self::Case> {
        passes(n_rows(rows_max))
    }

    fn run<B: Backend>(backend: &B, case: &Self::Case) -> Results {
        let mut draws = case.draws();
        let x = draws.matrix(backend, case.shape, case.dtypes[0]);
        let mut out = draws.matrix(backend, Shape::new(case.shape.rows, 2 * case.shape.cols), case.dtypes[1]);
        backend.unit_circle(&x, &mut out).expect("unit_circle");
        vec![Output::of(backend, &out)]
    }
}

/// Rows as blocks of columns, and back.
pub(super) struct Reshape;

impl Law for Reshape {
    const NAME: &'static str = "reshape";
    const TOLERANCE: f64 = 0.0;
    type Case = (PassCase, usize);

    fn cases(rows_max: usize) -> impl Strategy<Value = Self::Case> {
        (passes(n_rows(rows_max / 4)), 1..5usize)
    }

    fn run<B: Backend>(backend: &B, (case, n_blocks): &Self::Case) -> Results {
        let (mut draws, Shape { rows, cols }) = (case.draws(), case.shape);
        let tall = Shape::new(rows * n_blocks, cols);
        let wide = Shape::new(rows, cols * n_blocks);
        [(tall, wide), (wide, tall)]
            .map(|(from, to)| {
                let x = draws.matrix(backend, from, case.dtypes[0]);
                let mut out = draws.matrix(backend, to, case.dtypes[0]);
                backend.reshape(&x, &mut out).expect("reshape");
                Output { rounded: false, ..Output::of(backend, &out) }
            })
            .into()
    }
}
