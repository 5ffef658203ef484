//! Largest elements of rows.

use girih_graph_format::Csr;
use rayon::prelude::*;

use super::element::Element;
use crate::NO_COLUMN;

/// Column indices of the `k` largest elements of each row of `x`, without those in the same row of `excluded`. Rows
/// are `cols` wide.
pub(crate) fn rows<X: Element>(x: &[X], cols: usize, k: usize, excluded: &Csr) -> Vec<u32> {
    let mut found = vec![NO_COLUMN; excluded.n_rows() * k];
    if k == 0 || cols == 0 {
        return found;
    }
    found.par_chunks_mut(k).zip(x.par_chunks(cols)).enumerate().for_each(|(row, (found, x))| {
        let mut best = Best { k, entries: Vec::with_capacity(k + 1) };
        let excluded = excluded.row(row);
        for (column, value) in x.iter().enumerate() {
            let value = value.to_f32();
            // Few elements exceed the limit, so that the search among the excluded columns is rare.
            if value > best.limit() && excluded.binary_search(&(column as u32)).is_err() {
                best.insert(value, column as u32);
            }
        }
        found.iter_mut().zip(&best.entries).for_each(|(found, &(_, column))| *found = column);
    });
    found
}

/// Largest values so far with their columns, largest first.
struct Best {
    k: usize,
    entries: Vec<(f32, u32)>,
}

impl Best {
    /// Exclusive lower bound for a value to enter. Columns come in order, so an equal value of a later column does
    /// not enter.
    fn limit(&self) -> f32 {
        if self.entries.len() < self.k { f32::NEG_INFINITY } else { self.entries[self.k - 1].0 }
    }

    fn insert(&mut self, value: f32, column: u32) {
        let at = self.entries.partition_point(|&(earlier, _)| earlier >= value);
        self.entries.insert(at, (value, column));
        self.entries.truncate(self.k);
    }
}
