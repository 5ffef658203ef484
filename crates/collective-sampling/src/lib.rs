//! Sampling by ranks that each hold a patch of a graph: the collective sampling primitive (Cai et al., DSP, PPoPP 2023,
//! section 5).
//!
//! ```text
//! rank 0   frontier ─┐ shuffle            ┌─ sample ─┐ reshuffle      ┌─▶ relabel ─▶ block
//! rank 1   frontier ─┼─ nodes to owners ─▶├─ sample ─┼─ neighbours ──▶├─▶ relabel ─▶ block
//! rank 2   nothing  ─┘                    └─ sample ─┘  back          └─▶ an empty block
//! ```
//! What travels is who asks and what was drawn, never a list of neighbours to draw from. Draws are keyed by the id of a
//! node in the numbering in which the graph is cut: the blocks of a rank are those of one rank with the whole graph in
//! that numbering, bit for bit, however many patches there are.
//!
//! - [`RankGraph`]: a rank's patch, and the way to the others: a [`Topology`](girih_sampling::Topology) to sample from.
//!   Start here.
//! - [`RankGraph::walk_until`]: random walks, whose state travels.
//! - [`RankGraph::values`]: what drawn edges weigh.
//! - [`RankRows`]: rows of features where they lie, asked for by id.
//! - [`Tally`]: what was sent, stage by stage.
//!
//! All ranks make every call together, in the same order; a rank that has nothing to ask for answers the others. Over
//! any [`Collective`](girih_comm::Collective), whose messages of bytes are all that is used.
//!
//! Not here: how nodes are cut (`girih-partition`, `girih-reorder`), what is done with blocks (`girih-trainer`).

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
