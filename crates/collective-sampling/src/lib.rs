//! Sampling by ranks that each hold a patch of a graph: the collective sampling primitive (Cai et al., DSP, PPoPP
//! 2023, section 5).
//!
//! ```text
//! rank 0   frontier ─┐ shuffle            ┌─ sample ─┐ reshuffle      ┌─▶ relabel ─▶ block
//! rank 1   frontier ─┼─ nodes to owners ─▶├─ sample ─┼─ neighbors ──▶├─▶ relabel ─▶ block
//! rank 2   nothing  ─┘                    └─ sample ─┘  back          └─▶ an empty block
//! ```
//! Messages carry requests and draws, never whole neighbor lists. Draws are keyed by the id of a node in the
//! numbering of the partition. So the blocks of a rank have the same bits as those of a single rank with the whole
//! graph in this numbering, for any number of patches.
//!
//! - [`RankGraph`]: patch of a rank, with access to the others: a [`Topology`](girih_sampling::Topology) to sample
//!   from. Start here.
//! - [`RankGraph::walk_until`]: random walks that move between ranks.
//! - [`RankGraph::values`]: values of drawn edges.
//! - [`RankRows`]: feature rows of all ranks, gathered by id.
//! - [`Tally`]: bytes and messages sent, by stage.
//!
//! All ranks make every call together, in the same order. A rank without requests answers those of others. Any
//! [`Collective`](girih_comm::Collective) works: only its exchanges of bytes are used.
//!
//! Not here: partitioning of nodes (`girih-partition`, `girih-reorder`), and training on blocks (`girih-trainer`).

#![forbid(unsafe_code)]

mod error;
mod exchange;
mod graph;
mod rows;
mod tally;
mod values;
mod walks;
mod wire;

pub use error::CollectiveError;
pub use graph::RankGraph;
pub use rows::{FoundRows, RankRows, SpareReplies};
pub use tally::{Sent, Tally};

/// Program of the README, which is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
