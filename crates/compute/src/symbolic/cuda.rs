//! Bytes that CUDA devices allocate besides the matrices of callers: sparse matrices in both directions, and scratch
//! memory of operations. `girih-kernels` makes these allocations. The values are upper bounds: a symbolic device does
//! not know the degrees of rows, which decide how hubs are split.

use girih_graph_format::{BlockLayout, Csr};

use super::{SymbolicMatrix, SymbolicSparse};
use crate::scratch::{COUNTS_BYTES_MAX, GATES, RANKED, SEGMENT, TILED_ENTRIES_MIN, UPLOAD_PIECE, pitch};
use crate::{Dropout, Dtype, Shape};

const F32: usize = size_of::<f32>();
const ID: usize = size_of::<u32>();
const OFFSET: usize = size_of::<u64>();

/// Rows and columns of blocks for tensor cores.
const WINDOW: usize = BlockLayout::Fragments.rows();
const PANEL: usize = BlockLayout::Fragments.cols();
/// Minimum of entries of a block: 1.5 % of its places.
const BLOCK_ENTRIES_MIN: usize = (WINDOW * PANEL * 15).div_ceil(1000);
/// Number of windows searched at once, and number of additional spans of blocks besides one for each window.
const SEARCHERS: usize = 2048;
const SPANS: usize = 640;
/// Scratch bytes for measuring the costs of blocks, once per GPU, before the search for blocks.
const MEASUREMENT_BYTES: usize = 128 << 20;
/// Maximum number of row ranges in a sum of columns, and of warps that sum the gradient of a vector.
const PIECES: usize = 2048;
const VECTOR_WARPS: usize = 8192;

/// Elements of a matrix, including the padding of its rows.
fn elements(shape: Shape) -> usize {
    shape.rows * pitch(shape.cols)
}

/// Bytes of a sparse matrix with its scales, without its transpose.
pub(super) fn forward(shape: Shape, nnz: usize, weighted: bool) -> usize {
    direction(shape.rows, nnz, weighted) + F32 * (shape.rows + shape.cols)
}

/// Bytes of the transpose, including the original position of each entry.
pub(super) fn transpose(a: &SymbolicSparse) -> usize {
    direction(a.shape.cols, a.nnz, a.weighted) + OFFSET * a.nnz
}

fn direction(rows: usize, nnz: usize, weighted: bool) -> usize {
    let of_entries = nnz * if weighted { ID + F32 } else { ID };
    let hubs = (ID + OFFSET) * (nnz / SEGMENT) + ID * segments(nnz);
    OFFSET * (rows + 1) + of_entries + hubs
}

/// Maximum number of segments of hubs. Rows with slightly more than [`SEGMENT`] entries have two.
fn segments(nnz: usize) -> usize {
    2 * nnz / SEGMENT
}

/// Bytes of the blocks for tensor cores and of the remaining entries. Zero if the matrix has too few entries for a
/// search.
pub(super) fn tiles(Shape { rows, .. }: Shape, nnz: usize) -> usize {
    if nnz < TILED_ENTRIES_MIN {
        return 0;
    }
    let blocks = nnz / BLOCK_ENTRIES_MIN;
    blocks * (WINDOW * PANEL / 8 + 4 * ID) + direction(rows, nnz, false)
}

/// Scratch bytes for measuring the costs of blocks, before the search.
pub(super) fn tile_measurement(nnz: usize) -> usize {
    if nnz < TILED_ENTRIES_MIN { 0 } else { MEASUREMENT_BYTES }
}

/// Scratch bytes for the counts of entries in blocks, during the search.
pub(super) fn tile_search(Shape { rows, cols }: Shape, nnz: usize) -> usize {
    let (windows, panels) = (rows.div_ceil(WINDOW), cols.div_ceil(PANEL));
    if nnz < TILED_ENTRIES_MIN {
        0
    } else {
        (ID * windows.min(SEARCHERS) * panels).min(COUNTS_BYTES_MAX.max(ID * panels))
    }
}

