//! Sums and means over neighbors, computed from codes without decoding rows.
//!
//! A code book adds `2k` numbers for each group of 256 features of a neighbor. Principal components are summed as
//! coefficients, and converted to features once per destination.

use girih_graph_format::NodeId;
use rayon::prelude::*;

use crate::{CompressError, CompressedFeatures};

/// Number of destinations of one task.
const TASK_ROWS: usize = 16;
/// Prefetch distance of codes, in neighbors.
const NEIGHBORS_AHEAD: usize = 8;

/// Aggregation of the features of a node's neighbors. Without neighbors, both give zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// Sum of the features.
    Sum,
    /// Sum of the features over the number of neighbors.
    Mean,
}

impl CompressedFeatures {
    /// Aggregates the features of the neighbors of each destination: row `v` of `out` (`width` features) is over
    /// `neighbors(v)`, such as a row of a graph or block, added in that order.
    ///
    /// For codecs other than `topk-residual` and `pca`, the result equals decoding all neighbors and adding them up
    /// in order, bit for bit. Those two add the common part of all rows once instead of every time.
    ///
    /// # Errors
    /// When a neighbor is not below the number of rows; the content of `out` is then unspecified.
    ///
    /// # Panics
    /// When `out` does not have whole rows.
    pub fn aggregate<'a>(
        &self,
        aggregate: Aggregate,
        neighbors: impl Fn(usize) -> &'a [NodeId] + Sync,
        out: &mut [f32],
    ) -> Result<(), CompressError> {
        self.for_each_destination(out, |v, sum, out| {
            let neighbors = neighbors(v);
            let n = neighbors.len() as f32;
            self.sum_codes(neighbors, |_| 1.0, sum)?;
            self.codec().finish_sum(sum, n, out);
            if aggregate == Aggregate::Mean && n > 0.0 {
                out.iter_mut().for_each(|value| *value /= n);
            }
            Ok(())
        })
    }

    /// As [`aggregate`](Self::aggregate), but multiplies each neighbor by its weight: `weights(v)` has one for each
    /// of `neighbors(v)`.
    ///
    /// # Errors
    /// As [`aggregate`](Self::aggregate).
    ///
    /// # Panics
    /// When `out` does not have whole rows, or the numbers of weights and neighbors differ.
    pub fn aggregate_weighted<'a>(
        &self,
        neighbors: impl Fn(usize) -> &'a [NodeId] + Sync,
        weights: impl Fn(usize) -> &'a [f32] + Sync,
        out: &mut [f32],
    ) -> Result<(), CompressError> {
        self.for_each_destination(out, |v, sum, out| {
            let (neighbors, weights) = (neighbors(v), weights(v));
            assert_eq!(neighbors.len(), weights.len(), "weights of the neighbors of row {v}");
            self.sum_codes(neighbors, |i| weights[i], sum)?;
            self.codec().finish_sum(sum, weights.iter().sum(), out);
            Ok(())
        })
    }

    /// Sums up the codes of neighbors in order, the `i`-th times `weight(i)`.
    #[inline]
    fn sum_codes(
        &self,
        neighbors: &[NodeId],
        weight: impl Fn(usize) -> f32,
        sum: &mut [f32],
    ) -> Result<(), CompressError> {
        sum.fill(0.0);
        for (i, &neighbor) in neighbors.iter().enumerate() {
            self.ask_for(neighbors.get(i + NEIGHBORS_AHEAD).copied());
            self.codec().add_scaled(self.checked_code(neighbor)?, weight(i), sum);
        }
        Ok(())
    }

    /// Calls `work` for each row of `out`, with its number and a buffer for a sum of codes.
    fn for_each_destination(
        &self,
        out: &mut [f32],
        work: impl Fn(usize, &mut [f32], &mut [f32]) -> Result<(), CompressError> + Sync,
    ) -> Result<(), CompressError> {
        let width = self.width();
        assert!(out.len().is_multiple_of(width), "whole rows of {width} features");
        out.par_chunks_mut(TASK_ROWS * width).enumerate().try_for_each(|(task, out)| {
            let mut sum = vec![0.0; self.codec().sum_width()];
            for (i, out) in out.chunks_exact_mut(width).enumerate() {
                work(task * TASK_ROWS + i, &mut sum, out)?;
            }
            Ok(())
        })
    }
}
