//! [`Schedule`]: division of the rows of a sparse matrix into pieces of about equal work.
//!
//! ```text
//! degree   2 1 3 │ 9 │ 1 0 2 2 │ …        │ cuts; the row of degree 9 is a hub
//! pieces   Rows(0..3)  Hub(3)  Rows(4..8)  …    cover every row once, in order
//! segments       entries 6..10, 10..15          of the hub, at most SEGMENT_ENTRIES each
//! ```
//! The cuts depend on the matrix alone, and partial sums of a hub are added in order. Results therefore do not depend
//! on the number of threads.

use std::ops::Range;

use girih_graph_format::Csr;

/// Maximum number of entries of a row that a single task sums. Rows with more are hubs, which several tasks share.
const HUB_ENTRIES: usize = 1 << 15;
/// Number of entries of a hub that one task sums.
const SEGMENT_ENTRIES: usize = 1 << 14;
/// Number of pieces of a large matrix: enough for dozens of threads to finish together, few enough for low overhead.
const N_PIECES: usize = 256;
/// Minimum work of a task, in entries.
const PIECE_WORK_MIN: usize = 1 << 13;
/// Cost of a row besides its entries, in entries: offsets, epilogue and store.
const ROW_WORK: usize = 4;

/// Piece of work on consecutive rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Rows that one task handles.
    Rows(Range<usize>),
    /// Hub: a row that several tasks sum, one for each of these segments.
    Hub {
        /// Index of the row.
        row: usize,
        /// Range of its segments in [`Schedule::segments`].
        segments: Range<usize>,
    },
}

impl Piece {
    /// Rows that the piece writes.
    pub(crate) fn rows(&self) -> Range<usize> {
        match self {
            Self::Rows(rows) => rows.clone(),
            Self::Hub { row, .. } => *row..row + 1,
        }
    }
}

/// Division of a product with a sparse matrix into tasks.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pieces: Vec<Piece>,
    segments: Vec<Range<usize>>,
}

impl Schedule {
    /// Divides the rows of `csr` into pieces.
    pub(crate) fn new(csr: &Csr) -> Self {
        let work = csr.nnz() + ROW_WORK * csr.n_rows();
        Self::with_limits(csr, (work / N_PIECES).max(PIECE_WORK_MIN), HUB_ENTRIES, SEGMENT_ENTRIES)
    }

    fn with_limits(csr: &Csr, piece_work: usize, hub_entries: usize, segment_entries: usize) -> Self {
        let mut schedule = Self { pieces: Vec::new(), segments: Vec::new() };
        let (mut start, mut work) = (0, 0);
        for row in 0..csr.n_rows() {
            if csr.degree(row) > hub_entries {
                schedule.push_rows(start..row);
                schedule.push_hub(row, csr.row_range(row), segment_entries);
                (start, work) = (row + 1, 0);
                continue;
            }
            work += csr.degree(row) + ROW_WORK;
            if work >= piece_work {
                schedule.push_rows(start..row + 1);
                (start, work) = (row + 1, 0);
            }
        }
        schedule.push_rows(start..csr.n_rows());
        schedule
    }

    fn push_rows(&mut self, rows: Range<usize>) {
        if !rows.is_empty() {
            self.pieces.push(Piece::Rows(rows));
        }
    }

    fn push_hub(&mut self, row: usize, entries: Range<usize>, segment_entries: usize) {
        let first = self.segments.len();
        let starts = entries.clone().step_by(segment_entries);
        self.segments.extend(starts.map(|start| start..(start + segment_entries).min(entries.end)));
        self.pieces.push(Piece::Hub { row, segments: first..self.segments.len() });
    }

    /// All pieces, covering every row once, in order.
    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Splits `values`, rows of `width`, into the rows of each piece.
    pub(crate) fn split_rows<'v, T>(&self, mut values: &'v mut [T], width: usize) -> Vec<&'v mut [T]> {
        let parts = self.pieces.iter().map(|piece| {
            let (part, rest) = std::mem::take(&mut values).split_at_mut(piece.rows().len() * width);
            values = rest;
            part
        });
        parts.collect()
    }

    /// Entry ranges of the segments of all hubs.
    pub(crate) fn segments(&self) -> &[Range<usize>] {
        &self.segments
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Matrix with rows of the given lengths.
    fn with_degrees(degrees: &[usize]) -> Csr {
        let mut indptr = vec![0];
        let mut indices = Vec::new();
        for &degree in degrees {
            indices.extend(0..degree as u32);
            indptr.push(indices.len() as u64);
        }
        Csr::new(degrees.len(), 200, indptr, indices, None).unwrap()
    }

    proptest! {
        #[test]
        fn pieces_cover_every_row_and_entry_once(
            degrees in prop::collection::vec(prop_oneof![4 => 0usize..8, 1 => 0usize..200], 0..60),
            piece_work in 1usize..100,
            hub_entries in 1usize..60,
            segment_entries in 1usize..40,
        ) {
            let csr = with_degrees(&degrees);
            let schedule = Schedule::with_limits(&csr, piece_work, hub_entries, segment_entries);
            let (mut next_row, mut next_entry, mut next_segment) = (0, 0, 0);
            for piece in schedule.pieces() {
                let rows = piece.rows();
                prop_assert_eq!(rows.start, next_row);
                prop_assert!(!rows.is_empty());
                next_row = rows.end;
                match piece {
                    Piece::Rows(rows) => {
                        let work: usize = rows.clone().map(|r| csr.degree(r) + ROW_WORK).sum();
                        prop_assert!(work < piece_work + hub_entries + ROW_WORK);
                        next_entry = csr.indptr()[rows.end] as usize;
                    }
                    Piece::Hub { row, segments } => {
                        prop_assert!(csr.degree(*row) > hub_entries);
                        prop_assert_eq!(segments.start, next_segment);
                        next_segment = segments.end;
                        for segment in &schedule.segments()[segments.clone()] {
                            prop_assert_eq!(segment.start, next_entry);
                            prop_assert!(!segment.is_empty() && segment.len() <= segment_entries);
                            next_entry = segment.end;
                        }
                        prop_assert_eq!(next_entry, csr.indptr()[row + 1] as usize);
                    }
                }
            }
            prop_assert_eq!((next_row, next_entry, next_segment), (csr.n_rows(), csr.nnz(), schedule.segments().len()));
        }
    }

    #[test]
    fn small_matrices_are_one_piece() {
        assert_eq!(Schedule::new(&with_degrees(&[1, 0, 3])).pieces(), [Piece::Rows(0..3)]);
        assert!(Schedule::new(&with_degrees(&[])).pieces().is_empty());
    }
}
