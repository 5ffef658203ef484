//! `cuda/tiling.cu` and `cuda/tiles.cu`: dense blocks of a pattern, found on the device and multiplied by tensor
//! cores.
//!
//! ```text
//!            64 columns
//!          ┌──┬──┬──┬──┐
//! 256 rows │▓▓│  │▓▓│  │  a window: its blocks with enough entries become bitmaps;
//!          ├──┼──┼──┼──┤  all other entries stay compressed rows, the rest
//!          │  │▓▓│▓▓│  │
//!          └──┴──┴──┴──┘
//! ```
//! A span is a run of blocks of one window, short enough that no window keeps an SM busy long after the others are
//! done. Each span writes its partial sums to a slot of its own. The product of the rest starts from the slots of its
//! rows.

mod build;
mod wgmma;

use girih_compute::scratch::{TILED_ENTRIES_MIN, pitch};
use girih_compute::{ComputeError, Dtype};
use girih_graph_format::{BlockLayout, BlockMatrix, Csr, FormatError};

use super::operand::{Halves, Operand};
use crate::abi::{TilePartials, WINDOW};
use crate::buffer::Buffer;
use crate::compile::Defines;
use crate::cuda::{Cuda, element};
use crate::matrix::{Blocks, CudaCsr, CudaMatrix, CudaSparse, ProductClass, Split, Tiles, Work};
use crate::tiling::{BlockKernel, Tiling, entries_of};

/// Words of the bitmap of a block.
pub(super) const WORDS: usize = BlockLayout::Fragments.n_words();
/// Most columns of the dense operand that a thread block computes.
pub(super) const COLS_MAX: usize = 128;
/// Spans per SM: enough to balance the load at the end.
pub(super) const SPANS_PER_PROCESSOR: usize = 4;

/// Partial sums of blocks: a slot of `WINDOW` rows for each work item.
pub(crate) struct SlotSums {
    /// Elements from row to row.
    pub(super) pitch: usize,
    /// Element type of the sums. It is that of the result, so that they are rounded no more than the result itself.
    pub(super) dtype: Dtype,
    pub(super) data: Buffer<u8>,
}

impl Tiles {
    /// Initial sums for the product of the entries outside of blocks.
    pub(crate) fn start(&self, cuda: &Cuda, whole: &CudaCsr, sums: &SlotSums) -> TilePartials {
        TilePartials {
            slots: cuda.pointer(Some(&self.blocks.slots)),
            sums: cuda.pointer(Some(&sums.data)),
            pitch: sums.pitch as u64,
            indptr: cuda.pointer(Some(&whole.indptr)),
            indices: cuda.pointer(Some(&whole.indices)),
        }
    }

    /// Whether `f32` operands are multiplied as halves.
    pub(crate) fn takes_halves(&self) -> bool {
        matches!(self.blocks.work, Work::Spans(_))
    }
}

