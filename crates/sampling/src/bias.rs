//! [`Bias`]: weights of edges, ready to be drawn from.

use std::ops::Range;

use girih_graph_format::Csr;
use rayon::prelude::*;

use crate::SampleError;

/// Weights of a graph's edges as running sums of integers, eight bytes an edge: a draw is one binary search and exact
/// to the bit on every machine.
///
/// Integers are relative to the largest weight of a row: weights above 2⁻⁸ of it are exact, smaller ones are off by
/// at most 2⁻³² of it, and none but zero becomes zero.
#[derive(Clone, Debug)]
pub struct Bias {
    /// The sum of the weights of a row up to and with this entry.
    running: Vec<u64>,
    /// For each row, the `e` of its largest weight `x · 2^e`.
    exponents: Vec<i16>,
}

impl Bias {
    /// The weights that the graph itself has; equal ones for a graph without weights.
    ///
    /// # Errors
    /// When a weight is negative.
    pub fn of(graph: &Csr) -> Result<Self, SampleError> {
        match graph.values() {
            Some(weights) => Self::new(graph, weights),
            None => Self::new(graph, &vec![1.0; graph.nnz()]),
        }
    }

    /// A weight for each entry of `graph`; entries with weight zero are never drawn.
    ///
    /// # Errors
    /// When there are more or fewer weights than entries, or one is negative, infinite or no number.
    pub fn new(graph: &Csr, weights: &[f32]) -> Result<Self, SampleError> {
        if weights.len() != graph.nnz() {
            return Err(SampleError::invalid(format!(
                "{} weights for {} edges; give one weight an edge",
                weights.len(),
                graph.nnz()
            )));
        }
        if let Some(at) = weights.par_iter().position_first(|w| !(w.is_finite() && *w >= 0.0)) {
            let row = graph.indptr().partition_point(|&start| start <= at as u64) - 1;
            return Err(SampleError::invalid(format!(
                "the weight of edge {} → {row} (entry {at}) is {}; weights must be finite and not negative",
                graph.indices()[at],
                weights[at]
            )));
        }
        let mut running = vec![0; weights.len()];
        let mut rest = &mut running[..];
        let rows: Vec<(&mut [u64], &[f32])> = (0..graph.n_rows())
            .map(|row| {
                let range = graph.row_range(row);
                let (row, after) = std::mem::take(&mut rest).split_at_mut(range.len());
                rest = after;
                (row, &weights[range])
            })
            .collect();
        let sum_row =
            |(running, weights): (&mut [u64], &[f32])| running_sums(weights.iter().copied().map(f64::from), running);
        // An `f32` has exponents from -149 to 127.
        let exponents = rows.into_par_iter().with_min_len(256).map(|row| sum_row(row) as i16).collect();
        Ok(Self { running, exponents })
    }

    /// Number of edges that have a weight.
    #[must_use]
    pub fn n_edges(&self) -> usize {
        self.running.len()
    }

    /// The integers of each row as running sums, an entry for each edge.
    #[must_use]
    pub fn running(&self) -> &[u64] {
        &self.running
    }

    /// For each row, the `e` of its largest weight `x · 2^e`, which its integers are relative to.
    #[must_use]
    pub fn exponents(&self) -> &[i16] {
        &self.exponents
    }

    /// What a number of the integers of `row` is as a weight.
    pub(crate) fn in_row(&self, integers: f64, row: usize) -> f64 {
        integers * 2f64.powi(i32::from(self.exponents[row]) - UNIT)
    }

    /// The weights of the row that lies at `range`.
    pub(crate) fn row(&self, range: Range<usize>) -> RowBias<'_> {
        RowBias { running: &self.running[range] }
    }
}

/// The bits of integers after the first one of the largest.
const UNIT: i32 = 31;

/// Running sums of weights, as integers relative to the largest of them, `x · 2^e`; returns `e`, or 0 if all are zero.
pub(crate) fn running_sums(weights: impl Iterator<Item = f64> + Clone, running: &mut [u64]) -> i32 {
    let largest = weights.clone().fold(0.0, f64::max);
    if largest == 0.0 {
        return 0;
    }
    let scale = 2f64.powi(UNIT - exponent(largest));
    let mut sum = 0;
    for (weight, running) in weights.zip(running) {
        if weight > 0.0 {
            sum += ((weight * scale).round_ties_even() as u64).max(1);
        }
        *running = sum;
    }
    exponent(largest)
}

/// The `e` of `x · 2^e` with `1 ≤ x < 2`, for a positive normal number, as every positive `f32` is one.
fn exponent(number: f64) -> i32 {
    (number.to_bits() >> 52) as i32 - 1023
}

/// The weights of one row, or of other things in order; positions count from the first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowBias<'a> {
    running: &'a [u64],
}

impl<'a> RowBias<'a> {
    pub(crate) fn new(running: &'a [u64]) -> Self {
        Self { running }
    }

    /// The sum of all weights.
    pub(crate) fn total(self) -> u64 {
        self.running.last().copied().unwrap_or(0)
    }

    /// The sum of the weights before `position`.
    pub(crate) fn before(self, position: u32) -> u64 {
        if position == 0 { 0 } else { self.running[position as usize - 1] }
    }

    /// The weight at `position`.
    pub(crate) fn weight(self, position: u32) -> u64 {
        self.running[position as usize] - self.before(position)
    }

    /// The first position at which the running sum exceeds `place`.
    pub(crate) fn find(self, place: u64) -> u32 {
        self.running.partition_point(|&sum| sum <= place) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(weights: &[f32]) -> Vec<u64> {
        let mut running = vec![0; weights.len()];
        running_sums(weights.iter().map(|&weight| f64::from(weight)), &mut running);
        running
    }

    #[test]
    fn integers_keep_ratios_and_zeros() {
        let unit = 1u64 << 31;
        assert_eq!(row(&[0.0, 1.0, 0.0, 0.5]), [0, unit, unit, unit + unit / 2]);
        assert_eq!(row(&[3.0, 1.0, 2.0]), [3 * unit / 2, 2 * unit, 3 * unit]);
        assert_eq!(row(&[0.0, 0.0]), [0, 0]);
        // Far below the largest, but never zero; and subnormal weights alone are as good as any.
        assert_eq!(row(&[f32::MAX, f32::from_bits(1)])[1] - row(&[f32::MAX])[0], 1);
        assert_eq!(row(&[f32::from_bits(1), f32::from_bits(2)]), [unit / 2, 3 * unit / 2]);
    }

    #[test]
    fn places_find_their_entry() {
        let running = [0, 3, 3, 4];
        let row = RowBias { running: &running };
        let found: Vec<u32> = (0..4).map(|place| row.find(place)).collect();
        assert_eq!(found, [1, 1, 1, 3]);
        assert_eq!((row.total(), row.weight(2), row.weight(3), row.before(3)), (4, 0, 1, 3));
    }
}
