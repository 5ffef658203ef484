//! Orders of nodes: numberings that bring neighbors together, for caches and for dense tiles.
//!
//! A product with a sparse matrix gathers one row of the operand per entry. Its time depends on which rows are in the
//! cache, and so on the numbering of nodes. An order is computed once, before training, and applied to graph,
//! features, labels and splits together.
//!
//! - [`Reorder`]: a method that numbers nodes; [`OrderKind`] names the methods of girih. Start here.
//! - [`Degree`], [`SlashBurn`], [`ReverseCuthillMckee`], [`MetisClusters`]: the orders of Miao et al. (Journal of
//!   Software 34(9), 2023); [`Community`] goes beyond them.
//! - [`Blockwise`]: any order inside equal ranges of ids, which keeps the balance of a partition; [`Parts`]: ranges
//!   with few edges between them.
//! - [`Auto`]: predicts the gain of each order on a device, and picks one.
//! - `spy`: pictures of adjacencies, with the feature `plots`.
//! - [`quality`]: metrics of an order, for caches and for tiles.
//!
//! Elsewhere: uses of an order.

#![forbid(unsafe_code)]

mod auto;
mod blockwise;
mod clusters;
mod community;
mod error;
mod kind;
mod parts;
pub mod quality;
mod rcm;
mod simple;
mod slashburn;
#[cfg(feature = "plots")]
pub mod spy;
mod streaming;
#[cfg(feature = "testing")]
pub mod testing;

use std::borrow::Cow;

use girih_graph_format::{Csr, Permutation};

pub use auto::{Auto, Choice, Tried};
pub use blockwise::Blockwise;
pub use clusters::{MetisClusters, clusters};
pub use community::Community;
pub use error::ReorderError;
pub use kind::OrderKind;
pub use parts::Parts;
pub use quality::Quality;
pub use rcm::ReverseCuthillMckee;
pub use simple::{Degree, Identity, Random};
pub use slashburn::SlashBurn;
pub use streaming::streaming_clusters;

/// Method that numbers the nodes of a graph.
pub trait Reorder: Send + Sync {
    /// Name of the order, as on the command line and in results.
    fn name(&self) -> String;

    /// Computes the order of `graph`: old id `v` becomes `permutation.map(v)`. Orders that need an undirected graph
    /// say so in their documentation, and take each edge in both directions. The result does not depend on the number
    /// of threads.
    ///
    /// # Errors
    /// When `graph` is not square, or is too large for the method.
    fn order(&self, graph: &Csr) -> Result<Permutation, ReorderError> {
        self.order_with(graph, &|_| ())
    }

    /// As [`order`](Self::order), but reports progress to `progress` from time to time.
    ///
    /// # Errors
    /// As [`order`](Self::order).
    fn order_with(&self, graph: &Csr, progress: &Progress<'_>) -> Result<Permutation, ReorderError>;
}

/// Progress callback. Its argument is the finished share of the work, in `0.0..=1.0`, which never falls. Any thread
/// may call it. Methods that cannot estimate their progress do not call it.
pub type Progress<'p> = dyn Fn(f64) + Sync + 'p;

/// Returns an error if the matrix is not square, and so no adjacency.
fn square(graph: &Csr) -> Result<(), ReorderError> {
    if graph.is_square() {
        return Ok(());
    }
    Err(ReorderError::invalid(format!(
        "a matrix of {} × {} has no order of nodes; rows and columns have to be the same nodes",
        graph.n_rows(),
        graph.n_cols()
    )))
}

/// Graph with each edge in both directions, without weights.
fn undirected(graph: &Csr) -> Cow<'_, Csr> {
    if graph.is_symmetric() {
        return Cow::Borrowed(graph);
    }
    Cow::Owned(graph.symmetrized())
}

/// Program of the README, which is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
