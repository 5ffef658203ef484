//! Launches of a batch: `cuda/sampling_*.cu`.
//!
//! ```text
//! begin    makes seeds the first nodes
//! draw     one pass over the rows of a hop: number of edges of each, their positions (sums of tiles), and the edges
//! settle   gives new nodes their local ids
//! finish   replaces global ids by local ones
//! ```
//! [`Places`](super::places::Places) implements all but draws; where ranks hold patches,
//! [`PatchDraws`](super::patches::PatchDraws) implements draws.

use cudarc::driver::{CudaFunction, PushKernelArg};
use girih_compute::ComputeError;
use girih_sampling::{Draws, Expand, NeighborOptions, Neighbors};

use super::OPERATION;
use super::batch::{DeviceBatch, HopTiles, SHARE_TILE, Shares};
use crate::Cuda;
use crate::abi::{BLOCK, DRAW_ROWS, DRAW_ROWS_MANY, sampling as arguments};
use crate::compile::{Defines, Source};
use crate::device::{blocks, threads_for};

/// Largest fan-out that a single thread draws for its row, `cuda/sampling_few.cu`.
const FEW_MAX: u32 = 16;

/// Kernels that draw, looked up once: a batch takes less time than looking up all of them.
pub(super) struct Kernels {
    pub(super) draws: Vec<DrawKernel>,
    shares: Option<ShareKernels>,
}

/// Kernel that draws the neighbors of a hop.
pub(super) struct DrawKernel {
    function: CudaFunction,
    /// Rows of a block; `threads`: its threads.
    rows: u64,
    threads: u32,
    /// Whether weights of edges are an argument.
    takes_weights: bool,
}

/// Kernels that divide the draws of a hop among its rows.
struct ShareKernels {
    largest: CudaFunction,
    running: CudaFunction,
    draw: CudaFunction,
}

impl Kernels {
    /// Compiles the kernels for the hops of a sampler.
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
                Ok(DrawKernel { function, rows: DRAW_ROWS.into(), threads: DRAW_ROWS, takes_weights: true })
            }
            Neighbors::Count(count) if count <= FEW_MAX && !has_shares && !is_far => {
                let flag = |is: bool| u32::from(is).to_string();
                let (replace, edge_ids) = (flag(options.replace), flag(options.edge_ids));
                let defines = vec![("FAN_OUT", count.to_string()), ("REPLACE", replace), ("EDGE_IDS", edge_ids)];
                let function = kernel(Source::SAMPLING_FEW, "draw_few", &defines)?;
                Ok(DrawKernel { function, rows: DRAW_ROWS.into(), threads: DRAW_ROWS, takes_weights: false })
            }
            neighbors => DrawKernel::many(cuda, if has_shares { 32 } else { lanes_of(neighbors) }),
        };
        let of_shares = |name| kernel(Source::SAMPLING_SHARES, name, &Defines::new());
        let shares = || -> Result<ShareKernels, ComputeError> {
            Ok(ShareKernels {
                largest: of_shares("largest_weight")?,
                running: of_shares("running_weights")?,
                draw: of_shares("draw_shares")?,
            })
        };
        Ok(Self {
            draws: hops.iter().map(draw).collect::<Result<_, ComputeError>>()?,
            shares: has_shares.then(shares).transpose()?,
        })
    }
}

impl DrawKernel {
    /// Kernel with `lanes` lanes for each row, which draws any number of neighbors or takes all.
    pub(super) fn many(cuda: &Cuda, lanes: u32) -> Result<Self, ComputeError> {
        let defines = vec![("LANES", lanes.to_string())];
        let function = cuda.variant(OPERATION, Source::SAMPLING_MANY, "draw_many", &defines)?;
        Ok(Self { function, rows: DRAW_ROWS_MANY.into(), threads: BLOCK, takes_weights: true })
    }

    /// Launches the draws for at most `n_rows` rows.
    ///
    /// # Safety
    /// Addresses are those of a graph and of a hop of so many rows; there is a word of its tiles for each 32 of
    /// these; edges end before its `max_edges`, or there is space for so many.
    pub(super) unsafe fn launch(
        &self,
        cuda: &Cuda,
        (graph, weights): (&arguments::Topology, &arguments::Weights),
        hop: &arguments::Hop,
        n_rows: u64,
    ) -> Result<(), ComputeError> {
        let config = blocks(n_rows.div_ceil(self.rows), self.threads);
        let mut launch = cuda.device.stream.launch_builder(&self.function);
        launch.arg(graph).arg(hop);
        if self.takes_weights {
            launch.arg(weights);
        }
        // SAFETY: there is a block for each tile of rows, and blocks are as large as the kernel expects; the caller
        // vouches for the rest.
        unsafe { launch.launch(config) }.map(drop).map_err(Cuda::failed(OPERATION))
    }
}

