//! Training on ranks, and inference with a trained model on ranks. Each of them is a [`RankJob`],
//! and those on a model from outside are a [`ModelJob`].
//!
//! With mini-batches, each rank takes a share of the seeds of every batch. It holds the whole graph and all features,
//! or its [patch](GraphPlacement) of them: see [`MiniBatch`](crate::MiniBatch). The rest of this page is about
//! full-batch training, in which each rank holds some rows of every matrix with a row per node.
//!
//! ```text
//! rows of nodes   features, activations, gradients, labels      cut: a rank holds `own`, a range of ids
//! parameters      weights, their gradients, optimiser state     the same on every rank, to the bit; embeddings, which
//!                                                               have a row per node, cut as features are
//! adjacency       Â and Âᵀ in blocks                            as the plan says (girih-partition)
//! ```
//! Operations on single rows (products with weights, dropout, activations, layer normalisation) run as on one rank.
//! Random draws are keyed by global ids, so that masks and batches do not depend on the number of ranks. Ranks
//! communicate in a few places:
//!
//! - [`PartitionedGraph::multiply`]: sums over neighbors, step by step as the plan says;
//! - [`HaloExchange::fetch`](crate::tape::ranks::HaloExchange::fetch): rows of neighbors, for attention, maxima and sequences over a rank's own rows.
//!   Recommenders fetch the rows of the users and items of a rank's share of a batch;
//! - [`Ranks::sum`]: once a step, the loss and the gradients of parameters. Batch normalisation also sums over all
//!   nodes, in the forward and in the backward pass;
//! - [`Ranks::gather`]: predictions and embeddings, when scores are computed;
//! - [`Ranks::gather_on_first`]: embeddings and their optimiser state, when a checkpoint is written;
//! - [`Ranks::hand_rows`]: logits, when predictions are written.
//!
//! A rank reads only its own rows of a data set in a folder ([`DataSource`](girih_datasets::DataSource)). Messages
//! from other ranks tell it degrees and the rows of its own that others read. If the adjacency is not symmetric, they
//! also bring the entries of other ranks in its columns. Every rank has all interactions of a recommender.
//!
//! [`RankPlanner`] runs all of this as a dry run, for one rank after the other.
//!
//! All ranks call each of these operations, in one common order. Sums are added in the order of ranks, so that all
//! ranks get the same bits and their parameters never diverge.

mod apply;
pub(crate) mod data;
pub(crate) mod job;
pub(crate) mod train;

pub use crate::config::{GraphPlacement, RankOptions};
pub use crate::estimate::{CollectiveKind, Links, Network, RankPlanner, RankPlans, SymbolicGraph};
pub use crate::tape::ranks::{PartitionedGraph, Ranks};
pub use apply::{ApplyJob, RecommendJob};
pub use job::{ModelJob, RankJob, TakeLogits};
pub use train::TrainJob;
