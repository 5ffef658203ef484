//! Laws of steps of optimisers.

use proptest::collection::vec;
use proptest::prelude::*;

use super::inputs::n_rows;
use super::law::{Law, Output, Results};
use super::passes::{PassCase, passes};
use crate::{AdamStep, AdamUpdate, Backend, Dtype, SgdUpdate, Shape};

/// Weight decays of parameters updated together: a few, or more than a table of a device may hold.
fn decays() -> impl Strategy<Value = Vec<f32>> {
    let decay = prop_oneof![Just(0.0f32), 0.0f32..0.1];
    prop_oneof![3 => vec(decay.clone(), 0..4), 1 => vec(decay, 60..140)]
}

/// Shapes of `n` parameters, each smaller than the one before.
fn shapes(shape: Shape, n: usize) -> impl Iterator<Item = Shape> {
    (1..=n).map(move |k| Shape::new(shape.rows / k, shape.cols))
}

/// Three steps of Adam and of AdamW.
pub(super) struct Adam;

impl Law for Adam {
    const NAME: &'static str = "adam";
    const TOLERANCE: f64 = 1e-5;
    type Case = (PassCase, Vec<f32>, bool);

    fn cases(rows_max: usize) -> impl Strategy<Value = Self::Case> {
        (passes(n_rows(rows_max)), decays(), any::<bool>())
    }

    fn run<B: Backend>(backend: &B, (case, decays, decoupled): &Self::Case) -> Results {
        let mut draws = case.draws();
        let shapes: Vec<Shape> = shapes(case.shape, decays.len()).collect();
        let zeros = |&shape: &Shape| backend.zeros(shape, Dtype::F32).expect("zeros");
        let mut drawn =
            || -> Vec<B::Matrix> { shapes.iter().map(|&shape| draws.matrix(backend, shape, Dtype::F32)).collect() };
        let mut params = drawn();
        let [mut firsts, mut seconds] = [(); 2].map(|()| shapes.iter().map(zeros).collect::<Vec<_>>());
        for step in 1..=3 {
            let grads = drawn();
            let step = AdamStep { lr: 0.05, beta1: 0.9, beta2: 0.999, eps: 1e-8, decoupled: *decoupled, step };
            let moments = firsts.iter_mut().zip(&mut seconds);
            let matrices = params.iter_mut().zip(&grads).zip(moments).zip(decays);
            let update = |(((param, grad), (first, second)), &weight_decay)| AdamUpdate {
                param,
                grad,
                first,
                second,
                weight_decay,
            };
            backend.adam(step, &mut matrices.map(update).collect::<Vec<_>>()).expect("adam");
        }
        [params, firsts, seconds].iter().flatten().map(|matrix| Output::of(backend, matrix)).collect()
    }
}

/// Two steps of Adam and of gradient descent on some rows of a parameter, each listed once.
pub(super) struct StepsOnRows;

impl Law for StepsOnRows {
    const NAME: &'static str = "adam_rows";
    const TOLERANCE: f64 = 1e-5;
    type Case = (PassCase, f32, bool);

    fn cases(rows_max: usize) -> impl Strategy<Value = Self::Case> {
        (passes(n_rows(rows_max)), prop_oneof![Just(0.0f32), 0.0f32..0.1], any::<bool>())
    }

    fn run<B: Backend>(backend: &B, &(ref case, weight_decay, decoupled): &Self::Case) -> Results {
        let (mut draws, shape) = (case.draws(), case.shape);
        let [mut param, mut slow] = [(); 2].map(|()| draws.matrix(backend, shape, Dtype::F32));
        let [mut first, mut second, mut velocity] = [(); 3].map(|()| backend.zeros(shape, Dtype::F32).expect("zeros"));
        for step in 1..=2 {
            // Every third row, from the last one on.
            let ids: Vec<u32> = (0..shape.rows as u32).filter(|row| (row + step) % 3 == 0).rev().collect();
            let grad = draws.matrix(backend, Shape::new(ids.len(), shape.cols), Dtype::F32);
            let ids = backend.upload_ids(&ids).expect("upload");
            let step = u64::from(step);
            let step = AdamStep { lr: 0.05, beta1: 0.9, beta2: 0.999, eps: 1e-8, decoupled, step };
            let (first, second) = (&mut first, &mut second);
            let mut update = AdamUpdate { param: &mut param, grad: &grad, first, second, weight_decay };
            backend.adam_rows(step, &ids, &mut update).expect("adam_rows");
            let mut update = SgdUpdate { param: &mut slow, grad: &grad, velocity: &mut velocity, weight_decay };
            backend.sgd_rows((0.1, 0.9), &ids, &mut update).expect("sgd_rows");
        }
        [param, first, second, slow, velocity].iter().map(|matrix| Output::of(backend, matrix)).collect()
    }
}

/// Three steps of gradient descent with momentum and weight decay.
pub(super) struct Sgd;

impl Law for Sgd {
    const NAME: &'static str = "sgd";
    const TOLERANCE: f64 = 1e-5;
    type Case = (PassCase, Vec<f32>, f32);

    fn cases(rows_max: usize) -> impl Strategy<Value = Self::Case> {
        (passes(n_rows(rows_max)), decays(), 0.0f32..0.99)
    }

    fn run<B: Backend>(backend: &B, (case, decays, momentum): &Self::Case) -> Results {
        let mut draws = case.draws();
        let shapes: Vec<Shape> = shapes(case.shape, decays.len()).collect();
        let mut drawn =
            || -> Vec<B::Matrix> { shapes.iter().map(|&shape| draws.matrix(backend, shape, Dtype::F32)).collect() };
        let mut params = drawn();
        let zeros = |&shape: &Shape| backend.zeros(shape, Dtype::F32).expect("zeros");
        let mut velocities: Vec<B::Matrix> = shapes.iter().map(zeros).collect();
        for _ in 0..3 {
            let grads = drawn();
            let matrices = params.iter_mut().zip(&grads).zip(&mut velocities).zip(decays);
            let update = |(((param, grad), velocity), &weight_decay)| SgdUpdate { param, grad, velocity, weight_decay };
            backend.sgd(0.1, *momentum, &mut matrices.map(update).collect::<Vec<_>>()).expect("sgd");
        }
        [params, velocities].iter().flatten().map(|matrix| Output::of(backend, matrix)).collect()
    }
}