/// Common arguments of the launches of a batch.
pub(super) struct Launches<'a> {
    pub(super) cuda: &'a Cuda,
    pub(super) kernels: &'a Kernels,
    pub(super) batch: &'a DeviceBatch,
    pub(super) hops: &'a [Neighbors],
    pub(super) graph: arguments::Topology,
    pub(super) weights: arguments::Weights,
    /// Device address of the exponents of rows.
    pub(super) exponents: u64,
    /// Device address of the bitmap in which draws mark nodes; zero if none is used.
    pub(super) marked: u64,
}

impl Launches<'_> {
    pub(super) fn control(&self) -> arguments::Control {
        arguments::Control { words: self.cuda.pointer(Some(&self.batch.page)), n_hops: self.hops.len() as u64 }
    }

    pub(super) fn tiles_at(&self, word: u64) -> u64 {
        self.cuda.pointer(Some(&self.batch.tiles)) + word * size_of::<u64>() as u64
    }

    pub(super) fn hop(&self, hop: usize, tiles: HopTiles, is_local: bool) -> arguments::Hop {
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
            marked: if is_local { self.marked } else { 0 },
            tiles: self.tiles_at(tiles.draw),
            shares: cuda.pointer(shares.map(|shares| &shares.counts)),
            max_edges: batch.capacities.edges,
            hop: hop as u32,
            fan_out,
            replace: u32::from(batch.options.replace),
            once: u32::from(batch.options.expand == Expand::Once),
        }
    }

    /// Draws the edges of a hop from the graph itself.
    ///
    /// # Safety
    /// As [`DeviceSampler::launch`](super::DeviceSampler::launch).
    pub(super) unsafe fn draw(&self, hop: usize, tiles: HopTiles, is_local: bool) -> Result<(), ComputeError> {
        let argument = self.hop(hop, tiles, is_local);
        if let (Neighbors::Count(count), Some(kernels), Some(shares)) =
            (self.hops[hop], &self.kernels.shares, &self.batch.shares)
        {
            // SAFETY: see `launch`.
            unsafe { self.share(kernels, shares, (argument, count), tiles) }?;
        }
        // SAFETY: edges beyond the capacity are not written; see `launch`.
        unsafe {
            let rows = self.batch.capacities.nodes[hop];
            self.kernels.draws[hop].launch(self.cuda, (&self.graph, &self.weights), &argument, rows)
        }
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
        // SAFETY: `largest` is a word that `begin` has cleared; see `launch`.
        unsafe { launch.launch(threads_for(rows as usize)) }.map_err(Cuda::failed(OPERATION))?;

        let in_tiles = arguments::Hop { tiles: self.tiles_at(tiles.shares + 1), ..argument };
        let mut launch = stream.launch_builder(&kernels.running);
        launch.arg(&self.graph).arg(&in_tiles).arg(&self.weights).arg(&self.exponents).arg(&largest);
        launch.arg(&running).arg(&counts);
        // SAFETY: there is a block for each tile of rows, a word for it, and space for a sum and a share of each row;
        // see `launch`.
        unsafe { launch.launch(blocks(rows.div_ceil(SHARE_TILE), BLOCK)) }.map_err(Cuda::failed(OPERATION))?;

        let mut launch = stream.launch_builder(&kernels.draw);
        launch.arg(&argument).arg(&running).arg(&counts);
        // SAFETY: sums and shares of all rows are there; see `launch`.
        unsafe { launch.launch(threads_for(count as usize)) }.map(drop).map_err(Cuda::failed(OPERATION))
    }
}

/// Lanes of a row that draws this many neighbors, or takes all.
pub(super) fn lanes_of(neighbors: Neighbors) -> u32 {
    match neighbors {
        Neighbors::Count(count) => count.clamp(8, 32).next_power_of_two(),
        Neighbors::All => 32,
    }
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
}
