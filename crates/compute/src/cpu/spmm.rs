//! Sparse products `out = epilogue(L·A·R·X)` over column panels, with gathered rows.
//!
//! For each panel of columns (see [`panels`]): pack `R·X`, then sum the packed rows for the entries of each row of
//! `A` in registers, scale by `L`, apply the epilogue, and store. If rows are read only a few times (see [`rows`]),
//! nothing is packed. [`Schedule`](super::schedule::Schedule) divides the rows into pieces of about equal work. Hubs
//! are split into segments, whose partial sums are added in order.

mod gather;
mod in_place;
mod output;
mod product;
mod rows;
mod tiles;

use girih_machine::Product;
use half::bf16;
use rayon::prelude::*;

use self::gather::{Gather, Summed};
pub(crate) use self::in_place::multiply_in_place;
use self::product::PanelProduct;
pub use self::tiles::CpuTiles;
use super::element::Element;
use super::entries;
use super::epilogue::RowEpilogue;
use super::machine::Machine;
use super::mask;
use super::matrix::{CpuMatrix, Storage, as_f32, typed};
use super::panels::{self, Operand, Panel};
use super::sparse::{CpuSparse, Direction};
use crate::{Dtype, Epilogue, Shape, Transpose};

/// Computes `out = epilogue(op(L·A·R)·X)`. `weights` (in the order of the untransposed entries) replace the values of
/// `A` if given.
///
/// # Panics
/// When shapes do not fit.
pub(crate) fn multiply(
    machine: &Machine,
    (a, transpose): (&CpuSparse, Transpose),
    weights: Option<&CpuMatrix>,
    x: &CpuMatrix,
    epilogue: &Epilogue<'_, CpuMatrix>,
    out: &mut CpuMatrix,
) {
    let direction = a.direction(transpose, weights.is_some());
    let epilogue = RowEpilogue::new(epilogue);
    match weights {
        Some(weights) if weights.shape().cols > 1 => multiply_heads(machine, direction, weights, x, &epilogue, out),
        Some(weights) => multiply_weighted(machine, direction, &as_f32(weights), x, &epilogue, out),
        None => multiply_by(machine, direction.csr.values(), direction, x, &epilogue, out),
    }
    epilogue.mask(machine, out);
}

/// As [`multiply`], but into the columns of `out` from `first` on. The sums go into a separate buffer first: on the
/// CPU, no exchange overlaps products of single column ranges.
pub(crate) fn multiply_columns(
    machine: &Machine,
    (a, transpose): (&CpuSparse, Transpose),
    x: &CpuMatrix,
    epilogue: &Epilogue<'_, CpuMatrix>,
    (out, first): (&mut CpuMatrix, usize),
) {
    let (cols, width) = (out.shape().cols, x.shape().cols);
    let mut sums = CpuMatrix::zeros(Shape::new(out.shape().rows, width), Dtype::F32);
    multiply(machine, (a, transpose), None, x, &Epilogue::default(), &mut sums);
    let row_epilogue = RowEpilogue::new(epilogue);
    let sums = sums.expect_f32_mut();
    typed!(out = out.storage_mut() => {
        let rows = sums.par_chunks_exact_mut(width.max(1)).zip(out.par_chunks_exact_mut(cols.max(1))).enumerate();
        rows.with_min_len(1 << 8).for_each(|(row, (sums, out))| {
            let out = &mut out[first..first + width];
            row_epilogue.store(first, sums, out);
            if let Some(dropout) = epilogue.dropout {
                mask::apply(machine.isa, dropout, dropout.first_element(cols) + row * cols + first, out);
            }
        });
    });
}

/// Product with one weight per entry, in the order of the untransposed entries.
fn multiply_weighted(
    machine: &Machine,
    direction: Direction<'_>,
    weights: &[f32],
    x: &CpuMatrix,
    epilogue: &RowEpilogue<'_>,
    out: &mut CpuMatrix,
) {
    let Some(positions) = direction.positions else {
        return multiply_by(machine, Some(weights), direction, x, epilogue, out);
    };
    machine.scratch.with(positions.len(), |words| {
        let ordered: &mut [f32] = bytemuck::cast_slice_mut(words);
        ordered.par_iter_mut().zip(positions).with_min_len(1 << 14).for_each(|(w, &p)| *w = weights[p as usize]);
        multiply_by(machine, Some(ordered), direction, x, epilogue, out);
    });
}

