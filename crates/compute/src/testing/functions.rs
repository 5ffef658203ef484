//! Law of element-wise functions.

use proptest::prelude::*;

use super::inputs::n_rows;
use super::law::{Law, Output, Results};
use super::passes::{PassCase, passes};
use crate::{Backend, Function};

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
