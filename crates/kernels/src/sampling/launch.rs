//! The launches of a batch: `kernels/sampling_*.cu`.
//!
//! ```text
//! begin    seeds are the first nodes; bitmaps were empty
//! draw     a pass over the rows of a hop: how many edges each gets, where they go (sums of tiles, in one pass), which they are
//! settle   a pass over bitmaps: new nodes, ascending, get their places
//! finish   global ids become local ones; bitmaps are emptied
//! ```

use cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use girih_compute::ComputeError;
use girih_sampling::{Draws, Expand, Neighbors};

use super::batch::{DeviceBatch, HopTiles, SHARE_TILE};
use super::{OPERATION, arguments};
use crate::Cuda;
use crate::compile::{Defines, Source};
use crate::device::{BLOCK, threads_for};

/// The largest fan-out that a thread draws for its row, `kernels/sampling_few.cu`.
const FEW_MAX: u32 = 16;
/// Rows of a block, and threads, in `sampling_few.cu` and `sampling_weighted.cu`.
const ROW_PER_THREAD: (u64, u32) = (128, 128);
/// Likewise in `sampling_many.cu`.
const ROW_PER_LANES: (u64, u32) = (32, 256);
/// Words of bitmaps from which on threads may scan eight each: 8 million nodes.
const LARGE_WORDS: u64 = 1 << 18;
/// Nodes of the graph for each that a hop may find, from which on they do.
const SPARSE: u64 = 32;
/// Words that are a tile of either size.
pub(super) const WORDS_ALIGN: u64 = 8 * BLOCK as u64;

/// What the launches of a batch have in common.
pub(super) struct Launches<'a> {
    pub(super) cuda: &'a Cuda,
    pub(super) batch: &'a DeviceBatch,
    pub(super) hops: &'a [Neighbors],
    pub(super) graph: arguments::Topology,
    /// The graph is read over the bus.
    pub(super) is_far: bool,
    pub(super) weights: arguments::Weights,
    /// The address of powers of two of rows.
    pub(super) exponents: u64,
    /// Addresses of the bitmaps, marked and seen, and how many words each has.
    pub(super) bitmaps: (u64, u64),
    pub(super) n_words: u64,
    /// The address of a place for each node.
    pub(super) positions: u64,
}

