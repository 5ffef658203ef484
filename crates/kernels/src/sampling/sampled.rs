//! [`SampledBatch`]: a batch in memory of its own on the device, for other libraries and for layers outside of a
//! trainer; [`BatchSampler`] makes them ahead of their use.
//!
//! ```text
//! BatchSampler   request, take ──▶ SampledBatch ──▶ edge_list: one list of edges, as PyG has it
//!                                               └──▶ operand: the matrix of a layer, made of a block
//! ```

use std::sync::Arc;

use cudarc::driver::{DevicePtr, PushKernelArg};
use girih_compute::{ComputeError, Shape};
use girih_graph_format::{Csr, NodeId};
use girih_sampling::{Block, Columns, DrawKey, Expand, MiniBatch, NeighborSampler};

use super::batch::{copied, read_first};
use super::prefetch::Prefetch;
use super::{BatchSizes, DeviceBatch, DeviceSampler, DeviceTopology, OPERATION};
use crate::Cuda;
use crate::abi::sampling as arguments;
use crate::buffer::Buffer;
use crate::compile::{Defines, Source};
use crate::device::threads_for;
use crate::matrix::{CudaCsr, CudaIds, CudaSparse, TileCache};

/// Lanes of a row.
const LANES: usize = 8;
/// Mean number of edges of a row from which all lanes of a warp make one.
const MANY: usize = 32;

/// Sampler of batches in memory of their own. A batch is requested ahead of its use, so that the device samples it
/// beside other work.
pub struct BatchSampler {
    cuda: Arc<Cuda>,
    topology: Arc<DeviceTopology>,
    sampled: Prefetch,
}

impl BatchSampler {
    /// Creates a sampler for batches of at most `batch_size` seeds on the graph `topology`; `graph` is the same graph
    /// on the host.
    ///
    /// # Errors
    /// As [`DeviceSampler::new`]; when columns are global ids.
    pub fn new(
        cuda: Arc<Cuda>,
        topology: Arc<DeviceTopology>,
        graph: &Csr,
        sampler: &NeighborSampler,
        batch_size: usize,
    ) -> Result<Self, ComputeError> {
        if sampler.options().inputs == Columns::Global {
            return Err(ComputeError::argument(OPERATION, "batches for other libraries have local ids"));
        }
        let side = cuda.beside(OPERATION)?;
        let sampler = DeviceSampler::new(&side, Arc::clone(&topology), graph, sampler, batch_size)?;
        let sampled = Prefetch::new(&cuda, side, sampler, false)?;
        Ok(Self { cuda, topology, sampled })
    }

    /// Requests a batch without waiting for it. A pending request that was not taken is dropped.
    ///
    /// # Errors
    /// When a seed is no node, there are more than the batch size, or the device fails.
    pub fn request(&mut self, seeds: &[NodeId], key: DrawKey) -> Result<(), ComputeError> {
        self.sampled.request(&self.cuda, seeds, key)
    }

    /// Returns the requested batch, after waiting for its sizes.
    ///
    /// # Errors
    /// When there is no request, a seed is listed twice, the device's memory does not suffice, or the device fails.
    pub fn take(&mut self) -> Result<SampledBatch, ComputeError> {
        let sizes = self.sampled.take(&self.cuda)?;
        SampledBatch::of(&self.cuda, &self.sampled.batch, sizes, &self.topology)
    }
}

impl Drop for BatchSampler {
    /// Waits until the device no longer uses the memory.
    fn drop(&mut self) {
        self.sampled.finish(&self.cuda);
    }
}

/// Mini-batch in memory of its own on the device, with the layout of [`DeviceBatch`].
pub struct SampledBatch {
    nodes: CudaIds,
    indptr: Buffer<u64>,
    columns: Buffer<NodeId>,
    edge_ids: Option<Buffer<u64>>,
    sizes: BatchSizes,
    expand: Expand,
    /// Index in `indptr` of the first offset of each hop, seeds first.
    first_offsets: Vec<usize>,
    topology: Arc<DeviceTopology>,
}

/// Names of the edges of a graph on the device, by position.
pub struct EdgeNames {
    names: Buffer<u64>,
    n: usize,
}

impl EdgeNames {
    /// Uploads one name for each edge.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn upload(cuda: &Cuda, names: &[u64]) -> Result<Self, ComputeError> {
        Ok(Self { names: cuda.upload_list(OPERATION, names)?, n: names.len() })
    }
}

