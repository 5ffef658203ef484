//! [`DeviceBatch`]: a mini-batch on a device, and its download to the host.
//!
//! ```text
//! nodes      seeds │ new of hop 0 │ new of hop 1 │ …      every block begins with the list of the one nearer the seeds
//! sources    edges of hop 0 │ edges of hop 1 │ …          one list for all hops; global ids until `finish`
//! indptr     rows of hop 0 │ rows of hop 1 │ …            offsets into that list; with `Expand::Once` rows of all hops
//!                                                         are one list, of which each block has the first ones
//! ```

use std::sync::Arc;

use cudarc::driver::{CudaView, DeviceRepr};
use girih_compute::ComputeError;
use girih_compute::checks::IdRange;
use girih_graph_format::NodeId;
use girih_sampling::{Block, Columns, DrawKey, Draws, Expand, MiniBatch, NeighborOptions};

use super::control::{BatchSizes, Words};
use super::repeat::Repeated;
use super::{Capacities, OPERATION};
use crate::Cuda;
use crate::abi::{BLOCK, DRAW_ROWS_MANY};
use crate::buffer::Buffer;
use crate::matrix::{CudaIds, Derived};

/// Blocks in device memory, overwritten by each [`DeviceSampler::sample_into`](super::DeviceSampler::sample_into).
pub struct DeviceBatch {
    pub(super) capacities: Capacities,
    pub(super) options: NeighborOptions,
    pub(super) words: Words,
    /// Number of nodes of the graph.
    pub(super) n_columns: usize,
    /// Seeds and key of the latest request.
    pub(super) seeds: Vec<NodeId>,
    pub(super) key: DrawKey,
    /// Control words, then seeds.
    pub(super) page: Buffer<u64>,
    pub(super) nodes: Buffer<NodeId>,
    pub(super) indptr: Buffer<u64>,
    pub(super) sources: Buffer<NodeId>,
    /// Local ids of sources, if global ones are kept as well; else they replace these in `sources`.
    pub(super) columns: Option<Buffer<NodeId>>,
    pub(super) edge_ids: Option<Buffer<u64>>,
    pub(super) shares: Option<Shares>,
    /// Slots of seeds and edges in the hash table, if nodes have places there: first those of seeds, at full
    /// capacity.
    slots: Option<Buffer<u32>>,
    pub(super) tiles: Buffer<u64>,
    pub(super) repeated: Repeated,
}

/// Size parameter of the memory of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlacesSize {
    /// Words of a bitmap.
    Words(u64),
    /// One slot for each edge and seed.
    Slots,
}

/// Division of the draws of a hop among its rows.
pub(super) struct Shares {
    pub(super) running: Buffer<u64>,
    pub(super) counts: Buffer<u32>,
}

/// Rows of a tile of `running_weights`.
pub(super) const SHARE_TILE: u64 = BLOCK as u64;
/// Fewest rows of a tile that draws.
pub(super) const DRAW_TILE_MIN: u64 = DRAW_ROWS_MANY as u64;
/// Fewest words of a bitmap in a tile of `settle`.
const SETTLE_TILE_MIN: u64 = BLOCK as u64;
/// Edges of a tile of `list_first`.
pub(super) const EDGE_TILE: u64 = BLOCK as u64;

/// Offsets of each launch of a hop in [`DeviceBatch::tiles`], in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HopTiles {
    pub(super) draw: u64,
    pub(super) settle: u64,
    /// Offset of one word for the largest weight, then those of tiles.
    pub(super) shares: u64,
    pub(super) end: u64,
}

impl HopTiles {
    fn new(first: u64, rows: u64, n_settle: u64, has_shares: bool) -> Self {
        let settle = first + rows.div_ceil(DRAW_TILE_MIN).max(1);
        let shares = settle + n_settle;
        let end = shares + if has_shares { 1 + rows.div_ceil(SHARE_TILE) } else { 0 };
        Self { draw: first, settle, shares, end }
    }

