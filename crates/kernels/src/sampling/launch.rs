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
use girih_sampling::{Draws, Expand, NeighborOptions, Neighbors};

use super::batch::{DeviceBatch, HopTiles, SHARE_TILE, Shares};
use super::{OPERATION, arguments};
use crate::Cuda;
use crate::compile::{Defines, Source};
use crate::device::{BLOCK, threads_for};

/// The largest fan-out that a thread draws for its row, `kernels/sampling_few.cu`.
const FEW_MAX: u32 = 16;
/// Words of bitmaps from which on threads may scan eight each: 8 million nodes.
const LARGE_WORDS: u64 = 1 << 18;
/// Nodes of the graph for each that a hop may find, from which on they do.
const SPARSE: u64 = 32;
/// Words that are a tile of either size.
pub(super) const WORDS_ALIGN: u64 = 8 * BLOCK as u64;

/// The kernels of a sampler, looked up once: a batch takes less time than looking them up for each.
pub(super) struct Kernels {
    begin: CudaFunction,
    draws: Vec<DrawKernel>,
    shares: Option<ShareKernels>,
    /// For threads that scan one word, and eight.
    settle: [CudaFunction; 2],
    finish: CudaFunction,
}

/// What draws the neighbours of a hop.
struct DrawKernel {
    function: CudaFunction,
    /// Rows of a block, and threads.
    rows: u64,
    threads: u32,
    /// Whether weights of edges are an argument.
    takes_weights: bool,
}

/// What divides the draws of a hop among its rows.
struct ShareKernels {
    largest: CudaFunction,
    running: CudaFunction,
    draw: CudaFunction,
}

impl Kernels {
    /// Compiles what the hops of a sampler need.
    pub(super) fn new(
        cuda: &Cuda,
        hops: &[Neighbors],
        options: NeighborOptions,
        (is_weighted, is_far): (bool, bool),
    ) -> Result<Self, ComputeError> {
        let kernel = |source, name: &str, defines: &Defines| cuda.variant(OPERATION, source, name, defines);
        let has_shares = options.draws == Draws::PerLayer;
        let draw = |neighbors: &Neighbors| match *neighbors {
            Neighbors::Count(_) if is_weighted => {
                let function = kernel(Source::SAMPLING_WEIGHTED, "draw_weighted", &Defines::new())?;
                Ok(DrawKernel { function, rows: 128, threads: 128, takes_weights: true })
            }
            Neighbors::Count(count) if count <= FEW_MAX && !has_shares && !is_far => {
                let flag = |is: bool| u32::from(is).to_string();
                let (replace, edge_ids) = (flag(options.replace), flag(options.edge_ids));
                let defines = vec![("FAN_OUT", count.to_string()), ("REPLACE", replace), ("EDGE_IDS", edge_ids)];
                let function = kernel(Source::SAMPLING_FEW, "draw_few", &defines)?;
                Ok(DrawKernel { function, rows: 128, threads: 128, takes_weights: false })
            }
            neighbors => {
                let defines = vec![("LANES", if has_shares { 32 } else { lanes_of(neighbors) }.to_string())];
                let function = kernel(Source::SAMPLING_MANY, "draw_many", &defines)?;
                Ok(DrawKernel { function, rows: 32, threads: 256, takes_weights: true })
            }
        };
        let of_shares = |name| kernel(Source::SAMPLING_SHARES, name, &Defines::new());
        let shares = || -> Result<ShareKernels, ComputeError> {
            Ok(ShareKernels {
                largest: of_shares("largest_weight")?,
                running: of_shares("running_weights")?,
                draw: of_shares("draw_shares")?,
            })
        };
        let of_batch = |name, words: u64| kernel(Source::SAMPLING_BATCH, name, &vec![("WORDS", words.to_string())]);
        Ok(Self {
            begin: of_batch("begin_batch", 1)?,
            draws: hops.iter().map(draw).collect::<Result<_, ComputeError>>()?,
            shares: has_shares.then(shares).transpose()?,
            settle: [of_batch("settle", 1)?, of_batch("settle", 8)?],
            finish: of_batch("finish_batch", 1)?,
        })
    }
}

