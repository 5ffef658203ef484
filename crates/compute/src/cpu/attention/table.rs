//! [`Table`]: an operand as rows of whole vectors.

use std::borrow::Cow;

use rayon::prelude::*;

use crate::cpu::CpuMatrix;
use crate::cpu::matrix::as_f32;
use crate::cpu::panels::LINE_WORDS;
use crate::cpu::prefetch::{CACHE_LINE, prefetch};

/// Rows of `f32`, padded with zeros to whole cache lines.
pub(super) struct Table<'a> {
    values: Cow<'a, [f32]>,
    stride: usize,
}

impl<'a> Table<'a> {
    /// Rows of `matrix`, padded to whole cache lines. They are copied only if the layout or storage differs.
    pub(super) fn padded(matrix: &'a CpuMatrix) -> Self {
        let cols = matrix.shape().cols;
        let stride = cols.next_multiple_of(LINE_WORDS);
        let values = as_f32(matrix);
        if stride == cols {
            return Self { values, stride };
        }
        let mut padded = vec![0.0; matrix.shape().rows * stride];
        let rows = padded.par_chunks_exact_mut(stride.max(1)).zip(values.par_chunks_exact(cols.max(1)));
        rows.with_min_len(1 << 10).for_each(|(padded, row)| padded[..cols].copy_from_slice(row));
        Self { values: Cow::Owned(padded), stride }
    }

    /// Rows of `matrix` without padding.
    pub(super) fn compact(matrix: &'a CpuMatrix) -> Self {
        Self { values: as_f32(matrix), stride: matrix.shape().cols }
    }

    /// Rows of `stride` elements.
    pub(super) fn of(values: Vec<f32>, stride: usize) -> Self {
        Self { values: Cow::Owned(values), stride }
    }

    /// Row stride in elements, padding included.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Row with its padding.
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.stride..(row + 1) * self.stride]
    }

    /// Prefetches all cache lines of a row.
    #[inline(always)]
    pub(super) fn prefetch(&self, row: u32) {
        let start = self.values.as_ptr().wrapping_add(row as usize * self.stride);
        for line in 0..(self.stride * size_of::<f32>()).div_ceil(CACHE_LINE) {
            prefetch(start.wrapping_byte_add(line * CACHE_LINE));
        }
    }
}