    /// Offsets of all hops.
    pub(super) fn of_hops(capacities: &Capacities, n_hops: usize, size: PlacesSize, has_shares: bool) -> Vec<Self> {
        let n_settle = match size {
            PlacesSize::Words(n_words) => n_words / SETTLE_TILE_MIN,
            PlacesSize::Slots => capacities.edges.div_ceil(EDGE_TILE).max(1),
        };
        let mut end = 0;
        let of_hop = |&rows: &u64| {
            let tiles = Self::new(end, rows, n_settle, has_shares);
            end = tiles.end;
            tiles
        };
        capacities.nodes[..n_hops].iter().map(of_hop).collect()
    }
}

impl DeviceBatch {
    /// Allocates a batch within some capacities, of `n_hops` hops on a graph of `n_columns` nodes; `size` is that of
    /// the places of nodes.
    pub(super) fn new(
        cuda: &Cuda,
        capacities: Capacities,
        options: NeighborOptions,
        n_hops: usize,
        (n_columns, size): (usize, PlacesSize),
    ) -> Result<Self, ComputeError> {
        let words = Words { n_hops };
        let [rows, edges] = [capacities.nodes[n_hops - 1] as usize, capacities.edges as usize];
        let [seeds, most_nodes] = [capacities.nodes[0], capacities.nodes[n_hops]].map(|n| n as usize);
        let offsets = match options.expand {
            Expand::Once => rows + 1,
            Expand::PerLayer => capacities.nodes[..n_hops].iter().map(|&rows| rows as usize + 1).sum(),
        };
        let keeps_both = options.expand == Expand::Once && options.inputs == Columns::Global;
        let has_shares = options.draws == Draws::PerLayer;
        let tiles = HopTiles::of_hops(&capacities, n_hops, size, has_shares);
        let n_tiles = tiles.last().map_or(0, |last| last.end) as usize;
        let shares = || -> Result<Shares, ComputeError> {
            Ok(Shares { running: cuda.scratch(OPERATION, rows)?, counts: cuda.scratch(OPERATION, rows)? })
        };
        Ok(Self {
            page: cuda.scratch(OPERATION, words.len_with(seeds))?,
            nodes: cuda.scratch(OPERATION, most_nodes)?,
            indptr: cuda.scratch(OPERATION, offsets)?,
            sources: cuda.scratch(OPERATION, edges)?,
            columns: keeps_both.then(|| cuda.scratch(OPERATION, edges)).transpose()?,
            edge_ids: options.edge_ids.then(|| cuda.scratch(OPERATION, edges)).transpose()?,
            shares: has_shares.then(shares).transpose()?,
            slots: (size == PlacesSize::Slots).then(|| cuda.scratch(OPERATION, seeds + edges)).transpose()?,
            tiles: cuda.scratch(OPERATION, n_tiles)?,
            repeated: Repeated::default(),
            seeds: Vec::new(),
            key: DrawKey::default(),
            capacities,
            options,
            words,
            n_columns,
        })
    }

    /// Capacities of the batch.
    #[must_use]
    pub fn capacities(&self) -> &Capacities {
        &self.capacities
    }

    /// Device address of the seeds, behind the control words.
    pub(super) fn seeds_at(&self, cuda: &Cuda) -> u64 {
        cuda.pointer(Some(&self.page)) + (self.words.len() * size_of::<u64>()) as u64
    }

    /// Device address of the local ids of sources.
    pub(super) fn columns_at(&self, cuda: &Cuda) -> u64 {
        cuda.pointer(Some(self.columns.as_ref().unwrap_or(&self.sources)))
    }

    /// Device addresses of the slots of seeds and of edges.
    pub(super) fn slots_at(&self, cuda: &Cuda) -> (u64, u64) {
        let of_seeds = cuda.pointer(self.slots.as_ref());
        (of_seeds, of_seeds + self.capacities.nodes[0] * size_of::<u32>() as u64)
    }

    /// Number of hops whose sources get local ids.
    pub(super) fn n_local_hops(&self) -> usize {
        self.words.n_hops - usize::from(self.options.inputs == Columns::Global)
    }

