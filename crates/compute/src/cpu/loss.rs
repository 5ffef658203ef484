//! Losses with their gradients in one pass over the logits.
//!
//! Rows are independent; their losses are added in `f64`, in order. `exp` is computed in lanes, see [`exp`].

use pulp::Arch;
use rayon::prelude::*;

use super::chunks::{row_chunk_len, rows_per_chunk};
use super::element::Element;

/// Elements that are computed side by side.
const LANES: usize = 16;

/// Fills a row up to whole lanes: its exponential vanishes in any sum, and it is finite, so that `0 · PAD` is zero.
const PAD: f32 = f32::MIN;

/// How often each of `n_rows` rows is named by `rows`.
pub(crate) fn multiplicities(rows: &[u32], n_rows: usize) -> Vec<u32> {
    let mut counts = vec![0; n_rows];
    for &row in rows {
        counts[row as usize] += 1;
    }
    counts
}

/// Mean softmax cross-entropy, and its gradient if wanted. Row `r` of the logits counts `counts[r]` times.
pub(crate) fn softmax_cross_entropy<L: Element, G: Element>(
    logits: &[L],
    classes: &[u32],
    counts: &[u32],
    grad: Option<&mut [G]>,
) -> f64 {
    let n = total(counts);
    mean_over_rows(
        logits,
        counts,
        1.0 / n,
        grad,
        #[inline(always)]
        |row, values| softmax_row(values, classes[row] as usize),
    )
}

/// Mean binary cross-entropy of sigmoids, and its gradient if wanted. Row `r` of the logits counts `counts[r]` times.
pub(crate) fn sigmoid_cross_entropy<L: Element, T: Element, G: Element>(
    logits: &[L],
    targets: &[T],
    counts: &[u32],
    grad: Option<&mut [G]>,
) -> f64 {
    let cols = logits.len() / counts.len();
    let n = total(counts) * cols as f64;
    mean_over_rows(
        logits,
        counts,
        1.0 / n,
        grad,
        #[inline(always)]
        |row, values| sigmoid_row(values, &targets[row * cols..][..cols]),
    )
}

fn total(counts: &[u32]) -> f64 {
    counts.iter().map(|&count| f64::from(count)).sum()
}

/// `weight · Σ counts[r] · loss(row r)`; `row_loss` gets a row as `f32`, padded to whole lanes with [`PAD`], and
/// leaves the gradient of its result there.
fn mean_over_rows<L: Element, G: Element>(
    logits: &[L],
    counts: &[u32],
    weight: f64,
    grad: Option<&mut [G]>,
    row_loss: impl Fn(usize, &mut [f32]) -> f64 + Sync,
) -> f64 {
    let cols = logits.len() / counts.len();
    let (arch, n_rows) = (Arch::new(), rows_per_chunk(cols));
    let mut grads: Vec<Option<&mut [G]>> = match grad {
        Some(grad) => grad.chunks_mut(row_chunk_len(cols)).map(Some).collect(),
        None => counts.chunks(n_rows).map(|_| None).collect(),
    };
    let pieces = counts.par_chunks(n_rows).zip(logits.par_chunks(row_chunk_len(cols))).zip(&mut grads).enumerate();
    let losses: Vec<f64> = pieces
        .map(|(piece, ((counts, logits), grad))| {
            arch.dispatch(
                #[inline(always)]
                || sum_over_rows(logits, cols, counts, weight, grad.as_deref_mut(), piece * n_rows, &row_loss),
            )
        })
        .collect();
    losses.iter().sum::<f64>() * weight
}

/// `Σ counts[r] · loss(row r)` of one piece of rows.
#[inline(always)]
fn sum_over_rows<L: Element, G: Element>(
    logits: &[L],
    cols: usize,
    counts: &[u32],
    weight: f64,
    mut grad: Option<&mut [G]>,
    first_row: usize,
    row_loss: &impl Fn(usize, &mut [f32]) -> f64,
) -> f64 {
    let mut values = vec![PAD; cols.next_multiple_of(LANES)];
    let mut sum = 0.0;
    for (row, (&count, logits)) in counts.iter().zip(logits.chunks_exact(cols)).enumerate() {
        let grad_row = grad.as_deref_mut().map(|grad| &mut grad[row * cols..][..cols]);
        if count == 0 {
            grad_row.map(|grad| grad.fill(G::from_f32(0.0)));
            continue;
        }
        load_padded(logits, &mut values);
        sum += f64::from(count) * row_loss(first_row + row, &mut values);
        let factor = (f64::from(count) * weight) as f32;
        for (grad, value) in grad_row.into_iter().flatten().zip(&values) {
            *grad = G::from_f32(factor * value);
        }
    }
    sum
}

