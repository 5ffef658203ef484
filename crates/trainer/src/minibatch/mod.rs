//! Training on mini-batches: each step computes some nodes, from the rows that they depend on.
//!
//! ```text
//! threads of a pipeline, ahead of the step               the step
//! seeds ──sampler──▶ blocks or subgraph ──▶ rows of Â    upload ─▶ forward, loss of the seeds ─▶ backward ─▶ update
//!        keys only                      Neighborhoods    Inputs of the batch
//! ```
//! - [`Neighborhoods`]: the graph that samplers draw from, and the rows of `Â` for their draws.
//! - [`Batches`]: the batches of an epoch. Random draws depend on keys alone, so that results depend neither on
//!   threads nor on interruptions of a run.
//! - [`Batch`](batch::Batch): a batch on the device. Models read it as [`Inputs`](crate::Inputs), as they read the
//!   full graph.
//! - [`MiniBatch`]: a run.
//! - [`TypedSession`]: runs on a typed graph, whose batches have blocks by edge type.
//! - [`TimedLinkSession`]: runs on links in time, whose batches see earlier edges alone.
//! - [`PatchData`]: the data of ranks that each hold a patch of graph and features, or of features.
//! - [`Placements`](tiers::Placements): the placement of features and graph on devices and hosts.
//! - [`Grown`]: a graph with new nodes, for predictions.
//! - [`Layerwise`](inference::Layerwise): layer-wise inference, where the graph does not fit at once.
//! - [`Scoring`](scoring::Scoring): scores of a classifier, in one pass or layer by layer.
//!
//! [`CachePlan`](crate::CachePlan) chooses a placement for the available memory.
//!
//! Scores are those of the full graph, without sampling, by the same [`Scorer`](crate::engine::Scorer) as those of
//! full-batch runs. An aggregate over a sampled row estimates the aggregate over the whole row, so that parameters
//! mean the same in both.

mod batch;
pub(crate) mod batches;
mod data;
mod device;
mod grown;
pub(crate) mod host_batch;
pub(crate) mod inference;
mod link_session;
mod neighborhoods;
pub(crate) mod partitioned;
mod policy;
mod prefetch;
mod scoring;
mod session;
mod subgraphs;
pub(crate) mod tiers;
pub(crate) mod timed;
mod train;
mod typed;

pub(crate) use batch::{FeatureSource, upload_block};
pub(crate) use batches::Batches;
pub(crate) use grown::Grown;
pub(crate) use host_batch::{HostBlock, rows_of};
pub(crate) use inference::NODES_AT_ONCE;
pub(crate) use link_session::LinkSession;
pub use link_session::{Embedded, embed, embed_model};
pub use neighborhoods::Neighborhoods;
pub(crate) use partitioned::{PatchData, PatchOptions, check_patches_of};
pub(crate) use policy::{no_neighbors, raw, reads_in_place, summed};
pub(crate) use scoring::method_of_scores;
pub(crate) use session::MiniBatchSession;
pub(crate) use tiers::{check_features, frequencies, frequencies_and_reads};
pub(crate) use timed::TimedLinkSession;
pub use train::MiniBatch;
pub(crate) use typed::TypedSession;