impl Cuda {
    /// Blocks of a pattern for products with an operand like `x`, found on first use; `None` if no blocks pay.
    pub(crate) fn tiles_of<'a>(
        &self,
        operation: &'static str,
        csr: &'a CudaCsr,
        x: &CudaMatrix,
    ) -> Result<Option<&'a Tiles>, ComputeError> {
        let class = match self.tiling {
            _ if csr.nnz == 0 || csr.tiles.is_final => return Ok(None),
            Tiling::Never => return Ok(None),
            Tiling::Auto if csr.nnz < TILED_ENTRIES_MIN => return Ok(None),
            Tiling::Auto => Some(ProductClass::of(self.block_kernel, x.shape, x.dtype)),
            Tiling::From(_) => None,
        };
        let uses = csr.tiles.uses(class, || self.decide(operation, csr, class, x))?;
        Ok(csr.tiles.tiles.get().map(|tiles| &**tiles).filter(|_| uses))
    }

    /// Decides whether products of a class, like that of `x`, multiply by blocks. Blocks are those of an earlier
    /// class, or found now. Costs propose blocks; a trial decides whether they pay.
    fn decide(
        &self,
        operation: &'static str,
        csr: &CudaCsr,
        class: Option<ProductClass>,
        x: &CudaMatrix,
    ) -> Result<bool, ComputeError> {
        let pay = |tiles: &Tiles| class.is_none_or(|class| self.pay(class, csr, tiles, x));
        if let Some(tiles) = csr.tiles.tiles.get() {
            return Ok(pay(tiles));
        }
        let least = match (class, self.tiling) {
            (Some(class), _) => self.worthwhile_entries(operation, csr, class)?,
            (None, Tiling::From(share)) => Some(entries_of(share, self.block_kernel.layout())),
            (None, Tiling::Auto | Tiling::Never) => None,
        };
        let tiles = least.map(|least| self.build_tiles(operation, csr, least)).transpose()?.flatten();
        Ok(tiles.filter(pay).is_some_and(|tiles| csr.tiles.tiles.set(Box::new(tiles)).is_ok()))
    }

    /// Division of an adjacency, once a product has searched for blocks; `None` if it has no blocks.
    #[must_use]
    pub fn split(&self, a: &CudaSparse) -> Option<Split> {
        a.forward.tiles.tiles.get().map(|tiles| tiles.split)
    }

    /// Downloads the blocks of an adjacency and its other entries; `None` if it has no blocks.
    ///
    /// # Errors
    /// When the device fails.
    pub fn download_blocks(&self, a: &CudaSparse) -> Result<Option<BlockMatrix>, ComputeError> {
        const OPERATION: &str = "download_blocks";
        let Some(Tiles { rest, blocks, .. }) = a.forward.tiles.tiles.get().map(|tiles| &**tiles) else {
            return Ok(None);
        };
        let invalid = |error: FormatError| ComputeError::argument(OPERATION, error.to_string());
        let list = |list: &Buffer<u32>, n: usize| self.read(OPERATION, &list.slice(..n));
        let indptr = self.read(OPERATION, &rest.indptr.slice(..=rest.shape.rows))?;
        let indices = list(&rest.indices, rest.nnz)?;
        let rest = Csr::new(rest.shape.rows, rest.shape.cols, indptr, indices, None);
        let (first, columns) = (list(&blocks.first, blocks.n_rows + 1)?, list(&blocks.columns, blocks.n)?);
        let bits = list(&blocks.bits, blocks.n * blocks.layout.n_words())?;
        BlockMatrix::from_parts(blocks.layout, first, columns, bits, rest.map_err(invalid)?).map(Some).map_err(invalid)
    }

    /// Computes the sums of all blocks, slot by slot. A row has as many elements as the operand has columns, padding
    /// included. For tensor cores, `f32` operands come as halves.
    pub(super) fn tile_sums(
        &self,
        operation: &'static str,
        blocks: &Blocks,
        x: &Operand<'_>,
        halves: Option<&Halves>,
        dtype: Dtype,
    ) -> Result<SlotSums, ComputeError> {
        let pitch = pitch(x.shape.cols);
        let data = self.scratch::<u8>(operation, blocks.n_slots * WINDOW * pitch * dtype.n_bytes())?;
        let mut sums = SlotSums { pitch, dtype, data };
        match &blocks.work {
            Work::Shares(shares) => self.paper_sums(operation, (blocks, shares), x, &mut sums)?,
            Work::Spans(spans) if self.block_kernel == BlockKernel::Wgmma => {
                self.wgmma_sums(operation, (blocks, spans), x, halves, &mut sums)?;
            }
            Work::Spans(spans) => self.mma_sums(operation, (blocks, spans), x, halves, &mut sums)?,
        }
        Ok(sums)
    }
}

/// Macros of kernels for tensor cores.
pub(super) fn defines(halves: bool, cols: usize, sums: Dtype) -> Defines {
    let halves = u32::from(halves).to_string();
    vec![("COLS", cols.to_string()), ("HALVES", halves), ("Y", element(sums).to_owned())]
}

/// Division of the columns of a dense operand among thread blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunks {
    pub(super) n: usize,
    /// Columns that a thread block computes, a multiple of sixteen; those beyond the operand's are not stored.
    pub(super) cols: usize,
}

impl Chunks {
    /// Division of `width` columns into the fewest chunks.
    pub(super) fn of(width: usize) -> Self {
        let n = width.div_ceil(COLS_MAX);
        Self { n, cols: width.div_ceil(n).next_multiple_of(16) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Thread blocks compute every column, and each computes at least one.
        #[test]
        fn chunks_cover_all_columns(width in 1_usize..3000) {
            let Chunks { n, cols } = Chunks::of(width);
            prop_assert!(cols.is_multiple_of(16) && cols <= COLS_MAX && n * cols >= width && (n - 1) * cols < width);
        }
    }
}
