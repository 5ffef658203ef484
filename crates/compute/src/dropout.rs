//! Dropout as a pure function of position. No mask is stored; the backward pass recomputes it.

use girih_random::Key;

/// Zeroes each element with probability `p` and scales the others by `1 / (1 - p)`.
///
/// Key and row-major position alone decide about element `e`. It uses the 16-bit half `e mod 8` (low halves of words
/// first) of the Philox block at counter `e / 8`. It is dropped if that half is below `threshold`. Neighboring
/// elements share a block, so that part of a row can be drawn independently. `docs/draws.md` fixes this for every
/// device.
///
/// A block of rows of a larger matrix gets the mask of these rows: see [`from_row`](Self::from_row).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    key: Key,
    threshold: u32,
    first_row: usize,
}

/// Number of 16-bit draws in a Philox block, one for each neighboring element or head of an entry.
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

    /// Dropout of a block of rows, the first of which is row `first_row` of the whole matrix. It draws the mask of
    /// the whole matrix.
    #[must_use]
    pub fn from_row(self, first_row: usize) -> Self {
        Self { first_row, ..self }
    }

    /// Row-major position, in the whole matrix, of the block's first element. Rows have `cols` elements.
    #[must_use]
    pub fn first_element(self, cols: usize) -> usize {
        self.first_row * cols
    }

    /// Factor of the kept elements: `1 / (1 - p)`.
    #[must_use]
    pub fn scale(self) -> f32 {
        65_536.0 / (65_536 - self.threshold) as f32
    }

    /// Random key of the draws.
    #[must_use]
    pub fn key(self) -> Key {
        self.key
    }

    /// Threshold of the 16-bit draws: elements with a smaller draw are dropped.
    #[must_use]
    pub fn threshold(self) -> u32 {
        self.threshold
    }

    /// Factor of element `e`: zero or [`scale`](Self::scale). This is the definition; devices compute many factors at
    /// once.
    #[must_use]
    pub fn factor(self, e: usize) -> f32 {
        self.factor_of_half(self.key.block(0, (e / HALVES) as u64), e % HALVES)
    }

    /// Factor of head `head` for the entry at row `row` and column `col` of a sparse pattern: zero or
    /// [`scale`](Self::scale). It does not depend on the entry's place in storage, so a pass over the transpose draws
    /// it as well. The Philox block lies at counter `(1 + head / 8, row · 2³² + col)`. The head uses half
    /// `head mod 8` of it, low halves first.
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
