//! [`TopkCodebook`]: positions of the largest and smallest features of a row, and the average values of such features
//! (Ma et al., "Sparsified input features", Computer Systems & Applications 33(1), 2024).
//!
//! ```text
//! group  0.1  2.0 −3.0  0.4 −0.2  1.5     k = 2          code  1 5 2 4       positions: largest first, smallest first
//! place    0    1    2    3    4    5                    book  1.9 1.6 −2.8 −0.4    the sample's mean at each rank
//! decoded  0  1.9 −2.8    0 −0.4  1.6
//! ```
//! A row is cut into groups of 256 features, so that a position is a byte; the last group may be shorter. A code has
//! the positions of the `k` largest values of each group, largest first, and of the `k` smallest, smallest first.
//!
//! **Ties.** A group is ordered by descending value and, where values are equal, by ascending position; zero and
//! minus zero are equal. The largest come from the front of this order, the smallest from its end. So of equal
//! largest values the first position comes first, and of equal smallest values the last one. No position is kept
//! twice.
//!
//! **Short groups.** A group of fewer than `2k` features keeps all of them: the first half of its order, rounded up, as
//! the largest, the rest as the smallest. So a group of `n` features takes `min(2k, n)` bytes.
//!
//! **Residual.** Some features are large in every row, for example those of text encoders. They would be kept in
//! every row without distinguishing rows. The variant `topk-residual` subtracts the mean row of the sample first and
//! adds it when decoding, so that dropped features decode to their mean.
//!
//! **Bags of words** do not suit a code book: nearly all values of a group are equal, and the rule for ties selects
//! the kept ones. No rule helps. If each word occurs in a fifth to a half of the rows, any eight words of ninety
//! carry too little information (`docs/compression.md`). [`fit`](crate::fit()) warns of such features.

mod select;
mod select_x86;
pub(crate) mod ties;

use girih_graph_format::Matrix;

use crate::codec::{assert_lengths, check_finite, floats_to_bytes};
use crate::groups::{GROUP, topk_row_bytes};
use crate::sample::{mean_of, mean_row};
use crate::{CodecSpec, CompressError, FeatureCodec, Refused};

/// Code book; see the [module](self).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TopkCodebook {
    width: usize,
    k: usize,
    /// Mean value at each position of a code.
    book: Vec<f32>,
    /// Mean row that is subtracted before encoding, for `topk-residual`.
    background: Option<Vec<f32>>,
}

impl TopkCodebook {
    /// Fits a code book to a sample: means by group and rank.
    pub(crate) fn fit(spec: CodecSpec, sample: &Matrix) -> Result<Self, CompressError> {
        let width = sample.n_cols();
        let background = matches!(spec, CodecSpec::TopkResidual(_)).then(|| mean_row(sample));
        let mut codec = Self { width, k: k_of(spec), book: Vec::new(), background };
        codec.book = mean_of(codec.row_bytes(), sample, |row, sum| codec.add_kept(row, sum));
        if !codec.is_finite() {
            return Err(CompressError::invalid(format!(
                "codec {spec}: features are so large, or so far from their mean, that decoded ones are beyond float32; \
                 scale them"
            )));
        }
        Ok(codec)
    }

    /// Whether all decoded values are finite: each value of the book, on top of each mean of its group.
    fn is_finite(&self) -> bool {
        let largest = |values: &[f32]| values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let mut groups = (0..self.width).step_by(GROUP).zip(self.book.chunks(2 * self.k));
        let mean = |first: usize| {
            let end = (first + GROUP).min(self.width);
            self.background.as_ref().map_or(0.0, |means| largest(&means[first..end]))
        };
        self.book.iter().all(|value| value.is_finite())
            && groups.all(|(first, book)| (mean(first) + largest(book)).is_finite())
    }

    /// Adds the kept values of `row` to `sum`, in the order of the code.
    fn add_kept(&self, row: &[f32], sum: &mut [f64]) {
        let mut code = vec![0; self.row_bytes()];
        let mut centred = row.to_vec();
        self.subtract_background(&mut centred);
        select::encode(self.k, &centred, &mut code);
        let kept = centred.chunks(GROUP).zip(code.chunks(2 * self.k));
        let values = kept.flat_map(|(group, code)| code.iter().map(|&place| group[usize::from(place)]));
        values.zip(sum).for_each(|(value, sum)| *sum += f64::from(value));
    }

