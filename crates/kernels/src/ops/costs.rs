//! Cost model for blocks: times of a block, a window with blocks, an entry, and the preparation of an operand,
//! measured once per GPU. The model chooses the share of filled places from which blocks are used. The cost of
//! entries also depends on the pattern: the lengths of its rows, their distances, and the size of the operand. So a
//! trial on the pattern itself decides whether blocks pay.
//!
//! Multiplying a block as one or entry by entry changes the order of sums, and with it their last bits. So
//! measurements are kept, and later runs decide alike. The first process that stores a measurement wins. Nothing is
//! measured if it cannot be stored.

use cudarc::driver::PushKernelArg;
use girih_compute::{ComputeError, Dtype, Epilogue, Shape};
use girih_graph_format::{BlockLayout, Csr};

use super::operand::OperandRequest;
use super::sparse::Direction;
use crate::abi::{Candidates, N_CANDIDATES, TilePartials};
use crate::buffer::Buffer;
use crate::compile::Source;
use crate::cuda::Cuda;
use crate::driver::Driver;
use crate::matrix::{Blocks, CudaCsr, CudaMatrix, ProductClass, Split, Tiles};
use crate::measurements;
use crate::tiling::entries_of;

/// Candidate shares of a block's places from which blocks are used; `cuda/tiling.cu` counts for as many. The first
/// one bounds the memory of blocks: `girih-compute` plans with it.
const CANDIDATES: [f64; N_CANDIDATES] = [0.015, 0.02, 0.03, 0.05, 0.1];
/// Kernels whose times are measured.
const SOURCES: [Source; 5] = [Source::TILES, Source::TILES_MMA, Source::TILES_PAPER, Source::SPMM, Source::OPERAND];
/// Shape of the measured patterns: rows enough to fill a GPU, columns few enough that their operand rows stay in
/// cache.
const SIZE: Shape = Shape { rows: 1 << 16, cols: 1 << 15 };
/// Entries of each row.
const PER_ROW: usize = 32;
/// Number of rows with entries for the measurement of entries, and their two lengths. The difference gives the cost
/// of entries without that of rows. Both lengths suffice for gathers by whole warps.
const DENSE_ROWS: usize = 1 << 15;
const PER_DENSE_ROW: [usize; 2] = [128, 256];
/// Distance of entries in a block that is about worth being one.
const CLOSE: usize = 32;
/// Two numbers of blocks per row of blocks. The difference gives the cost of blocks; the remainder of the smaller run
/// gives that of windows.
const FEW: usize = 4;
const MANY: usize = 32;
/// Fraction 1/`WORTH` of a product's time that blocks must save to be worth finding, where no trial decides.
const WORTH: u128 = 64;
/// Limit of a trial: blocks are not tried if their predicted time exceeds that without them by more than
/// 1/`HOPELESS`.
const HOPELESS: u128 = 2;
/// Untimed and timed runs; the shortest counts. A busy host delays some of them, and the measurement is kept.
const WARM_UP: usize = 2;
const RUNS: usize = 15;
/// Timed runs of a trial on a pattern of the user.
const TRIALS: usize = 5;
/// Stored results of a trial.
const PAY: &str = "blocks\n";
const DO_NOT: &str = "rows\n";

/// Costs in femtoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Costs {
    block: u64,
    /// Cost of a window of rows that has blocks: its sums are written, and read again.
    window: u64,
    /// Cost of an entry that a block would take: it lies close to others of its row and of neighboring rows.
    entry: u64,
    /// Fixed cost of preparing an operand for blocks, and cost of each of its rows.
    operand: u64,
    operand_row: u64,
}

/// Work of a product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) blocks: u64,
    /// Windows that have blocks.
    pub(super) windows: u64,
    /// Entries outside of blocks.
    pub(super) entries: u64,
    /// Rows of the operand, if it is prepared for blocks; else zero.
    pub(super) operand_rows: u64,
}

