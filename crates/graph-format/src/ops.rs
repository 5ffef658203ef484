//! Operations that derive matrices: transpose, symmetrise, self loops, permute, extract a block.
//!
//! All run in parallel, in O(rows + entries) (times the log of a row's length where rows are sorted again). Results
//! are equal on any number of threads.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use girih_machine::zeros;
use rayon::prelude::*;

use crate::{Csr, FormatError, NodeId, Permutation, rows};

/// Transposed matrix with the original position of every entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Transposed {
    /// Transpose.
    pub csr: Csr,
    /// Position in the original of each entry of the transpose.
    pub positions: Vec<u64>,
}

impl Csr {
    /// Returns `Aᵀ`.
    #[must_use]
    pub fn transposed(&self) -> Self {
        self.transposed_with_positions().csr
    }

    /// Returns `Aᵀ` and, for each of its entries, the position of that entry in `A`.
    #[must_use]
    pub fn transposed_with_positions(&self) -> Transposed {
        let cursors: Vec<AtomicU64> = (0..self.n_cols()).map(|_| AtomicU64::new(0)).collect();
        self.indices().par_iter().with_min_len(1 << 14).for_each(|&c| {
            cursors[c as usize].fetch_add(1, Relaxed);
        });
        let indptr = rows::prefix_sum(cursors.iter().map(|c| c.load(Relaxed)));
        cursors.par_iter().zip(&indptr).for_each(|(c, &s)| c.store(s, Relaxed));
        let slots: Vec<AtomicU64> = (0..self.nnz()).into_par_iter().map(|_| AtomicU64::new(0)).collect();
        self.indices().par_iter().enumerate().with_min_len(1 << 14).for_each(|(e, &c)| {
            let slot = cursors[c as usize].fetch_add(1, Relaxed);
            slots[slot as usize].store(e as u64, Relaxed);
        });
        let mut positions: Vec<u64> = slots.into_iter().map(AtomicU64::into_inner).collect();

        // Positions ascend with rows, so sorting a bucket by position sorts it by row.
        let row_of = rows::row_of_entry(self.indptr());
        let tasks = rows::row_tasks(&indptr);
        let mut indices = zeros(self.nnz());
        let mut values = zeros(self.values().map_or(0, <[f32]>::len));
        let position_parts = rows::split_entries(&indptr, &tasks, &mut positions);
        let index_parts = rows::split_entries(&indptr, &tasks, &mut indices);
        tasks.par_iter().zip(position_parts).zip(index_parts).for_each(|((task, positions), indices)| {
            let base = indptr[task.start];
            for r in task.clone() {
                positions[(indptr[r] - base) as usize..(indptr[r + 1] - base) as usize].sort_unstable();
            }
            for (index, &position) in indices.iter_mut().zip(positions.iter()) {
                *index = row_of[position as usize];
            }
        });
        if let Some(old) = self.values() {
            values.par_iter_mut().zip(&positions).for_each(|(v, &p)| *v = old[p as usize]);
        }
        let values = self.values().map(|_| values.into());
        // SAFETY: buckets are the columns of `self`, so `indptr` fits; rows ascend strictly in each because a column
        // occurs once a row; weights are those of `self`.
        let csr = unsafe { Self::new_unchecked(self.n_cols(), self.n_rows(), indptr, indices, values) };
        Transposed { csr, positions }
    }

    /// Whether `A = Aᵀ`, weights included.
    ///
    /// Takes eight bytes per node and no transpose. Rows are visited in order, so the entries of a column appear in
    /// the order in which the row of that number must list them. Threads share the columns.
    #[must_use]
    pub fn is_symmetric(&self) -> bool {
        let n = self.n_rows();
        let width = n.div_ceil(rayon::current_num_threads()).max(1);
        let bands = 0..n.div_ceil(width);
        self.is_square() && bands.into_par_iter().all(|i| self.mirrors(i * width..((i + 1) * width).min(n)))
    }

    /// Whether the entries in a range of columns equal those of the rows of these numbers.
    fn mirrors(&self, band: Range<usize>) -> bool {
        let mut cursors: Vec<usize> = band.clone().map(|c| self.row_range(c).start).collect();
        for r in 0..self.n_rows() {
            let range = self.row_range(r);
            let first = range.start + self.row(r).partition_point(|&c| (c as usize) < band.start);
            for e in first..range.end {
                let c = self.indices()[e] as usize;
                if c >= band.end {
                    break;
                }
                let cursor = &mut cursors[c - band.start];
                let mirrored = *cursor < self.row_range(c).end && self.indices()[*cursor] as usize == r;
                let equal = mirrored && self.values().is_none_or(|v| v[e] == v[*cursor]);
                if !equal {
                    return false;
                }
                *cursor += 1;
            }
        }
        band.zip(cursors).all(|(c, cursor)| cursor == self.row_range(c).end)
    }