impl Launches<'_> {
    /// Puts the whole batch on the stream. Its page holds the request.
    ///
    /// # Safety
    /// Addresses are those of a graph, of bitmaps of a bit for each of its nodes in whole tiles, all zero, and of as many
    /// places; the batch was made for that graph and these hops; seeds on its page are nodes, no more than its capacity. All of
    /// it lives until the stream is done with it.
    pub(super) unsafe fn run(&self) -> Result<(), ComputeError> {
        let tiles = self.tiles();
        let n_local = self.batch.n_local_hops();
        // SAFETY: the caller vouches for what is read and written; each launch finds what the ones before it have left.
        unsafe {
            self.begin(tiles.last().map_or(0, |last| last.end))?;
            for (hop, tiles) in tiles.into_iter().enumerate() {
                self.draw(hop, tiles, hop < n_local)?;
                if hop < n_local {
                    self.settle(hop, tiles)?;
                }
            }
            self.finish(n_local)
        }
    }

    fn tiles(&self) -> Vec<HopTiles> {
        let has_shares = self.batch.options.draws == Draws::PerLayer;
        HopTiles::of_hops(&self.batch.capacities, self.hops.len(), self.n_words, has_shares)
    }

    fn control(&self) -> arguments::Control {
        arguments::Control { words: self.cuda.pointer(Some(&self.batch.page)), n_hops: self.hops.len() as u64 }
    }

    fn tiles_at(&self, word: u64) -> u64 {
        self.cuda.pointer(Some(&self.batch.tiles)) + word * size_of::<u64>() as u64
    }

    fn kernel(&self, source: Source, name: &str, defines: &Defines) -> Result<CudaFunction, ComputeError> {
        self.cuda.variant(OPERATION, source, name, defines)
    }

    /// Words of bitmaps that a thread of `settle` scans.
    fn words_of_thread(&self, hop: usize) -> u64 {
        let finds = self.batch.capacities.nodes[hop + 1];
        if self.n_words >= LARGE_WORDS && finds.saturating_mul(SPARSE) <= 32 * self.n_words { 8 } else { 1 }
    }

    unsafe fn begin(&self, n_tiles: u64) -> Result<(), ComputeError> {
        let kernel = self.kernel(Source::SAMPLING_BATCH, "begin_batch", &words(1))?;
        let control = self.control();
        let seeds = control.words + (self.batch.words.len() * size_of::<u64>()) as u64;
        let (nodes, tiles) = (self.cuda.pointer(Some(&self.batch.nodes)), self.tiles_at(0));
        let config = threads_for(self.batch.capacities.nodes[0].max(n_tiles) as usize);
        let mut launch = self.cuda.device.stream.launch_builder(&kernel);
        launch.arg(&control).arg(&seeds).arg(&nodes).arg(&self.positions);
        launch.arg(&self.bitmaps.0).arg(&self.bitmaps.1).arg(&tiles).arg(&n_tiles);
        // SAFETY: seeds follow the words, there is room for each of them, and so many words for tiles; see `run`.
        unsafe { launch.launch(config) }.map_err(Cuda::failed(OPERATION))?;
        Ok(())
    }

    fn hop(&self, hop: usize, tiles: HopTiles, is_local: bool) -> arguments::Hop {
        let (batch, cuda) = (self.batch, self.cuda);
        let fan_out = match self.hops[hop] {
            Neighbors::All => arguments::ALL,
            Neighbors::Count(count) => count,
        };
        let has_shares = fan_out != arguments::ALL && batch.options.draws == Draws::PerLayer;
        let shares = batch.shares.as_ref().filter(|_| has_shares);
        arguments::Hop {
            control: self.control(),
            nodes: cuda.pointer(Some(&batch.nodes)),
            indptr: cuda.pointer(Some(&batch.indptr)) + (batch.first_offset(hop) * size_of::<u64>()) as u64,
            sources: cuda.pointer(Some(&batch.sources)),
            edge_ids: cuda.pointer(batch.edge_ids.as_ref()),
            marked: if is_local { self.bitmaps.0 } else { 0 },
            tiles: self.tiles_at(tiles.draw),
            shares: cuda.pointer(shares.map(|shares| &shares.counts)),
            max_edges: batch.capacities.edges,
            hop: hop as u32,
            fan_out,
            replace: u32::from(batch.options.replace),
            once: u32::from(batch.options.expand == Expand::Once),
        }
    }

    unsafe fn draw(&self, hop: usize, tiles: HopTiles, is_local: bool) -> Result<(), ComputeError> {
        let argument = self.hop(hop, tiles, is_local);
        if argument.shares != 0 {
            // SAFETY: see `run`.
            unsafe { self.share(hop, argument, tiles) }?;
        }
        let is_weighted = self.weights.running != 0;
        let takes_all = argument.fan_out == arguments::ALL;
        let is_few = argument.fan_out <= FEW_MAX && argument.shares == 0 && !self.is_far;
        let (kernel, (rows, threads), takes_weights) = if is_weighted && !takes_all {
            let kernel = self.kernel(Source::SAMPLING_WEIGHTED, "draw_weighted", &Defines::new())?;
            (kernel, ROW_PER_THREAD, true)
        } else if is_few {
            let replace = argument.replace.to_string();
            let defines = vec![("FAN_OUT", argument.fan_out.to_string()), ("REPLACE", replace)];
            (self.kernel(Source::SAMPLING_FEW, "draw_few", &defines)?, ROW_PER_THREAD, false)
        } else {
            let lanes = if argument.shares != 0 { 32 } else { lanes_of(argument.fan_out) };
            let defines = vec![("LANES", lanes.to_string())];
            (self.kernel(Source::SAMPLING_MANY, "draw_many", &defines)?, ROW_PER_LANES, true)
        };
        let config = blocks(self.batch.capacities.nodes[hop].div_ceil(rows), threads);
        let mut launch = self.cuda.device.stream.launch_builder(&kernel);
        launch.arg(&self.graph).arg(&argument);
        if takes_weights {
            launch.arg(&self.weights);
        }
        // SAFETY: there is a block for each tile of rows that a hop may have and a word of `tiles` for it, and blocks are as large
        // as the kernel expects; edges beyond the capacity are not written; see `run`.
        unsafe { launch.launch(config) }.map_err(Cuda::failed(OPERATION))?;
        Ok(())
    }

    /// Divides the draws of a hop among its rows.
    unsafe fn share(&self, hop: usize, argument: arguments::Hop, tiles: HopTiles) -> Result<(), ComputeError> {
        let Some(shares) = &self.batch.shares else { return Ok(()) };
        let rows = self.batch.capacities.nodes[hop];
        let largest = self.tiles_at(tiles.shares);
        let (running, counts) = (self.cuda.pointer(Some(&shares.running)), argument.shares);
        let stream = &self.cuda.device.stream;
        let kernel = self.kernel(Source::SAMPLING_SHARES, "largest_weight", &Defines::new())?;
        let mut launch = stream.launch_builder(&kernel);
        launch.arg(&self.graph).arg(&argument).arg(&self.weights).arg(&self.exponents).arg(&largest);
        // SAFETY: `largest` is a word that `begin` has cleared; see `run`.
        unsafe { launch.launch(threads_for(rows as usize)) }.map_err(Cuda::failed(OPERATION))?;

        let kernel = self.kernel(Source::SAMPLING_SHARES, "running_weights", &Defines::new())?;
        let in_tiles = arguments::Hop { tiles: self.tiles_at(tiles.shares + 1), ..argument };
        let mut launch = stream.launch_builder(&kernel);
        launch.arg(&self.graph).arg(&in_tiles).arg(&self.weights).arg(&self.exponents).arg(&largest);
        launch.arg(&running).arg(&counts);
        // SAFETY: there is a block for each tile of rows, a word for it, and room for a sum and a share of each row; see `run`.
        unsafe { launch.launch(blocks(rows.div_ceil(SHARE_TILE), BLOCK)) }.map_err(Cuda::failed(OPERATION))?;

        let kernel = self.kernel(Source::SAMPLING_SHARES, "draw_shares", &Defines::new())?;
        let mut launch = stream.launch_builder(&kernel);
        launch.arg(&argument).arg(&running).arg(&counts);
        // SAFETY: sums and shares of all rows are there; see `run`.
        unsafe { launch.launch(threads_for(argument.fan_out as usize)) }.map_err(Cuda::failed(OPERATION))?;
        Ok(())
    }

    unsafe fn settle(&self, hop: usize, tiles: HopTiles) -> Result<(), ComputeError> {
        let of_thread = self.words_of_thread(hop);
        let kernel = self.kernel(Source::SAMPLING_BATCH, "settle", &words(of_thread))?;
        let (control, at) = (self.control(), hop as u64);
        let (nodes, tiles) = (self.cuda.pointer(Some(&self.batch.nodes)), self.tiles_at(tiles.settle));
        let most = self.batch.capacities.nodes[hop + 1];
        let mut launch = self.cuda.device.stream.launch_builder(&kernel);
        launch.arg(&control).arg(&at).arg(&self.bitmaps.0).arg(&self.bitmaps.1).arg(&nodes).arg(&self.positions);
        launch.arg(&tiles).arg(&most);
        // SAFETY: bitmaps are whole tiles of words, each of which has a block and a word of `tiles`; nodes beyond the capacity
        // are not written; see `run`.
        unsafe { launch.launch(blocks(self.n_words / (u64::from(BLOCK) * of_thread), BLOCK)) }
            .map_err(Cuda::failed(OPERATION))?;
        Ok(())
    }

    unsafe fn finish(&self, n_local: usize) -> Result<(), ComputeError> {
        let kernel = self.kernel(Source::SAMPLING_BATCH, "finish_batch", &words(1))?;
        let (control, cuda, batch) = (self.control(), self.cuda, self.batch);
        let sources = cuda.pointer(Some(&batch.sources));
        let columns = batch.columns.as_ref().map_or(sources, |columns| cuda.pointer(Some(columns)));
        let (n_local, n_nodes) = (n_local as u64, batch.n_columns as u64);
        let nodes = cuda.pointer(Some(&batch.nodes));
        let config = threads_for((batch.capacities.edges / 4).max(batch.capacities.nodes[0]) as usize);
        let mut launch = cuda.device.stream.launch_builder(&kernel);
        launch.arg(&control).arg(&n_local).arg(&sources).arg(&columns).arg(&self.positions).arg(&n_nodes);
        launch.arg(&nodes).arg(&self.bitmaps.0).arg(&self.bitmaps.1).arg(&self.n_words);
        // SAFETY: sizes on the device are within the capacities, ids that are no nodes are not looked up; see `run`.
        unsafe { launch.launch(config) }.map_err(Cuda::failed(OPERATION))?;
        Ok(())
    }
}

/// Lanes of a row that draws so many neighbours, or takes all.
fn lanes_of(fan_out: u32) -> u32 {
    fan_out.clamp(8, 32).next_power_of_two()
}

/// The variant of `sampling_batch.cu` whose threads scan so many words.
fn words(of_thread: u64) -> Defines {
    vec![("WORDS", of_thread.to_string())]
}

/// So many blocks, and one where there would be none.
fn blocks(n: u64, threads: u32) -> LaunchConfig {
    let n = n.clamp(1, i32::MAX as u64) as u32;
    LaunchConfig { grid_dim: (n, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_suit_the_fan_out() {
        let lanes = [1, 8, 9, 16, 17, 32, 33, 1000, arguments::ALL].map(lanes_of);
        assert_eq!(lanes, [8, 8, 16, 16, 32, 32, 32, 32, 32]);
    }
}
