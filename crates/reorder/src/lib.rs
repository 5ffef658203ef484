//! Orders of nodes: new numberings that bring neighbours together, for caches and for dense tiles.
//!
//! A product with a sparse matrix gathers one row of the operand per entry. What it costs depends on which rows lie in
//! the cache, and so on how nodes are numbered. An order is found once, before training, and applied to graph, features,
//! labels and splits together.

mod error;

use girih_graph_format::{Csr, Permutation};

pub use error::ReorderError;

/// A way to number the nodes of a graph.
pub trait Reorder: Send + Sync {
    /// The name of the order, as the command line and results spell it.
    fn name(&self) -> String;

    /// The order of `graph`: old id `v` becomes `permutation.map(v)`. Orders that need an undirected graph say so and
    /// take each edge in both directions. The result does not depend on the number of threads.
    ///
    /// # Errors
    /// When `graph` is not square, or is beyond what the method can number.
    fn order(&self, graph: &Csr) -> Result<Permutation, ReorderError>;
}