/// Histogram of blocks by fill: numbers of blocks, of their entries, and of windows by their densest block. The bins
/// lie below the first candidate, between two candidates, and from the last one on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fills {
    blocks: [u64; N_CANDIDATES + 1],
    entries: [u64; N_CANDIDATES + 1],
    windows: [u64; N_CANDIDATES + 1],
    /// Rows of the operand.
    operand_rows: u64,
}

impl Fills {
    /// Work of the product whose blocks begin at a candidate; past the last candidate, of the product without blocks.
    fn split_at(&self, candidate: usize) -> Parts {
        let (blocks, windows) = (self.blocks.iter().skip(candidate + 1), self.windows.iter().skip(candidate + 1));
        let entries = self.entries.iter().take(candidate + 1);
        let blocks = blocks.sum();
        let operand_rows = if blocks > 0 { self.operand_rows } else { 0 };
        Parts { blocks, windows: windows.sum(), entries: entries.sum(), operand_rows }
    }
}

impl Costs {
    /// Default costs without a measurement: the best share found on an H200, and paper A's share for its tiles.
    fn built_in(layout: BlockLayout) -> Self {
        let share = match layout {
            BlockLayout::Fragments => 0.02,
            BlockLayout::Tiles => 0.05,
        };
        Self { block: entries_of(share, layout).into(), window: 0, entry: 1, operand: 0, operand_row: 0 }
    }

    fn time(self, parts: Parts) -> u128 {
        let Parts { blocks, windows, entries, operand_rows } = parts;
        let operands = u64::from(operand_rows > 0);
        let times = [(blocks, self.block), (windows, self.window), (entries, self.entry)];
        let times = times.into_iter().chain([(operands, self.operand), (operand_rows, self.operand_row)]);
        times.map(|(n, cost)| u128::from(n) * u128::from(cost)).sum()
    }

    /// Whether a product with blocks saves enough against one of all entries.
    pub(super) fn are_worth(self, parts: Parts, n_entries: u64) -> bool {
        let without = self.time(Parts { entries: n_entries, ..Parts::default() });
        self.time(parts) <= without - without / WORTH && parts.blocks > 0
    }

    /// Index of the candidate with the least time; of equals, the one with fewest blocks. `None` if there are no
    /// blocks, or a trial is hopeless.
    fn choose(self, fills: &Fills) -> Option<usize> {
        let best = (0..N_CANDIDATES).rev().min_by_key(|&i| self.time(fills.split_at(i)));
        let without = self.time(Parts { entries: fills.entries.iter().sum(), ..Parts::default() });
        best.filter(|&i| {
            let parts = fills.split_at(i);
            parts.blocks > 0 && self.time(parts) <= without + without / HOPELESS
        })
    }

    fn to_text(self) -> String {
        let Self { block, window, entry, operand, operand_row } = self;
        format!("{block} {window} {entry} {operand} {operand_row}\n")
    }

    /// Parses the output of [`to_text`](Self::to_text); `None` for any other text.
    fn from_text(text: &str) -> Option<Self> {
        let mut words = text.trim_end().split(' ').map(|word| word.parse().ok());
        let mut next = || words.next()?;
        let (block, window, entry, operand, operand_row) = (next()?, next()?, next()?, next()?, next()?);
        if words.next().is_some() {
            return None;
        }
        (block > 0 && entry > 0).then_some(Self { block, window, entry, operand, operand_row })
    }
}

impl Tiles {
    /// Work of a product with these blocks, for the cost model.
    pub(super) fn parts(&self) -> Parts {
        let Blocks { n, n_windows, .. } = self.blocks;
        let operand_rows = self.rest.shape.cols as u64;
        Parts { blocks: n as u64, windows: n_windows as u64, entries: self.rest.nnz as u64, operand_rows }
    }
}

impl Cuda {
    /// Fewest entries of a block that may pay, in products of a class; `None` if no block pays.
    pub(super) fn worthwhile_entries(
        &self,
        operation: &'static str,
        csr: &CudaCsr,
        class: ProductClass,
    ) -> Result<Option<u32>, ComputeError> {
        let layout = class.kernel.layout();
        let costs = self.costs(class);
        let share = costs.choose(&self.count_fills(operation, csr, layout)?).map(|i| CANDIDATES[i]);
        let [block, window] = [costs.block, costs.window].map(|cost| cost as f64 / costs.entry as f64);
        tracing::debug!(
            "{class:?}: a block takes as long as {block:.0} entries, a window {window:.0}; blocks begin at {share:?}"
        );
        Ok(share.map(|share| entries_of(share, layout)))
    }

