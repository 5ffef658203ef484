//! [`PanelProduct`]: the product with one panel, as tasks and as kernels.

use std::marker::PhantomData;
use std::ops::Range;

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::gather::{Gather, SUMS_MAX, Summed, store};
use super::output::RowsMut;
use crate::cpu::epilogue::RowEpilogue;
use crate::cpu::matrix::CpuMatrix;
use crate::cpu::panels::Panel;
use crate::cpu::schedule::{Piece, Schedule};
use crate::cpu::scratch::Scratch;
use crate::cpu::simd::Isa;

/// Product with one packed panel.
pub(super) struct PanelProduct<'a> {
    pub(super) isa: Isa,
    /// Factors of the result's rows.
    pub(super) left: Option<&'a [f32]>,
    pub(super) panel: &'a Panel,
    pub(super) gather: Gather<'a>,
    pub(super) epilogue: &'a RowEpilogue<'a>,
}

impl PanelProduct<'_> {
    /// Sums the segments of hubs, then stores all rows of the panel's columns in `out`.
    pub(super) fn run<X: Summed>(&self, indptr: &[u64], schedule: &Schedule, scratch: &Scratch, out: &mut CpuMatrix) {
        scratch.with(schedule.segments().len() * SUMS_MAX, |partials| {
            let partials: &mut [[f32; SUMS_MAX]] = bytemuck::cast_slice_mut(partials);
            let segments = schedule.segments().par_iter().zip(partials.par_iter_mut()).with_max_len(1);
            segments.for_each(|(entries, partial)| {
                self.dispatch::<X>(Work::Segment { entries: entries.clone(), partial });
            });
            let rows = RowsMut::split(out, schedule.pieces().iter().map(|piece| piece.rows().len()));
            schedule.pieces().par_iter().zip(rows).with_max_len(1).for_each(|(piece, mut out)| match piece {
                Piece::Rows(rows) => self.store_rows::<X>(rows.clone(), &indptr[rows.start..=rows.end], out),
                Piece::Hub { row, segments } => self.store_hub(*row, &partials[segments.clone()], &mut out),
            });
        });
    }

    /// Sums consecutive rows of the result and stores them in `out`. `indptr` has their offsets (rows + 1).
    pub(super) fn store_rows<X: Summed>(&self, rows: Range<usize>, indptr: &[u64], out: RowsMut<'_>) {
        self.dispatch::<X>(Work::Rows { rows, indptr, out });
    }

    /// Adds the partial sums of a hub in order and stores them.
    fn store_hub(&self, row: usize, partials: &[[f32; SUMS_MAX]], out: &mut RowsMut<'_>) {
        let mut sums = [0.0; SUMS_MAX];
        for partial in partials {
            sums.iter_mut().zip(partial).for_each(|(sum, part)| *sum += part);
        }
        let factor = self.factor(row);
        sums.iter_mut().for_each(|sum| *sum *= factor);
        self.store_scaled(&mut sums, out, 0);
    }

    /// Scales the sums of a row, applies the epilogue, and stores them in row `at` of `out`.
    #[inline(always)]
    fn store<S: Simd, X: Summed, const NV: usize>(
        &self,
        simd: S,
        row: usize,
        sums: [X::Sums<S>; NV],
        out: &mut RowsMut<'_>,
        at: usize,
    ) {
        let (factor, columns) = (self.factor(row), self.panel.columns.clone());
        // Plain sums are stored directly from registers; others pass through L1.
        if self.epilogue.is_plain()
            && columns.len() == NV * S::U32_LANES * X::PER_WORD
            && let Some(out) = out.as_f32(at, columns)
        {
            return store::<S, X, NV>(simd, factor, sums, out);
        }
        let mut scaled = [0.0; SUMS_MAX];
        store::<S, X, NV>(simd, factor, sums, &mut scaled);
        self.store_scaled(&mut scaled, out, at);
    }

    /// Applies the epilogue to the scaled sums of a row and stores them in row `at` of `out`.
    #[inline(always)]
    fn store_scaled(&self, sums: &mut [f32; SUMS_MAX], out: &mut RowsMut<'_>, at: usize) {
        let columns = self.panel.columns.clone();
        out.store(at, columns.start, &mut sums[..columns.len()], self.epilogue);
    }

    /// Factor of a row of the result.
    #[inline(always)]
    fn factor(&self, row: usize) -> f32 {
        self.left.map_or(1.0, |left| left[row])
    }

    /// Runs `work` with the kernel for this panel's width.
    fn dispatch<X: Summed>(&self, work: Work<'_>) {
        if self.gather.is_weighted() {
            self.dispatch_width::<X, true>(work);
        } else {
            self.dispatch_width::<X, false>(work);
        }
    }

    fn dispatch_width<X: Summed, const WEIGHTED: bool>(&self, work: Work<'_>) {
        match self.gather.n_vectors(self.isa.lanes()) {
            1 => self.isa.run(Kernel::<X, 1, WEIGHTED>::new(self, work)),
            2 => self.isa.run(Kernel::<X, 2, WEIGHTED>::new(self, work)),
            3 => self.isa.run(Kernel::<X, 3, WEIGHTED>::new(self, work)),
            4 => self.isa.run(Kernel::<X, 4, WEIGHTED>::new(self, work)),
            5 => self.isa.run(Kernel::<X, 5, WEIGHTED>::new(self, work)),
            6 => self.isa.run(Kernel::<X, 6, WEIGHTED>::new(self, work)),
            7 => self.isa.run(Kernel::<X, 7, WEIGHTED>::new(self, work)),
            8 => self.isa.run(Kernel::<X, 8, WEIGHTED>::new(self, work)),
            n => unreachable!("a panel of {n} vectors; `plan` makes at most {}", X::VECTORS_MAX),
        }
    }
}

/// Work of one kernel call.
enum Work<'a> {
    /// Sum of whole rows, with store. `indptr` has their offsets (rows + 1), and `out` holds just these rows.
    Rows { rows: Range<usize>, indptr: &'a [u64], out: RowsMut<'a> },
    /// Partial sum of one row, over a segment of its entries.
    Segment { entries: Range<usize>, partial: &'a mut [f32; SUMS_MAX] },
}

/// [`Work`] for panels of `NV` vectors, compiled for every instruction set.
struct Kernel<'a, X, const NV: usize, const WEIGHTED: bool> {
    product: &'a PanelProduct<'a>,
    work: Work<'a>,
    element: PhantomData<X>,
}

impl<'a, X, const NV: usize, const WEIGHTED: bool> Kernel<'a, X, NV, WEIGHTED> {
    fn new(product: &'a PanelProduct<'a>, work: Work<'a>) -> Self {
        Self { product, work, element: PhantomData }
    }
}

impl<X: Summed, const NV: usize, const WEIGHTED: bool> WithSimd for Kernel<'_, X, NV, WEIGHTED> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let gather = &self.product.gather;
        match self.work {
            Work::Segment { entries, partial } => {
                let sums = gather.sum::<S, X, NV, WEIGHTED>(simd, entries);
                store::<S, X, NV>(simd, 1.0, sums, partial);
            }
            Work::Rows { rows, indptr, mut out } => {
                for ((at, row), offsets) in rows.enumerate().zip(indptr.windows(2)) {
                    let entries = offsets[0] as usize..offsets[1] as usize;
                    let sums = gather.sum::<S, X, NV, WEIGHTED>(simd, entries);
                    self.product.store::<S, X, NV>(simd, row, sums, &mut out, at);
                }
            }
        }
    }
}
