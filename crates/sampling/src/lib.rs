//! Sampling of mini-batches: the part of a graph that a training step reads.
//!
//! ```text
//! SeedLoader ──seeds, key──▶ Sampler ──▶ MiniBatch: a Block for each layer
//!                         draw ──global ids──▶ relabel ──local ids
//! ```
//! Every draw is keyed by its position (seed, epoch, batch, hop, node), so a batch is equal on any thread, rank or
//! device. `docs/draws.md` defines it to the bit.
//!
//! - [`Sampler`]: from seeds to a [`MiniBatch`]. Start here.
//! - [`NeighborSampler`]: some neighbors of each node, hop by hop, with a [`FanOut`]; or of all nodes together, see
//!   [`Draws`].
//! - [`TypedSampler`]: neighbors by edge type in a typed graph, as a [`TypedBatch`].
//! - [`TimedSampler`]: neighbors by the edges that a seed sees at its time, as a [`TimedBatch`].
//! - [`Topology`]: the source of its draws: a graph, or [patches](Patch) of one that other ranks hold.
//! - [`LayerSampler`]: some nodes for a whole hop.
//! - [`Bias`] and [`ExcludedEdges`]: edges that are drawn with unequal chances, or not at all.
//! - [`Block`]: a bipartite graph for one layer. [`EdgeList`]: a batch as one list of edges.
//! - [`SeedLoader`]: the batches of an epoch, sampled on demand, or ahead by [threads](Epoch::on_threads).
//! - [`Subgraph`]: some nodes and the edges among them, for all layers; chosen by a [`SubgraphSampler`].
//! - [`ClusterSampler`]: some clusters of a graph at a time.
//! - [`SaintSampler`]: subgraphs of drawn nodes, edges or walks, with weights that correct for the rest.
//! - [`RandomWalks`]: walks from node to node.
//! - [`relabel`]: from global to local ids, in several ways.
//!
//! Not here: features of the nodes in a batch, and the computation of layers.

#![forbid(unsafe_code)]

mod bias;
mod block;
mod chances;
mod cluster;
mod draw;
mod edge_list;
mod error;
mod excluded;
mod fan_out;
mod key;
mod layer;
mod loader;
mod neighbor;
mod patch;
mod pool;
mod prefetch;
pub mod relabel;
mod saint;
mod sampler;
mod subgraph;
#[cfg(feature = "testing")]
pub mod testing;
mod timed;
mod topology;
mod typed;
mod walk;
mod walker;

pub use bias::Bias;
pub use block::{Block, Columns, MiniBatch, digest_of};
pub use cluster::ClusterSampler;
pub use draw::{DrawScratch, Draws};
pub use edge_list::{EdgeList, Index};
pub use error::SampleError;
pub use excluded::ExcludedEdges;
pub use fan_out::{FanOut, Neighbors};
pub use girih_graph_format::NodeId;
pub use key::DrawKey;
pub use layer::LayerSampler;
pub use loader::{Epoch, EpochPlan, LoaderOptions, SeedLoader};
pub use neighbor::{Expand, NeighborOptions, NeighborSampler};
pub use patch::Patch;
pub use prefetch::{Prefetched, PrefetchedEpoch};
pub use saint::SaintSampler;
pub use sampler::Sampler;
pub use subgraph::{Subgraph, SubgraphSampler};
pub use timed::{Admits, Bound, Strategy, TimeRule, TimedBatch, TimedOptions, TimedSampler, TimedSeed};
pub use topology::{DrawnHop, Hop, HopSource, Topology};
pub use typed::{
    FanOutRules, RelationRows, TypedBatch, TypedBlock, TypedEdgeList, TypedExcluded, TypedFanOut, TypedOptions,
    TypedSampler, TypedSeeds,
};
pub use walk::{Node2Vec, RandomWalks, WalkOptions, Walks};
pub use walker::Walker;

/// Program of the README, which is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
