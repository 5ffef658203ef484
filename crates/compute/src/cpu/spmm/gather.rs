//! Inner loop of sparse products: it gathers packed rows by column id and sums them in registers.

use std::ops::Range;

use half::bf16;
use pulp::Simd;

use crate::cpu::panels::{LINE_WORDS, Packed};
use crate::cpu::prefetch::{CACHE_LINE, prefetch};

/// Number of vectors of sums that a kernel keeps in registers: half of those of AVX2, a quarter of those of AVX-512.
pub(super) const ACCUMULATORS_MAX: usize = 8;
/// Maximum number of sums of a row: all accumulators with the widest vectors.
pub(super) const SUMS_MAX: usize = ACCUMULATORS_MAX * 16;
/// Bytes of gathered rows in flight. Fewer do not cover the latency of L3. From 10 to 130 KB, which fit L2, products
/// take equal times (Zen 4).
const BYTES_AHEAD: usize = 20 << 10;
/// Maximum number of rows in flight. Narrow rows need no more.
const ROWS_AHEAD_MAX: usize = 256;

/// Packed element type with kernels for sums of rows.
pub(super) trait Summed: Packed {
    /// Number of vectors of words that a kernel can sum in its accumulators.
    const VECTORS_MAX: usize = ACCUMULATORS_MAX / Self::PER_WORD;

    /// `f32` sums of one vector of words.
    type Sums<S: Simd>: Copy;

    /// Returns sums of zero.
    fn zero<S: Simd>(simd: S) -> Self::Sums<S>;

    /// Returns `sums + words`.
    fn add<S: Simd>(simd: S, sums: Self::Sums<S>, words: S::u32s) -> Self::Sums<S>;

    /// Returns `sums + weight · words`.
    fn add_weighted<S: Simd>(simd: S, sums: Self::Sums<S>, weight: S::f32s, words: S::u32s) -> Self::Sums<S>;

    /// Writes `factor · sums` to `out`, in the order of the columns.
    fn store<S: Simd>(simd: S, factor: S::f32s, sums: Self::Sums<S>, out: &mut [f32]);
}

impl Summed for f32 {
    type Sums<S: Simd> = S::f32s;

    #[inline(always)]
    fn zero<S: Simd>(simd: S) -> S::f32s {
        simd.splat_f32s(0.0)
    }

    #[inline(always)]
    fn add<S: Simd>(simd: S, sums: S::f32s, words: S::u32s) -> S::f32s {
        simd.add_f32s(sums, simd.transmute_f32s_u32s(words))
    }

    #[inline(always)]
    fn add_weighted<S: Simd>(simd: S, sums: S::f32s, weight: S::f32s, words: S::u32s) -> S::f32s {
        simd.mul_add_e_f32s(weight, simd.transmute_f32s_u32s(words), sums)
    }

    #[inline(always)]
    fn store<S: Simd>(simd: S, factor: S::f32s, sums: S::f32s, out: &mut [f32]) {
        out.copy_from_slice(bytemuck::cast_slice(&[simd.mul_f32s(factor, sums)]));
    }
}

/// Even and odd columns of a vector of words, as `f32`. A bf16 is the upper half of an `f32`.
#[inline(always)]
fn halves<S: Simd>(simd: S, words: S::u32s) -> [S::f32s; 2] {
    let even = simd.wrapping_dyn_shl_u32s(words, simd.splat_u32s(16));
    let odd = simd.and_u32s(words, simd.splat_u32s(0xffff_0000));
    [simd.transmute_f32s_u32s(even), simd.transmute_f32s_u32s(odd)]
}

impl Summed for bf16 {
    type Sums<S: Simd> = [S::f32s; 2];

    #[inline(always)]
    fn zero<S: Simd>(simd: S) -> [S::f32s; 2] {
        [simd.splat_f32s(0.0); 2]
    }

    #[inline(always)]
    fn add<S: Simd>(simd: S, sums: [S::f32s; 2], words: S::u32s) -> [S::f32s; 2] {
        let [even, odd] = halves(simd, words);
        [simd.add_f32s(sums[0], even), simd.add_f32s(sums[1], odd)]
    }

    #[inline(always)]
    fn add_weighted<S: Simd>(simd: S, sums: [S::f32s; 2], weight: S::f32s, words: S::u32s) -> [S::f32s; 2] {
        let [even, odd] = halves(simd, words);
        [simd.mul_add_e_f32s(weight, even, sums[0]), simd.mul_add_e_f32s(weight, odd, sums[1])]
    }

