//! [`ProductQuantizer`]: for each piece of a row, the nearest of 256 centroids (Jégou, Douze and Schmid, "Product
//! Quantization for Nearest Neighbor Search", TPAMI 33(1), 2011).
//!
//! K-means (Lloyd's steps) finds the centroids on the sample, separately for each piece. They start at rows of the
//! sample. A centroid that is nearest to no row moves to the row that is farthest from its own centroid.

use std::ops::Range;

use girih_graph_format::Matrix;
use girih_random::{Key, purpose};
use rayon::prelude::*;

use crate::codec::{assert_lengths, check_finite, floats_to_bytes};
use crate::sample::{Draws, draw_rows};
use crate::{CodecSpec, CompressError, FeatureCodec, Refused};

/// Number of centroids of a piece: the number of values of a byte.
const CENTROIDS: usize = 256;
/// Number of Lloyd's steps: later ones reduce the error by less than a percent.
const STEPS: usize = 12;
/// Largest number of rows to learn from: 32 per centroid, beyond which the error hardly falls but the time grows.
const ROWS_MAX: usize = 32 * CENTROIDS;

/// Codec with one byte for each piece of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProductQuantizer {
    width: usize,
    /// Centroids, piece after piece.
    centroids: Vec<f32>,
    pieces: Vec<Piece>,
}

/// Data for encoding a piece.
#[derive(Clone, Debug, PartialEq)]
struct Piece {
    /// Columns of the piece.
    columns: Range<usize>,
    /// Values of all centroids, column after column.
    transposed: Vec<[f32; CENTROIDS]>,
    /// Half of the squared norm of each centroid.
    half_norms: [f32; CENTROIDS],
}

impl ProductQuantizer {
    /// Refuses more pieces than there are features.
    pub(crate) fn check(n_pieces: usize, width: usize) -> Result<(), CompressError> {
        if n_pieces > width {
            return Err(CompressError::invalid(format!(
                "codec pq:{n_pieces}: {n_pieces} pieces of {width} features; give at most {width}"
            )));
        }
        Ok(())
    }

    /// Fits the centroids to a sample of finite rows.
    pub(crate) fn fit(n_pieces: usize, sample: &Matrix, seed: u64) -> Result<Self, CompressError> {
        let width = sample.n_cols();
        Self::check(n_pieces, width)?;
        let key = Draws::Centroids.of(Key::new(seed, purpose::COMPRESSION));
        let rows = draw_rows(sample.n_rows(), ROWS_MAX, key.child(0));
        // With fewer rows than centroids, some centroids are equal, and the first of them is taken.
        let starts: Vec<usize> =
            draw_rows(rows.len(), CENTROIDS, key.child(1)).into_iter().cycle().take(CENTROIDS).collect();
        let learnt: Vec<Vec<f32>> = (0..n_pieces)
            .into_par_iter()
            .map(|piece| {
                let columns = columns_of(piece, n_pieces, width);
                let points: Vec<&[f32]> = rows.iter().map(|&row| &sample.row(row)[columns.clone()]).collect();
                k_means(&points, &starts)
            })
            .collect();
        let quantizer = Self::from_floats(n_pieces, width, &learnt.concat());
        if quantizer.pieces.iter().any(|piece| piece.half_norms.iter().any(|norm| !norm.is_finite())) {
            return Err(CompressError::invalid(
                "codec pq: features are so large that their squares are beyond float32; scale them",
            ));
        }
        Ok(quantizer)
    }

    /// Number of parameters.
    pub(crate) fn n_floats(width: usize) -> usize {
        CENTROIDS * width
    }

    /// Makes a codec from [`ProductQuantizer::n_floats`] parameters.
    pub(crate) fn from_floats(n_pieces: usize, width: usize, centroids: &[f32]) -> Self {
        let piece = |piece| {
            let columns = columns_of(piece, n_pieces, width);
            Piece::new(columns.clone(), &centroids[CENTROIDS * columns.start..CENTROIDS * columns.end])
        };
        Self { width, centroids: centroids.to_vec(), pieces: (0..n_pieces).map(piece).collect() }
    }

    /// Calls `visit` for each element of a row or sum with its value in the centroid of the code.
    #[inline]
    fn for_each(&self, code: &[u8], out: &mut [f32], visit: impl Fn(&mut f32, f32)) {
        for (piece, &centroid) in self.pieces.iter().zip(code) {
            let columns = piece.columns.clone();
            let start = CENTROIDS * columns.start + usize::from(centroid) * columns.len();
            let values = &self.centroids[start..start + columns.len()];
            out[columns].iter_mut().zip(values).for_each(|(out, &value)| visit(out, value));
        }
    }
}

