//! [`CudaGraph`] and [`CudaNeighbors`]: batches for training, from the sampler to rows of `Â`, on the device.
//!
//! ```text
//! request   seeds ──▶ Prefetch ──▶ DeviceBatch                                           on a stream of its own
//! take      wait for its sizes ──▶ for each hop rows_of_draws ──▶ CudaSparse, whose memory is its own
//! ```
//! [`Prefetch`] samples ahead.

use std::iter;
use std::sync::Arc;

use cudarc::driver::{CudaFunction, PushKernelArg};
use girih_comm::{CommError, GpuTransport};
use girih_compute::{ComputeError, Shape};
use girih_features::{
    ByTransport, NeighborBatch, NeighborBlock, NeighborGraph, NeighborOperand, NeighborSource, PatchOperand,
    SamplingDevice, SelfLoops,
};
use girih_graph_format::{Csr, NodeId, Scales};
use girih_sampling::{Columns, DrawKey, NeighborSampler, Neighbors};

use super::patches::OwnerMap;
use super::prefetch::Prefetch;
use super::{BatchSizes, DeviceSampler, DeviceTopology, OPERATION};
use crate::Cuda;
use crate::abi::sampling::{Drawn, Weighing};
use crate::buffer::Buffer;
use crate::compile::Source;
use crate::device::threads_for;
use crate::matrix::{CudaCsr, CudaIds, CudaSparse, TileCache};

/// Lanes of a row: few for fan-outs, which are small, and more where all neighbors are wanted.
const LANES: usize = 8;
const LANES_OF_ALL: usize = 32;

/// Graph that batches are drawn from, with the factors of the rows of `Â`.
pub(crate) struct CudaGraph {
    topology: Arc<DeviceTopology>,
    factors: Factors,
    on_host: OnHost,
}

/// Host data of a graph that bound the sizes of batches.
enum OnHost {
    Whole(Csr),
    /// Degrees of all nodes and, where ranks ask each other, the owners of patches.
    Patches(Vec<u32>, Option<Arc<OwnerMap>>),
}

/// Source of batches as rows of `Â`.
pub(crate) struct CudaNeighbors<'a> {
    cuda: &'a Cuda,
    graph: &'a CudaGraph,
    sampled: Prefetch,
    /// Whether seeds have all their neighbors.
    takes_all: bool,
    /// Offsets of the rows of the requested seeds, if the host knows their lengths.
    offsets: Option<Vec<u64>>,
    /// Kernel that makes rows of `Â`, each with `lanes` lanes.
    kernel: CudaFunction,
    lanes: usize,
}

/// Factors that turn edges into entries, on the device.
struct Factors {
    left: Option<Buffer<f32>>,
    right: Option<Buffer<f32>>,
    /// Weights of edges.
    stored: Option<Buffer<f32>>,
    has_loops: bool,
    /// Weights of self-loops; `None` for ones.
    loops: Option<Buffer<f32>>,
}

impl Factors {
    fn upload(
        cuda: &Cuda,
        (scales, loops): (&Scales, SelfLoops<'_>),
        stored: Option<&[f32]>,
    ) -> Result<Self, ComputeError> {
        let upload = |list: Option<&[f32]>| list.map(|list| cuda.upload_list(OPERATION, list)).transpose();
        let (has_loops, loops) = match loops {
            SelfLoops::AsDrawn => (false, None),
            SelfLoops::Ones => (true, None),
            SelfLoops::Weights(weights) => (true, Some(weights)),
        };
        Ok(Self {
            left: upload(scales.left.as_deref())?,
            right: upload(scales.right.as_deref())?,
            stored: upload(stored)?,
            loops: upload(loops)?,
            has_loops,
        })
    }

    /// Whether all entries of a row are equal, so that one factor stands for them.
    fn are_of_rows(&self) -> bool {
        self.right.is_none() && self.stored.is_none() && !self.has_loops
    }
}

impl SamplingDevice for Cuda {
    fn neighbor_graph(
        &self,
        operand: &NeighborOperand<'_>,
    ) -> Result<Option<Box<dyn NeighborGraph<Self>>>, ComputeError> {
        let topology = Arc::new(match operand.placement {
            None => DeviceTopology::on_device(self, operand.graph)?,
            Some(placement) => DeviceTopology::placed(self, operand.graph, placement)?,
        });
        let factors = Factors::upload(self, (operand.scales, operand.loops), operand.graph.values())?;
        let on_host = OnHost::Whole(operand.graph.clone());
        Ok(Some(Box::new(CudaGraph { topology, factors, on_host })))
    }

