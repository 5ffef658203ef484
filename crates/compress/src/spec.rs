//! [`CodecSpec`]: name and setting of a codec, as users write it and stores keep it.

use std::fmt;
use std::str::FromStr;

use crate::CompressError;
use crate::groups::{Levels, topk_row_bytes};

/// Codec by name and setting, before it is fitted to features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodecSpec {
    /// `topk:K`: positions of the K largest and K smallest values of each group of 256, values from a code book.
    Topk(u32),
    /// `topk-residual:K`: as `topk:K`, but for the difference from the mean row.
    TopkResidual(u32),
    /// `f16`: IEEE half precision; `half` is another name for it.
    F16,
    /// `bf16`: the upper half of an `f32`, rounded.
    Bf16,
    /// `int8`: 256 levels between the extremes of each group of 256.
    Int8,
    /// `int4`: 16 levels between the extremes of each group of 64.
    Int4,
    /// `pca:R`: coefficients of R principal components, in half precision.
    Pca(u32),
    /// `pq:M`: one of 256 centroids in each of M pieces of the row.
    Pq(u32),
    /// `auto:BYTES`: the one of the above with the least error on a sample, within this number of bytes per row.
    Auto(u32),
}

/// Largest K of a code book: twice as many positions are a whole group.
const K_MAX: u32 = 128;
/// Largest setting of other codecs: far above any width of features.
const SETTING_MAX: u32 = 1 << 20;
/// Accepted settings, for errors.
const EXPECTED: &str =
    "write topk:K, topk-residual:K, f16 (or half), bf16, int8, int4, pca:R, pq:M or auto:BYTES, such as topk:8";

impl CodecSpec {
    /// Name before the colon.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Topk(_) => "topk",
            Self::TopkResidual(_) => "topk-residual",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
            Self::Pca(_) => "pca",
            Self::Pq(_) => "pq",
            Self::Auto(_) => "auto",
        }
    }

    /// Number after the colon, if the codec has one.
    #[must_use]
    pub fn setting(self) -> Option<u32> {
        match self {
            Self::Topk(n) | Self::TopkResidual(n) | Self::Pca(n) | Self::Pq(n) | Self::Auto(n) => Some(n),
            Self::F16 | Self::Bf16 | Self::Int8 | Self::Int4 => None,
        }
    }

    /// Whether a code consists of positions in each group of columns, where each byte of it stands for one value in
    /// all rows. GPUs decode such codes, and sum them up without decoding.
    #[must_use]
    pub fn has_book(self) -> bool {
        matches!(self, Self::Topk(_) | Self::TopkResidual(_))
    }

    /// Whether the codec learns from a sample of the features.
    #[must_use]
    pub fn needs_sample(self) -> bool {
        self.setting().is_some()
    }

    /// Largest number of bytes of the code of a row of `width` features. It is exact except for [`Auto`](Self::Auto),
    /// which may take less.
    #[must_use]
    pub fn row_bytes(self, width: usize) -> usize {
        match self {
            Self::Topk(k) | Self::TopkResidual(k) => topk_row_bytes(width, k as usize),
            Self::F16 | Self::Bf16 => size_of::<u16>() * width,
            Self::Int8 => Levels::Int8.row_bytes(width),
            Self::Int4 => Levels::Int4.row_bytes(width),
            Self::Pca(components) => size_of::<u16>() * components as usize,
            Self::Pq(n_bytes) | Self::Auto(n_bytes) => n_bytes as usize,
        }
    }

    /// Whether features stored as `stored`, in `row_bytes` per row, satisfy this spec: an equal codec, or for
    /// [`Auto`](Self::Auto) any within the budget.
    #[must_use]
    pub fn accepts(self, stored: Self, row_bytes: usize) -> bool {
        match self {
            Self::Auto(most) => row_bytes <= most as usize,
            _ => self == stored,
        }
    }

    /// Refuses a setting that is out of range for all features.
    ///
    /// # Errors
    /// When K is not from 1 to 128, or another setting not from 1 to 2²⁰.
    pub fn check(self) -> Result<(), CompressError> {
        let max = if self.has_book() { K_MAX } else { SETTING_MAX };
        match self.setting() {
            Some(n) if n == 0 || n > max => Err(CompressError::invalid(format!(
                "codec {self}: the number after the colon is {n}; {} takes 1 to {max}",
                self.name()
            ))),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for CodecSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        self.setting().map_or(Ok(()), |n| write!(f, ":{n}"))
    }
}

impl FromStr for CodecSpec {
    type Err = CompressError;

    fn from_str(text: &str) -> Result<Self, CompressError> {
        let unknown = || CompressError::invalid(format!("{text:?} is no codec; {EXPECTED}"));
        let (name, setting) = match text.split_once(':') {
            None => (text, None),
            Some((name, number)) => (name, Some(number.parse::<u32>().map_err(|_| unknown())?)),
        };
        let spec = match (name, setting) {
            ("topk", Some(k)) => Self::Topk(k),
            ("topk-residual", Some(k)) => Self::TopkResidual(k),
            ("f16" | "half", None) => Self::F16,
            ("bf16", None) => Self::Bf16,
            ("int8", None) => Self::Int8,
            ("int4", None) => Self::Int4,
            ("pca", Some(components)) => Self::Pca(components),
            ("pq", Some(pieces)) => Self::Pq(pieces),
            ("auto", Some(row_bytes)) => Self::Auto(row_bytes),
            _ => return Err(unknown()),
        };
        spec.check()?;
        Ok(spec)
    }
}
