//! Groups of a row's features, and the bytes that a code takes for them.

/// Number of features of a group of a code book.
pub const GROUP: usize = 256;
const _: () = assert!(GROUP == 1 + u8::MAX as usize, "docs/formats.md gives a position one byte");

/// Number of bytes of a code of positions: `2k` for each full group, and at most that for the rest.
pub(crate) fn topk_row_bytes(width: usize, k: usize) -> usize {
    width / GROUP * 2 * k + (2 * k).min(width % GROUP)
}

/// Number of bytes of a group's lowest level and of the step between levels.
pub(crate) const SCALE_BYTES: usize = 8;

/// Levels of a quantized feature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Levels {
    /// 256 levels, in a byte each.
    Int8,
    /// 16 levels, two in a byte.
    Int4,
}

impl Levels {
    /// Number of features that share a scale; it is smaller for fewer levels, where outliers cost more.
    pub(crate) fn group(self) -> usize {
        match self {
            Self::Int8 => 256,
            Self::Int4 => 64,
        }
    }

    /// Highest level.
    pub(crate) fn max(self) -> f32 {
        match self {
            Self::Int8 => 255.0,
            Self::Int4 => 15.0,
        }
    }

    /// Number of bytes of a group of `n` features.
    pub(crate) fn group_bytes(self, n: usize) -> usize {
        SCALE_BYTES
            + match self {
                Self::Int8 => n,
                Self::Int4 => n.div_ceil(2),
            }
    }

    /// Number of bytes of a row of `width` features; its last group may be shorter.
    pub(crate) fn row_bytes(self, width: usize) -> usize {
        let (group, rest) = (self.group(), width % self.group());
        let rest_bytes = if rest == 0 { 0 } else { self.group_bytes(rest) };
        width / group * self.group_bytes(group) + rest_bytes
    }
}
