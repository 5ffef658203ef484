//! Layer and batch normalisation.
//!
//! Moments and gradients of a row are sums within the row, computed in one call. Those of a column are sums over
//! chunks of rows in `f32`, added in `f64` and in order. They need separate calls, since rows of other devices may
//! count as well.

use girih_machine::parallel;
use pulp::Arch;

use super::chunks::{row_chunk_len, rows_per_chunk};
use super::columns;

/// Matrix to normalise, with its operands; all but `x` are single rows.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) cols: usize,
    pub(crate) gain: &'a [f32],
}

/// Layer normalisation along rows: `out = (x - mean) · rstd · gain + bias`. The mean and `rstd` of each row go into
/// `moments`.
pub(crate) fn rows(operand: Operand<'_>, bias: &[f32], eps: f32, out: &mut [f32], moments: &mut [f32]) {
    let Operand { x, cols, gain } = operand;
    let (arch, len) = (Arch::new(), row_chunk_len(cols));
    let moments = moments.chunks_mut(2 * rows_per_chunk(cols));
    parallel::for_each(out.chunks_mut(len).zip(x.chunks(len)).zip(moments), |((out, x), moments)| {
        arch.dispatch(
            #[inline(always)]
            || {
                let rows = out.chunks_exact_mut(cols).zip(x.chunks_exact(cols)).zip(moments.chunks_exact_mut(2));
                for ((out, x), moments) in rows {
                    let mean = sum(x.iter().copied()) / cols as f32;
                    let variance = sum(x.iter().map(|x| (x - mean) * (x - mean))) / cols as f32;
                    let rstd = 1.0 / (variance + eps).sqrt();
                    moments.copy_from_slice(&[mean, rstd]);
                    for (c, (out, x)) in out.iter_mut().zip(x).enumerate() {
                        *out = (x - mean) * rstd * gain[c] + bias[c];
                    }
                }
            },
        );
    });
}

/// Backward pass of [`rows`]: `grad` becomes the gradient of `x`. Returns the gradients of gain and bias.
pub(crate) fn rows_backward(operand: Operand<'_>, moments: &[f32], grad: &mut [f32]) -> [Vec<f32>; 2] {
    let Operand { x, cols, gain } = operand;
    let (arch, len) = (Arch::new(), row_chunk_len(cols));
    let pieces = grad.chunks_mut(len).zip(x.chunks(len)).zip(moments.chunks(2 * rows_per_chunk(cols)));
    let partials = parallel::map(pieces, |((grad, x), moments)| {
        let (mut gains, mut biases) = (vec![0.0; cols], vec![0.0; cols]);
        arch.dispatch(
            #[inline(always)]
            || {
                let rows = grad.chunks_exact_mut(cols).zip(x.chunks_exact(cols)).zip(moments.chunks_exact(2));
                for ((grad, x), moments) in rows {
                    let [mean, rstd] = [moments[0], moments[1]];
                    for c in 0..cols {
                        gains[c] += grad[c] * (x[c] - mean) * rstd;
                        biases[c] += grad[c];
                        grad[c] *= gain[c];
                    }
                    let shift = sum(grad.iter().copied()) / cols as f32;
                    let slope = sum((0..cols).map(|c| grad[c] * (x[c] - mean) * rstd)) / cols as f32;
                    for c in 0..cols {
                        grad[c] = rstd * (grad[c] - shift - (x[c] - mean) * rstd * slope);
                    }
                }
            },
        );
        (gains, biases)
    });
    let partials: (Vec<_>, Vec<_>) = partials.into_iter().unzip();
    [columns::total(cols, partials.0), columns::total(cols, partials.1)]
}

/// Moments of columns, in the form that the normalisation uses.
pub(crate) struct ColumnNorm<'a> {
    means: &'a [f32],
    rstds: Vec<f32>,
}

impl<'a> ColumnNorm<'a> {
    pub(crate) fn new(means: &'a [f32], variances: &[f32], eps: f32) -> Self {
        Self { means, rstds: variances.iter().map(|variance| 1.0 / (variance + eps).sqrt()).collect() }
    }

    #[inline(always)]
    fn hat(&self, c: usize, x: f32) -> f32 {
        (x - self.means[c]) * self.rstds[c]
    }

    /// Computes `out = x̂ · gain + bias`.
    pub(crate) fn apply(&self, Operand { x, cols, gain }: Operand<'_>, bias: &[f32], out: &mut [f32]) {
        map_columns(x, cols, out, |c, x, _| self.hat(c, x) * gain[c] + bias[c]);
    }

    /// Column sums of `grad · x̂`.
    pub(crate) fn products(&self, x: &[f32], cols: usize, grad: &[f32]) -> Vec<f32> {
        columns::sums_of_products(x, grad, cols, |c, x, grad| grad * self.hat(c, x))
    }

    /// Backward pass of [`apply`](Self::apply): `grad` becomes the gradient of `x`. `means` are the means of `grad`
    /// and of `grad · x̂` over all rows.
    pub(crate) fn backward(&self, Operand { x, cols, gain }: Operand<'_>, means: [&[f32]; 2], grad: &mut [f32]) {
        let [shift, slope] = means;
        map_columns(x, cols, grad, |c, x, grad| {
            gain[c] * self.rstds[c] * (grad - shift[c] - self.hat(c, x) * slope[c])
        });
    }
}

/// Column sums of `(x - means)²`.
pub(crate) fn squares(x: &[f32], means: &[f32]) -> Vec<f32> {
    columns::sums_of(x, means.len(), |c, x| (x - means[c]) * (x - means[c]))
}

/// Computes `out[r, c] = f(c, x[r, c], out[r, c])`.
fn map_columns(x: &[f32], cols: usize, out: &mut [f32], f: impl Fn(usize, f32, f32) -> f32 + Sync) {
    let (arch, len) = (Arch::new(), row_chunk_len(cols));
    parallel::for_each(out.chunks_mut(len).zip(x.chunks(len)), |(out, x)| {
        arch.dispatch(
            #[inline(always)]
            || {
                for (out, x) in out.chunks_exact_mut(cols).zip(x.chunks_exact(cols)) {
                    for c in 0..cols {
                        out[c] = f(c, x[c], out[c]);
                    }
                }
            },
        );
    });
}

/// Sum in sixteen interleaved parts, so that it vectorises.
#[inline(always)]
fn sum(values: impl Iterator<Item = f32>) -> f32 {
    let mut lanes = [0.0; 16];
    for (i, value) in values.enumerate() {
        lanes[i % 16] += value;
    }
    lanes.iter().sum()
}
