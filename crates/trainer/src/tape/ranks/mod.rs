//! One rank among several: its world, its rows, and products whose operands other ranks send.
//!
//! - [`Ranks`]: this rank, its groups, and messages among them.
//! - [`PartitionedGraph`]: products with the blocks of the adjacency that a rank holds.
//! - [`HaloExchange`]: rows of neighbors from their owners.
//!
//! [`crate::distributed`] explains how training uses them.

pub(crate) mod blocks;
mod context;
pub(crate) mod first;
mod halo;
mod looped;
pub(crate) mod operand;
mod partitioned_graph;
mod spmm;

pub(crate) use blocks::{
    AllScales, BlockSource, Blocks, Chunks, HostBlocks, PanelExchange, Panels, Pattern, StepGroup,
};
pub use context::Ranks;
pub(crate) use context::{HANDED, failed};
pub(crate) use first::{broadcast_from_first, decode_message, encode_message, run_on_first};
pub(crate) use halo::{HaloExchange, HaloPlan};
pub(crate) use looped::LoopedRows;
pub(crate) use operand::{EpilogueBackward, LazyGemm, LocalOperand};
pub use partitioned_graph::PartitionedGraph;
pub(crate) use spmm::OverlappedWork;
