//! Training on ranks, and applying what was trained: each is a [`RankJob`]. On mini-batches each takes a share of the
//! seeds of every batch, and holds graph and features whole, or its [patch](GraphPlacement) of them: see
//! [`MiniBatch`](crate::MiniBatch). All else on this page is full-batch training, on ranks that each hold some rows of
//! everything that has a row per node.
//!
//! ```text
//! rows of nodes   features, activations, gradients, labels      cut: a rank holds `own`, a range of ids
//! parameters      weights, their gradients, optimiser state     the same on every rank, to the bit; embeddings, which
//!                                                               have a row per node, cut as features are
//! adjacency       Â and Âᵀ in blocks                            as the plan says (girih-partition)
//! ```
//! Whatever works on rows alone (products with weights, dropout, activations, layer normalisation) runs as on one rank;
//! draws are keyed by the ids of the whole, so that masks and batches are the same. Ranks meet in a few places:
//!
//! - [`PartitionedGraph::multiply`]: sums over neighbours, carried out step by step as the plan says;
//! - [`HaloExchange::fetch`]: rows of neighbours, for attention, maxima and sequences over a rank's own rows; and those of
//!   the users and items of a rank's share of a recommender's batch;
//! - [`Ranks::sum`]: the loss and the gradients of parameters, once a step, and the sums over all nodes that batch
//!   normalisation takes each way;
//! - [`Ranks::gather`]: predictions and embeddings, when scores are due;
//! - [`Ranks::gather_on_first`]: embeddings and their optimiser's state, when a checkpoint is;
//! - [`Ranks::hand_rows`]: logits, when predictions are written.
//!
//! A rank reads its own rows of the data alone, where they are in a folder
//! ([`DataSource`](girih_datasets::DataSource)), and learns by messages what it needs of others: degrees, which of its
//! rows they read, and, where the adjacency is not symmetric, their entries in its columns. Interactions of a
//! recommender are on every rank.
//!
//! [`RankPlanner`] runs all of this for one rank after the other on shapes alone.
//!
//! Every rank takes part in every one of them, in the same order. Sums are added in the order of ranks, so that all
//! ranks get the same bits and their parameters never drift apart.

mod adjacency;
mod apply;
mod blocks;
mod data;
mod first;
mod graph;
mod job;
mod looped;
mod mirror;
mod network;
mod operand;
mod planning;
mod product;
#[cfg(test)]
mod random_graphs;
mod ranks;
mod rows;
mod session;
mod symbolic;
#[cfg(test)]
mod tests;

pub use apply::{ApplyJob, RecommendJob, TakeLogits};
pub use graph::PartitionedGraph;
pub use job::RankJob;
pub use network::{Links, Network};
pub use planning::{RankPlanner, RankPlans};
pub use ranks::Ranks;
pub use session::{GraphPlacement, RankOptions, TrainJob};
pub use symbolic::SymbolicGraph;

pub(crate) use adjacency::{AllScales, PartitionedAdjacency};
pub(crate) use blocks::{BlockSource, Pattern};
pub(crate) use first::{first_does, first_tells, read_told, told};
pub(crate) use operand::{LazyGemm, LocalOperand, Through};
pub(crate) use product::OverlappedWork;
pub(crate) use rows::HaloExchange;
