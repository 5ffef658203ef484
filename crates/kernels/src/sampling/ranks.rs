//! [`Ranks`]: local ids by the ranks of bits, `cuda/sampling_batch.cu`.

use cudarc::driver::{CudaFunction, PushKernelArg};
use girih_compute::ComputeError;

use super::OPERATION;
use super::batch::HopTiles;
use super::launch::Launches;
use crate::Cuda;
use crate::abi::BLOCK;
use crate::buffer::Buffer;
use crate::compile::Source;
use crate::device::{blocks, threads_for};

/// Fewest words of bitmaps for threads that scan eight words each: 8 million nodes.
const LARGE_WORDS: u64 = 1 << 18;
/// Fewest nodes of the graph, per node that a hop may find, for threads that scan eight words each.
const SPARSE: u64 = 32;
/// Alignment of bitmaps in words: whole tiles of either size.
const WORDS_ALIGN: u64 = 8 * BLOCK as u64;

/// Bitmaps of nodes, and a local id for each node.
pub(super) struct Ranks {
    /// Bitmaps of marked and of seen nodes, contiguous, in whole tiles of words.
    bitmaps: Buffer<u32>,
    /// Words of one bitmap.
    n_words: u64,
    /// Local id of each node; undefined for nodes that were not found.
    positions: Buffer<u32>,
    begin: CudaFunction,
    /// Kernels for threads that scan one word, and eight.
    settle: [CudaFunction; 2],
    finish: CudaFunction,
}

impl Ranks {
    pub(super) fn new(cuda: &Cuda, n_nodes: usize) -> Result<Self, ComputeError> {
        let n_words = (n_nodes as u64).div_ceil(32).next_multiple_of(WORDS_ALIGN).max(WORDS_ALIGN);
        let kernel = |name, words: u64| {
            cuda.variant(OPERATION, Source::SAMPLING_BATCH, name, &vec![("WORDS", words.to_string())])
        };
        Ok(Self {
            bitmaps: cuda.scratch(OPERATION, 2 * n_words as usize)?,
            n_words,
            positions: cuda.scratch(OPERATION, n_nodes)?,
            begin: kernel("begin_batch", 1)?,
            settle: [kernel("settle", 1)?, kernel("settle", 8)?],
            finish: kernel("finish_batch", 1)?,
        })
    }

    pub(super) fn n_words(&self) -> u64 {
        self.n_words
    }

    pub(super) fn clear(&mut self, cuda: &Cuda) -> Result<(), ComputeError> {
        cuda.device.stream.memset_zeros(&mut self.bitmaps).map_err(Cuda::failed(OPERATION))
    }

    /// Device addresses of the two bitmaps.
    pub(super) fn bitmaps(&self, cuda: &Cuda) -> (u64, u64) {
        let marked = cuda.pointer(Some(&self.bitmaps));
        (marked, marked + self.n_words * size_of::<u32>() as u64)
    }

    pub(super) unsafe fn begin(&self, launches: &Launches<'_>, n_tiles: u64) -> Result<(), ComputeError> {
        let (cuda, batch, control) = (launches.cuda, launches.batch, launches.control());
        let (seeds, nodes, tiles) = (batch.seeds_at(cuda), cuda.pointer(Some(&batch.nodes)), launches.tiles_at(0));
        let (marked, seen) = self.bitmaps(cuda);
        let config = threads_for(batch.capacities.nodes[0].max(n_tiles) as usize);
        let mut launch = cuda.device.stream.launch_builder(&self.begin);
        launch.arg(&control).arg(&seeds).arg(&nodes).arg(&self.positions);
        launch.arg(&marked).arg(&seen).arg(&tiles).arg(&n_tiles);
        // SAFETY: there is space for each seed, and so many words for tiles; the caller vouches for the rest.
        unsafe { launch.launch(config) }.map(drop).map_err(Cuda::failed(OPERATION))
    }

    pub(super) unsafe fn settle(
        &self,
        launches: &Launches<'_>,
        hop: usize,
        tiles: HopTiles,
    ) -> Result<(), ComputeError> {
        let (cuda, batch) = (launches.cuda, launches.batch);
        let (control, at, (marked, seen)) = (launches.control(), hop as u64, self.bitmaps(cuda));
        let (nodes, tiles) = (cuda.pointer(Some(&batch.nodes)), launches.tiles_at(tiles.settle));
        let most = batch.capacities.nodes[hop + 1];
        let is_sparse = is_sparse(self.n_words, most);
        let words_of_block = u64::from(BLOCK) * if is_sparse { 8 } else { 1 };
        let mut launch = cuda.device.stream.launch_builder(&self.settle[usize::from(is_sparse)]);
        launch.arg(&control).arg(&at).arg(&marked).arg(&seen).arg(&nodes).arg(&self.positions);
        launch.arg(&tiles).arg(&most);
        // SAFETY: bitmaps are whole tiles of words, each of which has a block and a word of `tiles`; nodes beyond the
        // capacity are not written; the caller vouches for the rest.
        unsafe { launch.launch(blocks(self.n_words / words_of_block, BLOCK)) }
            .map(drop)
            .map_err(Cuda::failed(OPERATION))
    }

    pub(super) unsafe fn finish(&self, launches: &Launches<'_>, n_local: u64) -> Result<(), ComputeError> {
        let (cuda, batch, control) = (launches.cuda, launches.batch, launches.control());
        let (sources, columns) = (cuda.pointer(Some(&batch.sources)), batch.columns_at(cuda));
        let (nodes, (marked, seen), n_nodes) =
            (cuda.pointer(Some(&batch.nodes)), self.bitmaps(cuda), batch.n_columns as u64);
        let config = threads_for((batch.capacities.edges / 4).max(batch.capacities.nodes[0]) as usize);
        let mut launch = cuda.device.stream.launch_builder(&self.finish);
        launch.arg(&control).arg(&n_local).arg(&sources).arg(&columns).arg(&self.positions).arg(&n_nodes);
        launch.arg(&nodes).arg(&marked).arg(&seen).arg(&self.n_words);
        // SAFETY: sizes on the device are within the capacities, ids that are no nodes are not looked up; the caller
        // vouches for the rest.
        unsafe { launch.launch(config) }.map(drop).map_err(Cuda::failed(OPERATION))
    }
}

/// Whether threads scan eight words of a bitmap each. They do in hops that find few nodes, at most `finds`, and leave
/// most words unchanged. Where nodes are dense, there would be too few blocks, each writing one node after the other.
fn is_sparse(n_words: u64, finds: u64) -> bool {
    n_words >= LARGE_WORDS && finds <= n_words * 32 / SPARSE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_bitmaps_are_scanned_by_eights_where_few_nodes_are_new() {
        assert!(!is_sparse(76_800, 1000));
        assert!(is_sparse(LARGE_WORDS, LARGE_WORDS));
        assert!(!is_sparse(LARGE_WORDS, LARGE_WORDS + 1));
    }
}
