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
//! - [`PatchData`]: the data of ranks that each hold a patch of graph and features, or of features.
//! - [`Placements`](tiers::Placements): the placement of features and graph on devices and hosts.
//! - [`CachePlan`]: such a placement for the available memory.
//! - [`Layerwise`]: layer-wise inference, where the graph does not fit at once.
//! - [`BatchPlan`]: the largest possible batch, for dry runs.
//!
//! Scores are those of the full graph, without sampling, by the same [`Scorer`](crate::scorer::Scorer) as those of
//! full-batch runs. An aggregate over a sampled row estimates the aggregate over the whole row, so that parameters
//! mean the same in both.

mod batch;
mod batches;
mod data;
mod device;
mod division;
mod layerwise;
mod neighborhoods;
mod patch_devices;
mod patches;
mod plan;
mod policy;
mod session;
mod split_rows;
mod subgraphs;
mod tiers;
mod together;
mod train;

pub(crate) use batches::Batches;
pub(crate) use data::{DataUse, MiniBatchData};
pub use division::CachePlan;
pub(crate) use layerwise::{NODES_AT_ONCE, scores_by_layers};
pub use neighborhoods::Neighborhoods;
pub(crate) use patches::{PatchData, PatchOptions, check_patches, check_patches_of};
pub use plan::RowsOnDevice;
pub(crate) use plan::{BatchPlan, LayerCosts, LayerPlan, PlannedRows};
pub(crate) use policy::raw;
pub(crate) use session::Prepared;
pub use train::MiniBatch;