    /// Returns `A ∪ Aᵀ`: every edge in both directions. Where both exist with different weights, the larger stays.
    ///
    /// # Panics
    /// When the matrix is not square.
    #[must_use]
    pub fn symmetrized(&self) -> Self {
        assert!(self.is_square(), "only a square matrix can be symmetrised");
        let other = self.transposed();
        let count = |r: usize| union(self.row_entries(r), other.row_entries(r)).count();
        let fill = |r: usize, columns: &mut [NodeId], weights: &mut [f32]| {
            for (i, (c, w)) in union(self.row_entries(r), other.row_entries(r)).enumerate() {
                columns[i] = c;
                if let Some(slot) = weights.get_mut(i) {
                    *slot = w;
                }
            }
        };
        // SAFETY: the union of two ascending rows ascends, ids stay below `n_cols`, weights come from `self`.
        unsafe { rows::build(self.n_rows(), self.n_cols(), self.values().is_some(), count, fill) }
    }

    /// Returns `A + I` where the diagonal is missing. Existing loops keep their weight; new ones get weight one.
    ///
    /// # Panics
    /// When the matrix is not square.
    #[must_use]
    pub fn with_self_loops(&self) -> Self {
        assert!(self.is_square(), "only a square matrix has self loops");
        let own = |r: usize| std::iter::once((r as NodeId, f32::NEG_INFINITY));
        let merged = |r: usize| union(self.row_entries(r), own(r));
        let count = |r: usize| merged(r).count();
        let fill = |r: usize, columns: &mut [NodeId], weights: &mut [f32]| {
            for (i, (c, w)) in merged(r).enumerate() {
                columns[i] = c;
                if let Some(slot) = weights.get_mut(i) {
                    *slot = if w == f32::NEG_INFINITY { 1.0 } else { w };
                }
            }
        };
        // SAFETY: as in `symmetrized`; the diagonal id is a row id, and the placeholder weight is replaced by one.
        unsafe { rows::build(self.n_rows(), self.n_cols(), self.values().is_some(), count, fill) }
    }

    /// Returns `A` without its diagonal.
    #[must_use]
    pub fn without_self_loops(&self) -> Self {
        self.filtered(|r, c| r != c as usize)
    }

    /// Keeps the entries for which `keep(row, column)` holds.
    #[must_use]
    pub fn filtered(&self, keep: impl Fn(usize, NodeId) -> bool + Sync) -> Self {
        let count = |r: usize| self.row(r).iter().filter(|&&c| keep(r, c)).count();
        let fill = |r: usize, columns: &mut [NodeId], weights: &mut [f32]| {
            for (i, (c, w)) in self.row_entries(r).filter(|&(c, _)| keep(r, c)).enumerate() {
                columns[i] = c;
                if let Some(slot) = weights.get_mut(i) {
                    *slot = w;
                }
            }
        };
        // SAFETY: a subsequence of an ascending row ascends.
        unsafe { rows::build(self.n_rows(), self.n_cols(), self.values().is_some(), count, fill) }
    }

    /// Renumbers the nodes: edge `(r, c)` becomes `(p(r), p(c))`.
    ///
    /// # Panics
    /// When the matrix is not square or `permutation` has another length.
    #[must_use]
    pub fn permuted(&self, permutation: &Permutation) -> Self {
        assert!(self.is_square() && permutation.len() == self.n_rows(), "one new id per node of a square matrix");
        let old_of_new = permutation.inverse();
        let old = |r: usize| old_of_new.map(r as NodeId) as usize;
        let count = |r: usize| self.degree(old(r));
        let fill = |r: usize, columns: &mut [NodeId], weights: &mut [f32]| {
            if weights.is_empty() {
                for (slot, &c) in columns.iter_mut().zip(self.row(old(r))) {
                    *slot = permutation.map(c);
                }
                columns.sort_unstable();
            } else {
                let mut entries: Vec<(NodeId, f32)> =
                    self.row_entries(old(r)).map(|(c, w)| (permutation.map(c), w)).collect();
                entries.sort_unstable_by_key(|&(c, _)| c);
                for (i, (c, w)) in entries.into_iter().enumerate() {
                    (columns[i], weights[i]) = (c, w);
                }
            }
        };
        // SAFETY: a permutation maps distinct columns to distinct columns below `n_cols`, and rows are sorted.
        unsafe { rows::build(self.n_rows(), self.n_cols(), self.values().is_some(), count, fill) }
    }