/// What the launches of a batch have in common.
pub(super) struct Launches<'a> {
    pub(super) cuda: &'a Cuda,
    pub(super) kernels: &'a Kernels,
    pub(super) batch: &'a DeviceBatch,
    pub(super) hops: &'a [Neighbors],
    pub(super) graph: arguments::Topology,
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
    /// places; the batch was made for that graph, and kernels and batch for these hops; seeds on its page are nodes, no more than
    /// its capacity. All of it lives until the stream is done with it.
    pub(super) unsafe fn run(&self) -> Result<(), ComputeError> {
        let has_shares = self.kernels.shares.is_some();
        let tiles = HopTiles::of_hops(&self.batch.capacities, self.hops.len(), self.n_words, has_shares);
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

    fn control(&self) -> arguments::Control {
        arguments::Control { words: self.cuda.pointer(Some(&self.batch.page)), n_hops: self.hops.len() as u64 }
    }

    fn tiles_at(&self, word: u64) -> u64 {
        self.cuda.pointer(Some(&self.batch.tiles)) + word * size_of::<u64>() as u64
    }

    unsafe fn begin(&self, n_tiles: u64) -> Result<(), ComputeError> {
        let control = self.control();
        let seeds = control.words + (self.batch.words.len() * size_of::<u64>()) as u64;
        let (nodes, tiles) = (self.cuda.pointer(Some(&self.batch.nodes)), self.tiles_at(0));
        let config = threads_for(self.batch.capacities.nodes[0].max(n_tiles) as usize);
        let mut launch = self.cuda.device.stream.launch_builder(&self.kernels.begin);
        launch.arg(&control).arg(&seeds).arg(&nodes).arg(&self.positions);
        launch.arg(&self.bitmaps.0).arg(&self.bitmaps.1).arg(&tiles).arg(&n_tiles);
        // SAFETY: seeds follow the words, there is room for each of them, and so many words for tiles; see `run`.
        unsafe { launch.launch(config) }.map_err(Cuda::failed(OPERATION))?;
        Ok(())
    }

    fn hop(&self, hop: usize, tiles: HopTiles, is_local: bool) -> arguments::Hop {
        let (batch, cuda) = (self.batch, self.cuda);
        let (fan_out, shares) = match self.hops[hop] {
            Neighbors::All => (arguments::ALL, None),
            Neighbors::Count(count) => (count, batch.shares.as_ref()),
        };
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
        if let (Neighbors::Count(count), Some(kernels), Some(shares)) =
            (self.hops[hop], &self.kernels.shares, &self.batch.shares)
        {
            // SAFETY: see `run`.
            unsafe { self.share(kernels, shares, (argument, count), tiles) }?;
        }
        let kernel = &self.kernels.draws[hop];
        let config = blocks(self.batch.capacities.nodes[hop].div_ceil(kernel.rows), kernel.threads);
        let mut launch = self.cuda.device.stream.launch_builder(&kernel.function);
        launch.arg(&self.graph).arg(&argument);
        if kernel.takes_weights {
            launch.arg(&self.weights);
        }
        // SAFETY: there is a block for each tile of rows that a hop may have and a word of `tiles` for it, and blocks are as large
        // as the kernel expects; edges beyond the capacity are not written; see `run`.
        unsafe { launch.launch(config) }.map_err(Cuda::failed(OPERATION))?;
        Ok(())
    }

    /// Divides the draws of a hop among its rows.
    unsafe fn share(
        &self,
        kernels: &ShareKernels,
        shares: &Shares,
        (argument, count): (arguments::Hop, u32),
        tiles: HopTiles,
    ) -> Result<(), ComputeError> {
        let rows = self.batch.capacities.nodes[argument.hop as usize];
        let largest = self.tiles_at(tiles.shares);
        let (running, counts) = (self.cuda.pointer(Some(&shares.running)), self.cuda.pointer(Some(&shares.counts)));
        let stream = &self.cuda.device.stream;
        let mut launch = stream.launch_builder(&kernels.largest);
        launch.arg(&self.graph).arg(&argument).arg(&self.weights).arg(&self.exponents).arg(&largest);
        // SAFETY: `largest` is a word that `begin` has cleared; see `run`.
        unsafe { launch.launch(threads_for(rows as usize)) }.map_err(Cuda::failed(OPERATION))?;

        let in_tiles = arguments::Hop { tiles: self.tiles_at(tiles.shares + 1), ..argument };
        let mut launch = stream.launch_builder(&kernels.running);
        launch.arg(&self.graph).arg(&in_tiles).arg(&self.weights).arg(&self.exponents).arg(&largest);
        launch.arg(&running).arg(&counts);
        // SAFETY: there is a block for each tile of rows, a word for it, and room for a sum and a share of each row; see `run`.
        unsafe { launch.launch(blocks(rows.div_ceil(SHARE_TILE), BLOCK)) }.map_err(Cuda::failed(OPERATION))?;

        let mut launch = stream.launch_builder(&kernels.draw);
        launch.arg(&argument).arg(&running).arg(&counts);
        // SAFETY: sums and shares of all rows are there; see `run`.
        unsafe { launch.launch(threads_for(count as usize)) }.map_err(Cuda::failed(OPERATION))?;
        Ok(())
    }

    unsafe fn settle(&self, hop: usize, tiles: HopTiles) -> Result<(), ComputeError> {
        let (control, at) = (self.control(), hop as u64);
        let (nodes, tiles) = (self.cuda.pointer(Some(&self.batch.nodes)), self.tiles_at(tiles.settle));
        let most = self.batch.capacities.nodes[hop + 1];
        let is_sparse = is_sparse(self.n_words, most);
        let words_of_block = u64::from(BLOCK) * if is_sparse { 8 } else { 1 };
        let mut launch = self.cuda.device.stream.launch_builder(&self.kernels.settle[usize::from(is_sparse)]);
        launch.arg(&control).arg(&at).arg(&self.bitmaps.0).arg(&self.bitmaps.1).arg(&nodes).arg(&self.positions);
        launch.arg(&tiles).arg(&most);
        // SAFETY: bitmaps are whole tiles of words, each of which has a block and a word of `tiles`; nodes beyond the capacity
        // are not written; see `run`.
        unsafe { launch.launch(blocks(self.n_words / words_of_block, BLOCK)) }.map_err(Cuda::failed(OPERATION))?;
        Ok(())
    }

    unsafe fn finish(&self, n_local: usize) -> Result<(), ComputeError> {
        let (control, cuda, batch) = (self.control(), self.cuda, self.batch);
        let sources = cuda.pointer(Some(&batch.sources));
        let columns = batch.columns.as_ref().map_or(sources, |columns| cuda.pointer(Some(columns)));
        let (n_local, n_nodes) = (n_local as u64, batch.n_columns as u64);
        let nodes = cuda.pointer(Some(&batch.nodes));
        let config = threads_for((batch.capacities.edges / 4).max(batch.capacities.nodes[0]) as usize);
        let mut launch = cuda.device.stream.launch_builder(&self.kernels.finish);
        launch.arg(&control).arg(&n_local).arg(&sources).arg(&columns).arg(&self.positions).arg(&n_nodes);
        launch.arg(&nodes).arg(&self.bitmaps.0).arg(&self.bitmaps.1).arg(&self.n_words);
        // SAFETY: sizes on the device are within the capacities, ids that are no nodes are not looked up; see `run`.
        unsafe { launch.launch(config) }.map_err(Cuda::failed(OPERATION))?;
        Ok(())
    }
}

/// Lanes of a row that draws so many neighbours, or takes all.
fn lanes_of(neighbors: Neighbors) -> u32 {
    match neighbors {
        Neighbors::Count(count) => count.clamp(8, 32).next_power_of_two(),
        Neighbors::All => 32,
    }
}

/// Whether threads scan eight words of a bitmap each: where a hop that finds so many nodes leaves most words as they are. Where
/// nodes are dense, blocks would be too few and write one node after the other.
fn is_sparse(n_words: u64, finds: u64) -> bool {
    n_words >= LARGE_WORDS && finds <= n_words * 32 / SPARSE
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
        let lanes = [1, 8, 9, 16, 17, 32, 33, 1000].map(|count| lanes_of(Neighbors::Count(count)));
        assert_eq!(lanes, [8, 8, 16, 16, 32, 32, 32, 32]);
        assert_eq!(lanes_of(Neighbors::All), 32);
    }

    #[test]
    fn large_bitmaps_are_scanned_by_eights_where_few_nodes_are_new() {
        assert!(!is_sparse(76_800, 1000));
        assert!(is_sparse(LARGE_WORDS, LARGE_WORDS));
        assert!(!is_sparse(LARGE_WORDS, LARGE_WORDS + 1));
    }
}
