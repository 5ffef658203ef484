//! Orders of nodes: new numberings that bring neighbours together, for caches and for dense tiles.
//!
//! A product with a sparse matrix gathers one row of the operand per entry. What it costs depends on which rows lie in
//! the cache, and so on how nodes are numbered. An order is found once, before training, and applied to graph,
//! features, labels and splits together.
//!
//! - [`Reorder`]: a way to number nodes; [`OrderKind`] names those that come with girih. Start here.
//! - [`Degree`], [`SlashBurn`], [`ReverseCuthillMckee`], [`MetisClusters`]: the orders of Miao et al. (Journal of
//!   Software 34(9), 2023); [`Community`] goes beyond them.
//! - [`Blockwise`]: any of them inside equal ranges of ids, which keeps the balance of a partition; [`Parts`]: ranges
//!   that few edges leave.
//! - [`Auto`]: predicts what each brings on a device, and picks one.
//! - [`quality`]: how good an order is, for caches and for tiles.
//!
//! Not here: what is done with an order.

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
mod streaming;

use std::borrow::Cow;

use girih_graph_format::{Csr, Permutation};

pub use auto::{Auto, Choice, Tried};
pub use blockwise::Blockwise;
pub use clusters::{MetisClusters, clusters};
pub use community::Community;
pub use error::ReorderError;
pub use kind::OrderKind;
pub use parts::Parts;
pub use rcm::ReverseCuthillMckee;
pub use simple::{Degree, Identity, Random};
pub use slashburn::SlashBurn;
pub use streaming::streaming_clusters;

/// A way to number the nodes of a graph.
pub trait Reorder: Send + Sync {
    /// The name of the order, as the command line and results spell it.
    fn name(&self) -> String;

    /// The order of `graph`: old id `v` becomes `permutation.map(v)`. Orders that need an undirected graph say so and
    /// take each edge in both directions. The result does not depend on the number of threads.
    ///
    /// # Errors
    /// When `graph` is not square, or is beyond what the method can number.
    fn order(&self, graph: &Csr) -> Result<Permutation, ReorderError> {
        self.order_with(graph, &|_| ())
    }

    /// As [`order`](Self::order), which tells `progress` from time to time how far it is.
    ///
    /// # Errors
    /// As [`order`](Self::order).
    fn order_with(&self, graph: &Csr, progress: &Progress<'_>) -> Result<Permutation, ReorderError>;
}

/// Is told which share of the work is done; from any thread, and never less than before. Methods that cannot tell say
/// nothing.
pub type Progress<'p> = dyn Fn(f64) + Sync + 'p;

/// Refuses what is no adjacency.
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

/// Each edge in both directions, without weights.
fn undirected(graph: &Csr) -> Cow<'_, Csr> {
    if graph.is_symmetric() {
        return Cow::Borrowed(graph);
    }
    Cow::Owned(graph.symmetrized())
}
