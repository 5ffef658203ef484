//! Losses with their gradients, in one pass over the logits.
//!
//! Rows are independent and computed in vectors; their losses are added in `f64`, in order. Logarithms are the
//! slowest part. A sum of them is computed as the logarithm of a product: see [`LogSum`].

use girih_machine::parallel;
use pulp::{Simd, WithSimd};

use super::chunks::{row_chunk_len, rows_per_chunk};
use super::element::Element;
use super::exp::exp;
use super::simd::Isa;

/// Padding of a row to whole vectors. Its exponential vanishes in any sum, and it is finite, so that `0 · PAD` is
/// zero.
const PAD: f32 = f32::MIN;

/// Number of occurrences in `rows` of each of `n_rows` rows.
pub(crate) fn multiplicities(rows: &[u32], n_rows: usize) -> Vec<u32> {
    let mut counts = vec![0; n_rows];
    for &row in rows {
        counts[row as usize] += 1;
    }
    counts
}

/// Mean softmax cross-entropy, with its gradient if `grad` is given. Row `r` of the logits counts `counts[r]` times.
pub(crate) fn softmax_cross_entropy<L: Element, G: Element>(
    isa: Isa,
    logits: &[L],
    classes: &[u32],
    counts: &[u32],
    grad: Option<&mut [G]>,
) -> f64 {
    mean_over_rows(isa, logits, counts, 1.0 / total(counts), grad, &Softmax { classes })
}

/// Mean binary cross-entropy of sigmoids, with its gradient if `grad` is given. Row `r` of the logits counts
/// `counts[r]` times.
pub(crate) fn sigmoid_cross_entropy<L: Element, T: Element, G: Element>(
    isa: Isa,
    logits: &[L],
    targets: &[T],
    counts: &[u32],
    grad: Option<&mut [G]>,
) -> f64 {
    let cols = logits.len() / counts.len();
    let weight = 1.0 / (total(counts) * cols as f64);
    mean_over_rows(isa, logits, counts, weight, grad, &Sigmoid { targets, cols })
}

fn total(counts: &[u32]) -> f64 {
    counts.iter().map(|&count| f64::from(count)).sum()
}

/// Loss of one row.
trait RowLoss: Sync {
    /// Adds the loss of `row` to `loss`. `logits` are those of the row, padded to whole vectors with [`PAD`]. They
    /// are replaced by their gradient times the returned number.
    fn add<S: Simd>(&self, simd: S, row: usize, logits: &mut [S::f32s], loss: &mut LogSum) -> f32;
}

/// Softmax cross-entropy `log Σ exp(z) - z[class]`, stable for large logits.
struct Softmax<'a> {
    classes: &'a [u32],
}

impl RowLoss for Softmax<'_> {
    #[inline(always)]
    fn add<S: Simd>(&self, simd: S, row: usize, logits: &mut [S::f32s], loss: &mut LogSum) -> f32 {
        let class = self.classes[row] as usize;
        let logit = bytemuck::cast_slice::<_, f32>(logits)[class];
        let mut max = simd.splat_f32s(PAD);
        for &z in &*logits {
            max = simd.max_f32s(max, z);
        }
        let max = simd.reduce_max_f32s(max);
        let (shift, mut sum) = (simd.splat_f32s(max), simd.splat_f32s(0.0));
        for z in &mut *logits {
            *z = exp(simd, simd.sub_f32s(*z, shift));
            sum = simd.add_f32s(sum, *z);
        }
        let sum = simd.reduce_sum_f32s(sum);
        loss.add(f64::from(max) - f64::from(logit));
        loss.add_log(f64::from(sum));
        // (exp(z) - sum · onehot) / sum = softmax - onehot
        bytemuck::cast_slice_mut::<_, f32>(logits)[class] -= sum;
        sum
    }
}

/// Sigmoid cross-entropy `Σ max(z, 0) - z·t + log(1 + exp(-|z|))`, with the gradient `sigmoid(z) - t`.
struct Sigmoid<'a, T> {
    targets: &'a [T],
    cols: usize,
}

impl<T: Element> RowLoss for Sigmoid<'_, T> {
    #[inline(always)]
    fn add<S: Simd>(&self, simd: S, row: usize, logits: &mut [S::f32s], loss: &mut LogSum) -> f32 {
        /// Number of columns whose factors (each at most two) are multiplied in `f32`.
        const FACTORS: usize = 64;
        let targets = &self.targets[row * self.cols..][..self.cols];
        let (zero, one) = (simd.splat_f32s(0.0), simd.splat_f32s(1.0));
        for (logits, targets) in logits.chunks_mut(FACTORS / S::F32_LANES).zip(targets.chunks(FACTORS)) {
            let (mut linear, mut product) = (zero, one);
            for (z, targets) in logits.iter_mut().zip(targets.chunks(S::F32_LANES)) {
                let target = T::load_lanes(simd, targets);
                let small = exp(simd, simd.neg_f32s(simd.abs_f32s(*z)));
                let factor = simd.add_f32s(one, small);
                let is_negative = simd.less_than_f32s(*z, zero);
                let positive_part = simd.select_f32s(is_negative, zero, *z);
                linear = simd.add_f32s(linear, simd.sub_f32s(positive_part, simd.mul_f32s(*z, target)));
                product = simd.mul_f32s(product, factor);
                let sigmoid = simd.div_f32s(simd.select_f32s(is_negative, small, one), factor);
                *z = simd.sub_f32s(sigmoid, target);
            }
            loss.add(f64::from(simd.reduce_sum_f32s(linear)));
            loss.add_log(f64::from(simd.reduce_product_f32s(product)));
        }
        1.0
    }
}

