//! [`TypedExcluded`]: edges of a typed graph that a batch must not contain, with their reverses.

use girih_graph_format::{Csr, TypedGraph};

use crate::{ExcludedEdges, SampleError};

/// Edges of a typed graph that are never drawn, in either direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypedExcluded {
    /// Excluded edges of each edge type; empty if there are none at all.
    of_types: Vec<ExcludedEdges>,
}

impl TypedExcluded {
    /// Excludes edges of some types, given as pairs of an edge type and positions in the `indices` of its relation. If a
    /// type is the reverse of another or has one, the same edges of that type are excluded, too.
    ///
    /// # Errors
    /// When there is no such edge type, or no edge at a position.
    pub fn new(graph: &TypedGraph, edges: &[(usize, &[u64])]) -> Result<Self, SampleError> {
        let mut of_types = vec![Vec::new(); graph.relations().len()];
        for &(edge_type, positions) in edges {
            let Some(relation) = graph.relations().get(edge_type) else {
                return Err(SampleError::invalid(format!(
                    "edges of the edge type {edge_type} are to be excluded, but the graph has {} edge types",
                    graph.relations().len()
                )));
            };
            if let Some(position) = positions.iter().find(|&&position| position >= relation.nnz() as u64) {
                return Err(SampleError::invalid(format!(
                    "edge {position} of {} is to be excluded, but it has {} edges, counted from 0",
                    graph.schema().edge_name(edge_type),
                    relation.nnz()
                )));
            }
            of_types[edge_type].extend_from_slice(positions);
            if let Some(other) = graph.schema().reverse_of(edge_type) {
                let reversed = positions.iter().filter_map(|&at| reversed(relation, &graph.relations()[other], at));
                of_types[other].extend(reversed);
            }
        }
        Ok(Self { of_types: of_types.into_iter().map(ExcludedEdges::new).collect() })
    }

    /// Excluded edges of a type, unless there are none at all.
    pub(super) fn of_type(&self, edge_type: usize) -> Option<&ExcludedEdges> {
        self.of_types.get(edge_type)
    }
}

/// Position, among the edges of a reverse relation, of the edge at a position of a relation, if it is there.
fn reversed(relation: &Csr, reverse: &Csr, position: u64) -> Option<u64> {
    let row = relation.indptr().partition_point(|&start| start <= position) - 1;
    let column = relation.indices()[position as usize] as usize;
    let at = reverse.row(column).binary_search(&(row as u32)).ok()?;
    Some((reverse.row_range(column).start + at) as u64)
}
