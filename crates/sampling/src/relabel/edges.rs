//! [`SampledEdges`]: a list of edges in global ids, and its conversion to a block.

use crate::{Block, Columns, NodeId, SampleError};

/// Edges as pairs of global ids, in any order: the input of a relabelling operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledEdges {
    /// Destination of each edge, as a global id.
    pub destinations: Vec<NodeId>,
    /// Source of each edge, as a global id.
    pub sources: Vec<NodeId>,
    /// Position of each edge in the graph; empty if not wanted.
    pub edge_ids: Vec<u64>,
}

impl SampledEdges {
    /// Empties the list and keeps its memory.
    pub fn clear(&mut self) {
        self.destinations.clear();
        self.sources.clear();
        self.edge_ids.clear();
    }

    /// Checks that all arrays have equal lengths.
    pub(crate) fn check(&self) -> Result<(), SampleError> {
        let (n_destinations, n_sources, n_ids) = (self.destinations.len(), self.sources.len(), self.edge_ids.len());
        if n_destinations == n_sources && (n_ids == 0 || n_ids == n_sources) {
            return Ok(());
        }
        Err(SampleError::invalid(format!(
            "edges have {n_destinations} destinations, {n_sources} sources and {n_ids} ids; give one of each, or no ids"
        )))
    }
}

/// Error of an edge whose destination is outside the block.
pub(crate) fn foreign_destination(edge: usize, node: NodeId) -> SampleError {
    SampleError::invalid(format!(
        "edge {edge} ends in node {node}, which is no destination of the block; every destination has to be listed"
    ))
}

/// Error of a node that is listed twice.
pub(crate) fn repeated(what: &str, nodes: &[NodeId], second: usize) -> SampleError {
    let node = nodes[second];
    let first = nodes.iter().position(|&other| other == node).unwrap_or(second);
    SampleError::invalid(format!("node {node} is listed twice, as {what} {first} and {second}; list every node once"))
}

/// Makes a block from local rows and columns of edges in any order; edges of a row keep their order.
pub(crate) fn assemble(
    nodes: &[NodeId],
    n_destinations: usize,
    rows: &[NodeId],
    columns: &[NodeId],
    edge_ids: &[u64],
    block: &mut Block,
) {
    block.nodes.clear();
    block.nodes.extend_from_slice(nodes);
    (block.n_destinations, block.n_columns, block.columns) = (n_destinations, nodes.len(), Columns::Local);
    count_rows(rows, n_destinations, &mut block.indptr);
    block.indices.clear();
    block.edge_ids.clear();
    block.weights.clear();
    if rows.is_sorted() {
        block.indices.extend_from_slice(columns);
        block.edge_ids.extend_from_slice(edge_ids);
        return;
    }
    block.indices.extend(by_row(&block.indptr, rows, columns));
    if !edge_ids.is_empty() {
        block.edge_ids.extend(by_row(&block.indptr, rows, edge_ids));
    }
}

/// Computes offsets of rows from the row of each edge.
fn count_rows(rows: &[NodeId], n_rows: usize, indptr: &mut Vec<u64>) {
    indptr.clear();
    indptr.resize(n_rows + 1, 0);
    for &row in rows {
        indptr[row as usize + 1] += 1;
    }
    for row in 0..n_rows {
        indptr[row + 1] += indptr[row];
    }
}

/// Sorts values of edges by their rows.
fn by_row<T: Copy + Default>(indptr: &[u64], rows: &[NodeId], values: &[T]) -> Vec<T> {
    let mut next = indptr.to_vec();
    let mut sorted = vec![T::default(); values.len()];
    for (&row, &value) in rows.iter().zip(values) {
        let place = &mut next[row as usize];
        sorted[*place as usize] = value;
        *place += 1;
    }
    sorted
}
