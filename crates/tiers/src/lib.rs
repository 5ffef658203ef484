//! Placement of the topology and the features of sampled training on GPUs, in host memory and on disk.
//!
//! ```text
//! Hotness ──▶ AccessFrequency: how often each node is read, hottest first ─┐
//! Visits: counted reads of batches ──▶ Reads of a batch ────────┤
//! MemoryBudget: GPUs and their memory; Rates: costs of reads ───┴──▶ Planner ──▶ TierPlan
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

mod cost;
mod cut;
mod error;
mod features;
mod host_reads;
mod hotness;
mod pagerank;
mod placement;
mod plan;
mod rates;
mod shares;
mod storage;
mod topology;
mod visits;

pub use cut::Cut;
pub use error::TierError;
pub use host_reads::{HostMeans, HostReads, HostRowSizes};
pub use hotness::{AccessFrequencies, AccessFrequency, Hotness};
pub use pagerank::{PageRank, page_rank, reverse_page_rank};
pub use placement::{Holder, Place, Placement, Span, Tier};
pub use plan::{MemoryBudget, Planner, RowPlacement, TierPlan, TierUse};
pub use rates::{Rate, Rates};
pub use shares::CacheShares;
pub use storage::Storage;
pub use visits::{PRESAMPLED_EPOCH, Reads, Visits};
