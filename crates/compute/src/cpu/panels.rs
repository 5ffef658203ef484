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

use std::marker::PhantomData;
use std::ops::Range;

use half::bf16;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::element::Element;
use super::prefetch::{CACHE_LINE, stream, stream_end};
use super::simd::Isa;

/// Bytes of a word; panels are made of words of 32 bits: one `f32` or two bf16.
const WORD_BYTES: usize = size_of::<u32>();
/// Words that rows of a panel are padded to: a cache line, so that no vector reaches into a row that nobody prefetched.
pub(crate) const LINE_WORDS: usize = CACHE_LINE / WORD_BYTES;
/// The least bytes of a row worth a pass over the indices: two cache lines, the unit that DRAM and L3 move in.
const ROW_BYTES_MIN: usize = 128;
/// Bytes of panels that are packed together, at most.
const GROUP_BYTES: usize = 128 << 20;
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
}

/// Cuts panels into groups that are packed together: reading whole rows once beats reading a piece of every row for
/// each panel. A group takes at most [`GROUP_BYTES`], or is a single panel.
pub(crate) fn groups(panels: &[Panel], n_rows: usize) -> impl Iterator<Item = &[Panel]> {
    let panel_bytes = panels.first().map_or(1, |panel| panel.n_words(n_rows) * WORD_BYTES).max(1);
    panels.chunks((GROUP_BYTES / panel_bytes).max(1))
}

/// Packs the columns of a group of panels of `operand` (rows of `width`), each row times its factor of `scales`, one
/// panel after the other into `packed`; products are rounded to the storage of the panels once.
///
/// Panels that do not fit a cache of `cache_bytes` together are written past it: each comes from memory when its turn is.
pub(crate) fn pack<X: Element, P: Packed>(
    (isa, cache_bytes): (Isa, usize),
    group: &[Panel],
    (operand, width): (&[X], usize),
    scales: Option<&[f32]>,
    packed: &mut [u32],
) {
    let n_rows = operand.len() / width.max(1);
    let streamed = size_of_val(packed) > cache_bytes;
    let mut tasks: Vec<PackRows<'_, X, P>> = (0..n_rows.div_ceil(ROWS_PER_TASK))
        .map(|task| {
            let (first, parts) = (task * ROWS_PER_TASK, Vec::with_capacity(group.len()));
            PackRows { first, group, operand, width, scales, parts, streamed, storage: PhantomData }
        })
        .collect();
    let mut rest = packed;
    for panel in group {
        let (mine, others) = rest.split_at_mut(panel.n_words(n_rows));
        for (task, part) in tasks.iter_mut().zip(mine.chunks_mut(ROWS_PER_TASK * panel.row_words)) {
            task.parts.push(part);
        }
        rest = others;
    }
    tasks.into_par_iter().for_each(|task| isa.run(task));
}

/// Some consecutive rows on their way into the panels of a group.
struct PackRows<'a, X, P> {
    /// The first row.
    first: usize,
    group: &'a [Panel],
    operand: &'a [X],
    width: usize,
    scales: Option<&'a [f32]>,
    /// The rows' part of each panel.
    parts: Vec<&'a mut [u32]>,
    /// Write past the caches.
    streamed: bool,
    storage: PhantomData<P>,
}

impl<X: Element, P: Packed> WithSimd for PackRows<'_, X, P> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) {
        let n_rows = self.parts.iter().zip(self.group).map(|(part, panel)| part.len() / panel.row_words).min();
        for i in 0..n_rows.unwrap_or(0) {
            let row = self.first + i;
            let elements = &self.operand[row * self.width..(row + 1) * self.width];
            let scale = self.scales.map_or(1.0, |s| s[row]);
            for (part, panel) in self.parts.iter_mut().zip(self.group) {
                let words = &mut part[i * panel.row_words..(i + 1) * panel.row_words];
                let words = bytemuck::cast_slice_mut(words);
                pack_row::<X, P>(&elements[panel.columns.clone()], scale, words, self.streamed);
            }
        }
        if self.streamed {
            stream_end();
        }
    }
}

/// `packed = scale · row`, zero beyond the row; `packed` is whole cache lines.
#[inline(always)]
fn pack_row<X: Element, P: Packed>(row: &[X], scale: f32, packed: &mut [P], streamed: bool) {
    /// Loops over so many elements become vectors without a remainder.
    const BLOCK: usize = LINE_WORDS;
    let (blocks, tail) = row.as_chunks::<BLOCK>();
    let (packed, _) = packed.as_chunks_mut::<BLOCK>();
    let (packed, rest) = packed.split_at_mut(blocks.len());
    for (packed, block) in packed.iter_mut().zip(blocks) {
        let values = block.map(
            #[inline(always)]
            |x| P::from_f32(scale * x.to_f32()),
        );
        if streamed { stream(&values, packed) } else { *packed = values }
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
    use crate::cpu::matrix::zeroed;

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

    fn check_packing<P: Packed>(n_rows: usize, width: usize, (scaled, cache_bytes): (bool, usize)) {
        let operand: Vec<f32> = (0..n_rows * width).map(|i| i as f32).collect();
        let scales: Vec<f32> = (0..n_rows).map(|r| r as f32 - 3.1).collect();
        for panel in plan::<P>(n_rows, width, 32, MIB) {
            let mut words = zeroed(panel.n_words(n_rows));
            words.fill(u32::MAX);
            let (group, to) = (std::slice::from_ref(&panel), (Isa::detect(), cache_bytes));
            pack::<f32, P>(to, group, (&operand, width), scaled.then_some(&scales), &mut words);
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
        fn packing_scales_rounds_and_pads(
            n_rows in 1usize..20, width in 1usize..150, scaled in any::<bool>(), cache in prop_oneof![Just(0), Just(MIB)],
        ) {
            check_packing::<f32>(n_rows, width, (scaled, cache));
            check_packing::<bf16>(n_rows, width, (scaled, cache));
        }
    }
}
