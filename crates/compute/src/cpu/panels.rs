//! Column panels: ranges of the operand's columns that stay in the last-level cache while its rows are gathered.
//!
//! A sparse product reads a row of the operand for every entry, in an order that caches cannot predict. Each panel of
//! columns costs one more pass over the indices. That pays off if a whole panel then fits the cache. A panel is
//! packed just before its use, from the operand times its row factors:
//!
//! ```text
//! operand, 5 columns          panel of columns 0..4       panel of column 4, padded with zeros
//! a0 a1 a2 a3 a4              a0 a1 a2 a3                 a4 0 0 0
//! b0 b1 b2 b3 b4              b0 b1 b2 b3                 b4 0 0 0
//! ```

use std::marker::PhantomData;
use std::ops::Range;

use girih_machine::PASS_BYTES_MIN;
use half::bf16;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::element::Element;
use super::prefetch::{CACHE_LINE, stream, stream_end};
use super::simd::Isa;

/// Bytes of a word. Panels consist of 32-bit words: one `f32` or two bf16.
const WORD_BYTES: usize = size_of::<u32>();
/// Alignment of the rows of a panel in words: one cache line, so that no vector reaches into a row that was not
/// prefetched.
pub(crate) const LINE_WORDS: usize = CACHE_LINE / WORD_BYTES;
/// Limit for more panels: their predicted time must be below this fraction of the time of fewer panels.
const WORTH_A_PASS: f64 = 0.97;
/// Maximum number of bytes of panels that are packed together.
const GROUP_BYTES: usize = 128 << 20;
/// Number of rows that one task packs.
const ROWS_PER_TASK: usize = 1024;

/// Element type of panels.
pub(crate) trait Packed: Element {
    /// Number of elements in a word.
    const PER_WORD: usize = WORD_BYTES / size_of::<Self>();
}

impl Packed for f32 {}

impl Packed for bf16 {}

/// Panel of consecutive columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Panel {
    /// Range of columns.
    pub(crate) columns: Range<usize>,
    /// Row stride of the packed panel, in words.
    pub(crate) row_words: usize,
}

/// Shape of an operand that is cut into panels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    /// Number of rows.
    pub(crate) n_rows: usize,
    /// Number of columns.
    pub(crate) width: usize,
    /// Maximum number of words of a row that a kernel sums in registers.
    pub(crate) words_max: usize,
}

/// Cuts the columns of an operand into even panels of whole cache lines, and chooses their number for the least time.
/// `seconds` predicts the time of a product with a panel from the bytes of its rows. An operand that fits a cache of
/// `cache_bytes` stays one panel, if registers can hold the sums of its rows.
///
/// Panels have at least 128 bytes per row. The best number depends on the node order. If neighbors have close ids,
/// the gathered rows are in the cache anyway, and each panel only adds a pass over the graph. With random ids, 32 MiB
/// of cache and 98 non-zeros per row:
///
/// | operand                    | panels (columns)      | bytes of a panel |
/// |----------------------------|-----------------------|------------------|
/// | 232 965 × 128 `f32`        | 4 × 32                | 30 MB            |
/// | 232 965 × 128 bf16         | 2 × 64                | 30 MB            |
/// | 2 708 × 128 `f32`          | 1 × 128               | 1.4 MB           |
/// | 10 000 000 × 256 `f32`     | 2 × 128               | 5.1 GB           |
pub(crate) fn plan<E: Packed>(operand: Operand, cache_bytes: u64, seconds: impl Fn(usize) -> f64) -> Vec<Panel> {
    let Operand { n_rows, width, words_max } = operand;
    let padded = width.div_ceil(E::PER_WORD).next_multiple_of(LINE_WORDS);
    if padded <= words_max && (n_rows * padded * WORD_BYTES) as u64 <= cache_bytes {
        return cut::<E>(width, padded);
    }
    let words_min = PASS_BYTES_MIN / WORD_BYTES;
    let fewest = padded.div_ceil(words_max);
    let most = fewest.max(padded / words_min);
    let predicted = |panels: &[Panel]| panels.iter().map(|panel| seconds(panel.row_words * WORD_BYTES)).sum::<f64>();
    let mut best = cut::<E>(width, panel_words(padded, fewest));
    let mut least = predicted(&best);
    for n_panels in fewest + 1..=most {
        let panels = cut::<E>(width, panel_words(padded, n_panels));
        let time = predicted(&panels);
        // One more pass must save enough time.
        if time < WORTH_A_PASS * least {
            (best, least) = (panels, time);
        }
    }
    best
}

/// Number of words per row of each of `n_panels` even panels.
fn panel_words(padded: usize, n_panels: usize) -> usize {
    padded.div_ceil(n_panels.max(1)).next_multiple_of(LINE_WORDS)
}

/// Panels of `words` words per row; the last one takes the rest.
fn cut<E: Packed>(width: usize, words: usize) -> Vec<Panel> {
    let columns = (words * E::PER_WORD).max(1);
    let panel = |start: usize| {
        let columns = start..(start + columns).min(width);
        let row_words = columns.len().div_ceil(E::PER_WORD).next_multiple_of(LINE_WORDS);
        Panel { columns, row_words }
    };
    (0..width).step_by(columns).map(panel).collect()
}

impl Panel {
    /// Number of words of the packed panel of `n_rows` rows.
    pub(crate) fn n_words(&self, n_rows: usize) -> usize {
        n_rows * self.row_words
    }

