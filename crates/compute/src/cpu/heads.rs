//! Dot products of rows with a vector, per head, and their backward pass.

use girih_machine::parallel;
use pulp::Arch;

use super::chunks::{row_chunk_len, rows_per_chunk};

/// Computes `out[r, h] = Σ_k x[r, c]·vector[c]` with `c = k · heads + h`.
pub(crate) fn dots(x: &[f32], vector: &[f32], heads: usize, out: &mut [f32]) {
    let (arch, width) = (Arch::new(), vector.len());
    let pieces = out.chunks_mut(rows_per_chunk(width) * heads).zip(x.chunks(row_chunk_len(width)));
    parallel::for_each(pieces, |(out, x)| {
        arch.dispatch(
            #[inline(always)]
            || {
                for (out, x) in out.chunks_exact_mut(heads).zip(x.chunks_exact(width)) {
                    out.fill(0.0);
                    for (x, vector) in x.chunks_exact(heads).zip(vector.chunks_exact(heads)) {
                        for h in 0..heads {
                            out[h] += x[h] * vector[h];
                        }
                    }
                }
            },
        );
    });
}

/// Returns `vector_grad[c] = Σ_r grad[r, h]·x[r, c]`. Chunks of rows are summed in `f32`, then added in `f64` and in
/// order.
pub(crate) fn vector_grad(x: &[f32], grad: &[f32], heads: usize, width: usize) -> Vec<f32> {
    let arch = Arch::new();
    let pieces = x.chunks(row_chunk_len(width)).zip(grad.chunks(rows_per_chunk(width) * heads));
    let partials = parallel::map(pieces, |(x, grad)| {
        let mut sums = vec![0.0f32; width];
        arch.dispatch(
            #[inline(always)]
            || {
                for (x, grad) in x.chunks_exact(width).zip(grad.chunks_exact(heads)) {
                    for (sums, x) in sums.chunks_exact_mut(heads).zip(x.chunks_exact(heads)) {
                        for h in 0..heads {
                            sums[h] += grad[h] * x[h];
                        }
                    }
                }
            },
        );
        sums
    });
    super::columns::total(width, partials)
}

/// Adds `grad[r, h]·vector[c]` to `x_grad[r, c]`.
pub(crate) fn add_outer(vector: &[f32], grad: &[f32], heads: usize, x_grad: &mut [f32]) {
    let (arch, width) = (Arch::new(), vector.len());
    let pieces = x_grad.chunks_mut(row_chunk_len(width)).zip(grad.chunks(rows_per_chunk(width) * heads));
    parallel::for_each(pieces, |(x_grad, grad)| {
        arch.dispatch(
            #[inline(always)]
            || {
                for (x_grad, grad) in x_grad.chunks_exact_mut(width).zip(grad.chunks_exact(heads)) {
                    for (x_grad, vector) in x_grad.chunks_exact_mut(heads).zip(vector.chunks_exact(heads)) {
                        for h in 0..heads {
                            x_grad[h] += grad[h] * vector[h];
                        }
                    }
                }
            },
        );
    });
}
