//! Steps of optimisers: one pass over parameters, gradient and state.

use girih_machine::parallel;
use pulp::Arch;

use super::CpuMatrix;
use super::chunks::{row_chunk_len, rows_per_chunk};
use super::rows::Buckets;
use crate::{AdamStep, AdamUpdate, SgdUpdate, Shape};

/// Number of elements in a chunk.
const CHUNK: usize = 1 << 13;

/// Constants of a step of Adam, equal for every element.
#[derive(Clone, Copy)]
struct AdamFactors {
    beta1: f32,
    beta2: f32,
    /// `lr / (1 - beta1^step)`.
    rate: f32,
    /// `1 / sqrt(1 - beta2^step)`.
    root_correction: f32,
    eps: f32,
    /// Weight decay applied through the gradient (Adam); 0 for AdamW.
    coupled: f32,
    /// Factor of a weight after the decoupled decay of AdamW; 1 for Adam.
    kept: f32,
}

impl AdamFactors {
    fn new(step: AdamStep, weight_decay: f32) -> Self {
        let correction = |beta: f32| 1.0 - f64::from(beta).powf(step.step as f64);
        let (coupled, kept) = if step.decoupled { (0.0, 1.0 - step.lr * weight_decay) } else { (weight_decay, 1.0) };
        Self {
            beta1: step.beta1,
            beta2: step.beta2,
            rate: (f64::from(step.lr) / correction(step.beta1)) as f32,
            root_correction: correction(step.beta2).sqrt().recip() as f32,
            eps: step.eps,
            coupled,
            kept,
        }
    }
}

/// Takes one step of Adam or AdamW on a parameter. All its matrices have one shape and are `f32`.
pub(crate) fn adam(step: AdamStep, update: &mut AdamUpdate<'_, CpuMatrix>) {
    let (arch, factors) = (Arch::new(), AdamFactors::new(step, update.weight_decay));
    let [first, second] = [&mut *update.first, &mut *update.second].map(CpuMatrix::expect_f32_mut);
    let (param, grad) = (update.param.expect_f32_mut(), update.grad.expect_f32());
    let state = first.chunks_mut(CHUNK).zip(second.chunks_mut(CHUNK));
    let pieces = param.chunks_mut(CHUNK).zip(grad.chunks(CHUNK)).zip(state);
    parallel::for_each(pieces, |((param, grad), (first, second))| {
        arch.dispatch(
            #[inline(always)]
            || adam_piece(factors, grad, first, second, param),
        );
    });
}

/// Takes one step of Adam or AdamW on some rows of a parameter, each listed once. The gradient has these rows.
pub(crate) fn adam_rows(step: AdamStep, ids: &[u32], update: &mut AdamUpdate<'_, CpuMatrix>) {
    let (arch, factors) = (Arch::new(), AdamFactors::new(step, update.weight_decay));
    let Shape { rows: n_rows, cols } = update.param.shape();
    if ids.is_empty() || cols == 0 {
        return;
    }
    let [first, second] = [&mut *update.first, &mut *update.second].map(CpuMatrix::expect_f32_mut);
    let (param, grad) = (update.param.expect_f32_mut(), update.grad.expect_f32());
    let (len, n_at_once) = (row_chunk_len(cols), rows_per_chunk(cols));
    let by_piece = Buckets::new(ids, n_at_once, n_rows);
    let state = first.chunks_mut(len).zip(second.chunks_mut(len));
    let pieces = param.chunks_mut(len).zip(state).enumerate();
    parallel::for_each(pieces, |(piece, (param, (first, second)))| {
        arch.dispatch(
            #[inline(always)]
            || {
                for &position in by_piece.bucket(piece) {
                    let at = (ids[position as usize] as usize - piece * n_at_once) * cols;
                    let row = at..at + cols;
                    let grad = &grad[position as usize * cols..][..cols];
                    adam_piece(factors, grad, &mut first[row.clone()], &mut second[row.clone()], &mut param[row]);
                }
            },
        );
    });
}

#[inline(always)]
fn adam_piece(f: AdamFactors, grad: &[f32], first: &mut [f32], second: &mut [f32], param: &mut [f32]) {
    let n = param.len();
    // Slices of equal length let the compiler drop the bounds checks of the loop.
    let (grad, first, second) = (&grad[..n], &mut first[..n], &mut second[..n]);
    for i in 0..n {
        let g = grad[i] + f.coupled * param[i];
        first[i] = f.beta1 * first[i] + (1.0 - f.beta1) * g;
        second[i] = f.beta2 * second[i] + (1.0 - f.beta2) * g * g;
        let root = second[i].sqrt() * f.root_correction;
        param[i] = f.kept * param[i] - f.rate * first[i] / (root + f.eps);
    }
}

/// Takes one step of stochastic gradient descent on a parameter. All its matrices have one shape and are `f32`.
pub(crate) fn sgd(lr: f32, momentum: f32, update: &mut SgdUpdate<'_, CpuMatrix>) {
    let (arch, weight_decay) = (Arch::new(), update.weight_decay);
    let (param, velocity) = (update.param.expect_f32_mut(), update.velocity.expect_f32_mut());
    let grad = update.grad.expect_f32();
    let pieces = param.chunks_mut(CHUNK).zip(grad.chunks(CHUNK)).zip(velocity.chunks_mut(CHUNK));
    parallel::for_each(pieces, |((param, grad), velocity)| {
        arch.dispatch(
            #[inline(always)]
            || {
                for ((param, grad), velocity) in param.iter_mut().zip(grad).zip(velocity) {
                    *velocity = momentum * *velocity + grad + weight_decay * *param;
                    *param -= lr * *velocity;
                }
            },
        );
    });
}