    #[inline(always)]
    fn store<S: Simd>(simd: S, factor: S::f32s, sums: [S::f32s; 2], out: &mut [f32]) {
        let sums = sums.map(
            #[inline(always)]
            |sums| simd.mul_f32s(factor, sums),
        );
        let [even, odd]: [&[f32]; 2] = [bytemuck::cast_slice(&sums[..1]), bytemuck::cast_slice(&sums[1..])];
        for (pair, (&even, &odd)) in out.chunks_exact_mut(2).zip(even.iter().zip(odd)) {
            pair.copy_from_slice(&[even, odd]);
        }
    }
}

/// Gather of rows of a packed panel.
///
/// # Invariants
/// 1. Every index is below `n_cols`.
/// 2. `packed` holds `n_cols` rows of `row_words` words, a multiple of a cache line.
/// 3. `weights`, if present, is as long as `indices`.
#[derive(Clone, Copy)]
pub(super) struct Gather<'a> {
    indices: &'a [u32],
    weights: Option<&'a [f32]>,
    packed: &'a [u32],
    row_words: usize,
    rows_ahead: usize,
}

impl<'a> Gather<'a> {
    /// Creates a gather of rows of `packed`, `row_words` words apart, by `indices`.
    ///
    /// # Panics
    /// When invariant 2 or 3 is broken.
    ///
    /// # Safety
    /// Every index is below `n_cols`.
    pub(super) unsafe fn new(
        indices: &'a [u32],
        weights: Option<&'a [f32]>,
        n_cols: usize,
        packed: &'a [u32],
        row_words: usize,
    ) -> Self {
        assert!(row_words.is_multiple_of(LINE_WORDS), "rows of {row_words} words are not whole cache lines");
        assert!(packed.len() >= n_cols * row_words, "{n_cols} rows of {row_words} words in {}", packed.len());
        assert!(weights.is_none_or(|w| w.len() == indices.len()), "as many weights as entries");
        let rows_ahead = (BYTES_AHEAD / (row_words * size_of::<u32>())).min(ROWS_AHEAD_MAX);
        Self { indices, weights, packed, row_words, rows_ahead }
    }

    /// Whether entries have weights other than 1.
    pub(super) fn is_weighted(&self) -> bool {
        self.weights.is_some()
    }

    /// Number of vectors of `lanes` words that cover a row.
    pub(super) fn n_vectors(&self, lanes: usize) -> usize {
        self.row_words / lanes
    }

    /// Sums the first `NV` vectors of the rows that `entries` reference.
    ///
    /// # Panics
    /// When `entries` reaches past the end of the indices.
    #[inline(always)]
    pub(super) fn sum<S: Simd, X: Summed, const NV: usize, const WEIGHTED: bool>(
        &self,
        simd: S,
        entries: Range<usize>,
    ) -> [X::Sums<S>; NV] {
        assert!(entries.end <= self.indices.len() && NV * S::U32_LANES <= self.row_words);
        let last = self.indices.len().saturating_sub(1);
        let mut sums = [X::zero(simd); NV];
        for e in entries {
            // SAFETY: `e < indices.len()`, and `last` is the last position of `indices`.
            let (column, ahead) = unsafe {
                (*self.indices.get_unchecked(e), *self.indices.get_unchecked((e + self.rows_ahead).min(last)))
            };
            let ahead = self.packed.as_ptr().wrapping_add(ahead as usize * self.row_words);
            for line in 0..(NV * size_of::<S::u32s>()).div_ceil(CACHE_LINE) {
                prefetch(ahead.wrapping_byte_add(line * CACHE_LINE));
            }
            // SAFETY: the column is below `n_cols` (invariant 1), so that its row begins inside `packed`.
            let row = unsafe { self.packed.as_ptr().add(column as usize * self.row_words) };
            for v in 0..NV {
                // SAFETY: vectors end with the row at the latest, by the assertion above, and all of the row lies
                // inside `packed` (invariant 2). Every bit pattern is a vector of words.
                let words = unsafe { row.add(v * S::U32_LANES).cast::<S::u32s>().read_unaligned() };
                sums[v] = if WEIGHTED {
                    // SAFETY: as many weights as indices (invariant 3), and `e` is a position of the latter.
                    let weight = unsafe { *self.weights.unwrap_unchecked().get_unchecked(e) };
                    X::add_weighted(simd, sums[v], simd.splat_f32s(weight), words)
                } else {
                    X::add(simd, sums[v], words)
                };
            }
        }
        sums
    }
}

/// Computes `out = factor · sums`, in the order of the columns.
#[inline(always)]
pub(super) fn store<S: Simd, X: Summed, const NV: usize>(
    simd: S,
    factor: f32,
    sums: [X::Sums<S>; NV],
    out: &mut [f32],
) {
    let (factor, columns) = (simd.splat_f32s(factor), S::U32_LANES * X::PER_WORD);
    let out = &mut out[..NV * columns];
    for v in 0..NV {
        X::store(simd, factor, sums[v], &mut out[v * columns..(v + 1) * columns]);
    }
}
