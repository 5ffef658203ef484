//! [`NeighborGraph`] and [`NeighborSource`]: mini-batches that a device samples and keeps in its own memory.
//!
//! ```text
//! NeighborGraph   graph on the device, for any number of sources
//! NeighborSource  request: seeds, key ──▶ the device draws ──▶ take: one NeighborBlock for each layer
//! ```
//! The device draws bit for bit the sample of the host's [`NeighborSampler`]. [`NeighborOperand`] defines the values
//! of the rows.

use girih_compute::{ComputeError, Memory};
use girih_graph_format::{Csr, NodeId, Scales};
use girih_sampling::{DrawKey, NeighborSampler};

use crate::Placement;

/// Graph to sample neighbors from, with the scales of its normalised adjacency `Â`.
///
/// The row of a node `v` in a sampled block has an entry for each drawn source `u`, and one for the self loop if
/// there is one:
/// ```text
/// left[v] · A[v, u] · right[u] · deg(v) / draws of v
/// left[v] · loop of v · right[v]                         exactly, if nodes have self loops
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NeighborOperand<'a> {
    /// Adjacency `A` to draw from. It has no self loops if `loops` adds them.
    pub graph: &'a Csr,
    /// Normalisation `left` and `right`, one factor per node; 1 if absent.
    pub scales: &'a Scales,
    /// Weight of the self loop of each node.
    pub loops: SelfLoops<'a>,
    /// Placement of the rows of the graph; `None` places all on the device. The ranks of a process either all have
    /// one or all have none. With one, each rank holds a part.
    pub placement: Option<&'a Placement>,
}

/// Rank's patch of an unweighted graph: the rows of a range of nodes, for the rank's device.
///
/// Rows of sampled blocks have the values of [`NeighborOperand`].
#[derive(Clone, Copy, Debug)]
pub struct PatchOperand<'a> {
    /// Rows of `A` in this rank's patch; columns are global node ids.
    pub rows: &'a Csr,
    /// First node of each rank's patch, followed by the number of nodes.
    pub bounds: &'a [NodeId],
    /// Degree of each node of the whole graph: the number of entries of its row of `A`.
    pub degrees: &'a [u32],
    /// For the whole graph, as in [`NeighborOperand`].
    pub scales: &'a Scales,
    /// For the whole graph, as in [`NeighborOperand`].
    pub loops: SelfLoops<'a>,
}

/// Weights of the self loops in `A`.
#[derive(Clone, Copy, Debug)]
pub enum SelfLoops<'a> {
    /// No self loops besides those of the graph.
    AsDrawn,
    /// A self loop of weight 1 for every node.
    Ones,
    /// A self loop of the given weight for every node (one weight per node).
    Weights(&'a [f32]),
}

/// Sampled block of one layer of a mini-batch.
pub struct NeighborBlock<B: Memory> {
    /// Adjacency of the block, `n_destinations × n_sources`. If sources keep their global ids, it has a column for
    /// each node of the graph.
    pub rows: B::Sparse,
    /// Number of destinations. They are the first of the sources.
    pub n_destinations: usize,
    /// Global id of each destination; present only if columns are global ids.
    pub destinations: Option<B::Ids>,
}

/// Mini-batch on the device.
pub struct NeighborBatch<B: Memory> {
    /// Blocks in the order of layers, input layer first.
    pub blocks: Vec<NeighborBlock<B>>,
    /// Global ids of the input nodes of the first layer; `None` if its columns are global ids.
    pub inputs: Option<B::Ids>,
    /// Number of feature rows that the first layer may read.
    pub n_inputs: usize,
}

/// Graph from which a device samples.
pub trait NeighborGraph<B: Memory>: Send + Sync {
    /// Creates a source of mini-batches of at most `batch_size` seeds, drawn as `sampler` draws them. Returns `None`
    /// if the device does not support this sampler.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    fn source<'a>(
        &'a self,
        backend: &'a B,
        sampler: &NeighborSampler,
        batch_size: usize,
    ) -> Result<Option<Box<dyn NeighborSource<B> + 'a>>, ComputeError>;
}

/// Sampler of mini-batches on a device. The caller requests one batch at a time, ahead of its use. Work started
/// between [`request`](Self::request) and [`take`](Self::take) keeps the device busy while the host waits for sizes.
pub trait NeighborSource<B: Memory>: Send {
    /// Requests a batch without waiting for it. A pending request that was not taken is dropped.
    ///
    /// # Errors
    /// When a seed is no node, there are more than the batch size, or the device fails.
    fn request(&mut self, seeds: &[NodeId], key: DrawKey) -> Result<(), ComputeError>;

    /// Returns the requested batch.
    ///
    /// # Errors
    /// When there is no request, a seed is listed twice, the device's memory does not suffice, or the device fails.
    fn take(&mut self) -> Result<NeighborBatch<B>, ComputeError>;
}