    /// Index of the first offset of a hop's rows in `indptr`.
    pub(super) fn first_offset(&self, hop: usize) -> usize {
        match self.options.expand {
            Expand::Once => 0,
            Expand::PerLayer => self.capacities.nodes[..hop].iter().map(|&rows| rows as usize + 1).sum(),
        }
    }

    /// Number of edges of a hop's block.
    pub(super) fn n_edges_of(&self, sizes: &BatchSizes, hop: usize) -> usize {
        let first = match self.options.expand {
            // Offsets of the rows of all hops are one list, of which a block has the first.
            Expand::Once => 0,
            Expand::PerLayer if hop == 0 => 0,
            Expand::PerLayer => sizes.end_edges[hop - 1],
        };
        (sizes.end_edges[hop] - first) as usize
    }

    /// Sizes of the batch, once it is sampled.
    ///
    /// # Errors
    /// When the device fails.
    pub fn sizes(&self, cuda: &Cuda) -> Result<BatchSizes, ComputeError> {
        let words = cuda.read(OPERATION, &self.page.slice(..self.words.len()))?;
        Ok(self.words.sizes(&words, self.n_local_hops()))
    }

    /// Downloads the batch in the form of the host's sampler.
    ///
    /// # Errors
    /// When it exceeds its capacities, a seed is listed twice, or the device fails.
    pub fn to_host(&self, cuda: &Cuda) -> Result<MiniBatch, ComputeError> {
        let sizes = self.sizes(cuda)?;
        self.check(&sizes)?;
        let n_hops = self.words.n_hops;
        let n_found = sizes.n_nodes.last().copied().unwrap_or(0);
        let parts = HostParts {
            nodes: read_first(cuda, &self.nodes, n_found)?,
            sources: read_first(cuda, &self.sources, sizes.n_edges())?,
            columns: self.columns.as_ref().map(|columns| read_first(cuda, columns, sizes.n_edges())).transpose()?,
            edge_ids: self.edge_ids.as_ref().map(|ids| read_first(cuda, ids, sizes.n_edges())).transpose()?,
        };
        // Blocks lie in the order of layers, the seeds' block last.
        let blocks = (0..n_hops).rev().map(|hop| self.block(cuda, &sizes, &parts, hop));
        Ok(MiniBatch { blocks: blocks.collect::<Result<_, ComputeError>>()? })
    }

    /// Block of a hop.
    fn block(&self, cuda: &Cuda, sizes: &BatchSizes, parts: &HostParts, hop: usize) -> Result<Block, ComputeError> {
        let is_global = hop >= self.n_local_hops();
        let n_destinations = sizes.n_nodes[hop] as usize;
        let n_nodes = if is_global { n_destinations } else { sizes.n_nodes[hop + 1] as usize };
        let first = self.first_offset(hop);
        let view: CudaView<'_, u64> = self.indptr.slice(first..=first + n_destinations);
        let offsets = cuda.read(OPERATION, &view)?;
        let edges = offsets[0] as usize..sizes.end_edges[hop] as usize;
        let columns = parts.columns.as_ref().filter(|_| !is_global).unwrap_or(&parts.sources);
        Ok(Block {
            nodes: parts.nodes[..n_nodes].to_vec(),
            n_destinations,
            n_columns: if is_global { self.n_columns } else { n_nodes },
            indptr: offsets.iter().map(|offset| offset - offsets[0]).collect(),
            indices: columns[edges.clone()].to_vec(),
            edge_ids: parts.edge_ids.as_ref().map_or_else(Vec::new, |ids| ids[edges].to_vec()),
            weights: Vec::new(),
            columns: if is_global { Columns::Global } else { Columns::Local },
        })
    }

    /// First nodes of the batch, copied to memory of their own.
    pub(super) fn first_nodes(&self, cuda: &Cuda, n: usize) -> Result<CudaIds, ComputeError> {
        let ids = copied(cuda, &self.nodes.slice(..n))?;
        let range = IdRange { len: n, end: self.n_columns as u64 };
        Ok(CudaIds { range, host: Arc::default(), ids, derived: Derived::default() })
    }