    fn subtract_background(&self, row: &mut [f32]) {
        if let Some(background) = &self.background {
            row.iter_mut().zip(background).for_each(|(value, mean)| *value -= mean);
        }
    }

    /// Number of parameters.
    pub(crate) fn n_floats(spec: CodecSpec, width: usize) -> usize {
        let background = if matches!(spec, CodecSpec::TopkResidual(_)) { width } else { 0 };
        topk_row_bytes(width, k_of(spec)) + background
    }

    /// Makes a code book from [`TopkCodebook::n_floats`] parameters.
    pub(crate) fn from_floats(spec: CodecSpec, width: usize, mut floats: Vec<f32>) -> Self {
        let k = k_of(spec);
        let background = floats.split_off(topk_row_bytes(width, k));
        Self { width, k, book: floats, background: (!background.is_empty()).then_some(background) }
    }
}

impl FeatureCodec for TopkCodebook {
    fn spec(&self) -> CodecSpec {
        let k = self.k as u32;
        if self.background.is_some() { CodecSpec::TopkResidual(k) } else { CodecSpec::Topk(k) }
    }

    fn width(&self) -> usize {
        self.width
    }

    fn row_bytes(&self) -> usize {
        topk_row_bytes(self.width, self.k)
    }

    fn encode_row(&self, row: &[f32], code: &mut [u8]) -> Result<(), Refused> {
        assert_lengths(self, row.len(), code.len());
        check_finite(row)?;
        let Some(background) = &self.background else {
            select::encode(self.k, row, code);
            return Ok(());
        };
        let mut centred = [0.0; GROUP];
        for (g, (row, code)) in row.chunks(GROUP).zip(code.chunks_mut(2 * self.k)).enumerate() {
            let centred = &mut centred[..row.len()];
            let background = &background[g * GROUP..];
            centred.iter_mut().zip(row).zip(background).for_each(|((out, value), mean)| *out = value - mean);
            check_finite(centred).map_err(|refused| Refused {
                column: g * GROUP + refused.column,
                value: row[refused.column],
                expected: "its distance from the mean is beyond float32, scale the features",
            })?;
            select::encode(self.k, centred, code);
        }
        Ok(())
    }

    /// Checks the positions of the last group, if it is shorter than 256; positions of other groups are always valid.
    fn is_sound(&self, code: &[u8]) -> bool {
        let n_left = self.width % GROUP;
        n_left == 0 || code[self.width / GROUP * 2 * self.k..].iter().all(|&place| usize::from(place) < n_left)
    }

    fn decode_row(&self, code: &[u8], row: &mut [f32]) {
        match &self.background {
            Some(background) => row.copy_from_slice(background),
            None => row.fill(0.0),
        }
        self.add_scaled(code, 1.0, row);
    }

    fn add_scaled(&self, code: &[u8], weight: f32, sum: &mut [f32]) {
        assert_lengths(self, sum.len(), code.len());
        let groups = sum.chunks_mut(GROUP).zip(code.chunks(2 * self.k)).zip(self.book.chunks(2 * self.k));
        for ((sum, code), book) in groups {
            match <&mut [f32; GROUP]>::try_from(&mut *sum) {
                Ok(sum) => code.iter().zip(book).for_each(|(&place, value)| sum[usize::from(place)] += weight * value),
                Err(_) => add_to_short_group(code, book, weight, sum),
            }
        }
    }

    fn finish_sum(&self, sum: &[f32], weight: f32, out: &mut [f32]) {
        match &self.background {
            None => out.copy_from_slice(sum),
            Some(background) => {
                out.iter_mut().zip(sum).zip(background).for_each(|((out, sum), mean)| *out = sum + weight * mean);
            }
        }
    }

    fn parameters(&self) -> Vec<u8> {
        floats_to_bytes(self.book.iter().chain(self.background.iter().flatten()))
    }
}

/// A position past the end can only come from a damaged store that was opened without its checksums. As any other
/// wrong position, it then gives a wrong row and has no other effect.
fn add_to_short_group(code: &[u8], book: &[f32], weight: f32, sum: &mut [f32]) {
    for (&place, value) in code.iter().zip(book) {
        if let Some(sum) = sum.get_mut(usize::from(place)) {
            *sum += weight * value;
        }
    }
}

/// Setting `k` of a code book's spec.
fn k_of(spec: CodecSpec) -> usize {
    spec.setting().map_or(1, |k| k as usize)
}
