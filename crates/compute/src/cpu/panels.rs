//! Column panels: an operand cut into slabs that stay in the last-level cache while its rows are gathered.
//!
//! A product with a sparse matrix reads a row of the operand for every entry, in no order that a cache could foresee.
//! Cutting the columns into panels costs one more pass over the indices for each, and pays when a whole panel then
//! fits the cache. A panel is packed just before it is used, from the operand times its row factors:
//!
//! ```text
//! operand, 5 columns          panel of columns 0..4       panel of column 4, padded with zeros
//! a0 a1 a2 a3 a4              a0 a1 a2 a3                 a4 0 0 0
//! b0 b1 b2 b3 b4              b0 b1 b2 b3                 b4 0 0 0
//! ```

use std::ops::Range;

use half::bf16;
use rayon::prelude::*;

use super::element::Element;
use super::prefetch::CACHE_LINE;
use super::simd::Isa;

/// Bytes of a word; panels are made of words of 32 bits: one `f32` or two bf16.
const WORD_BYTES: usize = size_of::<u32>();
/// Words that rows of a panel are padded to: a cache line, so that no vector reaches into a row that nobody prefetched.
pub(crate) const LINE_WORDS: usize = CACHE_LINE / WORD_BYTES;
/// The least bytes of a row worth a pass over the indices: two cache lines, the unit that DRAM and L3 move in.
const ROW_BYTES_MIN: usize = 128;
/// Rows packed by one task.
const ROWS_PER_TASK: usize = 1024;

/// An element that panels are made of.
pub(crate) trait Packed: Element {
    /// Elements in a word.
    const PER_WORD: usize = WORD_BYTES / size_of::<Self>();

    /// Packs a row times `scale` into `words`; elements of words that `row` does not fill become zero.
    fn pack(row: &[Self], scale: Option<f32>, words: &mut [u32]);
}

impl Packed for f32 {
    #[inline(always)]
    fn pack(row: &[Self], scale: Option<f32>, words: &mut [u32]) {
        let packed = &mut bytemuck::cast_slice_mut::<u32, Self>(words)[..row.len()];
        packed.copy_from_slice(row);
        if let Some(scale) = scale {
            packed.iter_mut().for_each(|x| *x *= scale);
        }
        words[row.len()..].fill(0);
    }
}

impl Packed for bf16 {
    #[inline(always)]
    fn pack(row: &[Self], scale: Option<f32>, words: &mut [u32]) {
        let packed = bytemuck::cast_slice_mut::<u32, Self>(words);
        packed[row.len()..].fill(Self::ZERO);
        match scale {
            None => packed[..row.len()].copy_from_slice(row),
            Some(scale) => {
                for (packed, x) in packed.iter_mut().zip(row) {
                    *packed = <Self as Element>::from_f32(x.to_f32() * scale);
                }
            }
        }
    }
}

/// A slab of consecutive columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Panel {
    /// The columns.
    pub(crate) columns: Range<usize>,
    /// Words from one packed row to the next.
    pub(crate) row_words: usize,
}

/// Cuts `width` columns of an operand with `n_rows` rows into panels; a panel has at most `words_max` words a row (what
/// a kernel's registers sum). Panels are as wide as still fits a cache of `cache_bytes`, but no narrower than 128 bytes
/// a row. If 128 bytes a row are more than twice the cache, panels win nothing and are as wide as possible.
/// An operand up to half as large again as the cache stays one panel: a second pass would cost more than the misses.
///
/// | operand                    | cache  | panels (columns)      | bytes of a panel |
/// |----------------------------|--------|-----------------------|------------------|
/// | 232 965 × 128 `f32`        | 32 MiB | 4 × 32                | 30 MB            |
/// | 232 965 × 128 bf16         | 32 MiB | 2 × 64                | 30 MB            |
/// | 232 965 × 41 `f32`         | 32 MiB | 1 × 41, padded to 48  | 45 MB            |
/// | 2 708 × 128 `f32`          | 32 MiB | 1 × 128               | 1.4 MB           |
/// | 10 000 000 × 256 `f32`     | 32 MiB | 2 × 128               | 5.1 GB           |
pub(crate) fn plan<E: Packed>(n_rows: usize, width: usize, words_max: usize, cache_bytes: usize) -> Vec<Panel> {
    let padded = width.div_ceil(E::PER_WORD).next_multiple_of(LINE_WORDS);
    let fitting = cache_bytes / (WORD_BYTES * n_rows.max(1));
    let words_min = ROW_BYTES_MIN / WORD_BYTES;
    let limit = if 2 * fitting < words_min || 2 * padded <= 3 * fitting {
        words_max
    } else {
        (fitting / LINE_WORDS * LINE_WORDS).max(words_min).min(words_max)
    };
    // Even panels: whole lines each, as many as the widest needs.
    let n_panels = padded.div_ceil(limit);
    let panel_words = if n_panels <= 1 { limit } else { padded.div_ceil(n_panels).next_multiple_of(LINE_WORDS) };
    let panel_columns = panel_words * E::PER_WORD;
    let starts = (0..width).step_by(panel_columns);
    starts
        .map(|start| {
            let columns = start..(start + panel_columns).min(width);
            let row_words = columns.len().div_ceil(E::PER_WORD).next_multiple_of(LINE_WORDS);
            Panel { columns, row_words }
        })
        .collect()
}

