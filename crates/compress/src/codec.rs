//! [`FeatureCodec`]: conversion between a row of features and a code of fixed size.

use std::fmt;

use crate::{CodecSpec, CompressError};

/// Fitted codec: every row of `width` features becomes a code of `row_bytes` bytes, which depends on that row alone.
///
/// Decoding is linear in the sums of [`add_scaled`](Self::add_scaled). So rows can be summed while they are
/// compressed, in a space of `sum_width` numbers that may be smaller than a row. For rows `x₁, x₂, …` and weights
/// `w₁, w₂, …`, adding each and then [`finish_sum`](Self::finish_sum) with `w = w₁ + w₂ + …` gives `Σ wᵢ ·
/// decode(xᵢ)`.
///
/// # Panics
/// All methods, when slices do not have the lengths stated.
pub trait FeatureCodec: fmt::Debug + Send + Sync {
    /// Name and setting; never [`CodecSpec::Auto`].
    fn spec(&self) -> CodecSpec;

    /// Number of features of a row.
    fn width(&self) -> usize;

    /// Number of bytes of a code.
    fn row_bytes(&self) -> usize;

    /// Writes the code of `row` (`width` features) to `code` (`row_bytes`).
    ///
    /// # Errors
    /// At the first feature that is NaN, infinite, or beyond the range of the codec.
    fn encode_row(&self, row: &[f32], code: &mut [u8]) -> Result<(), Refused>;

    /// Whether `code` is valid for decoders that use its bytes as unchecked indices.
    fn is_sound(&self, _code: &[u8]) -> bool {
        true
    }

    /// Decodes `code` to `row`, all of which is overwritten.
    fn decode_row(&self, code: &[u8], row: &mut [f32]);

    /// Number of values of a sum of codes: `width`, unless the codec sums in a smaller space.
    fn sum_width(&self) -> usize {
        self.width()
    }

    /// Adds `weight` times the decoded `code` to `sum` (`sum_width` numbers), without the common part of all rows.
    fn add_scaled(&self, code: &[u8], weight: f32, sum: &mut [f32]);

    /// Turns a sum of codes whose weights add up to `weight` into features: `out` has `width` of them.
    fn finish_sum(&self, sum: &[f32], _weight: f32, out: &mut [f32]) {
        out.copy_from_slice(sum);
    }

    /// Parameters learnt from the sample; [`from_parameters`](crate::from_parameters) makes an equal codec from them. `docs/formats.md`
    /// defines their layout.
    fn parameters(&self) -> Vec<u8>;

    /// Writes the codes of whole rows, one after the other.
    ///
    /// # Errors
    /// As [`FeatureCodec::encode_row`]; the row number in the error counts from `first_row`.
    fn encode_rows(&self, first_row: usize, rows: &[f32], codes: &mut [u8]) -> Result<(), CompressError> {
        assert_eq!(rows.len() / self.width(), codes.len() / self.row_bytes(), "a code for each row");
        let rows = rows.chunks_exact(self.width()).zip(codes.chunks_exact_mut(self.row_bytes()));
        for (i, (row, code)) in rows.enumerate() {
            self.encode_row(row, code).map_err(|refused| refused.of_row(first_row + i))?;
        }
        Ok(())
    }
}

/// Feature that a codec cannot encode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refused {
    /// Position of the feature in the row.
    pub column: usize,
    /// Value of the feature.
    pub value: f32,
    /// Values that the codec accepts, and advice.
    pub expected: &'static str,
}

impl Refused {
    /// Converts to an error that names the row.
    #[must_use]
    pub fn of_row(self, row: usize) -> CompressError {
        let Self { column, value, expected } = self;
        CompressError::invalid(format!("row {row}, column {column}: the value is {value}; {expected}"))
    }
}

/// Refuses NaN and infinities.
pub(crate) fn check_finite(row: &[f32]) -> Result<(), Refused> {
    const EXPONENT: u32 = 0x7f80_0000;
    // One pass without branches; the offending value is searched only if there is one.
    let bad = row.iter().fold(0, |bad, value| bad | u32::from(value.to_bits() & EXPONENT == EXPONENT));
    if bad == 0 {
        return Ok(());
    }
    let column = row.iter().position(|value| !value.is_finite()).unwrap_or_default();
    Err(Refused { column, value: row[column], expected: "features must be finite, replace or drop it" })
}

/// Encodes parameters as bytes.
pub(crate) fn floats_to_bytes<'a>(floats: impl IntoIterator<Item = &'a f32>) -> Vec<u8> {
    floats.into_iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Asserts the lengths of a row or sum and its code.
pub(crate) fn assert_lengths(codec: &impl FeatureCodec, n_features: usize, n_bytes: usize) {
    assert_eq!(n_features, codec.width(), "features of a row");
    assert_eq!(n_bytes, codec.row_bytes(), "bytes of a code");
}
