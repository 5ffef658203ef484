//! Links in time: whether an edge joins two nodes at its time, from the edges before it.
//!
//! ```text
//! edges in the order of time   │ train ············ │ val ···· │ test ···· │
//! (u, v, t) ──▶ seeds u, v and other destinations, all at t ──TimedSampler──▶ blocks of earlier edges ──▶ scores
//! ```
//! - [`EdgeRows`](edges::EdgeRows): features of the edges of blocks.
//! - [`TimedLinks`]: the edges of each part, and the batches that ask for them.
//! - [`TimedLinkSession`]: state that runs share.
//! - [`TimedScorer`](scorer::TimedScorer): scores of held-out edges, each from all edges before it.

mod edges;
pub(crate) mod links;
mod scorer;
mod session;

pub(crate) use links::{TimedEpoch, TimedLinks};
pub(crate) use session::{TimedLinkSession, embed_in_time};
