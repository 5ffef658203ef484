//! [`LoopedRows`]: some rows of an adjacency, with self loops that are not stored.

use std::ops::Range;

use girih_graph_format::{Csr, NodeId, WeightSum};

/// Consecutive rows of a square matrix. With `self_loops`, a row without an entry on the diagonal gets one of weight
/// one.
pub(crate) struct LoopedRows {
    /// Rows as they are stored.
    pub(crate) csr: Csr,
    /// Number of the first row.
    pub(crate) first: usize,
    pub(crate) self_loops: bool,
}

impl LoopedRows {
    pub(crate) fn new(csr: Csr, first: usize, self_loops: bool) -> Self {
        Self { csr, first, self_loops }
    }

    /// Appends the entries of row `i`, counted from the first, whose columns lie in `columns`. Ids are counted from
    /// the start of `columns`. Weights are appended if there are any.
    pub(super) fn append(&self, i: usize, columns: &Range<usize>, (ids, weights): (&mut Vec<NodeId>, &mut Vec<f32>)) {
        let range = self.csr.row_range_within(i, columns);
        let (row, own, shift) = (&self.csr.indices()[range.clone()], self.first + i, columns.start as NodeId);
        let is_missing = self.self_loops && columns.contains(&own);
        let place = if is_missing { row.binary_search(&(own as NodeId)).err() } else { None };
        let (before, after) = row.split_at(place.unwrap_or(row.len()));
        ids.extend(before.iter().map(|c| c - shift));
        ids.extend(place.map(|_| own as NodeId - shift));
        ids.extend(after.iter().map(|c| c - shift));
        if let Some(values) = self.csr.values() {
            let (before, after) = values[range].split_at(before.len());
            weights.extend_from_slice(before);
            weights.extend(place.map(|_| 1.0));
            weights.extend_from_slice(after);
        }
    }

    /// Numbers of all rows.
    pub(super) fn rows(&self) -> Range<usize> {
        self.first..self.first + self.csr.n_rows()
    }

    /// Calls `visit` with the number, columns and weights of each row. Weights are empty where all are one.
    pub(crate) fn for_each(&self, columns: &Range<usize>, visit: impl FnMut(usize, &[NodeId], &[f32])) {
        self.for_some(&self.rows(), columns, visit);
    }

    /// As [`for_each`](Self::for_each), but for the rows of a range.
    pub(super) fn for_some(
        &self,
        rows: &Range<usize>,
        columns: &Range<usize>,
        mut visit: impl FnMut(usize, &[NodeId], &[f32]),
    ) {
        let (mut ids, mut weights) = (Vec::new(), Vec::new());
        for row in rows.clone() {
            ids.clear();
            weights.clear();
            self.append(row - self.first, columns, (&mut ids, &mut weights));
            visit(row, &ids, &weights);
        }
    }

    /// Sums of the weights of each row; without weights, each entry counts one.
    pub(crate) fn sums(&self) -> Vec<WeightSum> {
        let mut sums = Vec::with_capacity(self.csr.n_rows());
        self.for_each(&(0..self.csr.n_cols()), |_, ids, weights| {
            let mut sum = WeightSum { signed: ids.len() as f64, absolute: ids.len() as f64 };
            if self.csr.values().is_some() {
                sum = WeightSum::default();
                weights.iter().for_each(|&weight| sum.add(weight));
            }
            sums.push(sum);
        });
        sums
    }
}
