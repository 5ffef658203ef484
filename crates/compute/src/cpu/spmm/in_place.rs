//! Sparse product in place, `X = L·A·R·X`: each panel of columns is packed before its product overwrites it.

use super::gather::{Gather, Summed};
use super::plan_for;
use super::product::PanelProduct;
use crate::cpu::epilogue::RowEpilogue;
use crate::cpu::machine::Machine;
use crate::cpu::matrix::{CpuMatrix, typed};
use crate::cpu::panels;
use crate::cpu::sparse::{CpuSparse, Direction};
use crate::{Dtype, Epilogue, Transpose};

/// Computes `x = op(L·A·R)·x` for a square matrix. Besides `x`, memory holds only one packed panel.
///
/// # Panics
/// When shapes do not fit.
pub(crate) fn multiply_in_place(machine: &Machine, (a, transpose): (&CpuSparse, Transpose), x: &mut CpuMatrix) {
    let shape = a.shape();
    assert!(shape.rows == shape.cols && shape.cols == x.shape().rows, "a square matrix as large as the operand");
    let direction = a.direction(transpose, false);
    match (x.dtype(), machine.gathered) {
        (Dtype::F32, Dtype::F32) => multiply_panels::<f32>(machine, direction, x),
        (Dtype::F32, Dtype::Bf16) | (Dtype::Bf16, _) => multiply_panels::<half::bf16>(machine, direction, x),
    }
}

fn multiply_panels<P: Summed>(machine: &Machine, direction: Direction<'_>, x: &mut CpuMatrix) {
    let Direction { csr, left, right, schedule, .. } = direction;
    let (n_rows, width) = (x.shape().rows, x.shape().cols);
    let epilogue = Epilogue::default();
    let epilogue = RowEpilogue::new(&epilogue);
    let target = (machine.isa, machine.hierarchy.largest_cache());
    for panel in plan_for::<P>(machine, direction, width) {
        machine.scratch.with(panel.n_words(n_rows), |packed| {
            let group = std::slice::from_ref(&panel);
            typed!(x = x.storage() => panels::pack::<_, P>(target, group, (x, width), right, packed));
            // SAFETY: the indices are those of a `Csr` with `n_rows` columns (its invariant 2), and so many rows are
            // packed.
            let gather = unsafe { Gather::new(csr.indices(), csr.values(), n_rows, packed, panel.row_words) };
            let product = PanelProduct { isa: machine.isa, left, panel: &panel, gather, epilogue: &epilogue };
            product.run::<P>(csr.indptr(), schedule, &machine.scratch, x);
        });
    }
}
