//! Predictions of memory and time, by dry runs of the training code on shapes alone.
//!
//! - [`DataSizes`]: sizes of a data set, the only input besides the configuration.
//! - [`Plan`]: bytes and seconds of a session. `step.rs` runs its step, `minibatch.rs` makes the largest batch.
//! - [`RankPlanner`]: plans of ranks, whose messages a [`Network`] times.
//! - [`CachePlan`]: shares of graph and features in the memory of devices.

mod cache_plan;
mod links;
mod minibatch;
mod network;
mod plan;
mod ranks;
mod sizes;
mod step;
pub(crate) mod symbolic;
mod task;

pub use cache_plan::CachePlan;
pub use minibatch::RowsOnDevice;
pub use network::{CollectiveKind, Links, Network};
pub(crate) use plan::Share;
pub use plan::{Plan, PlanDevice};
pub use ranks::{RankPlanner, RankPlans};
pub use sizes::{DataSizes, InteractionSizes, TypeFeatureSizes};
pub use symbolic::SymbolicGraph;
