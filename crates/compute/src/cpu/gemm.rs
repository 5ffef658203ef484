//! Dense products with faer, in blocks of rows.
//!
//! faer multiplies one block at a time on one thread, and this module distributes the blocks over threads. The bits
//! thus do not depend on the number of threads, and a block is still in cache for its epilogue. bf16 operands and
//! operands with dropout are converted to `f32` block by block.
//!
//! With tall operands, `Aᵀ·B` is a sum over many rows. A fixed number of row ranges (strips) is summed separately,
//! and their partial sums are added in order.

use std::ops::Range;

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use girih_machine::parallel;
use rayon::prelude::*;

use super::element::Element;
use super::epilogue::RowEpilogue;
use super::machine::Machine;
use super::mask;
use super::matrix::{CpuMatrix, Storage, as_f32, typed};
use crate::{Dropout, Epilogue, Shape, Transpose};

/// Number of elements of `A` in a block: large enough that faer packs `B` rarely, small enough for L2 and L3.
const BLOCK_ELEMENTS: usize = 1 << 18;
/// Maximum number of rows in a block.
const BLOCK_ROWS_MAX: usize = 1024;
/// Minimum number of rows in a block.
const BLOCK_ROWS_MIN: usize = 64;
/// Number of blocks of a short matrix, so that threads can share the work.
const N_BLOCKS: usize = 16;
/// Maximum number of strips of a tall `Aᵀ·B`.
const N_STRIPS: usize = 64;
/// Minimum number of rows of a strip.
const STRIP_ROWS_MIN: usize = 512;
/// Maximum number of elements of the partial results of all strips.
const PARTIAL_ELEMENTS_MAX: usize = 1 << 24;

/// Left operand of a product: a matrix that is masked, then transposed.
#[derive(Clone, Copy)]
pub(crate) struct LeftOperand<'a> {
    /// Matrix as it is stored.
    pub(crate) matrix: &'a CpuMatrix,
    /// Transposition of the matrix in the product.
    pub(crate) transpose: Transpose,
    /// Dropout that masks the stored elements; `None` leaves them as they are.
    pub(crate) dropout: Option<Dropout>,
}

/// Computes `out = epilogue(op(A)·op(B))`. The dropout of `A` is applied first.
///
/// # Panics
/// When both are transposed, or shapes do not fit.
pub(crate) fn multiply(
    machine: &Machine,
    a: LeftOperand<'_>,
    (b, transpose_b): (&CpuMatrix, Transpose),
    epilogue: &Epilogue<'_, CpuMatrix>,
    out: &mut CpuMatrix,
) {
    if out.shape().is_empty() {
        return;
    }
    let epilogue = RowEpilogue::new(epilogue);
    let LeftOperand { matrix: a, transpose: transpose_a, dropout } = a;
    match (transpose_a, transpose_b) {
        (Transpose::No, _) => {
            // If the result is as wide as `A`, the arithmetic hides the latency that a copy would save.
            let a = Rows { matrix: a, dropout, streamed: out.shape().cols < a.shape().cols };
            multiply_blocks(machine, a, (b, transpose_b), &epilogue, out);
        }
        (Transpose::Yes, Transpose::No) => {
            let (a, b) =
                (Rows { matrix: a, dropout, streamed: true }, Rows { matrix: b, dropout: None, streamed: true });
            multiply_strips(machine, a, b, &epilogue, out);
        }
        (Transpose::Yes, Transpose::Yes) => panic!("Aᵀ·Bᵀ is not offered; multiply B·A and read it transposed"),
    }
    epilogue.mask(machine, out);
}

/// Rows of a matrix as `f32`, masked if there is a dropout.
#[derive(Clone, Copy)]
struct Rows<'a> {
    matrix: &'a CpuMatrix,
    dropout: Option<Dropout>,
    /// If true, blocks are copied even if they could be read in place. faer reads a few rows side by side, an order
    /// that the CPU cannot prefetch; the copy streams the block into L2 first.
    streamed: bool,
}

