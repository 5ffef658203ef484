//! What a block costs and what an entry costs: measured on the card once, and kept, so that later runs decide the same.
//!
//! Whether a block is multiplied as one or entry by entry changes the order of sums, and with it their last bits. So times are
//! measured when there are none on disk, the first process that keeps them wins, and where they cannot be kept nothing is
//! measured. What they decide is which of a few shares blocks begin at, so that their noise seldom matters.

use cudarc::driver::{CudaSlice, DeviceRepr, PushKernelArg};
use girih_compute::{ComputeError, Dtype, Epilogue, Shape};
use girih_graph_format::{BlockLayout, Csr};

use super::operand::Wanted;
use super::sparse::Direction;
use super::tiles::{BlockKernel, Blocks, entries_of};
use crate::backend::Cuda;
use crate::compile::Source;
use crate::driver::Driver;
use crate::matrix::{CudaCsr, CudaMatrix};
use crate::measurements;

/// Shares of a block's places at which blocks may begin; `kernels/tiling.cu` counts for as many. The first one bounds what
/// blocks take: `girih-compute` plans with it.
const CANDIDATES: [f64; 5] = [0.015, 0.02, 0.03, 0.05, 0.1];
/// Kernels whose times are measured.
const SOURCES: [Source; 5] = [Source::TILES, Source::TILES_MMA, Source::TILES_PAPER, Source::SPMM, Source::OPERAND];
/// Rows and columns of the patterns that are measured: in bf16 with 128 columns, an operand of 8 MiB.
const NODES: usize = 1 << 15;
/// Entries of each row, and blocks of each row of blocks.
const PER_ROW: usize = 64;
/// Untimed and timed runs; the median counts.
const WARM_UP: usize = 2;
const RUNS: usize = 9;

/// Products that take alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    kernel: BlockKernel,
    dtype: Dtype,
    width: usize,
}

impl Class {
    /// Widths are told apart by powers of two; wider operands are multiplied in pieces of the widest.
    fn of(kernel: BlockKernel, Shape { cols, .. }: Shape, dtype: Dtype) -> Self {
        Self { kernel, dtype, width: cols.next_power_of_two().clamp(16, 128) }
    }
}

/// Times, in femtoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Costs {
    block: u64,
    entry: u64,
}

/// How many blocks, and how many entries in them, fall below the first candidate, between two, and from the last one on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fills {
    blocks: [u64; CANDIDATES.len() + 1],
    entries: [u64; CANDIDATES.len() + 1],
}

/// `Candidates` of `kernels/tiling.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Candidates([u32; CANDIDATES.len()]);

// SAFETY: plain 32-bit words in the order and layout of the kernel's struct.
unsafe impl DeviceRepr for Candidates {}

impl Costs {
    /// Where nothing was measured: what was found best on an H200, and paper A's share for its tiles.
    fn built_in(layout: BlockLayout) -> Self {
        let share = match layout {
            BlockLayout::Fragments => 0.02,
            BlockLayout::Tiles => 0.05,
        };
        Self { block: entries_of(share, layout).into(), entry: 1 }
    }

    /// The number of the candidate with the least time; of equals the one with fewest blocks.
    fn choose(self, fills: &Fills) -> usize {
        let sum = |counts: &[u64], cost: u64| counts.iter().map(|&n| u128::from(n) * u128::from(cost)).sum::<u128>();
        let time = |i: usize| sum(&fills.blocks[i + 1..], self.block) + sum(&fills.entries[..=i], self.entry);
        (0..CANDIDATES.len()).rev().min_by_key(|&i| time(i)).unwrap_or(0)
    }

    fn to_text(self) -> String {
        format!("{} {}\n", self.block, self.entry)
    }

    /// What [`to_text`](Self::to_text) has written; `None` of anything else.
    fn from_text(text: &str) -> Option<Self> {
        let (block, entry) = text.trim_end().split_once(' ')?;
        let costs = Self { block: block.parse().ok()?, entry: entry.parse().ok()? };
        (costs.block > 0 && costs.entry > 0).then_some(costs)
    }
}