    fn patch_graphs(
        &self,
        patch: &PatchOperand<'_>,
        by: &[GpuTransport],
    ) -> Result<ByTransport<Box<dyn NeighborGraph<Self>>>, CommError> {
        const NAME: &str = "patches on GPUs";
        let Some(peers) = self.peers() else { return Ok(Vec::new()) };
        let failed = |error: ComputeError| CommError::Library { operation: NAME, message: error.to_string() };
        let own = Arc::new(DeviceTopology::of_patch(self, patch, peers.rank).map_err(failed)?);
        peers.by_transport(NAME, self.device.stream.context(), by, |lists| {
            // Ranks ask each other, or read the memory of each other's GPUs.
            let (topology, owners) = match lists {
                Some(lists) => (Arc::clone(&own), Some(Arc::new(OwnerMap::new(self, lists, patch.bounds)?))),
                None => (Arc::new(own.with_others(self, patch, peers)?), None),
            };
            let factors = Factors::upload(self, (patch.scales, patch.loops), None)?;
            Ok(Box::new(CudaGraph { topology, factors, on_host: OnHost::Patches(patch.degrees.to_vec(), owners) }) as _)
        })
    }
}

impl NeighborGraph<Cuda> for CudaGraph {
    /// Draws with replacement are left to the host, which merges entries with equal ids.
    fn source<'a>(
        &'a self,
        cuda: &'a Cuda,
        sampler: &NeighborSampler,
        batch_size: usize,
    ) -> Result<Option<Box<dyn NeighborSource<Cuda> + 'a>>, ComputeError> {
        if sampler.options().replace {
            return Ok(None);
        }
        let hops = sampler.fan_out().hops();
        let takes_all = hops.first() == Some(&Neighbors::All);
        let side = cuda.beside(OPERATION)?;
        let topology = Arc::clone(&self.topology);
        let sampler = match &self.on_host {
            OnHost::Whole(graph) => DeviceSampler::new(&side, topology, graph, sampler, batch_size)?,
            OnHost::Patches(degrees, owners) => {
                DeviceSampler::of_patches(&side, topology, owners.clone(), degrees, (sampler, batch_size))?
            }
        };
        let is_collective = matches!(self.on_host, OnHost::Patches(_, Some(_)));
        let sampled = Prefetch::new(cuda, side, sampler, is_collective)?;
        let lanes = if hops.contains(&Neighbors::All) { LANES_OF_ALL } else { LANES };
        let defines = vec![("LANES", lanes.to_string())];
        let kernel = cuda.variant(OPERATION, Source::NEIGHBORHOODS, "rows_of_draws", &defines)?;
        Ok(Some(Box::new(CudaNeighbors { cuda, graph: self, sampled, takes_all, offsets: None, kernel, lanes })))
    }
}

impl NeighborSource<Cuda> for CudaNeighbors<'_> {
    fn request(&mut self, seeds: &[NodeId], key: DrawKey) -> Result<(), ComputeError> {
        self.sampled.request(self.cuda, seeds, key)?;
        self.offsets = self.offsets_of(seeds);
        Ok(())
    }

    fn take(&mut self) -> Result<NeighborBatch<Cuda>, ComputeError> {
        let sizes = self.sampled.take(self.cuda)?;
        let offsets = self.offsets.take();
        let batch = &self.sampled.batch;
        let n_hops = batch.words.n_hops;
        let blocks: Result<Vec<_>, ComputeError> =
            (0..n_hops).rev().map(|hop| self.block(&sizes, hop, offsets.as_deref().filter(|_| hop == 0))).collect();
        let is_global = batch.options.inputs == Columns::Global;
        let n_found = sizes.n_nodes.last().copied().unwrap_or(0) as usize;
        Ok(NeighborBatch {
            blocks: blocks?,
            inputs: if is_global { None } else { Some(self.first_nodes(n_found)?) },
            n_inputs: if is_global { self.graph.topology.n_nodes() } else { n_found },
        })
    }
}

