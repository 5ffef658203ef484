//! Forward pass of attention: row by row, a softmax over the entries and the weighted sum of the values.

use std::ops::Range;

use girih_graph_format::Csr;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::entries::{Repeated, add_up, columns_ahead, exponentials, fold, repeat};
use super::score::Scorer;
use super::table::Table;
use super::{BLOCK, Masks, as_f32};
use crate::cpu::CpuMatrix;
use crate::cpu::machine::Machine;
use crate::{Attention, Cpu, Transpose};

/// Computes `out` and `log_sums` of `attention`. The shapes have been checked.
pub(crate) fn forward(
    machine: &Machine,
    attention: &Attention<'_, Cpu>,
    out: &mut CpuMatrix,
    log_sums: &mut CpuMatrix,
) {
    let direction = attention.graph.direction(Transpose::No, false);
    let (near, far) = (Table::compact(attention.destination), Table::compact(attention.source));
    let vector = attention.vector.map(as_f32);
    let pass = Forward {
        csr: direction.csr,
        heads: attention.heads,
        width: out.shape().cols,
        scorer: Scorer { near: &near, far: &far, vector: vector.as_deref(), slope: attention.slope },
        masks: Masks { dropout: attention.dropout, names: attention.graph.names(), transposed: false },
        values: &Table::padded(attention.values),
    };
    out.write_with(|out| {
        log_sums.write_with(|log_sums| {
            let out = direction.schedule.split_rows(out, pass.width);
            let log_sums = direction.schedule.split_rows(log_sums, pass.heads);
            let pieces = direction.schedule.pieces().par_iter().zip(out).zip(log_sums);
            pieces.with_max_len(1).for_each(|((piece, out), log_sums)| {
                machine.isa.run(Rows { pass: &pass, rows: piece.rows(), out, log_sums });
            });
        });
    });
}

struct Forward<'a> {
    csr: &'a Csr,
    heads: usize,
    width: usize,
    scorer: Scorer<'a>,
    masks: Masks<'a>,
    values: &'a Table<'a>,
}

/// Consecutive rows of the forward pass.
struct Rows<'a> {
    pass: &'a Forward<'a>,
    rows: Range<usize>,
    out: &'a mut [f32],
    log_sums: &'a mut [f32],
}

impl WithSimd for Rows<'_> {
    type Output = ();

    /// Dispatches on common numbers of heads, so that loops over heads have constant length.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match self.pass.heads {
            1 => self.run(simd, 1),
            2 => self.run(simd, 2),
            4 => self.run(simd, 4),
            8 => self.run(simd, 8),
            16 => self.run(simd, 16),
            heads => self.run(simd, heads),
        }
    }
}

impl Rows<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S, heads: usize) {
        let Self { pass, rows, out, log_sums } = self;
        let mut buffers = Buffers { sums: vec![0.0; pass.values.stride()], ..Buffers::default() };
        for (i, row) in rows.enumerate() {
            let log_sums = &mut log_sums[i * heads..(i + 1) * heads];
            let entries = pass.csr.row_range(row);
            buffers.shares(simd, pass, heads, row, log_sums);
            buffers.sums.fill(0.0);
            for start in entries.clone().step_by(BLOCK) {
                let end = (start + BLOCK).min(entries.end);
                let at = (start - entries.start) * heads..(end - entries.start) * heads;
                buffers.repeated.fill::<S>(heads, &buffers.shares[at]);
                let cols = (&pass.csr.indices()[start..end], columns_ahead(pass.csr.indices(), start, end));
                buffers.repeated.add_rows(simd, heads, pass.values, cols, &mut buffers.sums);
            }
            out[i * pass.width..(i + 1) * pass.width].copy_from_slice(&buffers.sums[..pass.width]);
        }
    }
}

/// Buffers of a task, reused from row to row.
#[derive(Default)]
struct Buffers {
    /// Masked attention coefficients of a row's entries (`heads` per entry).
    shares: Vec<f32>,
    /// Values that are equal for all entries of a row, repeated for each entry; or the masks of the entries.
    near: Vec<f32>,
    /// Inverse of the sum of exponentials, per head.
    inverse: Vec<f32>,
    repeated: Repeated,
    sums: Vec<f32>,
}

impl Buffers {
    /// Fills `shares` for the entries of `row`, and computes the row's `log_sums`.
    #[inline(always)]
    fn shares<S: Simd>(&mut self, simd: S, pass: &Forward<'_>, heads: usize, row: usize, log_sums: &mut [f32]) {
        let (cols, entries) = (pass.csr.row(row), pass.csr.row_range(row));
        let ahead = columns_ahead(pass.csr.indices(), entries.start, entries.end);
        log_sums.fill(0.0);
        self.shares.resize(cols.len() * heads, 0.0);
        if cols.is_empty() {
            return;
        }
        self.near.resize(self.shares.len(), 0.0);
        pass.scorer.scores(heads, row, (cols, ahead), &mut self.near, &mut self.shares);
        let log_sums = &mut log_sums[..heads];
        log_sums.fill(f32::NEG_INFINITY);
        fold(
            simd,
            heads,
            &self.shares,
            log_sums,
            #[inline(always)]
            |simd, a, b| simd.max_f32s(a, b),
            #[inline(always)]
            |a, b| a.max(b),
        );
        repeat(heads, log_sums, &mut self.near);
        self.shares.iter_mut().zip(&self.near).for_each(|(share, max)| *share -= max);
        exponentials(simd, &mut self.shares);
        self.inverse.resize(heads, 0.0);
        self.inverse.fill(0.0);
        add_up(simd, heads, &self.shares, &mut self.inverse);
        for (log_sum, sum) in log_sums.iter_mut().zip(&mut self.inverse) {
            *log_sum += sum.ln();
            *sum = 1.0 / *sum;
        }
        repeat(heads, &self.inverse, &mut self.near);
        self.shares.iter_mut().zip(&self.near).for_each(|(share, inverse)| *share *= inverse);
        if pass.masks.dropout.is_some() {
            pass.masks.fill(heads, row, cols, &mut self.near);
            self.shares.iter_mut().zip(&self.near).for_each(|(share, factor)| *share *= factor);
        }
    }
}
