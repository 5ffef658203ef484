//! [`Sampler`]: from seeds to a mini-batch.

use girih_graph_format::Csr;

use crate::relabel::NodeSet;
use crate::{Bias, DrawKey, MiniBatch, NodeId, SampleError};

/// Sampler of the part of a graph that a training step reads.
///
/// A mini-batch is a pure function of graph, seeds and key: equal on any number of threads, in any order of batches.
pub trait Sampler: Send + Sync {
    /// Samples blocks for `seeds`, one for each layer. A seed without neighbors keeps its row, which is empty.
    ///
    /// # Errors
    /// When the graph is not an adjacency, a seed is not one of its nodes or is listed twice.
    fn sample(&self, graph: &Csr, seeds: &[NodeId], key: DrawKey) -> Result<MiniBatch, SampleError> {
        let mut batch = MiniBatch::default();
        self.sample_into(graph, seeds, key, &mut batch)?;
        Ok(batch)
    }

    /// As [`sample`](Self::sample), but into the memory of an earlier batch, whose content is lost.
    ///
    /// # Errors
    /// As [`sample`](Self::sample); the content of `batch` is then unspecified, and its memory can be reused.
    fn sample_into(
        &self,
        graph: &Csr,
        seeds: &[NodeId],
        key: DrawKey,
        batch: &mut MiniBatch,
    ) -> Result<(), SampleError>;
}

impl<S: Sampler + ?Sized> Sampler for Box<S> {
    fn sample_into(
        &self,
        graph: &Csr,
        seeds: &[NodeId],
        key: DrawKey,
        batch: &mut MiniBatch,
    ) -> Result<(), SampleError> {
        (**self).sample_into(graph, seeds, key, batch)
    }
}

/// Checks that a graph is square, so that rows and columns are nodes of one set.
pub(crate) fn check_graph(graph: &Csr) -> Result<(), SampleError> {
    if graph.is_square() {
        return Ok(());
    }
    Err(SampleError::invalid(format!(
        "a matrix of {} × {} has no neighbors to sample; rows and columns have to be the same nodes",
        graph.n_rows(),
        graph.n_cols()
    )))
}

/// Checks that a graph is an adjacency with `n_nodes` nodes, as the sampler expects.
pub(crate) fn check_nodes(graph: &Csr, n_nodes: usize) -> Result<(), SampleError> {
    check_graph(graph)?;
    if graph.n_rows() == n_nodes {
        return Ok(());
    }
    Err(SampleError::invalid(format!(
        "the sampler was made for {n_nodes} nodes, but the graph has {}; make it from this graph",
        graph.n_rows()
    )))
}

/// Checks that weights, if any, belong to a graph.
pub(crate) fn check_bias(bias: Option<&Bias>, graph: &Csr) -> Result<(), SampleError> {
    match bias {
        Some(bias) if bias.n_edges() != graph.nnz() => Err(SampleError::invalid(format!(
            "the sampler has weights for {} edges, but the graph has {}; make them from this graph",
            bias.n_edges(),
            graph.nnz()
        ))),
        _ => Ok(()),
    }
}

/// Checks that seeds are nodes of a graph of `n_nodes`, each listed once; `seen` is scratch memory.
pub(crate) fn check_seeds(n_nodes: usize, seeds: &[NodeId], seen: &mut NodeSet) -> Result<(), SampleError> {
    check_listed("seed", n_nodes, seeds, seen)
}

/// Checks a list of nodes of a graph of `n_nodes`, each listed once; error messages call a node `what`.
pub(crate) fn check_listed(
    what: &str,
    n_nodes: usize,
    nodes: &[NodeId],
    seen: &mut NodeSet,
) -> Result<(), SampleError> {
    seen.clear();
    for (at, &node) in nodes.iter().enumerate() {
        if node as usize >= n_nodes {
            return Err(SampleError::no_such_node(format!(
                "{what} {at} is node {node}, but the graph has {n_nodes} nodes, counted from 0"
            )));
        }
        if !seen.insert(node) {
            let first = nodes.iter().position(|&other| other == node).unwrap_or(at);
            return Err(SampleError::repeated_seed(format!(
                "node {node} is a {what} twice, at {first} and {at}; list every {what} once"
            )));
        }
    }
    Ok(())
}