impl CudaNeighbors<'_> {
    /// Offsets of the rows of seeds that have all their neighbors, if the host has the graph.
    fn offsets_of(&self, seeds: &[NodeId]) -> Option<Vec<u64>> {
        let OnHost::Whole(graph) = &self.graph.on_host else { return None };
        let loops = usize::from(self.graph.factors.has_loops);
        let ends = seeds.iter().scan(0, |end, &seed| {
            *end += (graph.degree(seed as usize) + loops) as u64;
            Some(*end)
        });
        self.takes_all.then(|| iter::once(0).chain(ends).collect())
    }

    /// Rows of a hop. With known offsets, long rows are split among several warps.
    fn block(
        &self,
        sizes: &BatchSizes,
        hop: usize,
        offsets: Option<&[u64]>,
    ) -> Result<NeighborBlock<Cuda>, ComputeError> {
        let (cuda, batch, CudaGraph { topology, factors, .. }) = (self.cuda, &self.sampled.batch, self.graph);
        let is_global = hop >= batch.n_local_hops();
        let n_rows = sizes.n_nodes[hop] as usize;
        let n_columns = if is_global { topology.n_nodes() } else { sizes.n_nodes[hop + 1] as usize };
        let nnz = batch.n_edges_of(sizes, hop) + if factors.has_loops { n_rows } else { 0 };
        let of_rows = factors.are_of_rows();
        let indptr: Buffer<u64> = cuda.scratch(OPERATION, n_rows + 1)?;
        let indices: Buffer<u32> = cuda.scratch(OPERATION, nnz)?;
        let row_factors = if of_rows { Some(cuda.scratch::<f32>(OPERATION, n_rows)?) } else { None };
        let values = if of_rows { None } else { Some(cuda.scratch::<f32>(OPERATION, nnz)?) };
        let local = batch.columns.as_ref().filter(|_| !is_global).unwrap_or(&batch.sources);
        let drawn = Drawn {
            nodes: cuda.pointer(Some(&batch.nodes)),
            indptr: cuda.pointer(Some(&batch.indptr)) + (batch.first_offset(hop) * size_of::<u64>()) as u64,
            columns: cuda.pointer(Some(local)),
            edge_ids: cuda.pointer(batch.edge_ids.as_ref()),
            n_rows: n_rows as u64,
            are_global: u32::from(is_global),
            has_loops: u32::from(factors.has_loops),
            out_indptr: cuda.pointer(Some(&indptr)),
            out_indices: cuda.pointer(Some(&indices)),
            factors: cuda.pointer(row_factors.as_ref()),
            values: cuda.pointer(values.as_ref()),
        };
        let weighing = Weighing {
            graph: topology.indptr_address(cuda),
            left: cuda.pointer(factors.left.as_ref()),
            right: cuda.pointer(factors.right.as_ref()),
            stored: cuda.pointer(factors.stored.as_ref()),
            loops: cuda.pointer(factors.loops.as_ref()),
        };
        let mut launch = cuda.device.stream.launch_builder(&self.kernel);
        launch.arg(&drawn).arg(&weighing);
        // SAFETY: the batch was made on the graph that the factors are of, its sizes are the reported ones, and it
        // keeps places of edges where these have weights; there is space for an entry of each edge and loop.
        unsafe { launch.launch(threads_for(n_rows.max(1).saturating_mul(self.lanes))) }
            .map_err(Cuda::failed(OPERATION))?;
        // No row has more entries than neighbors: if their totals are equal, so are those of each row.
        let offsets = offsets.filter(|offsets| offsets.len() == n_rows + 1 && offsets[n_rows] == nnz as u64);
        let forward = CudaCsr {
            shape: Shape::new(n_rows, n_columns),
            nnz,
            indptr,
            indices,
            values,
            positions: None,
            hubs: offsets.map(|offsets| cuda.upload_hubs(OPERATION, offsets)).transpose()?.flatten(),
            tiles: TileCache::none(),
        };
        Ok(NeighborBlock {
            rows: CudaSparse::of_device(forward, row_factors),
            n_destinations: n_rows,
            destinations: if is_global { Some(self.first_nodes(n_rows)?) } else { None },
        })
    }

    /// First nodes of the batch, copied to memory of their own.
    fn first_nodes(&self, n: usize) -> Result<CudaIds, ComputeError> {
        self.sampled.batch.first_nodes(self.cuda, n)
    }
}

impl Drop for CudaNeighbors<'_> {
    /// Waits until the device no longer reads or writes the memory; a rank that has failed is not waited for.
    fn drop(&mut self) {
        self.sampled.finish(self.cuda);
    }
}
