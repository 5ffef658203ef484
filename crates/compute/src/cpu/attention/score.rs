//! [`Scorer`]: scores of entries before the softmax, and their backward pass.
//!
//! Scores are symmetric in their two operands, so that one code serves passes along rows and along columns. The near
//! operand belongs to the current row (or column); the far operand is gathered.

use pulp::Simd;

use super::entries::{add_up, gather, repeat};
use super::table::Table;

/// Scores of [`Attention`](crate::Attention), seen from one direction.
#[derive(Clone, Copy)]
pub(super) struct Scorer<'a> {
    /// Operands of the rows of the pass.
    pub(super) near: &'a Table<'a>,
    /// Gathered operands.
    pub(super) far: &'a Table<'a>,
    /// Score vector of GATv2; `None` for GAT.
    pub(super) vector: Option<&'a [f32]>,
    /// Factor of the leaky ReLU below zero.
    pub(super) slope: f32,
}

/// Gradients that the backward pass of the scores of a row adds to.
pub(super) struct ScoreGrads<'a> {
    /// Gradient of the near operand of the row.
    pub(super) near: &'a mut [f32],
    /// Gradient of the score vector, if the pass computes it.
    pub(super) vector: Option<&'a mut [f32]>,
}

/// Leaky ReLU of `x`.
#[inline(always)]
fn leaky(x: f32, slope: f32) -> f32 {
    if x > 0.0 { x } else { slope * x }
}

/// Slope of [`leaky`] at `x`. `leaky(x)` has the sign of `x`, so it may be passed instead.
#[inline(always)]
fn leaky_slope(x: f32, slope: f32) -> f32 {
    if x > 0.0 { 1.0 } else { slope }
}

impl Scorer<'_> {
    /// Computes the scores (`heads` per entry) of the entries of `row` in `cols`. Operands of the columns `ahead`,
    /// which follow, are prefetched.
    #[inline(always)]
    pub(super) fn scores(
        &self,
        heads: usize,
        row: usize,
        (cols, ahead): (&[u32], &[u32]),
        near: &mut [f32],
        scores: &mut [f32],
    ) {
        let Some(vector) = self.vector else {
            gather(heads, self.far, 0, (cols, ahead), scores);
            repeat(heads, self.near.row(row), near);
            for (score, near) in scores.iter_mut().zip(near) {
                *score = leaky(*score + *near, self.slope);
            }
            return;
        };
        let near = self.near.row(row);
        for (e, (&col, scores)) in cols.iter().zip(scores.chunks_exact_mut(heads)).enumerate() {
            if let Some(&col) = ahead.get(e) {
                self.far.prefetch(col);
            }
            dynamic_scores(heads, self.slope, near, self.far.row(col as usize), vector, scores);
        }
    }

    /// Adds the contribution of `grads`, the gradients of `scores`, to `sums`, the gradients of the near operand of
    /// `row` and of the vector. `grads` is overwritten.
    #[inline(always)]
    pub(super) fn backward<S: Simd>(
        &self,
        simd: S,
        heads: usize,
        (row, cols): (usize, &[u32]),
        (scores, grads): (&[f32], &mut [f32]),
        sums: ScoreGrads<'_>,
    ) {
        let ScoreGrads { near: near_grad, vector: mut vector_grad } = sums;
        let Some(vector) = self.vector else {
            for (grad, &score) in grads.iter_mut().zip(scores) {
                *grad *= leaky_slope(score, self.slope);
            }
            return add_up(simd, heads, grads, near_grad);
        };
        let near = self.near.row(row);
        for (&col, grads) in cols.iter().zip(grads.chunks_exact(heads)) {
            let far = self.far.row(col as usize);
            let groups = near.chunks_exact(heads).zip(far.chunks_exact(heads)).zip(vector.chunks_exact(heads));
            for (((near, far), vector), near_grad) in groups.zip(near_grad.chunks_exact_mut(heads)) {
                for h in 0..heads {
                    near_grad[h] += grads[h] * vector[h] * leaky_slope(near[h] + far[h], self.slope);
                }
            }
            if let Some(vector_grad) = vector_grad.as_deref_mut() {
                let groups = near.chunks_exact(heads).zip(far.chunks_exact(heads));
                for ((near, far), vector_grad) in groups.zip(vector_grad.chunks_exact_mut(heads)) {
                    for h in 0..heads {
                        vector_grad[h] += grads[h] * leaky(near[h] + far[h], self.slope);
                    }
                }
            }
        }
    }
}

/// Computes `scores[h] = Σ_k vector[c] · leaky(near[c] + far[c])` with `c = k · heads + h`.
#[inline(always)]
fn dynamic_scores(heads: usize, slope: f32, near: &[f32], far: &[f32], vector: &[f32], scores: &mut [f32]) {
    let scores = &mut scores[..heads];
    scores.fill(0.0);
    let groups = near.chunks_exact(heads).zip(far.chunks_exact(heads)).zip(vector.chunks_exact(heads));
    for ((near, far), vector) in groups {
        for h in 0..heads {
            scores[h] += vector[h] * leaky(near[h] + far[h], slope);
        }
    }
}