impl Rows<'_> {
    /// Calls `work` with `rows` as `f32`: in place if possible, otherwise in scratch memory.
    fn with_block<T>(&self, machine: &Machine, rows: Range<usize>, work: impl FnOnce(&[f32]) -> T) -> T {
        let cols = self.matrix.shape().cols;
        let elements = rows.start * cols..rows.end * cols;
        if let (Storage::F32(values), None, false) = (self.matrix.storage(), self.dropout, self.streamed) {
            return work(&values[elements]);
        }
        machine.scratch.with(elements.len(), |words| {
            let block: &mut [f32] = bytemuck::cast_slice_mut(words);
            typed!(values = self.matrix.storage() => match self.dropout {
                Some(dropout) => {
                    let first = dropout.first_element(cols) + elements.start;
                    mask::copy(machine.isa, dropout, first, &values[elements], block);
                }
                None => machine.isa.run(
                    #[inline(always)]
                    || widen(&values[elements], block),
                ),
            });
            work(block)
        })
    }
}

/// Computes `A·op(B)`, in blocks of rows of `A`.
fn multiply_blocks(
    machine: &Machine,
    a: Rows<'_>,
    (b, transpose_b): (&CpuMatrix, Transpose),
    epilogue: &RowEpilogue<'_>,
    out: &mut CpuMatrix,
) {
    let Shape { rows: n_rows, cols: width } = out.shape();
    let b_values = as_f32(b);
    let b = view(&b_values, b.shape());
    let b = if transpose_b == Transpose::Yes { b.transpose() } else { b };
    let block_rows = block_rows(n_rows, a.matrix.shape().cols);
    let product = |block: usize, out: &mut [f32], accum: Accum| {
        let rows = block * block_rows..((block + 1) * block_rows).min(n_rows);
        let shape = Shape::new(rows.len(), a.matrix.shape().cols);
        a.with_block(machine, rows, |a| {
            let out = MatMut::from_row_major_slice_mut(out, shape.rows, width);
            matmul(out, accum, view(a, shape), b, 1.0, Par::Seq);
        });
    };
    match out.storage_mut() {
        Storage::F32(out) => {
            let accum = if epilogue.accumulates() { Accum::Add } else { Accum::Replace };
            parallel::for_each(out.chunks_mut(block_rows * width).enumerate(), |(block, out)| {
                product(block, out, accum);
                machine.isa.run(
                    #[inline(always)]
                    || out.chunks_exact_mut(width).for_each(|row| epilogue.finish(0, row)),
                );
            });
        }
        Storage::Bf16(out) => parallel::for_each(out.chunks_mut(block_rows * width).enumerate(), |(block, out)| {
            machine.scratch.with(out.len(), |words| {
                let sums: &mut [f32] = bytemuck::cast_slice_mut(words);
                product(block, sums, Accum::Replace);
                machine.isa.run(
                    #[inline(always)]
                    || store_rows(epilogue, width, sums, out),
                );
            });
        }),
    }
}

/// Computes `Aᵀ·B`: strips of rows separately, then their sum in order.
fn multiply_strips(machine: &Machine, a: Rows<'_>, b: Rows<'_>, epilogue: &RowEpilogue<'_>, out: &mut CpuMatrix) {
    let (n_rows, shape) = (a.matrix.shape().rows, out.shape());
    let n_strips = n_strips(n_rows, shape.len());
    let strip_rows = n_rows.div_ceil(n_strips);
    machine.scratch.with(n_strips * shape.len(), |words| {
        let partials: &mut [f32] = bytemuck::cast_slice_mut(words);
        partials.par_chunks_exact_mut(shape.len()).with_max_len(1).enumerate().for_each(|(strip, partial)| {
            let rows = (strip * strip_rows).min(n_rows)..((strip + 1) * strip_rows).min(n_rows);
            multiply_strip(machine, a, b, rows, partial);
        });
        let (first, others) = partials.split_at_mut(shape.len());
        match out.storage_mut() {
            Storage::F32(out) => add_strips(machine, epilogue, shape.cols, (first, others), out),
            Storage::Bf16(out) => add_strips(machine, epilogue, shape.cols, (first, others), out),
        }
    });
}

