//! What CUDA devices allocate besides the matrices that callers see, in bytes: sparse matrices in both directions, and
//! what operations compute on their way. `girih-kernels` allocates it; these are upper bounds, since the degrees of
//! rows, which decide how hubs are cut, are not known to a symbolic device.

use girih_graph_format::Csr;

use super::{SymbolicMatrix, SymbolicSparse};
use crate::{Dropout, Dtype, Shape};

const F32: usize = size_of::<f32>();
const ID: usize = size_of::<u32>();
const OFFSET: usize = size_of::<u64>();

/// Entries of a segment of a hub, a row that has more of them.
const SEGMENT: usize = 1024;
/// Blocks for tensor cores: their size, the fewest entries of a pattern that is searched for them, and of a block;
/// windows that are searched at once, and bytes that are counted in; spans of blocks besides one for each window.
const WINDOW: usize = 256;
const PANEL: usize = 64;
const TILED_ENTRIES_MIN: usize = 1 << 20;
const BLOCK_ENTRIES_MIN: usize = 246;
const SEARCHERS: usize = 2048;
const COUNTS_BYTES_MAX: usize = 1 << 30;
const SPANS: usize = 640;
/// What measuring the costs of blocks takes, which happens before blocks are looked for, once on a card.
const MEASUREMENT_BYTES: usize = 128 << 20;
/// Elements that are laid out or rounded at a time while they are uploaded.
const UPLOAD_PIECE: usize = 1 << 26;
/// Elements that are ranked at a time.
const RANKED: usize = 1 << 26;
/// Elements of the gates that an LSTM holds at once.
const GATES: usize = 1 << 27;
/// Pieces in which columns are summed, and warps that sum the gradient of a vector, at most.
const PIECES: usize = 2048;
const VECTOR_WARPS: usize = 8192;

/// Elements from row to row of a matrix of so many columns.
pub(super) fn pitch(cols: usize) -> usize {
    if cols < 8 { cols } else { cols.next_multiple_of(8) }
}

/// Elements of a matrix, and what lies between its rows.
fn elements(shape: Shape) -> usize {
    shape.rows * pitch(shape.cols)
}

/// A sparse matrix as it is, with its scales.
pub(super) fn forward(shape: Shape, nnz: usize, weighted: bool) -> usize {
    direction(shape.rows, nnz, weighted) + F32 * (shape.rows + shape.cols)
}

/// Its transpose, which knows where each entry comes from.
pub(super) fn transpose(a: &SymbolicSparse) -> usize {
    direction(a.shape.cols, a.nnz, a.weighted) + OFFSET * a.nnz
}

fn direction(rows: usize, nnz: usize, weighted: bool) -> usize {
    let of_entries = nnz * if weighted { ID + F32 } else { ID };
    let hubs = (ID + OFFSET) * (nnz / SEGMENT) + ID * segments(nnz);
    OFFSET * (rows + 1) + of_entries + hubs
}

/// Segments of hubs, at most: rows of little more than [`SEGMENT`] entries have two.
fn segments(nnz: usize) -> usize {
    2 * nnz / SEGMENT
}

/// Blocks of entries for tensor cores and what is left beside them, of `rows × cols`: nothing where there are too few
/// entries to look for blocks.
pub(super) fn tiles(Shape { rows, .. }: Shape, nnz: usize) -> usize {
    if nnz < TILED_ENTRIES_MIN {
        return 0;
    }
    let blocks = nnz / BLOCK_ENTRIES_MIN;
    blocks * (WINDOW * PANEL / 8 + 4 * ID) + direction(rows, nnz, false)
}

/// What measuring takes before blocks are looked for.
pub(super) fn tile_measurement(nnz: usize) -> usize {
    if nnz < TILED_ENTRIES_MIN { 0 } else { MEASUREMENT_BYTES }
}

/// The counts of entries in blocks, while blocks are looked for.
pub(super) fn tile_search(Shape { rows, cols }: Shape, nnz: usize) -> usize {
    let (windows, panels) = (rows.div_ceil(WINDOW), cols.div_ceil(PANEL));
    if nnz < TILED_ENTRIES_MIN {
        0
    } else {
        (ID * windows.min(SEARCHERS) * panels).min(COUNTS_BYTES_MAX.max(ID * panels))
    }
}

