//! Sample of rows that a codec learns from.

use girih_graph_format::Matrix;
use girih_random::{Key, purpose};
use rayon::prelude::*;

use crate::{CompressError, RowSource};

/// Purpose of draws, below [`purpose::COMPRESSION`]. The numbers are part of every store, see `docs/draws.md`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Draws {
    /// Rows of the sample.
    Sample = 1,
    /// Random vectors of the range finder.
    Components = 2,
    /// Rows that k-means learns from and starts at.
    Centroids = 3,
    /// Rows on which `auto` compares codecs.
    HeldOut = 4,
}

impl Draws {
    /// Random key of these draws, below `key`.
    pub(crate) fn of(self, key: Key) -> Key {
        key.child(self as u64)
    }
}

/// Number of rows per block of a sum; sums of blocks are added in order, so that the mean does not depend on threads.
const SUM_ROWS: usize = 256;

/// Options of drawing a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleOptions {
    /// Largest number of rows; all rows if there are fewer.
    pub n_rows: usize,
    /// Random seed of the draw.
    pub seed: u64,
}

/// Largest memory of a sample in bytes: far below the documented bound of encoding as a whole.
const SAMPLE_BYTES_MAX: usize = 64 << 20;

impl Default for SampleOptions {
    /// 16384 rows: their mean is within 1 % of a standard deviation.
    fn default() -> Self {
        Self { n_rows: 1 << 14, seed: 0 }
    }
}

/// Draws distinct rows of a source uniformly, and reads them in order of rows. Draws fewer rows if they would take
/// more than 64 MiB.
///
/// # Errors
/// When the source cannot be read.
pub fn draw_sample(source: &dyn RowSource, options: SampleOptions) -> Result<Matrix, CompressError> {
    let width = source.width();
    let n_rows_max = (SAMPLE_BYTES_MAX / size_of::<f32>() / width.max(1)).max(2);
    let key = Draws::Sample.of(Key::new(options.seed, purpose::COMPRESSION));
    let rows = draw_rows(source.n_rows(), options.n_rows.min(n_rows_max), key);
    let mut values = vec![0.0; rows.len() * width];
    for (values, &row) in values.chunks_exact_mut(width.max(1)).zip(&rows) {
        source.read_rows(row, values)?;
    }
    Ok(Matrix::new(rows.len(), width, values)?)
}

/// Draws up to `count` of `n_rows` rows, ascending, by Floyd's algorithm (Bentley and Floyd, CACM 30(9), 1987) with
/// the stream `(0, 0)` of `key`.
pub(crate) fn draw_rows(n_rows: usize, count: usize, key: Key) -> Vec<usize> {
    if count >= n_rows {
        return (0..n_rows).collect();
    }
    let mut stream = key.stream(0, 0);
    let mut taken = std::collections::BTreeSet::new();
    for last in n_rows - count..n_rows {
        let row = stream.below(last as u64 + 1) as usize;
        if !taken.insert(row) {
            taken.insert(last);
        }
    }
    taken.into_iter().collect()
}

/// Mean row of the sample.
pub(crate) fn mean_row(sample: &Matrix) -> Vec<f32> {
    mean_of(sample.n_cols(), sample, |row, sum| {
        row.iter().zip(sum).for_each(|(&value, sum)| *sum += f64::from(value));
    })
}

/// Mean over the sample of `n` numbers that `add` adds up for each row; the order of sums does not depend on threads.
pub(crate) fn mean_of(n: usize, sample: &Matrix, add: impl Fn(&[f32], &mut [f64]) + Sync) -> Vec<f32> {
    let parts: Vec<Vec<f64>> = sample
        .data()
        .par_chunks(SUM_ROWS * sample.n_cols())
        .map(|rows| {
            let mut sum = vec![0.0; n];
            rows.chunks_exact(sample.n_cols()).for_each(|row| add(row, &mut sum));
            sum
        })
        .collect();
    let mut sum = vec![0.0; n];
    parts.iter().for_each(|part| sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part));
    sum.iter().map(|sum| (sum / sample.n_rows() as f64) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_different_ascending_and_every_one_is_as_likely() {
        let mut counts = [0u32; 40];
        for seed in 0..4000 {
            let rows = draw_rows(40, 10, Key::new(seed, purpose::COMPRESSION));
            assert_eq!(rows.len(), 10);
            assert!(rows.is_sorted_by(|a, b| a < b));
            rows.iter().for_each(|&row| counts[row] += 1);
        }
        // The standard deviation is 27 around 1000; six of them practically never occur by chance.
        assert!(counts.iter().all(|&count| count.abs_diff(1000) < 165), "{counts:?}");
        assert_eq!(draw_rows(3, 3, Key::new(0, 0)), [0, 1, 2]);
        assert_eq!(draw_rows(3, 9, Key::new(0, 0)), [0, 1, 2]);
    }
}