    /// As [`permuted`](Self::permuted), and for each entry of the result its position in this matrix.
    ///
    /// # Panics
    /// As [`permuted`](Self::permuted).
    #[must_use]
    pub fn permuted_with_positions(&self, permutation: &Permutation) -> (Self, Vec<u64>) {
        let csr = self.permuted(permutation);
        let old_of_new = permutation.inverse();
        let mut positions = zeros(csr.nnz());
        let tasks = rows::row_tasks(csr.indptr());
        let parts = rows::split_entries(csr.indptr(), &tasks, &mut positions);
        tasks.into_par_iter().zip(parts).for_each(|(task, mut part)| {
            for new in task {
                let entries = self.row_range(old_of_new.map(new as NodeId) as usize);
                let row;
                (row, part) = part.split_at_mut(entries.len());
                row.iter_mut().zip(entries).for_each(|(position, entry)| *position = entry as u64);
                row.sort_unstable_by_key(|&position| permutation.map(self.indices()[position as usize]));
            }
        });
        (csr, positions)
    }

    /// Permutes the rows and keeps the columns: row `i` becomes row `permutation.map(i)`.
    ///
    /// # Panics
    /// When the length of the permutation is not the number of rows.
    #[must_use]
    pub fn with_rows_permuted(&self, permutation: &Permutation) -> Self {
        assert_eq!(permutation.len(), self.n_rows(), "one new place per row");
        let inverse = permutation.inverse();
        let old = |r: usize| inverse.new_of_old()[r] as usize;
        let count = |r: usize| self.degree(old(r));
        let fill = |r: usize, columns: &mut [NodeId], weights: &mut [f32]| {
            columns.copy_from_slice(self.row(old(r)));
            if let Some(values) = self.values() {
                weights.copy_from_slice(&values[self.row_range(old(r))]);
            }
        };
        // SAFETY: whole rows of a valid matrix.
        unsafe { rows::build(self.n_rows(), self.n_cols(), self.values().is_some(), count, fill) }
    }

    /// Range in [`indices`](Self::indices) of the entries of row `i` with columns in `cols`.
    ///
    /// # Panics
    /// When `i >= n_rows`.
    #[must_use]
    pub fn row_range_within(&self, i: usize, cols: &Range<usize>) -> Range<usize> {
        let range = self.row_range(i);
        let row = &self.indices()[range.clone()];
        let first = row.partition_point(|&c| (c as usize) < cols.start);
        let last = row.partition_point(|&c| (c as usize) < cols.end);
        range.start + first..range.start + last
    }

    /// Slices consecutive rows, with all columns; entries are shared, not copied.
    ///
    /// # Panics
    /// When `range` ends beyond the rows.
    #[must_use]
    pub fn row_slice(&self, range: Range<usize>) -> Self {
        let offsets = &self.indptr()[range.start..=range.end];
        let (first, last) = (offsets[0], offsets[range.len()]);
        let indptr: Vec<u64> = offsets.iter().map(|offset| offset - first).collect();
        // SAFETY: whole rows of a valid matrix, with offsets counted from the first of them.
        unsafe { self.with_rows(indptr, first as usize..last as usize) }
    }

    /// Extracts the block of the given rows and columns; its ids count from the start of each range.
    ///
    /// # Errors
    /// When a range reaches past the matrix.
    pub fn block(&self, block_rows: Range<usize>, block_cols: Range<usize>) -> Result<Self, FormatError> {
        if block_rows.start > block_rows.end || block_rows.end > self.n_rows() {
            return Err(FormatError::invalid(format!("rows {block_rows:?} of a matrix with {} rows", self.n_rows())));
        }
        if block_cols.start > block_cols.end || block_cols.end > self.n_cols() {
            return Err(FormatError::invalid(format!(
                "columns {block_cols:?} of a matrix with {} columns",
                self.n_cols()
            )));
        }
        let inside = |r: usize| self.row_range_within(block_rows.start + r, &block_cols);
        let count = |r: usize| inside(r).len();
        let fill = |r: usize, columns: &mut [NodeId], weights: &mut [f32]| {
            let range = inside(r);
            for (slot, &c) in columns.iter_mut().zip(&self.indices()[range.clone()]) {
                *slot = c - block_cols.start as NodeId;
            }
            if let Some(values) = self.values() {
                weights.copy_from_slice(&values[range]);
            }
        };
        // SAFETY: a slice of an ascending row, shifted by the block's first column, ascends and stays below its width.
        Ok(unsafe { rows::build(block_rows.len(), block_cols.len(), self.values().is_some(), count, fill) })
    }
}

/// Merges two rows; a column of both gets the larger weight.
pub(crate) fn union(
    a: impl Iterator<Item = (NodeId, f32)>,
    b: impl Iterator<Item = (NodeId, f32)>,
) -> impl Iterator<Item = (NodeId, f32)> {
    let (mut a, mut b) = (a.peekable(), b.peekable());
    std::iter::from_fn(move || match (a.peek().copied(), b.peek().copied()) {
        (Some((ca, wa)), Some((cb, wb))) if ca == cb => {
            a.next();
            b.next();
            Some((ca, wa.max(wb)))
        }
        (Some((ca, _)), Some((cb, _))) if ca > cb => b.next(),
        (Some(_), _) => a.next(),
        (None, _) => b.next(),
    })
}