    /// Whether products like that with `x` are faster with these blocks. A trial decides, now or before; costs decide
    /// if a trial cannot be stored.
    pub(super) fn pay(&self, class: ProductClass, csr: &CudaCsr, tiles: &Tiles, x: &CudaMatrix) -> bool {
        let parts = tiles.parts();
        let tried = || match self.times_of(csr, tiles, x) {
            Ok([with, without]) => {
                tracing::debug!("{class:?}: {:.3} ms by blocks, {:.3} ms without", 1e3 * with, 1e3 * without);
                Some(if with < without { PAY } else { DO_NOT }.to_owned())
            }
            Err(error) => {
                tracing::debug!("blocks are not tried: {error}");
                None
            }
        };
        let kept = Driver::load().ok().and_then(|driver| {
            let of = format!("{} {driver} {class:?} {} {} {parts:?}", self.device.name(), csr.shape, csr.nnz);
            measurements::kept(&of, &SOURCES, |text| text == PAY || text == DO_NOT, tried)
        });
        kept.map_or_else(|| self.costs(class).are_worth(parts, csr.nnz as u64), |text| text == PAY)
    }

    /// Seconds of a product with blocks and without.
    fn times_of(&self, csr: &CudaCsr, tiles: &Tiles, x: &CudaMatrix) -> Result<[f64; 2], ComputeError> {
        const OPERATION: &str = "try blocks";
        let mut out = self.uninitialized(Shape::new(csr.shape.rows, x.shape.cols), x.dtype)?;
        let (direction, plain) = (Direction::of_pattern(csr), Epilogue::default());
        let mut seconds =
            |tiles| self.shortest(TRIALS, || self.product_by(OPERATION, direction, (None, tiles), x, &plain, &mut out));
        Ok([seconds(Some(tiles))?, seconds(None)?])
    }