#[inline(always)]
fn load_padded<L: Element>(row: &[L], values: &mut [f32]) {
    let (head, tail) = values.split_at_mut(row.len());
    for (value, logit) in head.iter_mut().zip(row) {
        *value = logit.to_f32();
    }
    tail.fill(PAD);
}

/// `log Σ exp(z) - z[class]`, stable for large logits; leaves `softmax(z) - onehot(class)` in `values`.
#[inline(always)]
fn softmax_row(values: &mut [f32], class: usize) -> f64 {
    let max = fold_lanes(
        values,
        f32::MIN,
        #[inline(always)]
        |a, b| if a > b { a } else { b },
    );
    let logit = values[class];
    for value in values.iter_mut() {
        *value = exp(*value - max);
    }
    let sum = fold_lanes(
        values,
        0.0,
        #[inline(always)]
        |a, b| a + b,
    );
    let inverse = 1.0 / sum;
    for value in values.iter_mut() {
        *value *= inverse;
    }
    values[class] -= 1.0;
    f64::from(sum).ln() + f64::from(max) - f64::from(logit)
}

/// Folds whole lanes side by side, then the lanes in order.
#[inline(always)]
fn fold_lanes(values: &[f32], start: f32, f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [start; LANES];
    for block in values.as_chunks::<LANES>().0 {
        for lane in 0..LANES {
            lanes[lane] = f(lanes[lane], block[lane]);
        }
    }
    lanes.into_iter().fold(start, f)
}

/// `Σ max(z, 0) - z·t + log(1 + exp(-|z|))`; leaves `sigmoid(z) - t` in `values`.
#[inline(always)]
fn sigmoid_row<T: Element>(values: &mut [f32], targets: &[T]) -> f64 {
    // A sum of logarithms is the logarithm of a product; factors are at most 2, so that 512 of them stay finite.
    const FACTORS: usize = 512;
    let mut loss = 0.0;
    for (values, targets) in values.chunks_mut(LANES * FACTORS).zip(targets.chunks(LANES * FACTORS)) {
        let (mut linear, mut product) = ([0.0; LANES], [1.0; LANES]);
        for (values, targets) in values.as_chunks_mut::<LANES>().0.iter_mut().zip(targets.chunks(LANES)) {
            let mut padded = [0.0; LANES];
            for (padded, target) in padded.iter_mut().zip(targets) {
                *padded = target.to_f32();
            }
            sigmoid_lanes(values, &padded, &mut linear, &mut product);
        }
        loss += linear.into_iter().sum::<f64>() + product.into_iter().map(f64::ln).sum::<f64>();
    }
    loss
}

#[inline(always)]
fn sigmoid_lanes(
    values: &mut [f32; LANES],
    targets: &[f32; LANES],
    linear: &mut [f64; LANES],
    product: &mut [f64; LANES],
) {
    for lane in 0..LANES {
        let (z, target) = (values[lane], targets[lane]);
        let small = exp(-z.abs());
        linear[lane] += f64::from(z.max(0.0) - z * target);
        product[lane] *= 1.0 + f64::from(small);
        let numerator = if z >= 0.0 { 1.0 } else { small };
        values[lane] = numerator / (1.0 + small) - target;
    }
}

/// `eˣ` for `x <= 0` within 2⁻²² relative, without branches or calls so that loops around it vectorise; `x` below -87
/// counts as -87.
///
/// `x = n·log 2 + r`; the polynomial for `eʳ` and the two parts of log 2 are those of Cephes' `expf` (Moshier).
#[inline(always)]
fn exp(x: f32) -> f32 {
    /// Adding it to a small number rounds that number into the low bits of the mantissa.
    const ROUND: f32 = 12_582_912.0;
    const LN_2: (f32, f32) = (0.693_359_4, -2.121_944_4e-4);
    const TERMS: [f32; 5] = [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5.000_000_1e-1];
    let x = x.max(-87.0);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * LN_2.0 - n * LN_2.1;
    let polynomial = TERMS.iter().fold(1.987_569_1e-4, |sum, term| sum * r + term) * (r * r) + r + 1.0;
    // The low bits of `shifted` hold n; in the exponent's place they multiply by 2ⁿ.
    f32::from_bits((shifted.to_bits() << 23).wrapping_add(polynomial.to_bits()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_over_its_whole_range() {
        for i in 0..=870_000 {
            let x = i as f32 * -1e-4;
            let exact = f64::from(x).exp();
            assert!(
                (f64::from(exp(x)) - exact).abs() < exact / f64::from(1 << 22),
                "exp({x}) = {}, not {exact}",
                exp(x)
            );
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NEG_INFINITY) < 1e-37 && exp(f32::MIN) < 1e-37);
    }
}