impl Piece {
    fn new(columns: Range<usize>, centroids: &[f32]) -> Self {
        let n_columns = columns.len();
        let value = |centroid: usize, column: usize| centroids[centroid * n_columns + column];
        let transposed: Vec<[f32; CENTROIDS]> =
            (0..n_columns).map(|column| std::array::from_fn(|centroid| value(centroid, column))).collect();
        let half_norms = std::array::from_fn(|centroid| {
            0.5 * (0..n_columns).map(|column| value(centroid, column).powi(2)).sum::<f32>()
        });
        Self { columns, transposed, half_norms }
    }

    /// Nearest centroid, the first of equals: `|x − c|²` is smallest where `|c|² / 2 − x · c` is.
    fn nearest(&self, point: &[f32]) -> (usize, f32) {
        let mut scores = self.half_norms;
        for (&value, column) in point.iter().zip(&self.transposed) {
            scores.iter_mut().zip(column).for_each(|(score, centroid)| *score -= value * centroid);
        }
        let least = |best: (usize, f32), (at, &score): (usize, &f32)| if score < best.1 { (at, score) } else { best };
        scores.iter().enumerate().fold((0, f32::INFINITY), least)
    }
}

impl FeatureCodec for ProductQuantizer {
    fn spec(&self) -> CodecSpec {
        CodecSpec::Pq(self.pieces.len() as u32)
    }

    fn width(&self) -> usize {
        self.width
    }

    fn row_bytes(&self) -> usize {
        self.pieces.len()
    }

    fn encode_row(&self, row: &[f32], code: &mut [u8]) -> Result<(), Refused> {
        assert_lengths(self, row.len(), code.len());
        check_finite(row)?;
        for (piece, code) in self.pieces.iter().zip(code) {
            *code = piece.nearest(&row[piece.columns.clone()]).0 as u8;
        }
        Ok(())
    }

    fn decode_row(&self, code: &[u8], row: &mut [f32]) {
        assert_lengths(self, row.len(), code.len());
        self.for_each(code, row, |row, value| *row = value);
    }

    fn add_scaled(&self, code: &[u8], weight: f32, sum: &mut [f32]) {
        assert_lengths(self, sum.len(), code.len());
        self.for_each(code, sum, |sum, value| *sum += weight * value);
    }

    fn parameters(&self) -> Vec<u8> {
        floats_to_bytes(&self.centroids)
    }
}

/// Columns of a piece; widths of pieces differ by at most one.
fn columns_of(piece: usize, n_pieces: usize, width: usize) -> Range<usize> {
    piece * width / n_pieces..(piece + 1) * width / n_pieces
}

/// Centroids by k-means, one after the other; they start at the points of `starts`.
fn k_means(points: &[&[f32]], starts: &[usize]) -> Vec<f32> {
    let n_columns = points[0].len();
    let mut centroids: Vec<f32> = starts.iter().flat_map(|&start| points[start].iter().copied()).collect();
    for _ in 0..STEPS {
        let piece = Piece::new(0..n_columns, &centroids);
        let nearest: Vec<(usize, f32)> = points.iter().map(|point| piece.nearest(point)).collect();
        let (mut sums, mut counts) = (vec![0.0f64; centroids.len()], [0usize; CENTROIDS]);
        for (point, &(centroid, _)) in points.iter().zip(&nearest) {
            counts[centroid] += 1;
            let sum = &mut sums[centroid * n_columns..(centroid + 1) * n_columns];
            sum.iter_mut().zip(*point).for_each(|(sum, &value)| *sum += f64::from(value));
        }
        let mut far = farthest_first(points, &nearest).into_iter();
        for (c, centroid) in centroids.chunks_exact_mut(n_columns).enumerate() {
            if counts[c] > 0 {
                let mean = sums[c * n_columns..].iter().map(|sum| (sum / counts[c] as f64) as f32);
                centroid.iter_mut().zip(mean).for_each(|(value, mean)| *value = mean);
            } else if let Some(point) = far.next() {
                centroid.copy_from_slice(points[point]);
            }
        }
    }
    centroids
}

/// Points that differ from their centroid, the farthest first, ties by position, at most [`CENTROIDS`].
fn farthest_first(points: &[&[f32]], nearest: &[(usize, f32)]) -> Vec<usize> {
    let distance = |point: usize| {
        let norm: f32 = points[point].iter().map(|value| value * value).sum();
        0.5 * norm + nearest[point].1
    };
    let mut order: Vec<(usize, f32)> = (0..points.len()).map(|point| (point, distance(point))).collect();
    order.retain(|&(_, distance)| distance > 0.0);
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    order.into_iter().take(CENTROIDS).map(|(point, _)| point).collect()
}
