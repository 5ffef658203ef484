//! Backward pass of attention: once along the rows for the destinations, and once along the columns for sources and
//! values.

use std::ops::Range;

use girih_graph_format::Csr;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::entries::{Repeated, columns_ahead, exponentials, gather, head_dots, repeat};
use super::score::{ScoreGrads, Scorer};
use super::table::Table;
use super::{BLOCK, Masks, as_f32};
use crate::cpu::CpuMatrix;
use crate::cpu::chunks::{row_chunk_len, rows_per_chunk};
use crate::cpu::machine::Machine;
use crate::cpu::schedule::Schedule;
use crate::{Attention, AttentionGrads, Cpu, Transpose};

/// Computes the gradients of `attention`. The shapes have been checked.
pub(crate) fn backward(
    machine: &Machine,
    attention: &Attention<'_, Cpu>,
    (out, log_sums): (&CpuMatrix, &CpuMatrix),
    grad: &CpuMatrix,
    grads: AttentionGrads<'_, CpuMatrix>,
) {
    let heads = attention.heads;
    let (destination, source) = (Table::compact(attention.destination), Table::compact(attention.source));
    let vector = attention.vector.map(as_f32);
    let (values, grad) = (Table::padded(attention.values), Table::padded(grad));
    let stats = row_stats(heads, log_sums, out, &grad);
    let (near, far, vector, slope) = (&destination, &source, vector.as_deref(), attention.slope);
    let masks = Masks { dropout: attention.dropout, names: attention.graph.names(), transposed: false };

    let rows = attention.graph.direction(Transpose::No, false);
    let along_rows = Backward {
        csr: rows.csr,
        schedule: rows.schedule,
        heads,
        scorer: Scorer { near, far, vector, slope },
        masks,
        stats: &stats,
        near: &grad,
        far: &values,
    };
    along_rows.run(machine, grads.destination, None, grads.vector);

    let columns = attention.graph.direction(Transpose::Yes, false);
    let along_columns = Backward {
        csr: columns.csr,
        schedule: columns.schedule,
        scorer: Scorer { near: far, far: near, vector, slope },
        masks: Masks { transposed: true, ..masks },
        near: &values,
        far: &grad,
        ..along_rows
    };
    along_columns.run(machine, grads.source, Some(grads.values), None);
}

/// Statistics of each row (`n × 2·heads`): the log-sums, then `⟨grad, out⟩`, the mean of the coefficients' gradients,
/// per head.
fn row_stats(heads: usize, log_sums: &CpuMatrix, out: &CpuMatrix, grad: &Table<'_>) -> Table<'static> {
    let (log_sums, width) = (as_f32(log_sums), out.shape().cols);
    let out = as_f32(out);
    let mut stats = vec![0.0; out.len() / width.max(1) * 2 * heads];
    let pieces = stats.par_chunks_mut(rows_per_chunk(width) * 2 * heads).zip(out.par_chunks(row_chunk_len(width)));
    pieces.enumerate().for_each(|(piece, (stats, out))| {
        let rows = stats.chunks_exact_mut(2 * heads).zip(out.chunks_exact(width)).enumerate();
        for (row, (stats, out)) in rows.map(|(i, row)| (piece * rows_per_chunk(width) + i, row)) {
            let (log_sum, mean) = stats.split_at_mut(heads);
            log_sum.copy_from_slice(&log_sums[row * heads..(row + 1) * heads]);
            for (out, grad) in out.chunks_exact(heads).zip(grad.row(row).chunks_exact(heads)) {
                for h in 0..heads {
                    mean[h] += out[h] * grad[h];
                }
            }
        }
    });
    Table::of(stats, 2 * heads)
}

/// Pass along rows of the pattern or of its transpose.
#[derive(Clone, Copy)]
struct Backward<'a> {
    csr: &'a Csr,
    schedule: &'a Schedule,
    heads: usize,
    scorer: Scorer<'a>,
    masks: Masks<'a>,
    /// Statistics of the pattern's rows, as [`row_stats`] returns them. They belong to the near operand along rows,
    /// and to the far operand along columns.
    stats: &'a Table<'a>,
    /// Near operand: gradient of the result along rows, values along columns. `far` is the other of the two.
    near: &'a Table<'a>,
    far: &'a Table<'a>,
}

/// Outputs of one piece of a pass.
struct Outputs<'a> {
    scores: &'a mut [f32],
    values: Option<&'a mut [f32]>,
    vector: Option<Vec<f32>>,
}

impl Backward<'_> {
    /// Overwrites the gradients of the near scores. A pass along columns also overwrites the gradient of the values,
    /// and one along rows that of the vector.
    fn run(
        &self,
        machine: &Machine,
        scores: &mut CpuMatrix,
        values: Option<&mut CpuMatrix>,
        vector: Option<&mut CpuMatrix>,
    ) {
        let score_width = scores.shape().cols;
        let value_width = values.as_deref().map_or(0, |values| values.shape().cols);
        let wants_vector = vector.is_some();
        let mut partials = Vec::new();
        scores.write_with(|scores| {
            let scores = self.schedule.split_rows(scores, score_width);
            let run = |values: Vec<Option<&mut [f32]>>| {
                let pieces = self.schedule.pieces().par_iter().zip(scores).zip(values);
                let partial = pieces.with_max_len(1).map(|((piece, scores), values)| {
                    let vector = wants_vector.then(|| vec![0.0; score_width]);
                    let outputs = Outputs { scores, values, vector };
                    machine.isa.run(Rows { pass: self, rows: piece.rows(), score_width, value_width, outputs })
                });
                partials = partial.collect();
            };
            match values {
                None => run(self.schedule.pieces().iter().map(|_| None).collect()),
                Some(values) => values.write_with(|values| {
                    run(self.schedule.split_rows(values, value_width).into_iter().map(Some).collect());
                }),
            }
        });
        if let Some(vector) = vector {
            let mut total = vec![0.0; score_width];
            for partial in partials.iter().flatten() {
                total.iter_mut().zip(partial).for_each(|(total, part)| *total += part);
            }
            vector.write_all(&total);
        }
    }
}