/// Width of ids in an [`edge_list`](SampledBatch::edge_list).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexWidth {
    /// Four bytes: `int32`, as ids lie below 2³¹.
    Narrow,
    /// Eight bytes: `int64`.
    Wide,
}

impl IndexWidth {
    /// Bytes of an id.
    #[must_use]
    pub fn n_bytes(self) -> usize {
        match self {
            Self::Narrow => 4,
            Self::Wide => 8,
        }
    }
}

/// Batch as one list of edges, in one piece of memory. Offsets are in bytes from its start.
pub struct DeviceEdgeList {
    memory: Buffer<u8>,
    /// Number of edges.
    pub n_edges: usize,
    /// Number of nodes.
    pub n_nodes: usize,
    /// Offset of the global ids of all nodes. Sources and destinations of edges lie at 0, one list after the other.
    pub nodes_at: usize,
    /// Offset of the names of edges, `int64`; `None` if the sampler keeps none.
    pub edges_at: Option<usize>,
}

impl DeviceEdgeList {
    /// Device address of the list.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.memory.device_ptr(self.memory.stream()).0
    }

    /// Downloads the bytes of the list.
    ///
    /// # Errors
    /// When the device fails.
    pub fn to_host(&self, cuda: &Cuda) -> Result<Vec<u8>, ComputeError> {
        cuda.read(OPERATION, &self.memory.as_view())
    }
}

/// Normalisation of an [`operand`](SampledBatch::operand).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scaling {
    /// None: every entry is one.
    Ones,
    /// Rows are divided by their number of edges.
    Mean,
    /// Entries are divided by the roots of the degrees of both ends, as counted in the block.
    Sampled,
    /// As `Sampled`, with the degrees of the graph; a drawn edge stands for degree over draws.
    Estimated,
}

impl SampledBatch {
    fn of(
        cuda: &Cuda,
        batch: &DeviceBatch,
        sizes: BatchSizes,
        topology: &Arc<DeviceTopology>,
    ) -> Result<Self, ComputeError> {
        let n_hops = batch.words.n_hops;
        let first_offsets: Vec<usize> = (0..n_hops).map(|hop| batch.first_offset(hop)).collect();
        let n_offsets = first_offsets[n_hops - 1] + sizes.n_nodes[n_hops - 1] as usize + 1;
        let (n_nodes, n_edges) = (sizes.n_nodes[n_hops] as usize, sizes.n_edges() as usize);
        let edge_ids = batch.edge_ids.as_ref().map(|ids| copied(cuda, &ids.slice(..n_edges))).transpose()?;
        Ok(Self {
            nodes: batch.first_nodes(cuda, n_nodes)?,
            indptr: copied(cuda, &batch.indptr.slice(..n_offsets))?,
            columns: copied(cuda, &batch.sources.slice(..n_edges))?,
            edge_ids,
            expand: batch.options.expand,
            first_offsets,
            topology: Arc::clone(topology),
            sizes,
        })
    }

    /// Number of hops, which is that of blocks.
    #[must_use]
    pub fn n_hops(&self) -> usize {
        self.first_offsets.len()
    }

    /// Global ids of all nodes: the seeds, then those that each hop found.
    #[must_use]
    pub fn nodes(&self) -> &CudaIds {
        &self.nodes
    }

    /// Number of seeds, then of the nodes that each hop found.
    #[must_use]
    pub fn nodes_by_hop(&self) -> Vec<usize> {
        differences(&self.sizes.n_nodes)
    }

    /// Number of edges that each hop drew.
    #[must_use]
    pub fn edges_by_hop(&self) -> Vec<usize> {
        differences(&self.sizes.end_edges)
    }

    /// Whether the batch is one list of edges: nodes drew once.
    #[must_use]
    pub fn is_list(&self) -> bool {
        self.expand == Expand::Once || self.n_hops() == 1
    }

    /// Number of sources, of destinations and of edges of the block of a hop; hop 0 is that of the seeds.
    ///
    /// # Panics
    /// When there are fewer hops.
    #[must_use]
    pub fn block_sizes(&self, hop: usize) -> (usize, usize, usize) {
        let first = match self.expand {
            Expand::Once => 0,
            Expand::PerLayer => hop.checked_sub(1).map_or(0, |before| self.sizes.end_edges[before]),
        };
        let n_edges = self.sizes.end_edges[hop] - first;
        (self.sizes.n_nodes[hop + 1] as usize, self.sizes.n_nodes[hop] as usize, n_edges as usize)
    }