/// Scratch bytes of a sparse product of `rows × depth` by `depth × width`: the padded operand (also as two halves, if
/// there are blocks), partial sums of hubs, and sums of blocks. `dtype` is the storage of the operand, `result` that
/// of the result.
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
    // A row that fits into a cache line is padded so that it lies in one.
    let operand = if padded * dtype.n_bytes() <= 128 { padded.next_power_of_two() } else { padded };
    operand * dtype.n_bytes() * depth + padded * (halves + F32 * segments(nnz) + sums)
}

/// Scratch bytes of an upload, if the matrix is padded or rounded on its way to the device.
pub(super) fn upload(shape: Shape, dtype: Dtype) -> usize {
    let as_it_is = dtype == Dtype::F32 && pitch(shape.cols) == shape.cols;
    if as_it_is { 0 } else { F32 * shape.len().min(UPLOAD_PIECE.max(shape.cols)) }
}

/// Scratch bytes of a dense product: masked or converted operands, and an `f32` result that is then rounded.
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

/// Scratch bytes for partial column sums of one or two matrices.
pub(super) fn columns(shape: Shape) -> usize {
    2 * F32 * PIECES.min(shape.rows + 1) * pitch(shape.cols)
}

/// Scratch bytes for ids grouped by row.
pub(super) fn scatter(rows: usize) -> usize {
    2 * OFFSET * (rows + 1)
}

/// Scratch bytes of an attention: the coefficients of all entries and heads, and those of the weighted product.
pub(super) fn attention(nnz: usize, heads: usize, width: usize, sources: usize) -> usize {
    F32 * nnz * pitch(heads) + weighted_product(sources, nnz, width)
}

/// As [`product`], but for entries with weights of their own and without dense blocks.
fn weighted_product(depth: usize, nnz: usize, width: usize) -> usize {
    F32 * pitch(width) * (depth + segments(nnz))
}

/// Scratch bytes of the backward pass of an attention: coefficients, gradients of scores, and partial sums.
pub(super) fn attention_backward(nnz: usize, heads: usize, grad: Shape) -> usize {
    let Shape { rows, cols } = grad;
    let parts = F32 * VECTOR_WARPS * pitch(cols);
    2 * F32 * nnz * pitch(heads) + weighted_product(rows, nnz, cols) + parts
}

/// Scratch bytes of a search for the `k` largest elements of each row: sort keys, the columns found, and the excluded
/// columns.
pub(super) fn top_k(Shape { rows, cols }: Shape, k: usize, excluded: &Csr) -> usize {
    let at_once = (RANKED / cols.max(k).max(1)).clamp(1, rows.max(1));
    let excluded = OFFSET * (rows + 1) + ID * excluded.nnz();
    at_once * (ID * pitch(cols) + OFFSET * k) + ID * rows * k + excluded
}

/// Scratch bytes of an LSTM: states, memories and gates of the rows of a wave, and the reading orders.
pub(super) fn lstm(a: &SymbolicSparse, inputs: &SymbolicMatrix, weight: &SymbolicMatrix) -> usize {
    let width = weight.shape.rows.max(1);
    let rows = a.shape.rows.min(GATES.max(inputs.shape.len()) / (4 * width) + 1);
    F32 * (elements(weight.shape) + 6 * rows * width) + lists(a)
}

/// Scratch bytes of the backward pass of an LSTM: states, memories and gates of all entries of a wave, and gradients
/// in `f32`.
pub(super) fn lstm_backward(a: &SymbolicSparse, inputs: &SymbolicMatrix, weight: &SymbolicMatrix) -> usize {
    let width = weight.shape.rows.max(1);
    let entries = a.nnz.min(GATES.max(inputs.shape.len()) / (4 * width) + 1);
    let gradients = F32 * (elements(inputs.shape) + 2 * elements(weight.shape) + 2 * a.shape.rows.min(entries) * width);
    gradients + OFFSET * a.nnz + F32 * 6 * entries * width + lists(a)
}

/// Bytes of the lists of a wave: its rows, the start of each step, and the ids in reading order.
fn lists(a: &SymbolicSparse) -> usize {
    ID * (a.shape.rows + 2 * a.nnz) + OFFSET * (a.nnz + 1)
}