    /// Histogram of the blocks of a pattern by their entries.
    fn count_fills(&self, operation: &'static str, csr: &CudaCsr, layout: BlockLayout) -> Result<Fills, ComputeError> {
        let mut fills = Fills { operand_rows: csr.shape.cols as u64, ..Fills::default() };
        let zeros = |n| -> Result<Buffer<u64>, ComputeError> {
            let mut zeros = self.scratch::<u64>(operation, n)?;
            self.device.stream.memset_zeros(&mut zeros).map_err(Self::failed(operation))?;
            Ok(zeros)
        };
        let n = fills.blocks.len();
        let (mut blocks, mut entries, mut windows) = (zeros(n)?, zeros(n)?, zeros(n)?);
        let candidates = Candidates(CANDIDATES.map(|share| entries_of(share, layout)));
        let (search, config, _counts) = self.search(operation, csr, layout, candidates.0[0])?;
        let kernel = self.tiling_kernel(operation, "count_fills", layout)?;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&search).arg(&candidates).arg(&mut blocks).arg(&mut entries).arg(&mut windows);
        // SAFETY: the search holds a pattern, and a number for each panel and each thread block; results have a number
        // for each candidate and one more.
        unsafe { launch.launch(config) }.map_err(Self::failed(operation))?;
        fills.blocks.copy_from_slice(&self.read(operation, &blocks.slice(..))?);
        fills.entries.copy_from_slice(&self.read(operation, &entries.slice(..))?);
        fills.windows.copy_from_slice(&self.read(operation, &windows.slice(..))?);
        Ok(fills)
    }

    /// Costs of a class: stored, measured now, or the defaults if they cannot be stored.
    pub(super) fn costs(&self, class: ProductClass) -> Costs {
        let measured = || match self.measure(class) {
            Ok(costs) => Some(costs.to_text()),
            Err(error) => {
                tracing::debug!("costs of blocks are not measured: {error}");
                None
            }
        };
        let kept = Driver::load().ok().and_then(|driver| {
            let of = format!("{} {driver} {class:?}", self.device.name());
            measurements::kept(&of, &SOURCES, |text| Costs::from_text(text).is_some(), measured)
        });
        kept.and_then(|text| Costs::from_text(&text)).unwrap_or(Costs::built_in(class.kernel.layout()))
    }

    /// Measures products on synthetic patterns. `girih-compute` plans with the bytes that this takes.
    fn measure(&self, class: ProductClass) -> Result<Costs, ComputeError> {
        const OPERATION: &str = "measure";
        let layout = class.kernel.layout();
        let scattered = self.upload_csr(OPERATION, &scattered_entries(), None)?;
        let wanted =
            OperandRequest { rows: true, halves: layout == BlockLayout::Fragments && class.dtype == Dtype::F32 };
        let make = |rows: usize| {
            let x = self.zeros(Shape::new(rows, class.width), class.dtype)?;
            self.shortest(RUNS, || self.operand(OPERATION, &x, Direction::of_pattern(&scattered), wanted).map(drop))
        };
        let (small, large) = (make(1)?, make(SIZE.rows)?);

        let x = self.zeros(Shape::new(SIZE.cols, class.width), class.dtype)?;
        let (x, halves) =
            self.operand(OPERATION, &x, Direction::of_pattern(&scattered), OperandRequest { rows: false, ..wanted })?;
        let plain = Epilogue::default();
        let by_rows = |csr: &CudaCsr| {
            let mut out = self.zeros(Shape::new(csr.shape.rows, class.width), class.dtype)?;
            let direction = Direction::of_pattern(csr);
            self.shortest(RUNS, || {
                self.gather(OPERATION, direction, None, &x, TilePartials::default(), &plain, &mut out)
            })
        };
        let closely = |per_row: usize| by_rows(&self.upload_csr(OPERATION, &close_entries(layout, per_row), None)?);
        let [less, more] = PER_DENSE_ROW.map(closely);
        let alone = by_rows(&scattered)?;
        let mut out = self.zeros(Shape::new(SIZE.rows, class.width), class.dtype)?;
        let mut with_blocks = |n: usize| {
            let tiles = self.scattered_tiles(OPERATION, layout, n)?;
            self.shortest(RUNS, || {
                let sums = self.tile_sums(OPERATION, &tiles.blocks, &x, halves.as_ref(), class.dtype)?;
                let start = tiles.start(self, &scattered, &sums);
                self.gather(OPERATION, Direction::of_pattern(&tiles.rest), None, &x, start, &plain, &mut out)
            })
        };
        let (few, many) = (with_blocks(FEW)?, with_blocks(MANY)?);

        let each = |seconds: f64, n: usize| ((seconds * 1e15 / n as f64) as u64).max(1);
        let n_windows = SIZE.rows / layout.rows();
        let n_more = DENSE_ROWS * (PER_DENSE_ROW[1] - PER_DENSE_ROW[0]);
        let block = each(many - few, (MANY - FEW) * n_windows);
        Ok(Costs {
            block,
            window: each(few - alone, n_windows).saturating_sub(FEW as u64 * block),
            entry: each(more? - less?, n_more),
            operand: each(small, 1),
            operand_row: each(large - small, SIZE.rows),
        })
    }

    fn shortest(&self, n: usize, mut work: impl FnMut() -> Result<(), ComputeError>) -> Result<f64, ComputeError> {
        for _ in 0..WARM_UP {
            work()?;
        }
        (0..n).try_fold(f64::INFINITY, |least, _| Ok(least.min(self.elapsed(&mut work)?)))
    }

    /// Synthetic blocks: `per_row` in each row of blocks, at scattered columns, with other entries besides. A
    /// sixteenth of a block's places is filled; bits differ from word to word.
    fn scattered_tiles(
        &self,
        operation: &'static str,
        layout: BlockLayout,
        per_row: usize,
    ) -> Result<Tiles, ComputeError> {
        let (n_rows, n_panels) = (SIZE.rows / layout.rows(), SIZE.cols / layout.cols());
        let n_blocks = n_rows * per_row;
        let first: Vec<u32> = (0..=n_rows).map(|row| (row * per_row) as u32).collect();
        let columns: Vec<u32> =
            (0..n_blocks).map(|block| (scatter(block) as usize % n_panels * layout.cols()) as u32).collect();
        let bits: Vec<u32> =
            (0..n_blocks * layout.n_words()).map(|word| 0x0002_0001_u32.rotate_left(word as u32 * 7)).collect();
        let [first_on_device, columns, bits] = [&first, &columns, &bits].map(|list| self.upload_list(operation, list));
        let blocks = self.blocks(operation, layout, (&first, first_on_device?), columns?, bits?)?;
        let rest = self.upload_csr(operation, &scattered_entries(), None)?;
        let split = Split { entries_min: 1, threshold: 0.0, n_blocks, coverage: 0.0 };
        Ok(Tiles { rest, blocks, split })
    }
}