/// Computes `partial = A[rows]ᵀ·B[rows]`, block by block.
fn multiply_strip(machine: &Machine, a: Rows<'_>, b: Rows<'_>, rows: Range<usize>, partial: &mut [f32]) {
    let (a_cols, b_cols) = (a.matrix.shape().cols, b.matrix.shape().cols);
    let block_rows = block_rows(usize::MAX, a_cols);
    partial.fill(0.0);
    for start in rows.clone().step_by(block_rows) {
        let block = start..(start + block_rows).min(rows.end);
        let n_rows = block.len();
        a.with_block(machine, block.clone(), |a| {
            b.with_block(machine, block, |b| {
                let out = MatMut::from_row_major_slice_mut(&mut *partial, a_cols, b_cols);
                let (a, b) = (view(a, Shape::new(n_rows, a_cols)), view(b, Shape::new(n_rows, b_cols)));
                matmul(out, Accum::Add, a.transpose(), b, 1.0, Par::Seq);
            });
        });
    }
}

/// Adds `others` (each as long as `first`) to `first` in order, and stores the sums through the epilogue.
fn add_strips<E: Element>(
    machine: &Machine,
    epilogue: &RowEpilogue<'_>,
    width: usize,
    (first, others): (&mut [f32], &[f32]),
    out: &mut [E],
) {
    let n_elements = first.len();
    let rows = first.par_chunks_exact_mut(width).zip(out.par_chunks_exact_mut(width)).enumerate();
    rows.with_min_len(16).for_each(|(row, (sums, out))| {
        machine.isa.run(
            #[inline(always)]
            || {
                for partial in others.chunks_exact(n_elements) {
                    sums.iter_mut().zip(&partial[row * width..]).for_each(|(sum, part)| *sum += part);
                }
                store_rows(epilogue, width, sums, out);
            },
        );
    });
}

/// Converts `values` to `f32`.
#[inline(always)]
fn widen<E: Element>(values: &[E], out: &mut [f32]) {
    for (out, value) in out.iter_mut().zip(values) {
        *out = value.to_f32();
    }
}

/// Stores rows of `sums` in `out` through the epilogue.
#[inline(always)]
fn store_rows<E: Element>(epilogue: &RowEpilogue<'_>, width: usize, sums: &mut [f32], out: &mut [E]) {
    for (sums, out) in sums.chunks_exact_mut(width).zip(out.chunks_exact_mut(width)) {
        epilogue.store(0, sums, out);
    }
}

/// View of `values` as a matrix of `shape`, row by row.
fn view(values: &[f32], shape: Shape) -> MatRef<'_, f32> {
    MatRef::from_row_major_slice(values, shape.rows, shape.cols)
}

/// Number of rows of a block, for a matrix of `n_rows × n_cols`. It depends on the shape alone.
fn block_rows(n_rows: usize, n_cols: usize) -> usize {
    let by_size = (BLOCK_ELEMENTS / n_cols.max(1)).clamp(BLOCK_ROWS_MIN, BLOCK_ROWS_MAX);
    n_rows.div_ceil(N_BLOCKS).clamp(BLOCK_ROWS_MIN, by_size)
}

/// Number of strips of a product with `n_rows` terms and `n_elements` results. It depends on the shape alone.
fn n_strips(n_rows: usize, n_elements: usize) -> usize {
    (n_rows / STRIP_ROWS_MIN).min(PARTIAL_ELEMENTS_MAX / n_elements.max(1)).clamp(1, N_STRIPS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_and_blocks_depend_on_shapes_alone() {
        assert_eq!(n_strips(232_965, 602 * 128), 64);
        assert_eq!(n_strips(100, 64), 1);
        assert_eq!(n_strips(1 << 20, 1 << 23), 2, "partial results are bounded");
        assert_eq!(block_rows(232_965, 602), 435);
        assert_eq!(block_rows(2_708, 16), 170);
    }
}
