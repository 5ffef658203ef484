//! [`RowsMut`]: rows of a result that one task writes.

use std::ops::Range;

use half::bf16;

use crate::cpu::chunks::split_rows;
use crate::cpu::epilogue::RowEpilogue;
use crate::cpu::matrix::{CpuMatrix, Storage};

/// Consecutive rows of a matrix, mutably borrowed.
pub(super) struct RowsMut<'a> {
    width: usize,
    elements: ElementsMut<'a>,
}

enum ElementsMut<'a> {
    F32(&'a mut [f32]),
    Bf16(&'a mut [bf16]),
}

impl<'a> RowsMut<'a> {
    /// Splits the rows of `matrix` into consecutive parts of the given numbers of rows.
    pub(super) fn split(matrix: &'a mut CpuMatrix, counts: impl Iterator<Item = usize>) -> Vec<Self> {
        let width = matrix.shape().cols;
        match matrix.storage_mut() {
            Storage::F32(values) => split_rows(values, width, counts)
                .map(|elements| Self { width, elements: ElementsMut::F32(elements) })
                .collect(),
            Storage::Bf16(values) => split_rows(values, width, counts)
                .map(|elements| Self { width, elements: ElementsMut::Bf16(elements) })
                .collect(),
        }
    }

    /// Columns of row `at`, if they are `f32`.
    #[inline(always)]
    pub(super) fn as_f32(&mut self, at: usize, columns: Range<usize>) -> Option<&mut [f32]> {
        match &mut self.elements {
            ElementsMut::F32(out) => Some(&mut out[at * self.width..][columns]),
            ElementsMut::Bf16(_) => None,
        }
    }

    /// Applies `epilogue` to `sums` and stores them in row `at`, from column `first_column` on.
    #[inline(always)]
    pub(super) fn store(&mut self, at: usize, first_column: usize, sums: &mut [f32], epilogue: &RowEpilogue<'_>) {
        let start = at * self.width + first_column;
        let piece = start..start + sums.len();
        match &mut self.elements {
            ElementsMut::F32(out) => epilogue.store(first_column, sums, &mut out[piece]),
            ElementsMut::Bf16(out) => epilogue.store(first_column, sums, &mut out[piece]),
        }
    }
}