/// Sum of numbers and logarithms. Most logarithms are never computed: their arguments are multiplied instead.
#[derive(Clone, Copy)]
struct LogSum {
    sum: f64,
    product: f64,
}

impl LogSum {
    const ZERO: Self = Self { sum: 0.0, product: 1.0 };
    /// Limit of products. A larger product is turned into a sum; the square of the limit is still finite.
    const LIMIT: f64 = 1e150;

    #[inline(always)]
    fn add(&mut self, value: f64) {
        self.sum += value;
    }

    /// Adds the logarithm of `factor`, which lies between 1 and [`LIMIT`](Self::LIMIT).
    #[inline(always)]
    fn add_log(&mut self, factor: f64) {
        self.product *= factor;
        if self.product > Self::LIMIT {
            *self = Self { sum: self.value(), product: 1.0 };
        }
    }

    /// Adds `other`, `count` times.
    #[inline(always)]
    fn add_times(&mut self, count: u32, other: Self) {
        if count == 1 {
            self.add(other.sum);
            self.add_log(other.product);
        } else {
            self.add(f64::from(count) * other.value());
        }
    }

    fn value(self) -> f64 {
        self.sum + self.product.ln()
    }
}

/// Computes `weight · Σ counts[r] · loss(row r)`.
fn mean_over_rows<L: Element, G: Element>(
    isa: Isa,
    logits: &[L],
    counts: &[u32],
    weight: f64,
    grad: Option<&mut [G]>,
    row_loss: &impl RowLoss,
) -> f64 {
    let cols = logits.len() / counts.len();
    let (len, n_rows) = (row_chunk_len(cols), rows_per_chunk(cols));
    let grads: Vec<Option<&mut [G]>> = match grad {
        Some(grad) => grad.chunks_mut(len).map(Some).collect(),
        None => counts.chunks(n_rows).map(|_| None).collect(),
    };
    let pieces = counts.chunks(n_rows).zip(logits.chunks(len)).zip(grads).enumerate();
    let losses = parallel::map(pieces, |(piece, ((counts, logits), grad))| {
        isa.run(Rows { first_row: piece * n_rows, cols, logits, counts, weight, grad, row_loss })
    });
    losses.iter().sum::<f64>() * weight
}

/// Chunk of rows, the first of which is row `first_row` of the whole: `Σ counts[r] · loss(row r)`.
struct Rows<'a, L, G, R> {
    first_row: usize,
    cols: usize,
    logits: &'a [L],
    counts: &'a [u32],
    weight: f64,
    grad: Option<&'a mut [G]>,
    row_loss: &'a R,
}

impl<L: Element, G: Element, R: RowLoss> WithSimd for Rows<'_, L, G, R> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let Self { first_row, cols, logits, counts, weight, mut grad, row_loss } = self;
        let mut values = vec![simd.splat_f32s(PAD); cols.div_ceil(S::F32_LANES)];
        let mut sum = LogSum::ZERO;
        for (row, (&count, logits)) in counts.iter().zip(logits.chunks_exact(cols)).enumerate() {
            let grad_row = grad.as_deref_mut().map(|grad| &mut grad[row * cols..][..cols]);
            if count == 0 {
                grad_row.into_iter().for_each(|grad| grad.fill(G::from_f32(0.0)));
                continue;
            }
            load_padded(simd, logits, &mut values);
            let mut loss = LogSum::ZERO;
            let scale = row_loss.add(simd, first_row + row, &mut values, &mut loss);
            sum.add_times(count, loss);
            if let Some(grad) = grad_row {
                let factor = simd.splat_f32s((f64::from(count) * weight / f64::from(scale)) as f32);
                for (&value, grad) in values.iter().zip(grad.chunks_mut(S::F32_LANES)) {
                    G::store_lanes(simd, simd.mul_f32s(factor, value), grad);
                }
            }
        }
        sum.value()
    }
}

#[inline(always)]
fn load_padded<S: Simd, L: Element>(simd: S, row: &[L], values: &mut [S::f32s]) {
    for (value, logits) in values.iter_mut().zip(row.chunks(S::F32_LANES)) {
        *value = L::load_lanes(simd, logits);
        if logits.len() < S::F32_LANES {
            let present = simd.mask_between_m32s(0, logits.len() as u32).mask();
            *value = simd.select_f32s(present, *value, simd.splat_f32s(PAD));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_logarithms_do_not_overflow() {
        let mut sum = LogSum::ZERO;
        let mut twice = LogSum::ZERO;
        for _ in 0..100_000 {
            sum.add(0.5);
            sum.add_log(1e60);
            twice.add_times(2, LogSum { sum: 0.5, product: 1e60 });
        }
        let expected = 1e5 * (0.5 + 60.0 * std::f64::consts::LN_10);
        assert!((sum.value() / expected - 1.0).abs() < 1e-12, "{} is not {expected}", sum.value());
        assert!((twice.value() / (2.0 * expected) - 1.0).abs() < 1e-12);
    }
}
