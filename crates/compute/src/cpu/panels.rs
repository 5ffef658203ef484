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
use super::prefetch::{CACHE_LINE, prefetch};
use super::simd::Isa;

/// Bytes of a word; panels are made of words of 32 bits: one `f32` or two bf16.
const WORD_BYTES: usize = size_of::<u32>();
/// Words that rows of a panel are padded to: a cache line, so that no vector reaches into a row that nobody prefetched.
pub(crate) const LINE_WORDS: usize = CACHE_LINE / WORD_BYTES;
/// The least bytes of a row worth a pass over the indices: two cache lines, the unit that DRAM and L3 move in.
const ROW_BYTES_MIN: usize = 128;
/// Rows that are asked for before they are packed: the processor does not foresee pieces of rows that lie apart.
const ROWS_AHEAD: usize = 16;
/// Rows packed by one task.
const ROWS_PER_TASK: usize = 1024;

/// An element that panels are made of.
pub(crate) trait Packed: Element {
    /// Elements in a word.
    const PER_WORD: usize = WORD_BYTES / size_of::<Self>();
}

impl Packed for f32 {}

impl Packed for bf16 {}

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

    /// Whether the rows of an operand of `X`, `width` columns wide, already lie as the panel packed from it would.
    pub(crate) fn is_in_place<X: Element, P: Packed>(&self, width: usize) -> bool {
        let line = CACHE_LINE / size_of::<P>();
        X::DTYPE == P::DTYPE && self.columns == (0..width) && width.is_multiple_of(line)
    }

    /// Packs the panel's columns of `operand` (rows of `width`), each row times its factor of `scales`; products are
    /// rounded to the storage of the panel once.
    pub(crate) fn pack<X: Element, P: Packed>(
        &self,
        isa: Isa,
        operand: &[X],
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
                        let ahead = operand.as_ptr().wrapping_add((row + ROWS_AHEAD) * width + self.columns.start);
                        for line in 0..(self.columns.len() * size_of::<X>()).div_ceil(CACHE_LINE) {
                            prefetch(ahead.wrapping_byte_add(line * CACHE_LINE));
                        }
                        let elements = &operand[row * width..][self.columns.clone()];
                        pack_row::<X, P>(elements, scales.map_or(1.0, |s| s[row]), bytemuck::cast_slice_mut(words));
                    }
                },
            );
        });
    }
}

/// `packed = scale · row`, zero beyond the row; `packed` is whole cache lines.
#[inline(always)]
fn pack_row<X: Element, P: Packed>(row: &[X], scale: f32, packed: &mut [P]) {
    /// Loops over so many elements become vectors without a remainder.
    const BLOCK: usize = LINE_WORDS;
    let (blocks, tail) = row.as_chunks::<BLOCK>();
    let (packed, _) = packed.as_chunks_mut::<BLOCK>();
    let (packed, rest) = packed.split_at_mut(blocks.len());
    for (packed, block) in packed.iter_mut().zip(blocks) {
        *packed = block.map(
            #[inline(always)]
            |x| P::from_f32(scale * x.to_f32()),
        );
    }
    rest.as_flattened_mut().fill(P::from_f32(0.0));
    for (packed, x) in rest.as_flattened_mut().iter_mut().zip(tail) {
        *packed = P::from_f32(scale * x.to_f32());
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

    fn check_packing<P: Packed>(n_rows: usize, width: usize, scaled: bool) {
        let operand: Vec<f32> = (0..n_rows * width).map(|i| i as f32).collect();
        let scales: Vec<f32> = (0..n_rows).map(|r| r as f32 - 3.1).collect();
        for panel in plan::<P>(n_rows, width, 32, MIB) {
            let mut words = vec![u32::MAX; panel.n_words(n_rows)];
            panel.pack::<f32, P>(Isa::detect(), &operand, width, scaled.then_some(&scales), &mut words);
            let packed: &[P] = bytemuck::cast_slice(&words);
            for r in 0..n_rows {
                for c in 0..panel.row_words * P::PER_WORD {
                    let column = panel.columns.start + c;
                    let scale = if scaled { scales[r] } else { 1.0 };
                    let scaled = if column < panel.columns.end { operand[r * width + column] * scale } else { 0.0 };
                    assert_eq!(packed[r * panel.row_words * P::PER_WORD + c].to_f32(), P::from_f32(scaled).to_f32());
                }
            }
        }
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
        fn packing_scales_rounds_and_pads(n_rows in 1usize..20, width in 1usize..150, scaled in any::<bool>()) {
            check_packing::<f32>(n_rows, width, scaled);
            check_packing::<bf16>(n_rows, width, scaled);
        }
    }
}