    /// Whether the rows of an operand of `X` with `width` columns already have the layout of the packed panel.
    pub(crate) fn is_in_place<X: Element, P: Packed>(&self, width: usize) -> bool {
        let line = CACHE_LINE / size_of::<P>();
        X::DTYPE == P::DTYPE && self.columns == (0..width) && width.is_multiple_of(line)
    }
}

/// Groups panels that are packed together. Reading whole rows once is faster than reading a part of every row for
/// each panel. A group has at most [`GROUP_BYTES`], or is a single panel.
pub(crate) fn groups(panels: &[Panel], n_rows: usize) -> impl Iterator<Item = &[Panel]> {
    let panel_bytes = panels.first().map_or(1, |panel| panel.n_words(n_rows) * WORD_BYTES).max(1);
    panels.chunks((GROUP_BYTES / panel_bytes).max(1))
}

/// Packs the columns of a group of panels of `operand` (rows of `width`) into `packed`, panel after panel. Each row
/// is multiplied by its factor of `scales`. The products are rounded once, to the storage of the panels.
///
/// If the panels together exceed a cache of `cache_bytes`, they are written past it, and each is read from memory at
/// its use.
pub(crate) fn pack<X: Element, P: Packed>(
    (isa, cache_bytes): (Isa, u64),
    group: &[Panel],
    (operand, width): (&[X], usize),
    scales: Option<&[f32]>,
    packed: &mut [u32],
) {
    let n_rows = operand.len() / width.max(1);
    let streamed = size_of_val(packed) as u64 > cache_bytes;
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

/// Consecutive rows to be packed into the panels of a group.
struct PackRows<'a, X, P> {
    /// Index of the first row.
    first: usize,
    group: &'a [Panel],
    operand: &'a [X],
    width: usize,
    scales: Option<&'a [f32]>,
    /// Destination of the rows in each panel.
    parts: Vec<&'a mut [u32]>,
    /// If true, writes bypass the caches.
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

/// Computes `packed = scale · row`, padded with zeros. The length of `packed` is a multiple of a cache line.
#[inline(always)]
fn pack_row<X: Element, P: Packed>(row: &[X], scale: f32, packed: &mut [P], streamed: bool) {
    /// Block length in elements. Loops of this length become vectors without a remainder.
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
    use girih_machine::{Hierarchy, Product};
    use proptest::prelude::*;

    use super::*;
    use crate::cpu::matrix::zeroed;

    const MIB: usize = 1 << 20;

    /// Widths of the panels of [`plan`] under a simple model: the hit rate of a row of the operand is the fraction of
    /// rows that fit the cache.
    fn widths<E: Packed>(n_rows: usize, width: usize) -> Vec<usize> {
        let machine = girih_machine::Machine {
            cpu: None,
            cores: 2,
            l1d_bytes: Some(48 << 10),
            l2_bytes: Some(MIB as u64),
            l3_bytes: Some(32 * MIB as u64),
            memory_bytes: None,
        };
        let device = Hierarchy::of_cpu(&machine);
        let seconds = |row_bytes| {
            let product = Product { n_rows, nnz: 98 * n_rows, row_bytes };
            device.seconds(&product, |rows| (rows as f64 / n_rows as f64).min(1.0))
        };
        let operand = Operand { n_rows, width, words_max: 128 / E::PER_WORD };
        plan::<E>(operand, device.largest_cache(), seconds).iter().map(|p| p.columns.len()).collect()
    }

    #[test]
    fn the_documented_cases_hold() {
        assert_eq!(widths::<f32>(232_965, 128), [32; 4]);
        assert_eq!(widths::<bf16>(232_965, 128), [64; 2]);
        assert_eq!(widths::<f32>(2_708, 128), [128]);
        assert_eq!(widths::<f32>(10_000_000, 256), [128; 2]);
    }

    #[test]
    fn rows_that_are_in_the_cache_anyway_are_read_in_one_pass() {
        let seconds = |row_bytes| 0.1 + row_bytes as f64;
        let operand = Operand { n_rows: 1_000_000, width: 128, words_max: 128 };
        assert_eq!(plan::<f32>(operand, 0, seconds).len(), 1);
    }

    fn check_plan<E: Packed>(operand: Operand, cache: usize, rows_held: usize) {
        let seconds = |row_bytes| if row_bytes <= rows_held { 1.0 } else { row_bytes as f64 };
        let panels = plan::<E>(operand, cache as u64, seconds);
        let mut next = 0;
        for panel in &panels {
            assert_eq!(panel.columns.start, next);
            assert!(panel.columns.len() <= panel.row_words * E::PER_WORD && panel.row_words <= operand.words_max);
            next = panel.columns.end;
        }
        assert_eq!(next, operand.width);
    }

    fn check_packing<P: Packed>(n_rows: usize, width: usize, (scaled, cache_bytes): (bool, usize)) {
        let operand: Vec<f32> = (0..n_rows * width).map(|i| i as f32).collect();
        let scales: Vec<f32> = (0..n_rows).map(|r| r as f32 - 3.1).collect();
        for panel in plan::<P>(Operand { n_rows, width, words_max: 32 }, MIB as u64, |_| 1.0) {
            let mut words = zeroed(panel.n_words(n_rows));
            words.fill(u32::MAX);
            let (group, to) = (std::slice::from_ref(&panel), (Isa::detect(), cache_bytes as u64));
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
            n_rows in 0usize..5_000_000, width in 0usize..1000, lines in 1usize..9, cache in 0usize..64 * MIB, held in 0usize..600,
        ) {
            let operand = Operand { n_rows, width, words_max: 16 * lines };
            check_plan::<f32>(operand, cache, held);
            check_plan::<bf16>(operand, cache, held);
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