/// What a sparse product of `rows × depth` by `depth × width` takes on its way: the operand as kernels want it, also in
/// halves where there are blocks, partial sums of hubs, and the sums of blocks. Types are those of the operand and the
/// result.
pub(super) fn product(
    Shape { rows, cols: depth }: Shape,
    nnz: usize,
    width: usize,
    [dtype, result]: [Dtype; 2],
) -> usize {
    let padded = pitch(width);
    let is_tiled = nnz >= TILED_ENTRIES_MIN;
    let halves = if is_tiled && dtype == Dtype::F32 { F32 * depth } else { 0 };
    let sums = if is_tiled { result.n_bytes() * (rows + WINDOW * (SPANS + 1)) } else { 0 };
    // Rows that fit a line of the cache lie in one.
    let operand = if padded * dtype.n_bytes() <= 128 { padded.next_power_of_two() } else { padded };
    operand * dtype.n_bytes() * depth + padded * (halves + F32 * segments(nnz) + sums)
}

/// A matrix that is laid out or rounded on its way to the device.
pub(super) fn upload(shape: Shape, dtype: Dtype) -> usize {
    let as_it_is = dtype == Dtype::F32 && pitch(shape.cols) == shape.cols;
    if as_it_is { 0 } else { F32 * shape.len().min(UPLOAD_PIECE.max(shape.cols)) }
}

/// Operands of a dense product that are masked or converted, and a product in `f32` whose result is rounded.
pub(super) fn gemm(
    (a, b): (&SymbolicMatrix, &SymbolicMatrix),
    dropout: Option<Dropout>,
    (plain, activations): (bool, Dtype),
    out: &SymbolicMatrix,
) -> usize {
    let common = if a.dtype == b.dtype { a.dtype } else { activations };
    let copy = |x: &SymbolicMatrix, masked: bool| {
        if masked || x.dtype != common { elements(x.shape) * common.n_bytes() } else { 0 }
    };
    let in_place = out.dtype == Dtype::F32 || (common == Dtype::Bf16 && (plain || activations == Dtype::Bf16));
    copy(a, dropout.is_some()) + copy(b, false) + if in_place { 0 } else { F32 * elements(out.shape) }
}

/// Partial sums of the columns of one or two matrices.
pub(super) fn columns(shape: Shape) -> usize {
    2 * F32 * PIECES.min(shape.rows + 1) * pitch(shape.cols)
}

/// Ids by the rows that they name.
pub(super) fn scatter(rows: usize) -> usize {
    2 * OFFSET * (rows + 1)
}

/// The shares of all entries and heads.
pub(super) fn attention(nnz: usize, heads: usize, width: usize, sources: usize) -> usize {
    F32 * nnz * pitch(heads) + weighted_product(sources, nnz, width)
}

/// As [`product`], where entries have weights of their own and no block is dense.
fn weighted_product(depth: usize, nnz: usize, width: usize) -> usize {
    F32 * pitch(width) * (depth + segments(nnz))
}

/// Shares and gradients of scores.
pub(super) fn attention_backward(nnz: usize, heads: usize, grad: Shape) -> usize {
    let Shape { rows, cols } = grad;
    let parts = F32 * VECTOR_WARPS * pitch(cols);
    2 * F32 * nnz * pitch(heads) + weighted_product(rows, nnz, cols) + parts
}

/// Keys of elements, and the columns of the largest.
pub(super) fn top_k(Shape { rows, cols }: Shape, k: usize, excluded: &Csr) -> usize {
    let at_once = (RANKED / cols.max(k).max(1)).clamp(1, rows.max(1));
    let excluded = OFFSET * (rows + 1) + ID * excluded.nnz();
    at_once * (ID * pitch(cols) + OFFSET * k) + ID * rows * k + excluded
}

/// States, memories and gates of the rows of a wave, and the orders in which they read.
pub(super) fn lstm(a: &SymbolicSparse, inputs: &SymbolicMatrix, weight: &SymbolicMatrix) -> usize {
    let width = weight.shape.rows.max(1);
    let rows = a.shape.rows.min(GATES.max(inputs.shape.len()) / (4 * width) + 1);
    F32 * (elements(weight.shape) + 6 * rows * width) + lists(a)
}

/// The same of all entries of a wave, and gradients in `f32`.
pub(super) fn lstm_backward(a: &SymbolicSparse, inputs: &SymbolicMatrix, weight: &SymbolicMatrix) -> usize {
    let width = weight.shape.rows.max(1);
    let entries = a.nnz.min(GATES.max(inputs.shape.len()) / (4 * width) + 1);
    let gradients = F32 * (elements(inputs.shape) + 2 * elements(weight.shape) + 2 * a.shape.rows.min(entries) * width);
    gradients + OFFSET * a.nnz + F32 * 6 * entries * width + lists(a)
}

/// Rows of a wave, where its steps begin, and what they read, in which order.
fn lists(a: &SymbolicSparse) -> usize {
    ID * (a.shape.rows + 2 * a.nnz) + OFFSET * (a.nnz + 1)
}