    /// Writes the batch as one list of edges. `names` name edges by their position in the graph.
    ///
    /// # Errors
    /// When nodes drew anew in every hop, there is not one name for each edge of the graph, the device's memory does
    /// not suffice, or it fails.
    pub fn edge_list(
        &self,
        cuda: &Cuda,
        names: Option<&EdgeNames>,
        width: IndexWidth,
    ) -> Result<DeviceEdgeList, ComputeError> {
        if !self.is_list() {
            return Err(ComputeError::argument(OPERATION, "nodes drew anew in every hop: the batch is no single list"));
        }
        if let Some(names) = names.filter(|names| names.n != self.topology.n_edges()) {
            let what = format!("{} names for a graph of {} edges: give one for each", names.n, self.topology.n_edges());
            return Err(ComputeError::argument(OPERATION, what));
        }
        let (n_edges, n_nodes) = (self.sizes.n_edges() as usize, self.nodes.range.len);
        let n_bytes = width.n_bytes();
        // Lists begin where memory itself might.
        let nodes_at = (2 * n_edges * n_bytes).next_multiple_of(256);
        let edges_at = (nodes_at + n_nodes * n_bytes).next_multiple_of(256);
        let has_edges = self.edge_ids.is_some();
        let len = edges_at + if has_edges { n_edges * size_of::<u64>() } else { 0 };
        let memory = cuda.scratch::<u8>(OPERATION, len)?;
        let (at, n_rows) = (cuda.pointer(Some(&memory)), self.sizes.n_nodes[self.n_hops() - 1]);
        let list = arguments::EdgeList {
            nodes: cuda.pointer(Some(&self.nodes.ids)),
            columns: cuda.pointer(Some(&self.columns)),
            indptr: cuda.pointer(Some(&self.indptr)),
            edge_ids: cuda.pointer(self.edge_ids.as_ref()),
            names: cuda.pointer(names.map(|names| &names.names)),
            n_rows,
            n_nodes: n_nodes as u64,
            sources: at,
            destinations: at + (n_edges * n_bytes) as u64,
            ids: at + nodes_at as u64,
            edges: if has_edges { at + edges_at as u64 } else { 0 },
        };
        let lanes = lanes(n_edges, n_rows as usize);
        let index = if width == IndexWidth::Wide { "u64" } else { "int" };
        let kernel = cuda.variant(OPERATION, Source::SAMPLING_LISTS, "list_edges", &defines(index, lanes))?;
        let mut launch = cuda.device.stream.launch_builder(&kernel);
        launch.arg(&list);
        // SAFETY: the lists have the sizes of the batch, and there is space for each of its edges and nodes; positions
        // of edges are those of the graph, which has a name for each.
        unsafe { launch.launch(threads_for((n_rows as usize).max(1).saturating_mul(lanes))) }
            .map_err(Cuda::failed(OPERATION))?;
        Ok(DeviceEdgeList { memory, n_edges, n_nodes, nodes_at, edges_at: has_edges.then_some(edges_at) })
    }