impl Cuda {
    /// Entries from which on a block is worth being one, in products with an operand like this.
    pub(super) fn worthwhile_entries(
        &self,
        operation: &'static str,
        csr: &CudaCsr,
        shape: Shape,
        dtype: Dtype,
    ) -> Result<u32, ComputeError> {
        let class = Class::of(self.block_kernel, shape, dtype);
        let layout = class.kernel.layout();
        let costs = self.costs(class);
        let share = CANDIDATES[costs.choose(&self.count_fills(operation, csr, layout)?)];
        let break_even = costs.block as f64 / costs.entry as f64;
        tracing::debug!(
            "{class:?}: a block takes as long as {break_even:.0} entries; blocks begin at a share of {share}"
        );
        Ok(entries_of(share, layout))
    }

    /// How many blocks of a pattern have how many entries.
    fn count_fills(&self, operation: &'static str, csr: &CudaCsr, layout: BlockLayout) -> Result<Fills, ComputeError> {
        let mut fills = Fills::default();
        let zeros = |n| -> Result<CudaSlice<u64>, ComputeError> {
            let mut zeros = self.scratch::<u64>(operation, n)?;
            self.device.stream.memset_zeros(&mut zeros).map_err(Self::failed(operation))?;
            Ok(zeros)
        };
        let (mut blocks, mut entries) = (zeros(fills.blocks.len())?, zeros(fills.entries.len())?);
        let candidates = Candidates(CANDIDATES.map(|share| entries_of(share, layout)));
        let (search, config, _counts) = self.search(operation, csr, layout, candidates.0[0])?;
        let kernel = self.tiling_kernel(operation, "count_fills", layout)?;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&search).arg(&candidates).arg(&mut blocks).arg(&mut entries);
        // SAFETY: the search holds a pattern, and a number for each panel and each thread block; results have a number for
        // each candidate and one more.
        unsafe { launch.launch(config) }.map_err(Self::failed(operation))?;
        fills.blocks.copy_from_slice(&self.read(operation, &blocks.slice(..))?);
        fills.entries.copy_from_slice(&self.read(operation, &entries.slice(..))?);
        Ok(fills)
    }

    /// What was measured, now or before; what is built in where it cannot be kept.
    fn costs(&self, class: Class) -> Costs {
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

    /// Multiplies patterns made for it. `girih-compute` plans with the bytes that this takes.
    fn measure(&self, class: Class) -> Result<Costs, ComputeError> {
        const OPERATION: &str = "measure";
        let layout = class.kernel.layout();
        let x = self.zeros(Shape::new(NODES, class.width), class.dtype)?;
        let csr = self.upload_csr(OPERATION, &scattered_entries(), None)?;
        // Not to be searched for blocks.
        let _ = csr.tiles.set(None);
        let by_rows = self.time_of_rows(OPERATION, &csr, &x)?;
        let (blocks, n_blocks) = self.scattered_blocks(OPERATION, layout)?;
        let halves = layout == BlockLayout::Fragments && class.dtype == Dtype::F32;
        let wanted = Wanted { rows: false, halves };
        let (operand, halves) = self.operand(OPERATION, &x, Direction::of_pattern(&csr), wanted)?;
        let sums = || self.tile_sums(OPERATION, &blocks, &operand, halves.as_ref(), class.dtype).map(drop);
        let by_blocks = self.median(sums)?;
        let each = |seconds: f64, n: usize| ((seconds * 1e15 / n as f64) as u64).max(1);
        Ok(Costs { block: each(by_blocks, n_blocks), entry: each(by_rows, csr.nnz) })
    }

    /// Seconds of a product by rows.
    fn time_of_rows(&self, operation: &'static str, csr: &CudaCsr, x: &CudaMatrix) -> Result<f64, ComputeError> {
        let mut out = self.zeros(Shape::new(csr.shape.rows, x.shape.cols), x.dtype)?;
        let direction = Direction::of_pattern(csr);
        self.median(|| self.product(operation, direction, None, x, &Epilogue::default(), &mut out))
    }

    fn median(&self, mut work: impl FnMut() -> Result<(), ComputeError>) -> Result<f64, ComputeError> {
        for _ in 0..WARM_UP {
            work()?;
        }
        let mut seconds = (0..RUNS).map(|_| self.elapsed(&mut work)).collect::<Result<Vec<f64>, ComputeError>>()?;
        seconds.sort_by(f64::total_cmp);
        Ok(seconds[RUNS / 2])
    }

    /// Blocks anywhere, and their number. A sixteenth of their places is taken, by bits that differ from word to word.
    fn scattered_blocks(&self, operation: &'static str, layout: BlockLayout) -> Result<(Blocks, usize), ComputeError> {
        let (n_rows, n_panels) = (NODES / layout.rows(), NODES / layout.cols());
        let n_blocks = n_rows * PER_ROW;
        let first: Vec<u32> = (0..=n_rows).map(|row| (row * PER_ROW) as u32).collect();
        let columns: Vec<u32> =
            (0..n_blocks).map(|block| (scatter(block) as usize % n_panels * layout.cols()) as u32).collect();
        let bits: Vec<u32> =
            (0..n_blocks * layout.n_words()).map(|word| 0x0002_0001_u32.rotate_left(word as u32 * 7)).collect();
        let [first_on_device, columns, bits] = [&first, &columns, &bits].map(|list| self.upload_list(operation, list));
        Ok((self.blocks(operation, layout, (&first, first_on_device?), columns?, bits?)?, n_blocks))
    }
}

