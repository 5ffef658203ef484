//! Operations on rows by id: gather and its backward pass, and largest elements of rows.

use girih_machine::parallel;
use rayon::prelude::*;

use super::chunks::{row_chunk_len, rows_per_chunk};
use super::element::Element;

/// Gathers rows: row `i` of `out` becomes row `ids[i]` of `x`. Rows are `cols` wide.
pub(crate) fn gather<X: Element, Y: Element>(x: &[X], cols: usize, ids: &[u32], out: &mut [Y]) {
    let pieces = out.chunks_mut(row_chunk_len(cols)).zip(ids.chunks(rows_per_chunk(cols)));
    parallel::for_each(pieces, |(out, ids)| {
        for (out, &id) in out.chunks_exact_mut(cols).zip(ids) {
            let row = &x[id as usize * cols..][..cols];
            for (out, x) in out.iter_mut().zip(row) {
                *out = Y::from_f32(x.to_f32());
            }
        }
    });
}

/// Adds row `i` of `x` to row `ids[i]` of `out`, in the order of the ids. Rows are `cols` wide.
///
/// One thread processes each chunk of `out`, with the ids that fall into it; equal ids keep their order. Rows without
/// an id stay untouched. Sums are `f32` and rounded once to the storage of `out`.
pub(crate) fn scatter_add<X: Element, Y: Element>(x: &[X], cols: usize, ids: &[u32], out: &mut [Y]) {
    if out.is_empty() {
        return;
    }
    let n_rows = out.len() / cols;
    let by_piece = Buckets::new(ids, rows_per_chunk(cols), n_rows);
    parallel::for_each(out.chunks_mut(row_chunk_len(cols)).enumerate(), |(piece, out)| {
        let first_row = piece * rows_per_chunk(cols);
        let mut positions = by_piece.bucket(piece).to_vec();
        positions.sort_unstable_by_key(|&position| (ids[position as usize], position));
        let mut sums = vec![0.0f32; cols];
        for same in positions.chunk_by(|&a, &b| ids[a as usize] == ids[b as usize]) {
            let row = ids[same[0] as usize] as usize - first_row;
            let out = &mut out[row * cols..][..cols];
            sums.iter_mut().zip(&*out).for_each(|(sum, value)| *sum = value.to_f32());
            for &position in same {
                let x = &x[position as usize * cols..][..cols];
                sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += x.to_f32());
            }
            out.iter_mut().zip(&sums).for_each(|(out, &sum)| *out = Y::from_f32(sum));
        }
    });
}

/// Index of the largest element of each row, the first one of equals. Rows are `cols` wide, at least one.
pub(crate) fn argmax<X: Element>(x: &[X], cols: usize) -> Vec<u32> {
    x.par_chunks_exact(cols).with_min_len(rows_per_chunk(cols)).map(largest).collect()
}

/// Number of `rows` whose largest element is in the column of their class.
pub(crate) fn count_correct<X: Element>(x: &[X], cols: usize, classes: &[u32], rows: &[u32]) -> u64 {
    let is_correct = |&&row: &&u32| largest(&x[row as usize * cols..][..cols]) == classes[row as usize];
    rows.par_iter().with_min_len(rows_per_chunk(cols)).filter(is_correct).count() as u64
}

fn largest<X: Element>(row: &[X]) -> u32 {
    (1..row.len()).fold(0, |best, c| if row[c].to_f32() > row[best].to_f32() { c } else { best }) as u32
}

/// Positions in a list of ids, grouped by `id / width` and in order within each group.
pub(super) struct Buckets {
    starts: Vec<usize>,
    positions: Vec<u32>,
}

impl Buckets {
    /// Groups the positions by a counting sort; ids are below `end`.
    pub(super) fn new(ids: &[u32], width: usize, end: usize) -> Self {
        let bucket = |id: u32| id as usize / width;
        let mut starts = vec![0; end.div_ceil(width) + 1];
        for &id in ids {
            starts[bucket(id) + 1] += 1;
        }
        for b in 1..starts.len() {
            starts[b] += starts[b - 1];
        }
        let (mut next, mut positions) = (starts.clone(), vec![0; ids.len()]);
        for (position, &id) in ids.iter().enumerate() {
            positions[next[bucket(id)]] = position as u32;
            next[bucket(id)] += 1;
        }
        Self { starts, positions }
    }

    pub(super) fn bucket(&self, b: usize) -> &[u32] {
        &self.positions[self.starts[b]..self.starts[b + 1]]
    }
}
