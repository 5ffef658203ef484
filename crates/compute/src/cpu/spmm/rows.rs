//! Products that read each row of the operand only a few times, in place: blocks of mini-batches.
//!
//! Packing an operand pays off if each of its rows is read many times. A block of a mini-batch reads most rows of its
//! operand once or twice, and only some rows of a whole graph's features. Each row of the result is then summed in
//! L1, directly from the rows that its entries reference. These rows are prefetched.

use std::ops::Range;

use pulp::Arch;
use rayon::prelude::*;

use super::output::RowsMut;
use crate::cpu::element::Element;
use crate::cpu::epilogue::RowEpilogue;
use crate::cpu::matrix::CpuMatrix;
use crate::cpu::prefetch::{CACHE_LINE, prefetch};
use crate::cpu::schedule::Piece;
use crate::cpu::sparse::Direction;

/// Minimum average number of reads per row of the operand for which packing pays off.
const READS_MIN: usize = 4;
/// Number of rows of the operand summed in one pass over the sums.
const TOGETHER: usize = 4;
/// Prefetch distance in entries.
const AHEAD: usize = 6;
/// Number of cache lines of a row to prefetch. The rest follows in order, and the CPU prefetches it.
const LINES_AHEAD: usize = 8;

/// Whether to read rows in place: there are few reads per row, and no hubs, whose rows several tasks would share.
pub(super) fn is_worth(direction: Direction<'_>) -> bool {
    direction.csr.nnz() < READS_MIN * direction.csr.n_cols() && direction.schedule.segments().is_empty()
}

/// Product with an operand of rows of `width` elements, with entries weighted by `weights`.
pub(super) fn multiply<X: Element>(
    weights: Option<&[f32]>,
    direction: Direction<'_>,
    (x, width): (&[X], usize),
    epilogue: &RowEpilogue<'_>,
    out: &mut CpuMatrix,
) {
    let (arch, pieces) = (Arch::new(), direction.schedule.pieces());
    let rows = RowsMut::split(out, pieces.iter().map(|piece| piece.rows().len()));
    let reader = Reader { weights, direction, x, width };
    pieces.par_iter().zip(rows).with_max_len(1).for_each(|(piece, out)| {
        let Piece::Rows(rows) = piece else { unreachable!("no row is shared") };
        arch.dispatch(
            #[inline(always)]
            || reader.store_rows(rows.clone(), epilogue, out),
        );
    });
}

/// Operands that a product reads.
struct Reader<'a, X> {
    weights: Option<&'a [f32]>,
    direction: Direction<'a>,
    x: &'a [X],
    width: usize,
}

impl<X: Element> Reader<'_, X> {
    #[inline(always)]
    fn store_rows(&self, rows: Range<usize>, epilogue: &RowEpilogue<'_>, mut out: RowsMut<'_>) {
        let mut sums = vec![0.0f32; self.width];
        let first = rows.start;
        for row in rows {
            sums.fill(0.0);
            self.sum_row(self.direction.csr.row_range(row), &mut sums);
            if let Some(left) = self.direction.left {
                sums.iter_mut().for_each(|sum| *sum *= left[row]);
            }
            out.store(row - first, 0, &mut sums, epilogue);
        }
    }

    /// Adds the rows of `entries`, times their weights.
    #[inline(always)]
    fn sum_row(&self, entries: Range<usize>, sums: &mut [f32]) {
        let mut at = entries.start;
        while at + TOGETHER <= entries.end {
            (at..at + TOGETHER).for_each(|entry| self.fetch(entry + AHEAD));
            let [a, b, c, d] = [at, at + 1, at + 2, at + 3].map(|entry| self.row(entry));
            let [u, v, w, z] = [at, at + 1, at + 2, at + 3].map(|entry| self.weight(entry));
            let rows = a.iter().zip(b).zip(c.iter().zip(d));
            for (sum, ((a, b), (c, d))) in sums.iter_mut().zip(rows) {
                *sum += (u * a.to_f32() + v * b.to_f32()) + (w * c.to_f32() + z * d.to_f32());
            }
            at += TOGETHER;
        }
        for entry in at..entries.end {
            self.fetch(entry + AHEAD);
            let weight = self.weight(entry);
            // A `for_each` loop might be compiled elsewhere, for the oldest CPU.
            for (sum, x) in sums.iter_mut().zip(self.row(entry)) {
                *sum += weight * x.to_f32();
            }
        }
    }

    #[inline(always)]
    fn row(&self, entry: usize) -> &[X] {
        let column = self.direction.csr.indices()[entry] as usize;
        &self.x[column * self.width..][..self.width]
    }

    #[inline(always)]
    fn weight(&self, entry: usize) -> f32 {
        let right = self.direction.right.map_or(1.0, |right| right[self.direction.csr.indices()[entry] as usize]);
        self.weights.map_or(right, |weights| weights[entry] * right)
    }

    /// Prefetches the beginning of an entry's row, if there is such an entry.
    #[inline(always)]
    fn fetch(&self, entry: usize) {
        if let Some(&column) = self.direction.csr.indices().get(entry) {
            let row = &self.x[column as usize * self.width..][..self.width];
            row.chunks(CACHE_LINE / size_of::<X>()).take(LINES_AHEAD).for_each(|line| prefetch(line.as_ptr()));
        }
    }
}
