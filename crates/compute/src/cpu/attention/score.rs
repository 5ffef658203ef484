//! [`Scorer`]: what an entry scores before the softmax, and the way back.
//!
//! Scores are symmetric in their two operands, so that a pass along rows and one along columns are the same code: the
//! operand of the row (or column) itself is near, the one that is gathered is far.

use super::table::Table;

/// The scores of [`Attention`](crate::Attention), seen from one side.
#[derive(Clone, Copy)]
pub(super) struct Scorer<'a> {
    /// Operands of the rows that a pass goes along.
    pub(super) near: &'a Table<'a>,
    /// Operands that are gathered.
    pub(super) far: &'a Table<'a>,
    /// The vector of GATv2.
    pub(super) vector: Option<&'a [f32]>,
    pub(super) slope: f32,
}

#[inline(always)]
fn leaky(x: f32, slope: f32) -> f32 {
    if x > 0.0 { x } else { slope * x }
}

/// Slope of [`leaky`] at `x`; the sign of `leaky(x)` says as much as that of `x`.
#[inline(always)]
fn leaky_slope(x: f32, slope: f32) -> f32 {
    if x > 0.0 { 1.0 } else { slope }
}

impl Scorer<'_> {
    /// The scores of the entries of `row` in `cols`, `heads` each.
    #[inline(always)]
    pub(super) fn scores(&self, heads: usize, row: usize, cols: &[u32], scores: &mut [f32]) {
        let near = self.near.row(row);
        for (&col, scores) in cols.iter().zip(scores.chunks_exact_mut(heads)) {
            let far = self.far.row(col as usize);
            match self.vector {
                None => {
                    for h in 0..heads {
                        scores[h] = leaky(near[h] + far[h], self.slope);
                    }
                }
                Some(vector) => {
                    scores.fill(0.0);
                    let groups = near.chunks_exact(heads).zip(far.chunks_exact(heads)).zip(vector.chunks_exact(heads));
                    for ((near, far), vector) in groups {
                        for h in 0..heads {
                            scores[h] += vector[h] * leaky(near[h] + far[h], self.slope);
                        }
                    }
                }
            }
        }
    }

    /// Adds what `grads`, the gradients of `scores`, mean for the near operand of `row`, and for the vector.
    #[inline(always)]
    pub(super) fn backward(
        &self,
        heads: usize,
        row: usize,
        cols: &[u32],
        (scores, grads): (&[f32], &[f32]),
        near_grad: &mut [f32],
        mut vector_grad: Option<&mut [f32]>,
    ) {
        let near = self.near.row(row);
        for ((&col, scores), grads) in cols.iter().zip(scores.chunks_exact(heads)).zip(grads.chunks_exact(heads)) {
            let Some(vector) = self.vector else {
                for h in 0..heads {
                    near_grad[h] += grads[h] * leaky_slope(scores[h], self.slope);
                }
                continue;
            };
            let far = self.far.row(col as usize);
            for start in (0..vector.len()).step_by(heads) {
                let at = start..start + heads;
                let (near, far, vector) = (&near[at.clone()], &far[at.clone()], &vector[at.clone()]);
                let near_grad = &mut near_grad[at.clone()];
                for h in 0..heads {
                    near_grad[h] += grads[h] * vector[h] * leaky_slope(near[h] + far[h], self.slope);
                }
                if let Some(vector_grad) = vector_grad.as_deref_mut() {
                    let vector_grad = &mut vector_grad[at];
                    for h in 0..heads {
                        vector_grad[h] += grads[h] * leaky(near[h] + far[h], self.slope);
                    }
                }
            }
        }
    }
}
