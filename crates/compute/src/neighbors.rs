//! [`NeighborGraph`] and [`NeighborSource`]: mini-batches that a device samples by itself, and leaves where they are
//! used.
//!
//! ```text
//! NeighborGraph   a graph where the device draws from it, for any number of sources
//! NeighborSource  request: seeds, key ──▶ the device draws ──▶ take: a NeighborBlock for each layer, rows of Â that draws stand for
//! ```
//! What is drawn is what the [`NeighborSampler`] of the host draws, to the bit; what rows hold is
//! what [`NeighborOperand`] says.

use girih_graph_format::{Csr, NodeId, Scales};
use girih_sampling::{DrawKey, NeighborSampler};
use girih_tiers::Placement;

use crate::{Backend, ComputeError};

/// A graph to draw neighbours from, with what makes rows of its normalised adjacency `Â` out of them.
///
/// A row of a sampled block holds, for a node `v` and each source `u` that was drawn,
/// ```text
/// left[v] · A[v, u] · right[u] · deg(v) / draws of v
/// left[v] · loop of v · right[v]                         exactly, where nodes are their own neighbours
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NeighborOperand<'a> {
    /// `A`, which is drawn from: without self loops where `loops` adds them.
    pub graph: &'a Csr,
    /// `left` and `right`, a factor for each node; one where there are none.
    pub scales: &'a Scales,
    /// The weight of a node's edge to itself.
    pub loops: SelfLoops<'a>,
    /// Where neighbours lie that are drawn from; `None`: all on the device. Of several ranks in one process all have
    /// one, or none has, and each holds a part.
    pub placement: Option<&'a Placement>,
}

/// A graph without weights of which every rank has the rows of its patch, a range of nodes: what a rank tells its
/// device of it.
///
/// Rows of sampled blocks hold what those of a [`NeighborOperand`] hold.
#[derive(Clone, Copy, Debug)]
pub struct PatchOperand<'a> {
    /// The rows of `A` of this rank's patch; columns are all nodes.
    pub rows: &'a Csr,
    /// Where the patch of each rank begins, and, last, how many nodes there are.
    pub bounds: &'a [NodeId],
    /// How many entries each row of `A` has, of all nodes.
    pub degrees: &'a [u32],
    /// As of the whole graph.
    pub scales: &'a Scales,
    /// As of the whole graph.
    pub loops: SelfLoops<'a>,
}

/// What a node's edge to itself weighs in `A`.
#[derive(Clone, Copy, Debug)]
pub enum SelfLoops<'a> {
    /// There is none but those that the graph has.
    AsDrawn,
    /// Every node has one, of weight one.
    Ones,
    /// Every node has one of these.
    Weights(&'a [f32]),
}

/// Rows for one layer of a mini-batch.
pub struct NeighborBlock<B: Backend> {
    /// `n_destinations × n_sources`; or, where sources keep their global ids, a column for each node of the graph.
    pub rows: B::Sparse,
    /// How many destinations there are. They are the first of the sources.
    pub n_destinations: usize,
    /// Where columns are nodes of the graph, the node that each destination is.
    pub destinations: Option<B::Ids>,
}

/// A mini-batch on the device.
pub struct NeighborBatch<B: Backend> {
    /// In the order of layers, that at the inputs first.
    pub blocks: Vec<NeighborBlock<B>>,
    /// The nodes that the first layer reads; `None` where its columns are nodes of the graph.
    pub inputs: Option<B::Ids>,
    /// How many rows the first layer may read.
    pub n_inputs: usize,
}

/// A graph that a device draws from.
pub trait NeighborGraph<B: Backend>: Send + Sync {
    /// Mini-batches of at most `batch_size` seeds, drawn as `sampler` would; `None` where the device does not draw so.
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

/// Samples mini-batches on a device. One batch is asked for at a time, ahead of its use: work that is begun between
/// [`request`](Self::request) and [`take`](Self::take) keeps the device busy while the host waits for sizes.
pub trait NeighborSource<B: Backend>: Send {
    /// Asks for a batch, and does not wait for it. One that was asked for and not taken is forgotten.
    ///
    /// # Errors
    /// When a seed is no node, there are more than the batch size, or the device fails.
    fn request(&mut self, seeds: &[NodeId], key: DrawKey) -> Result<(), ComputeError>;

    /// The batch that was asked for last.
    ///
    /// # Errors
    /// When none was, a seed is listed twice, the memory of the device does not suffice, or it fails.
    fn take(&mut self) -> Result<NeighborBatch<B>, ComputeError>;
}
