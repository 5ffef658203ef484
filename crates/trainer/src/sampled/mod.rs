//! Training on mini-batches: each step sees some nodes and what it takes to compute them.
//!
//! ```text
//! threads of a pipeline, ahead of the step                  the step
//! seeds ──sampler──▶ blocks or subgraph ──▶ rows of Â       upload ─▶ forward, loss of the seeds ─▶ backward ─▶ optimiser
//!        keys only                      Neighborhoods        Inputs of the batch
//! ```
//! - [`Neighborhoods`]: what samplers draw from, and the rows of `Â` that their draws stand for.
//! - [`Batches`]: the batches of an epoch, made from keys alone, so that results depend neither on threads nor on where
//!   a run was interrupted.
//! - [`Batch`](batch::Batch): one of them on the device: another [`Inputs`](crate::Inputs), so that models do not know
//!   of it.
//! - [`MiniBatch`]: a run.
//! - [`Held`]: graph and features where every rank holds a patch of both, or of features.
//! - [`CacheConfig`]: where devices have what they sample from and read.
//! - [`CachePlan`]: these, for the memory that there is.
//! - [`Layerwise`]: scores, where the graph does not fit at once.
//! - [`BatchPlan`]: the largest batch that there can be, for plans.
//!
//! Scores are those of the full graph, without sampling, by the same [`Scorer`](crate::scorer::Scorer) as those of
//! full-batch runs. What an aggregate over a sampled row estimates is the aggregate over the whole row, so that
//! parameters mean the same in both.

mod batch;
mod batches;
mod device;
mod division;
mod layerwise;
mod neighborhoods;
mod patch_devices;
mod patches;
mod plan;
mod session;
mod split_rows;
mod subgraphs;
mod tiers;
mod together;
mod train;

pub(crate) use batches::Batches;
pub use division::CachePlan;
pub(crate) use layerwise::{Layerwise, NODES_AT_ONCE, scores_by_layers};
pub use neighborhoods::Neighborhoods;
pub(crate) use patches::{Held, check_patches, check_patches_of};
pub use plan::RowsOnDevice;
pub(crate) use plan::{BatchPlan, LayerCosts, LayerPlan, PlacedRows};
pub(crate) use session::{MiniBatchData, Prepared, raw, sampled_by_device};
pub use tiers::{CacheConfig, CacheReport};
pub use train::MiniBatch;