    /// Fails if the batch is incomplete or its seeds are invalid.
    pub(super) fn check(&self, sizes: &BatchSizes) -> Result<(), ComputeError> {
        if sizes.failure.has_repeated_seed() {
            return Err(repeated_seed(&self.seeds));
        }
        if sizes.is_overflow() {
            return Err(overflow(&self.capacities));
        }
        Ok(())
    }
}

/// Error of a seed that is listed twice.
fn repeated_seed(seeds: &[NodeId]) -> ComputeError {
    let repeated = (0..seeds.len()).find_map(|at| {
        let first = seeds[..at].iter().position(|seed| *seed == seeds[at])?;
        Some((seeds[at], first, at))
    });
    let (node, first, at) = repeated.unwrap_or_default();
    let what = format!("node {node} is a seed twice, at {first} and {at}: list every seed once");
    ComputeError::argument(OPERATION, what)
}

/// Error of a batch that exceeds its capacities.
fn overflow(Capacities { nodes, edges }: &Capacities) -> ComputeError {
    let what = format!(
        "the batch has more than {edges} edges, or more nodes a hop than {nodes:?}: call the sampler's `complete`, which \
         allocates for the largest batch"
    );
    ComputeError::argument(OPERATION, what)
}

/// Lists of a batch on the host, from which blocks are cut.
struct HostParts {
    nodes: Vec<NodeId>,
    sources: Vec<NodeId>,
    columns: Option<Vec<NodeId>>,
    edge_ids: Option<Vec<u64>>,
}

/// Copy of a list, in memory of its own.
pub(super) fn copied<T: DeviceRepr>(cuda: &Cuda, list: &CudaView<'_, T>) -> Result<Buffer<T>, ComputeError> {
    let (n, mut copy) = (list.len(), cuda.scratch::<T>(OPERATION, list.len())?);
    if n > 0 {
        cuda.device.stream.memcpy_dtod(list, &mut copy.slice_mut(..n)).map_err(Cuda::failed(OPERATION))?;
    }
    Ok(copy)
}

/// First `n` elements of a list, downloaded.
pub(super) fn read_first<T: DeviceRepr + Default + Clone>(
    cuda: &Cuda,
    list: &Buffer<T>,
    n: u64,
) -> Result<Vec<T>, ComputeError> {
    cuda.read(OPERATION, &list.slice(..n as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_batches_say_why() {
        assert_eq!(
            repeated_seed(&[5, 7, 9, 7]).to_string(),
            "sampling on the device: node 7 is a seed twice, at 1 and 3: list every seed once"
        );
        assert_eq!(
            overflow(&Capacities { nodes: vec![2, 6], edges: 4 }).to_string(),
            "sampling on the device: the batch has more than 4 edges, or more nodes a hop than [2, 6]: call the sampler's `complete`, which \
             allocates for the largest batch"
        );
    }

    #[test]
    fn tiles_of_launches_follow_each_other() {
        let capacities = Capacities { nodes: vec![33, 600, 900], edges: 1 };
        let tiles = HopTiles::of_hops(&capacities, 2, PlacesSize::Words(4096), true);
        assert_eq!(tiles[0], HopTiles { draw: 0, settle: 2, shares: 18, end: 20 });
        assert_eq!(tiles[1], HopTiles { draw: 20, settle: 39, shares: 55, end: 59 });
        let nothing = Capacities { nodes: vec![0, 0], edges: 0 };
        let none = HopTiles::of_hops(&nothing, 1, PlacesSize::Words(4096), false);
        assert_eq!(none, [HopTiles { draw: 0, settle: 1, shares: 17, end: 17 }]);
        assert_eq!(HopTiles::of_hops(&nothing, 1, PlacesSize::Slots, false)[0].end, 2);
        let hashed = HopTiles::of_hops(&Capacities { edges: 257, ..capacities }, 2, PlacesSize::Slots, false);
        assert_eq!(hashed[1], HopTiles { draw: 4, settle: 23, shares: 25, end: 25 });
    }
}
