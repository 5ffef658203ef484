//! Placement of the topology and the features of sampled training on GPUs, in host memory and on disk.
//!
//! ```text
//! Hotness ──▶ AccessFrequency: how often each node is read, hottest first ─┐
//! Visits: counted reads of batches ──▶ Reads of a batch ────────┤
//! Room: GPUs and their memory; Rates: costs of reads ───────────┴──▶ Planner ──▶ TierPlan
//!                                                                                two Placements: a place for each node
//! ```
//! All of it is plain data, made without a GPU: DSP's layout (Cai et al., PPoPP 2023, section 4) as a plan. The
//! topology is whole on every GPU, in patches ([`Cut`]) over the GPUs, or split: hot rows on GPUs, the others in
//! pinned host memory. The hottest feature rows may be on every GPU, and the next ones on one GPU each, which form
//! one cache. The others are in host memory and on disk.
//!
//! - [`Planner`]: start here.
//! - [`Hotness`]: sources of the access frequency of nodes, and [`AccessFrequency`].
//! - [`Visits`]: counted reads of batches of the actual sampler.
//! - [`Placement`]: tier, GPU and slot of every node.
//! - [`Storage`]: memory of rows and their lists in each tier.
//! - [`Rates`]: cost of a read from each tier.
//! - [`CacheShares`]: a placement without a planner.
//! - [`HostReads`]: how GPUs read rows of host memory.
//!
//! Elsewhere: moving data to its place, and cutting a graph into patches.

#![forbid(unsafe_code)]

mod cache_plan;
mod error;
mod host_reads;
mod hotness;
mod placement;
mod rates;

pub use cache_plan::{Cut, Part, Planner, Room, Storage, TierPlan, TierUse};
pub use error::TierError;
pub use host_reads::{HostMeans, HostReads, HostRowSizes};
pub use hotness::{
    AccessFrequencies, AccessFrequency, Hotness, PRESAMPLED_EPOCH, PageRank, Reads, Visits, page_rank,
    reverse_page_rank,
};
pub use placement::{CacheShares, Holder, Place, Placement, Span, Tier};
pub use rates::{Rate, Rates};