/// Pattern with [`PER_ROW`] entries in each row, as far apart as possible.
fn scattered_entries() -> Csr {
    let Shape { rows, cols } = SIZE;
    let apart = cols / PER_ROW;
    let indptr: Vec<u64> = (0..=rows).map(|row| (row * PER_ROW) as u64).collect();
    let column = |entry: usize| entry % PER_ROW * apart + scatter(entry) as usize % apart;
    let indices: Vec<u32> = (0..rows * PER_ROW).map(|entry| column(entry) as u32).collect();
    Csr::new(rows, cols, indptr, indices, None).expect("entries of a row ascend, one in each stretch of columns")
}

/// Pattern whose entries are as close together as those of blocks: each row of blocks has a few, filled alike.
fn close_entries(layout: BlockLayout, per_row: usize) -> Csr {
    let (panel, per_panel) = (layout.cols(), layout.cols() / CLOSE);
    let n_blocks = per_row / per_panel;
    let stretch = SIZE.cols / panel / n_blocks;
    let column = |row: usize, entry: usize| {
        let (block, place) = (entry / per_panel, entry % per_panel);
        let chosen = block * stretch + scatter(row / layout.rows() * n_blocks + block) as usize % stretch;
        chosen * panel + place * CLOSE + scatter(row * per_row + entry) as usize % CLOSE
    };
    let indptr: Vec<u64> = (0..=DENSE_ROWS).map(|row| (row * per_row) as u64).collect();
    let indices: Vec<u32> =
        (0..DENSE_ROWS * per_row).map(|entry| column(entry / per_row, entry % per_row) as u32).collect();
    Csr::new(DENSE_ROWS, SIZE.cols, indptr, indices, None)
        .expect("entries of a row ascend, one in each part of a block")
}

