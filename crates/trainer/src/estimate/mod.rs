//! Predictions of memory and time: steps, mini-batches, links and ranks, computed by dry runs on shapes alone.

mod cache_plan;
mod links;
mod minibatch;
mod network;
mod plan;
mod ranks;
mod sizes;
mod step;
mod symbolic;
mod task;

#[cfg(test)]
pub(crate) use symbolic::SymbolicRank;

pub use cache_plan::CachePlan;
pub use minibatch::RowsOnDevice;
pub use network::{Links, Network};
pub(crate) use plan::Share;
pub use plan::{Plan, PlanDevice};
pub use ranks::{RankPlanner, RankPlans};
pub use sizes::{DataSizes, InteractionSizes};
pub use symbolic::SymbolicGraph;
