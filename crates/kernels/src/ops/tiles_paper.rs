//! `cuda/tiles_paper.cu`: tiles of 32 × 32 in shared memory, one warp for each, as in paper A.

use std::cmp::Reverse;

use cudarc::driver::{LaunchConfig, PushKernelArg};
use girih_compute::ComputeError;

use super::operand::Operand;
use super::tiles::{SPANS_PER_PROCESSOR, SlotSums};
use crate::abi::{PAPER_TILE, TileOperand, WINDOW, WindowShare};
use crate::buffer::Buffer;
use crate::compile::Source;
use crate::cuda::Cuda;
use crate::matrix::Blocks;

/// Rows of tiles in a window, one per warp.
const TILE_ROWS: usize = WINDOW / PAPER_TILE;
/// Columns that a warp computes, one for each lane.
const COLS: usize = 32;
/// Thread blocks per SM: as many as its shared memory has space for, and more.
const BLOCKS_PER_SM: usize = 8;
/// Fewest tiles of a share.
const TILES_MIN: u32 = 16;

impl Cuda {
    /// Writes the sums of all tiles to the slots of their shares.
    pub(super) fn paper_sums(
        &self,
        operation: &'static str,
        (blocks, shares): (&Blocks, &Buffer<WindowShare>),
        x: &Operand<'_>,
        sums: &mut SlotSums,
    ) -> Result<(), ComputeError> {
        let kernel =
            self.kernel(operation, Source::TILES_PAPER, "tiles_paper", &[("X", x.dtype), ("Y", sums.dtype)])?;
        let (rows, cols) = (x.shape.rows as u64, x.shape.cols as u64);
        let matrix = TileOperand { data: x.address(self), pitch: x.pitch as u64, rows, cols };
        let sums_pitch = sums.pitch as u64;
        let (n_shares, n_tile_rows) = (blocks.n_slots as u32, blocks.n_rows as u32);
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&matrix).arg(shares).arg(&n_shares).arg(&blocks.first).arg(&n_tile_rows);
        launch.arg(&blocks.columns).arg(&blocks.bits).arg(&mut sums.data).arg(&sums_pitch);
        let at_once = n_shares.min((BLOCKS_PER_SM * self.device.n_sms()) as u32);
        let grid_dim = (at_once, x.shape.cols.div_ceil(COLS) as u32, 1);
        let config = LaunchConfig { grid_dim, block_dim: ((TILE_ROWS * 32) as u32, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: `first` gives the tiles of each row of tiles, each with bits and a column; the matrix says where it
        // ends and has the type that the kernel was compiled for; each share has a slot of `WINDOW` rows of its own.
        unsafe { launch.launch(config) }.map(drop).map_err(Self::failed(operation))
    }
}

/// Cuts windows into shares, one for each slot, and sorts them by falling length. `first` holds the first tile of
/// each row of tiles. Also returns the first slot of each window, and one more.
pub(super) fn shares(first: &[u32], n_cpus: usize) -> (Vec<WindowShare>, Vec<u32>) {
    let lengths: Vec<u32> = first.windows(2).map(|ends| ends[1] - ends[0]).collect();
    // A share takes as long as its warp with the most tiles.
    let longest: Vec<u32> = lengths.chunks(TILE_ROWS).filter_map(|rows| rows.iter().copied().max()).collect();
    let all: usize = longest.iter().map(|&length| length as usize).sum();
    let most = (all.div_ceil(n_cpus * SPANS_PER_PROCESSOR) as u32).max(TILES_MIN);
    let (mut shares, mut slots) = (Vec::new(), vec![0]);
    for (window, &length) in longest.iter().enumerate() {
        let n_parts = length.div_ceil(most);
        let share = |part: u32| WindowShare { slot: shares.len() as u32 + part, window: window as u32, part, n_parts };
        let of_window: Vec<WindowShare> = (0..n_parts).map(share).collect();
        shares.extend(of_window);
        slots.push(shares.len() as u32);
    }
    shares.sort_by_key(|share| Reverse(longest[share.window as usize] / share.n_parts));
    (shares, slots)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every window with tiles has all its parts, in consecutive slots.
        #[test]
        fn shares_take_all_parts(lengths in prop::collection::vec(0_u32..400, 1..100), n_cpus in 1_usize..8) {
            let first: Vec<u32> = std::iter::once(0).chain(lengths.iter().scan(0, |end, &n| {
                *end += n;
                Some(*end)
            })).collect();
            let (mut shares, slots) = shares(&first, n_cpus);
            prop_assert_eq!(slots.len(), lengths.len().div_ceil(TILE_ROWS) + 1);
            prop_assert_eq!(slots.last().copied(), Some(shares.len() as u32));
            shares.sort_by_key(|share| share.slot);
            for (window, ends) in slots.windows(2).enumerate() {
                let of_window = &shares[ends[0] as usize..ends[1] as usize];
                let rows = &lengths[window * TILE_ROWS..((window + 1) * TILE_ROWS).min(lengths.len())];
                prop_assert_eq!(of_window.is_empty(), rows.iter().all(|&n| n == 0));
                for (part, share) in of_window.iter().enumerate() {
                    let expected = WindowShare {
                        slot: ends[0] + part as u32,
                        window: window as u32,
                        part: part as u32,
                        n_parts: of_window.len() as u32,
                    };
                    prop_assert_eq!(*share, expected);
                }
            }
        }
    }
}