/// A row of entries for each node, as far apart as they can be.
fn scattered_entries() -> Csr {
    let apart = NODES / PER_ROW;
    let indptr: Vec<u64> = (0..=NODES).map(|row| (row * PER_ROW) as u64).collect();
    let column = |entry: usize| entry % PER_ROW * apart + scatter(entry) as usize % apart;
    let indices: Vec<u32> = (0..NODES * PER_ROW).map(|entry| column(entry) as u32).collect();
    Csr::new(NODES, NODES, indptr, indices, None).expect("entries of a row ascend, one in each stretch of columns")
}

/// Numbers without an order that caches could use; the upper bits of Knuth's multiplicative hash.
fn scatter(i: usize) -> u32 {
    (i as u32).wrapping_mul(0x9E37_79B1) >> 12
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn entries_are_spread_over_all_columns() {
        let csr = scattered_entries();
        assert_eq!((csr.n_rows(), csr.nnz()), (NODES, NODES * PER_ROW));
        assert!(csr.row(1)[0] != csr.row(2)[0] && csr.row(3)[PER_ROW - 1] as usize >= NODES - NODES / PER_ROW);
    }

    #[test]
    fn widths_have_few_classes() {
        let class = |cols| Class::of(BlockKernel::Mma, Shape::new(1, cols), Dtype::F32).width;
        assert_eq!([8, 16, 47, 64, 128, 602].map(class), [16, 16, 64, 64, 128, 128]);
    }

    #[test]
    fn without_measurements_tensor_cores_get_blocks_of_two_percent() {
        for (layout, expected) in [(BlockLayout::Fragments, 0.02), (BlockLayout::Tiles, 0.05)] {
            // Blocks of each bin as full as the share at which it begins.
            let mut fills = Fills { blocks: [1000; CANDIDATES.len() + 1], ..Fills::default() };
            for (i, share) in CANDIDATES.into_iter().enumerate() {
                fills.entries[i + 1] = 1000 * u64::from(entries_of(share, layout) + 1);
            }
            assert_eq!(CANDIDATES[Costs::built_in(layout).choose(&fills)], expected);
        }
    }

    #[test]
    fn costs_are_read_as_they_are_written() {
        let costs = Costs { block: 7_300_000, entry: 27_000 };
        assert_eq!(Costs::from_text(&costs.to_text()), Some(costs));
        for wrong in ["", "1", "0 5", "5 0", "a b", "1 2 3"] {
            assert_eq!(Costs::from_text(wrong), None, "{wrong}");
        }
    }

    proptest! {
        /// A block is one where that takes less time than its entries, if blocks of a bin are alike.
        #[test]
        fn blocks_that_pay_are_blocks(counts in prop::array::uniform6(1_u64..1000), block in 200_u64..2000) {
            let layout = BlockLayout::Fragments;
            let mut fills = Fills { blocks: counts, ..Fills::default() };
            for (i, share) in CANDIDATES.into_iter().enumerate() {
                fills.entries[i + 1] = counts[i + 1] * u64::from(entries_of(share, layout));
            }
            let chosen = Costs { block, entry: 1 }.choose(&fills);
            let pays = |i: usize| u64::from(entries_of(CANDIDATES[i], layout)) > block;
            // The densest blocks are blocks in any case.
            prop_assert!(chosen == CANDIDATES.len() - 1 || pays(chosen));
            prop_assert!(chosen == 0 || !pays(chosen - 1));
        }
    }
}
