//! [`Bias`]: edge weights as running sums, from which edges are drawn.

use std::ops::Range;

use girih_graph_format::Csr;
use girih_machine::parallel;
use rayon::prelude::*;

use crate::SampleError;

/// Weights of a graph's edges as running sums of integers, eight bytes per edge. A draw is one binary search, and its
/// result is equal to the bit on every machine.
///
/// Integers are relative to the largest weight of a row. Weights above 2⁻⁸ of it are exact; smaller ones are off by
/// at most 2⁻³² of it. Only a weight of zero becomes zero.
#[derive(Clone, Debug)]
pub struct Bias {
    /// Sum of the weights of a row up to and including this entry; one element per edge.
    running: Vec<u64>,
    /// Exponent `e` of the largest weight `x · 2^e` of each row.
    exponents: Vec<i16>,
}

impl Bias {
    /// Takes the weights of the graph itself; a graph without weights gives equal ones.
    ///
    /// # Errors
    /// When a weight is negative.
    pub fn of(graph: &Csr) -> Result<Self, SampleError> {
        match graph.values() {
            Some(weights) => Self::new(graph, weights),
            None => Self::new(graph, &vec![1.0; graph.nnz()]),
        }
    }

    /// Takes a weight for each entry of `graph`; entries with weight zero are never drawn.
    ///
    /// # Errors
    /// When the number of weights differs from the number of entries, or a weight is negative, infinite or not a
    /// number.
    pub fn new(graph: &Csr, weights: &[f32]) -> Result<Self, SampleError> {
        if weights.len() != graph.nnz() {
            return Err(SampleError::invalid(format!(
                "{} weights for {} edges; give one weight an edge",
                weights.len(),
                graph.nnz()
            )));
        }
        if let Some(at) = parallel::position(weights, |w| !(w.is_finite() && *w >= 0.0)) {
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

    /// Number of edges, each of which has a weight.
    #[must_use]
    pub fn n_edges(&self) -> usize {
        self.running.len()
    }

    /// Running sums of the integer weights of each row; one element per edge.
    #[must_use]
    pub fn running(&self) -> &[u64] {
        &self.running
    }

    /// Exponent `e` of the largest weight `x · 2^e` of each row, to which the row's integers are relative.
    #[must_use]
    pub fn exponents(&self) -> &[i16] {
        &self.exponents
    }

    /// Converts a number in the integer scale of `row` into a weight.
    pub(crate) fn in_row(&self, integers: f64, row: usize) -> f64 {
        integers * 2f64.powi(i32::from(self.exponents[row]) - UNIT)
    }

    /// Weights of the row whose entries lie at `range`.
    pub(crate) fn row(&self, range: Range<usize>) -> RowBias<'_> {
        RowBias { running: &self.running[range] }
    }
}

/// Number of bits of an integer weight below the leading bit of the largest one.
const UNIT: i32 = 31;

/// Writes running sums of weights, as integers relative to the largest of them, `x · 2^e`. Returns `e`, or 0 if all
/// weights are zero.
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

/// Exponent `e` of `x · 2^e` with `1 ≤ x < 2`, for a positive normal number. Every positive `f32` is normal as an
/// `f64`.
fn exponent(number: f64) -> i32 {
    (number.to_bits() >> 52) as i32 - 1023
}

/// Weights of one row, or of other items in order; positions count from the first item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowBias<'a> {
    running: &'a [u64],
}

impl<'a> RowBias<'a> {
    pub(crate) fn new(running: &'a [u64]) -> Self {
        Self { running }
    }

    /// Sum of all weights; 0 if there are none.
    pub(crate) fn total(self) -> u64 {
        self.running.last().copied().unwrap_or(0)
    }

    /// Sum of the weights before `position`.
    pub(crate) fn before(self, position: u32) -> u64 {
        if position == 0 { 0 } else { self.running[position as usize - 1] }
    }

    /// Weight at `position`.
    pub(crate) fn weight(self, position: u32) -> u64 {
        self.running[position as usize] - self.before(position)
    }

    /// First position at which the running sum exceeds `place`.
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
        // Small weights are far below the largest, but never zero; a row of subnormal weights keeps its ratios.
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