/// Scattered numbers that defeat caches: upper bits of Knuth's multiplicative hash.
fn scatter(i: usize) -> u32 {
    (i as u32).wrapping_mul(0x9E37_79B1) >> 12
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::tiling::BlockKernel;

    #[test]
    fn entries_are_spread_over_all_columns() {
        let csr = scattered_entries();
        assert_eq!((csr.n_rows(), csr.nnz()), (SIZE.rows, SIZE.rows * PER_ROW));
        assert!(csr.row(1)[0] != csr.row(2)[0] && csr.row(3)[PER_ROW - 1] as usize >= SIZE.cols - SIZE.cols / PER_ROW);
    }

    #[test]
    fn close_entries_are_in_blocks_of_their_window() {
        for layout in [BlockLayout::Fragments, BlockLayout::Tiles] {
            for per_row in PER_DENSE_ROW {
                let csr = close_entries(layout, per_row);
                assert_eq!(csr.nnz(), DENSE_ROWS * per_row);
                let panels =
                    |row: usize| csr.row(row).iter().map(|&c| c as usize / layout.cols()).collect::<BTreeSet<_>>();
                assert_eq!(panels(0).len(), CLOSE * per_row / layout.cols());
                assert_eq!(panels(0), panels(layout.rows() - 1));
                assert_ne!(panels(0), panels(layout.rows()));
            }
        }
    }

    #[test]
    fn widths_have_few_classes() {
        let class = |cols| ProductClass::of(BlockKernel::Mma, Shape::new(1, cols), Dtype::F32).width;
        assert_eq!([4, 8, 10, 16, 47, 64, 128, 602].map(class), [8, 8, 16, 16, 64, 64, 128, 128]);
    }

    #[test]
    fn without_measurements_tensor_cores_get_blocks_of_two_percent() {
        for (layout, expected) in [(BlockLayout::Fragments, 0.02), (BlockLayout::Tiles, 0.05)] {
            // Each bin has blocks that are as full as its lower bound.
            let mut fills = Fills { blocks: [1000; N_CANDIDATES + 1], ..Fills::default() };
            for (i, share) in CANDIDATES.into_iter().enumerate() {
                fills.entries[i + 1] = 1000 * u64::from(entries_of(share, layout) + 1);
            }
            assert_eq!(Costs::built_in(layout).choose(&fills).map(|i| CANDIDATES[i]), Some(expected));
        }
    }

    #[test]
    fn costs_are_read_as_they_are_written() {
        let costs = Costs { block: 7_300_000, window: 0, entry: 27_000, operand: 9_000_000_000, operand_row: 1 };
        assert_eq!(Costs::from_text(&costs.to_text()), Some(costs));
        for wrong in ["", "1", "1 5 2 3", "0 1 5 2 3", "5 1 0 2 3", "a b c d e", "1 2 3 4 5 6"] {
            assert_eq!(Costs::from_text(wrong), None, "{wrong}");
        }
    }

    proptest! {
        /// Blocks are used where they take less time than their entries, if blocks of a bin are alike and windows
        /// cost nothing.
        #[test]
        fn blocks_that_pay_are_blocks(counts in prop::array::uniform6(1_u64..1000), block in 200_u64..2000) {
            let fills = fills(counts);
            let pays = |i: usize| u64::from(entries_of(CANDIDATES[i], BlockLayout::Fragments)) > block;
            let last = N_CANDIDATES - 1;
            match (Costs { block, window: 0, entry: 1, operand: 0, operand_row: 0 }).choose(&fills) {
                Some(chosen) if pays(last) => prop_assert!(pays(chosen) && (chosen == 0 || !pays(chosen - 1))),
                Some(chosen) => prop_assert_eq!(chosen, last, "the fewest of those that do not pay"),
                None => prop_assert!(!pays(last)),
            }
        }

        /// The choice is the best of all candidates, windows counted, and worth a trial; else no candidate is worth
        /// one.
        #[test]
        fn the_choice_is_the_best(counts in prop::array::uniform6(0_u64..1000), windows in prop::array::uniform6(0_u64..100),
                                  operand_rows in 0_u64..1000, costs in [1_u64..2000, 0..5000, 1..2, 0..100_000, 0..100]) {
            let [block, window, entry, operand, operand_row] = costs;
            let (fills, costs) = (
                Fills { windows, operand_rows, ..fills(counts) },
                Costs { block, window, entry, operand, operand_row },
            );
            let all = fills.entries.iter().sum();
            match costs.choose(&fills) {
                Some(chosen) => {
                    let time = costs.time(fills.split_at(chosen));
                    prop_assert!((0..N_CANDIDATES).all(|i| time <= costs.time(fills.split_at(i))));
                    let without = costs.time(Parts { entries: all, ..Parts::default() });
                    prop_assert!(fills.split_at(chosen).blocks > 0 && time <= without + without / HOPELESS);
                }
                None => prop_assert!((0..N_CANDIDATES).all(|i| !costs.are_worth(fills.split_at(i), all))),
            }
        }
    }

    /// Blocks of each bin, each as full as the lower bound of the bin.
    fn fills(counts: [u64; N_CANDIDATES + 1]) -> Fills {
        let mut fills = Fills { blocks: counts, ..Fills::default() };
        for (i, share) in CANDIDATES.into_iter().enumerate() {
            fills.entries[i + 1] = counts[i + 1] * u64::from(entries_of(share, BlockLayout::Fragments));
        }
        fills
    }
}