    /// Matrix of the block of a hop, with a self-loop behind the edges of each row if `has_loops`. The graph must not
    /// store self-loops then, nor may edges be drawn repeatedly: rows are not merged.
    ///
    /// # Errors
    /// When the device's memory does not suffice, or it fails.
    ///
    /// # Panics
    /// When there are fewer hops.
    pub fn operand(
        &self,
        cuda: &Cuda,
        hop: usize,
        scaling: Scaling,
        has_loops: bool,
    ) -> Result<CudaSparse, ComputeError> {
        let (n_columns, n_rows, n_edges) = self.block_sizes(hop);
        let nnz = n_edges + if has_loops { n_rows } else { 0 };
        let (is_symmetric, is_estimate) =
            (matches!(scaling, Scaling::Sampled | Scaling::Estimated), scaling == Scaling::Estimated);
        let floats = |n: usize| cuda.scratch::<f32>(OPERATION, n);
        let indptr: Buffer<u64> = cuda.scratch(OPERATION, n_rows + 1)?;
        let indices: Buffer<NodeId> = cuda.scratch(OPERATION, nnz)?;
        let values = is_estimate.then(|| floats(nnz)).transpose()?;
        let left = (scaling != Scaling::Ones).then(|| floats(n_rows)).transpose()?;
        let right = is_symmetric.then(|| floats(n_columns)).transpose()?;
        let first = self.first_offsets[hop] * size_of::<u64>();
        let block = arguments::BlockOperand {
            nodes: cuda.pointer(Some(&self.nodes.ids)),
            columns: cuda.pointer(Some(&self.columns)),
            indptr: cuda.pointer(Some(&self.indptr)) + first as u64,
            graph: if is_estimate { self.topology.indptr_address(cuda) } else { 0 },
            n_rows: n_rows as u64,
            n_columns: n_columns as u64,
            has_loops: u32::from(has_loops),
            is_symmetric: u32::from(is_symmetric),
            out_indptr: cuda.pointer(Some(&indptr)),
            out_indices: cuda.pointer(Some(&indices)),
            values: cuda.pointer(values.as_ref()),
            left: cuda.pointer(left.as_ref()),
            right: cuda.pointer(right.as_ref()),
        };
        let lanes = lanes(n_edges, n_rows);
        let launch_of = |name: &str, n: usize| -> Result<(), ComputeError> {
            let kernel = cuda.variant(OPERATION, Source::SAMPLING_LISTS, name, &defines("u64", lanes))?;
            let mut launch = cuda.device.stream.launch_builder(&kernel);
            launch.arg(&block);
            // SAFETY: the lists have the sizes of the block, and there is space for each entry, row and column; nodes
            // are those of the graph.
            unsafe { launch.launch(threads_for(n)) }.map(drop).map_err(Cuda::failed(OPERATION))
        };
        launch_of("rows_of_block", n_rows.max(1).saturating_mul(lanes))?;
        if left.is_some() {
            launch_of("factors_of_block", n_columns)?;
        }
        let shape = Shape::new(n_rows, n_columns);
        let (positions, hubs, tiles) = (None, None, TileCache::none());
        let forward = CudaCsr { shape, nnz, indptr, indices, values, positions, hubs, tiles };
        Ok(CudaSparse { right, ..CudaSparse::of_device(forward, left) })
    }

    /// Downloads the batch in the form of the host's sampler.
    ///
    /// # Errors
    /// When the device fails.
    pub fn to_host(&self, cuda: &Cuda) -> Result<MiniBatch, ComputeError> {
        let n_edges = self.sizes.n_edges();
        let nodes: Vec<NodeId> = read_first(cuda, &self.nodes.ids, self.nodes.range.len as u64)?;
        let columns: Vec<NodeId> = read_first(cuda, &self.columns, n_edges)?;
        let edge_ids = self.edge_ids.as_ref().map(|ids| read_first(cuda, ids, n_edges)).transpose()?;
        let hops = (0..self.n_hops()).rev().map(|hop| {
            let (n_nodes, n_destinations, _) = self.block_sizes(hop);
            let first = self.first_offsets[hop];
            let offsets = cuda.read(OPERATION, &self.indptr.slice(first..=first + n_destinations))?;
            let edges = offsets[0] as usize..self.sizes.end_edges[hop] as usize;
            Ok(Block {
                nodes: nodes[..n_nodes].to_vec(),
                n_destinations,
                n_columns: n_nodes,
                indptr: offsets.iter().map(|offset| offset - offsets[0]).collect(),
                indices: columns[edges.clone()].to_vec(),
                edge_ids: edge_ids.as_ref().map_or_else(Vec::new, |ids: &Vec<u64>| ids[edges].to_vec()),
                weights: Vec::new(),
                columns: Columns::Local,
            })
        });
        Ok(MiniBatch { blocks: hops.collect::<Result<_, ComputeError>>()? })
    }
}

/// Lanes of rows with so many edges in all.
fn lanes(n_edges: usize, n_rows: usize) -> usize {
    if n_edges >= MANY * n_rows.max(1) { 32 } else { LANES }
}

fn defines(index: &str, lanes: usize) -> Defines {
    vec![("INDEX", index.to_owned()), ("LANES", lanes.to_string())]
}

/// Differences of ascending numbers, the first from zero.
fn differences(ends: &[u64]) -> Vec<usize> {
    ends.iter().scan(0, |before, &end| Some((end - std::mem::replace(before, end)) as usize)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_by_hop_are_differences() {
        assert_eq!(differences(&[3, 10, 10, 12]), [3, 7, 0, 2]);
        assert_eq!(differences(&[]), [0; 0]);
    }
}