impl Backward<'_> {
    /// Copies `heads` statistics, from column `first` on, for each entry's row of the pattern.
    #[inline(always)]
    fn fill_stats(&self, heads: usize, row: usize, first: usize, (cols, ahead): (&[u32], &[u32]), stats: &mut [f32]) {
        if self.masks.transposed {
            gather(heads, self.stats, first, (cols, ahead), stats);
        } else {
            repeat(heads, &self.stats.row(row)[first..], stats);
        }
    }
}

/// Consecutive rows of a pass.
struct Rows<'a> {
    pass: &'a Backward<'a>,
    rows: Range<usize>,
    score_width: usize,
    value_width: usize,
    outputs: Outputs<'a>,
}

impl WithSimd for Rows<'_> {
    /// Partial sum of the vector's gradient over these rows.
    type Output = Option<Vec<f32>>;

    /// Dispatches on common numbers of heads, so that loops over heads have constant length.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Option<Vec<f32>> {
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
    fn run<S: Simd>(self, simd: S, heads: usize) -> Option<Vec<f32>> {
        let Self { pass, rows, score_width, value_width, mut outputs } = self;
        let mut buffers = Buffers::new(heads, pass.far.stride());
        for (i, row) in rows.enumerate() {
            let score_grad = &mut outputs.scores[i * score_width..(i + 1) * score_width];
            score_grad.fill(0.0);
            buffers.sums.fill(0.0);
            let entries = pass.csr.row_range(row);
            for start in entries.clone().step_by(BLOCK) {
                let block = start..(start + BLOCK).min(entries.end);
                let cols = &pass.csr.indices()[block.clone()];
                let n = cols.len() * heads;
                buffers.block(simd, pass, heads, row, block);
                let (scores, grads) = (&buffers.scores[..n], &mut buffers.dots[..n]);
                let sums = ScoreGrads { near: &mut *score_grad, vector: outputs.vector.as_deref_mut() };
                pass.scorer.backward(simd, heads, (row, cols), (scores, grads), sums);
                if outputs.values.is_some() {
                    buffers.repeated.fill::<S>(heads, &buffers.shares[..n]);
                    buffers.repeated.add_rows(simd, heads, pass.far, (cols, &[]), &mut buffers.sums);
                }
            }
            if let Some(values) = outputs.values.as_deref_mut() {
                values[i * value_width..(i + 1) * value_width].copy_from_slice(&buffers.sums[..value_width]);
            }
        }
        outputs.vector
    }
}

/// Buffers of a task, reused from block to block (`heads` elements per entry).
struct Buffers {
    scores: Vec<f32>,
    /// Masked attention coefficients.
    shares: Vec<f32>,
    factors: Vec<f32>,
    /// Dot products, then gradients of the scores.
    dots: Vec<f32>,
    /// Log-sums or means of the rows of the entries.
    stats: Vec<f32>,
    repeated: Repeated,
    sums: Vec<f32>,
}

impl Buffers {
    fn new(heads: usize, width: usize) -> Self {
        let entries = || vec![0.0; BLOCK * heads];
        Self {
            scores: entries(),
            shares: entries(),
            factors: vec![1.0; BLOCK * heads],
            dots: entries(),
            stats: entries(),
            repeated: Repeated::default(),
            sums: vec![0.0; width],
        }
    }

    /// Fills `scores`, `shares`, and `dots` with the gradients of the scores, for a block of entries of `row`.
    #[inline(always)]
    fn block<S: Simd>(&mut self, simd: S, pass: &Backward<'_>, heads: usize, row: usize, block: Range<usize>) {
        let indices = pass.csr.indices();
        let (cols, n) = (&indices[block.clone()], block.len() * heads);
        let ahead = columns_ahead(indices, block.start, block.end);
        head_dots(simd, heads, pass.near.row(row), pass.far, (cols, ahead), &mut self.dots[..n]);
        pass.scorer.scores(heads, row, (cols, ahead), &mut self.stats[..n], &mut self.scores[..n]);
        pass.masks.fill(heads, row, cols, &mut self.factors[..n]);
        let (scores, factors) = (&self.scores[..n], &self.factors[..n]);
        let (shares, dots, stats) = (&mut self.shares[..n], &mut self.dots[..n], &mut self.stats[..n]);
        pass.fill_stats(heads, row, 0, (cols, ahead), stats);
        for ((share, score), log_sum) in shares.iter_mut().zip(scores).zip(&*stats) {
            *share = score - log_sum;
        }
        exponentials(simd, shares);
        pass.fill_stats(heads, row, heads, (cols, &[]), stats);
        for (((share, dot), factor), mean) in shares.iter_mut().zip(dots).zip(factors).zip(&*stats) {
            *dot = *share * (factor * *dot - mean);
            *share *= factor;
        }
    }
}