/// Product with one weight per entry and head.
fn multiply_heads(
    machine: &Machine,
    direction: Direction<'_>,
    weights: &CpuMatrix,
    x: &CpuMatrix,
    epilogue: &RowEpilogue<'_>,
    out: &mut CpuMatrix,
) {
    let (heads, width) = (weights.shape().cols, x.shape().cols);
    machine.scratch.with(out.shape().len(), |words| {
        let sums: &mut [f32] = bytemuck::cast_slice_mut(words);
        entries::weighted_sums(direction, heads, &as_f32(weights), &as_f32(x), width, sums);
        typed!(out = out.storage_mut() => epilogue.store_rows(width, sums, out));
    });
}

/// Product with entries weighted by `weights`, in the order of the direction.
fn multiply_by(
    machine: &Machine,
    weights: Option<&[f32]>,
    direction: Direction<'_>,
    x: &CpuMatrix,
    epilogue: &RowEpilogue<'_>,
    out: &mut CpuMatrix,
) {
    let width = x.shape().cols;
    assert_eq!((direction.csr.n_cols(), width), (x.shape().rows, out.shape().cols), "the operand fits");
    assert_eq!(direction.csr.n_rows(), out.shape().rows, "the result fits");
    if rows::is_worth(direction) {
        typed!(x = x.storage() => rows::multiply(weights, direction, (x, width), epilogue, out));
        return;
    }
    match (x.storage(), machine.gathered) {
        (Storage::F32(x), Dtype::F32) => {
            multiply_panels::<f32, f32>(machine, weights, direction, (x, width), epilogue, out);
        }
        (Storage::F32(x), Dtype::Bf16) => {
            multiply_panels::<f32, bf16>(machine, weights, direction, (x, width), epilogue, out);
        }
        (Storage::Bf16(x), _) => multiply_panels::<bf16, bf16>(machine, weights, direction, (x, width), epilogue, out),
    }
}

/// Product with an operand of `X`, packed into panels of `P`.
fn multiply_panels<X: Element, P: Summed>(
    machine: &Machine,
    weights: Option<&[f32]>,
    direction: Direction<'_>,
    (x, width): (&[X], usize),
    epilogue: &RowEpilogue<'_>,
    out: &mut CpuMatrix,
) {
    let Direction { csr, left, right, schedule, .. } = direction;
    let panels = plan_for::<P>(machine, direction, width);
    for_each_panel::<X, P>(machine, &panels, (x, width), right, |panel, packed| {
        // SAFETY: the indices are those of a `Csr` with `n_cols` columns (its invariant 2).
        let gather = unsafe { Gather::new(csr.indices(), weights, csr.n_cols(), packed, panel.row_words) };
        let product = PanelProduct { isa: machine.isa, left, panel, gather, epilogue };
        product.run::<P>(csr.indptr(), schedule, &machine.scratch, out);
    });
}

/// Panels with the least predicted time, for a matrix of the given shape and number of non-zeros. `hit_rate(rows)` is
/// the fraction of reads that hit a cache of that many rows of the operand.
fn plan<P: Summed>(
    machine: &Machine,
    (shape, nnz): (Shape, usize),
    width: usize,
    hit_rate: impl Fn(usize) -> f64,
) -> Vec<Panel> {
    let operand = Operand { n_rows: shape.cols, width, words_max: P::VECTORS_MAX * machine.isa.lanes() };
    panels::plan::<P>(operand, machine.hierarchy.largest_cache(), |row_bytes| {
        machine.hierarchy.seconds(&Product { n_rows: shape.rows, nnz, row_bytes }, &hit_rate)
    })
}

/// As [`plan`], with the hit rate of the matrix in its present node order.
fn plan_for<P: Summed>(machine: &Machine, direction: Direction<'_>, width: usize) -> Vec<Panel> {
    let csr = direction.csr;
    let size = (Shape::new(csr.n_rows(), csr.n_cols()), csr.nnz());
    plan::<P>(machine, size, width, |rows| direction.reuse().hit_rate(rows))
}

/// Calls `product` for each of `panels` of `R·X`. Each group of panels is packed just before its use.
fn for_each_panel<X: Element, P: Summed>(
    machine: &Machine,
    panels: &[Panel],
    (x, width): (&[X], usize),
    right: Option<&[f32]>,
    mut product: impl FnMut(&Panel, &[u32]),
) {
    let n_rows = x.len() / width.max(1);
    let target = (machine.isa, machine.hierarchy.largest_cache());
    if let [panel] = panels
        && right.is_none()
        && panel.is_in_place::<X, P>(width)
    {
        return product(panel, bytemuck::cast_slice(x));
    }
    for group in panels::groups(panels, n_rows) {
        machine.scratch.with(group.iter().map(|panel| panel.n_words(n_rows)).sum(), |packed| {
            panels::pack::<X, P>(target, group, (x, width), right, packed);
            let mut packed = &*packed;
            for panel in group {
                let (words, rest) = packed.split_at(panel.n_words(n_rows));
                product(panel, words);
                packed = rest;
            }
        });
    }
}
