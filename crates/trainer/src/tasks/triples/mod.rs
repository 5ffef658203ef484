//! Completion of knowledge graphs: the tail of a head and a relation, and the head of a relation and a tail.
//!
//! ```text
//! triple (h, r, t) ─▶ queries (h, r) → t   and   (t, r + R) → h, with R relations
//! entity's row, relation's row ──Decoder──▶ query row ──▶ a score for each entity ──▶ softmax loss, or rank
//! ```
//! - [`Query`]: an entity and a relation, whose other entity is asked for. Each relation has a second row for
//!   queries about heads, its reciprocal (Lacroix et al., ICML 2018), so that all queries are of one kind, in training
//!   and in evaluation.
//! - [`Decoder`]: query rows and scores.
//! - [`Known`]: all answers that are known to be right, which do not count in ranks.
//! - [`TripleTrainer`]: one run.

mod batch;
mod decoder;
mod epochs;
mod queries;
mod rank;
mod session;
mod train;

pub use decoder::{CandidatePairs, Decoder};
pub use epochs::{QueryList, TripleEpochs};
pub use queries::{Known, Query};
pub use session::score_triples;
pub(crate) use session::{TripleSession, embeddings};
pub use train::TripleTrainer;
