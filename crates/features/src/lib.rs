//! Rows and graphs for mini-batches: where they lie, and how devices read them.
//!
//! A mini-batch reads single rows of the features and of the adjacency. Rows lie in the memory of a device, of other
//! devices, of the host or of other hosts, plain or as codes. Reading them looks the same everywhere:
//! - `store`: [`FeatureStore`], rows that a device reads by id. Start here.
//! - `host`: [`HostRows`], rows in memory of the host, for its threads.
//! - `remote`: [`SplitRows`] and [`PatchRowsOperand`], rows distributed over ranks.
//! - `neighbors`: [`NeighborGraph`] and [`NeighborSource`], mini-batches that a device samples by itself.
//! - `device`: [`FeatureDevice`] and [`SamplingDevice`], the devices that make these; a [`MiniBatchBackend`] is both.
//!
//! The places of rows are plain data, made without a GPU: DSP's layout (Cai et al., PPoPP 2023, section 4) as a plan.
//! ```text
//! Hotness ──▶ AccessFrequency: how often each node is read, hottest first ─┐
//! Visits: counted reads of batches ──▶ Reads of a batch ────────┤
//! MemoryBudget: GPUs and their memory; Rates: costs of reads ───┴──▶ Planner ──▶ TierPlan
//!                                                                                two Placements: a place for each node
//! ```
//! The topology is whole on every GPU, in patches ([`Cut`]) over the GPUs, or split: hot rows on GPUs, the others in
//! pinned host memory. The hottest feature rows may be on every GPU, and the next ones on one GPU each, which form
//! one cache. The others are in host memory and on disk.
//! - `placement`: [`Placement`], the tier, GPU and slot of every node; [`CacheShares`], a placement without a planner.
//! - `hotness`: [`Hotness`], sources of the access frequency of nodes; [`Visits`], counted reads of the actual sampler.
//! - `cache_plan`: [`Planner`], which divides memory; [`Storage`], memory of rows and their lists in each tier.
//! - `rates`: [`Rates`], cost of a read from each tier.
//! - `host_reads`: [`HostReads`], how GPUs read rows of host memory.
//!
//! Elsewhere: kernels that move rows (`girih-kernels`), exchanges of ranks (`girih-collective-sampling`), and cutting
//! a graph into patches (`girih-partition`).

#![forbid(unsafe_code)]

mod cache_plan;
mod device;
mod error;
mod host;
mod host_reads;
mod hotness;
mod neighbors;
mod placement;
mod rates;
mod remote;
mod store;

pub use cache_plan::{Cut, MemoryBudget, Planner, RowPlacement, Storage, TierPlan, TierUse};
pub use device::{ByTransport, FeatureDevice, MiniBatchBackend, SamplingDevice};
pub use error::TierError;
pub use host::{HostFeatures, HostRows};
pub use host_reads::{HostMeans, HostReads, HostRowSizes};
pub use hotness::{
    AccessFrequencies, AccessFrequency, Hotness, PRESAMPLED_EPOCH, PageRank, Reads, Visits, page_rank,
    reverse_page_rank,
};
pub use neighbors::{
    NeighborBatch, NeighborBlock, NeighborGraph, NeighborOperand, NeighborSource, PatchOperand, SelfLoops,
};
pub use placement::{CacheShares, Holder, Place, Placement, Span, Tier};
pub use rates::{Rate, Rates};
pub use remote::{FetchRows, FetchedRows, PatchRowsOperand, SplitRows, StoredAs};
pub use store::{FeatureStore, Pending, PendingRows, PendingSums, RowSums, WritableStore};

/// Program of the README, which is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
