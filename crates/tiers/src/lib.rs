//! Where the topology and the features of sampled training lie: on cards, in host memory, on disk.
//!
//! ```text
//! Hotness ──▶ AccessFrequency: how often each node is read, hottest first ─┐
//! Visits: what batches read, counted ──▶ Reads of a batch ──────┤
//! Room: cards and their memory; Rates: what reading costs ──────┴──▶ Planner ──▶ TierPlan
//!                                                                                two Placements: a place for each node
//! ```
//! All of it is plain data, made without a card: DSP's layout (Cai et al., PPoPP 2023, section 4) as a plan. Topology
//! lies whole on every card, or in patches ([`Cut`]) over the cards, or its hot rows do and the others in pinned host
//! memory. Of the features the hottest rows may lie on every card, the next ones each on one card, together one cache,
//! the others in host memory and on disk.
//!
//! - [`Planner`]: start here.
//! - [`Hotness`]: which nodes are hot, and [`AccessFrequency`].
//! - [`Visits`]: what batches of the actual sampler read.
//! - [`Placement`]: tier, card and slot of every node.
//! - [`Storage`]: what rows take where they lie.
//! - [`Rates`]: what a read from each tier costs.
//! - [`CacheShares`]: a placement without a planner.
//! - [`HostReads`]: how cards get what the host has.
//!
//! Not here: moving anything there, and cutting a graph into patches.

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
pub use plan::{Part, Planner, Room, TierPlan, TierUse};
pub use rates::{Rate, Rates};
pub use shares::CacheShares;
pub use storage::Storage;
pub use visits::{PRESAMPLED_EPOCH, Reads, Visits};