impl Panel {
    /// Words of the packed panel of `n_rows` rows.
    pub(crate) fn n_words(&self, n_rows: usize) -> usize {
        n_rows * self.row_words
    }

    /// Whether the rows of an operand of `width` columns already lie as the packed panel's would.
    pub(crate) fn is_in_place<E: Packed>(&self, width: usize) -> bool {
        let line = CACHE_LINE / size_of::<E>();
        self.columns == (0..width) && width.is_multiple_of(line)
    }

    /// Packs the panel's columns of `operand` (rows of `width`), each row times its factor of `scales`.
    pub(crate) fn pack<E: Packed>(
        &self,
        isa: Isa,
        operand: &[E],
        width: usize,
        scales: Option<&[f32]>,
        packed: &mut [u32],
    ) {
        let tasks = packed.par_chunks_mut(ROWS_PER_TASK * self.row_words);
        tasks.enumerate().for_each(|(task, packed)| {
            let first = task * ROWS_PER_TASK;
            isa.run(
                #[inline(always)]
                || {
                    for (row, words) in (first..).zip(packed.chunks_exact_mut(self.row_words)) {
                        let elements = &operand[row * width..][self.columns.clone()];
                        E::pack(elements, scales.map(|s| s[row]), words);
                    }
                },
            );
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: usize = 1 << 20;

    fn widths<E: Packed>(n_rows: usize, width: usize) -> Vec<usize> {
        plan::<E>(n_rows, width, 128 / E::PER_WORD, 32 * MIB).iter().map(|p| p.columns.len()).collect()
    }

    #[test]
    fn the_documented_cases_hold() {
        assert_eq!(widths::<f32>(232_965, 128), [32; 4]);
        assert_eq!(widths::<bf16>(232_965, 128), [64; 2]);
        assert_eq!(widths::<f32>(232_965, 41), [41]);
        assert_eq!(plan::<f32>(232_965, 41, 128, 32 * MIB)[0].row_words, 48);
        assert_eq!(plan::<bf16>(232_965, 41, 64, 32 * MIB)[0].row_words, 32);
        assert_eq!(widths::<f32>(2_708, 128), [128]);
        assert_eq!(widths::<f32>(10_000_000, 256), [128; 2]);
    }

    fn check_plan<E: Packed>(n_rows: usize, width: usize, words_max: usize, cache: usize) {
        let panels = plan::<E>(n_rows, width, words_max, cache);
        let mut next = 0;
        for panel in &panels {
            assert_eq!(panel.columns.start, next);
            assert!(panel.columns.len() <= panel.row_words * E::PER_WORD && panel.row_words <= words_max);
            next = panel.columns.end;
        }
        assert_eq!(next, width);
    }

    proptest! {
        #[test]
        fn panels_cover_every_column_once(
            n_rows in 0usize..5_000_000, width in 0usize..1000, lines in 1usize..9, cache in 0usize..64 * MIB,
        ) {
            check_plan::<f32>(n_rows, width, 16 * lines, cache);
            check_plan::<bf16>(n_rows, width, 16 * lines, cache);
        }

        #[test]
        fn packing_scales_and_pads(n_rows in 1usize..20, width in 1usize..70, scaled in any::<bool>()) {
            let operand: Vec<f32> = (0..n_rows * width).map(|i| i as f32).collect();
            let scales: Vec<f32> = (0..n_rows).map(|r| r as f32 - 3.0).collect();
            for panel in plan::<f32>(n_rows, width, 32, MIB) {
                let mut packed = vec![u32::MAX; panel.n_words(n_rows)];
                panel.pack(Isa::detect(), &operand, width, scaled.then_some(&scales), &mut packed);
                for r in 0..n_rows {
                    for c in 0..panel.row_words {
                        let column = panel.columns.start + c;
                        let scale = if scaled { scales[r] } else { 1.0 };
                        let expected =
                            if column < panel.columns.end { operand[r * width + column] * scale } else { 0.0 };
                        prop_assert_eq!(f32::from_bits(packed[r * panel.row_words + c]), expected);
                    }
                }
            }
        }
    }
}
