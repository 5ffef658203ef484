//! Dropout as a pure function of position: no mask is stored, the backward pass computes it again.

use girih_random::Key;

/// Zeroes each element with probability `p` and scales the others by `1 / (1 - p)`.
///
/// Whether element `e` (its row-major position) stays depends on `key` and `e` alone: it uses the 16-bit half `e mod 8`
/// (low halves of words first) of the Philox block at counter `e / 8`, and is dropped when that half is below
/// `threshold`. Neighbours share a block, so that whoever has a piece of a row draws for it alone; `docs/formats.md`
/// fixes this for every device.
///
/// A matrix that is a piece of a larger one, cut by rows, is masked as that piece of it: see
/// [`from_row`](Self::from_row).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    key: Key,
    threshold: u32,
    first_row: usize,
}

/// Draws of 16 bits in a Philox block: of neighbouring elements, or of heads of an entry.
pub(crate) const HALVES: usize = 8;

impl Dropout {
    /// Dropout with probability `p` (rounded to a multiple of 2⁻¹⁶) under `key`.
    ///
    /// # Panics
    /// When `p` is outside `0.0..1.0`.
    #[must_use]
    pub fn new(p: f32, key: Key) -> Self {
        assert!((0.0..1.0).contains(&p), "a dropout probability lies in 0..1, found {p}");
        Self { key, threshold: ((p * 65_536.0).round() as u32).min(65_535), first_row: 0 }
    }

    /// The same draws for a matrix whose first row is row `first_row` of the whole.
    #[must_use]
    pub fn from_row(self, first_row: usize) -> Self {
        Self { first_row, ..self }
    }

    /// The position in the whole of the first element of a piece with rows of `cols` elements.
    #[must_use]
    pub fn first_element(self, cols: usize) -> usize {
        self.first_row * cols
    }

    /// The factor of the elements that stay.
    #[must_use]
    pub fn scale(self) -> f32 {
        65_536.0 / (65_536 - self.threshold) as f32
    }

    /// The key of the draws.
    #[must_use]
    pub fn key(self) -> Key {
        self.key
    }

    /// Halves below this number drop their element.
    #[must_use]
    pub fn threshold(self) -> u32 {
        self.threshold
    }

    /// The factor of element `e`: zero or [`scale`](Self::scale). The definition; devices compute it in bulk.
    #[must_use]
    pub fn factor(self, e: usize) -> f32 {
        self.factor_of_half(self.key.block(0, (e / HALVES) as u64), e % HALVES)
    }

    /// The factor of head `head` of the entry at row `row` and column `col` of a sparse pattern: zero or
    /// [`scale`](Self::scale). It does not depend on where the entry is stored, so that a pass over the transpose draws
    /// the same. The Philox block lies at counter `(1 + head / 8, row · 2³² + col)`; the head uses half `head mod 8` of
    /// it, low halves first.
    #[must_use]
    pub fn entry_factor(self, row: u32, col: u32, head: usize) -> f32 {
        let words = self.key.block(1 + (head / HALVES) as u64, u64::from(row) << 32 | u64::from(col));
        self.factor_of_half(words, head % HALVES)
    }

    fn factor_of_half(self, words: [u32; 4], half: usize) -> f32 {
        let bits = words[half / 2] >> (16 * (half % 2)) & 0xffff;
        if bits < self.threshold { 0.0 } else { self.scale() }
    }
}
