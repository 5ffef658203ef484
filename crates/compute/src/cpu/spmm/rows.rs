//! Products that read few rows of the operand, where they lie: blocks of mini-batches.
//!
//! Packing an operand pays when each of its rows is read many times. A block of a mini-batch reads most rows of its
//! operand once or twice, and of a whole graph's features only some: then each row of the result is summed in the L1
//! cache, straight from the rows that it names, which are fetched ahead.

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

/// Packing is worth it from so many reads of a row of the operand on.
const READS_MIN: usize = 4;
/// Rows of the operand that are summed in one pass over the sums.
const TOGETHER: usize = 4;
/// Entries between the row that is fetched ahead and the one that is read.
const AHEAD: usize = 6;
/// Cache lines of a row that are fetched ahead; the rest follows in order, which processors foresee.
const LINES_AHEAD: usize = 8;

/// Whether rows are to be read where they lie: there are few reads, and no row that several tasks would have to share.
pub(super) fn is_worth(direction: Direction<'_>) -> bool {
    direction.csr.nnz() < READS_MIN * direction.csr.n_cols() && direction.schedule.segments().is_empty()
}

/// The product with an operand of rows of `width`, with entries weighted by `weights`.
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

/// What a product reads.
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

    /// Adds the rows that some entries name, times their weights.
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
            // Not `for_each`, whose loop may be compiled elsewhere, for the oldest processor.
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

    /// Asks for the beginning of the row that an entry names, if there is such an entry.
    #[inline(always)]
    fn fetch(&self, entry: usize) {
        if let Some(&column) = self.direction.csr.indices().get(entry) {
            let row = &self.x[column as usize * self.width..][..self.width];
            row.chunks(CACHE_LINE / size_of::<X>()).take(LINES_AHEAD).for_each(|line| prefetch(line.as_ptr()));
        }
    }
}
