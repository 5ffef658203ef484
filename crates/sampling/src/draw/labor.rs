//! Draws that destinations share: LABOR-0 (Balın and Çatalyürek, Layer-Neighbor Sampling, NeurIPS 2023, section 3.2).
//!
//! A source draws one number for all destinations, and each destination takes the sources whose numbers are low enough for
//! its degree. So destinations choose the same sources where they can, and a hop finds fewer nodes.

use std::ops::Range;

use girih_graph_format::Csr;
use girih_random::bounded;

use super::{Drawn, Sink};
use crate::key::HopDraws;
use crate::{ExcludedEdges, NodeId};

/// Takes each neighbour of a node of degree `d` with the chance `count / d`.
pub(super) fn hop<S: Sink>(
    graph: &Csr,
    frontier: &[NodeId],
    (count, excluded): (u32, &ExcludedEdges),
    draws: HopDraws,
    mut drawn: Drawn<'_>,
    sink: &mut S,
) {
    let mut sources = Vec::new();
    let mut end = drawn.indptr.last().copied().unwrap_or(0);
    for &node in frontier {
        let range = graph.row_range(node as usize);
        let (left_out, degree) = (excluded.within(&range), degree(&range, excluded));
        sources.clear();
        for edge in range {
            let source = graph.indices()[edge];
            let is_taken =
                degree <= u64::from(count) || bounded(draws.stream(source).next_u64(), degree) < u64::from(count);
            if is_taken && left_out.binary_search(&(edge as u64)).is_err() {
                sources.push(source);
                if let Some(edge_ids) = &mut drawn.edge_ids {
                    edge_ids.push(edge as u64);
                }
            }
        }
        end += sources.len() as u64;
        drawn.indptr.push(end);
        sink.take(&sources);
    }
}

/// What an edge of a node counts: one over the chance to take it.
pub(super) fn weight(graph: &Csr, node: NodeId, count: u32, excluded: &ExcludedEdges) -> f32 {
    let degree = degree(&graph.row_range(node as usize), excluded);
    (degree as f64 / f64::from(count)).max(1.0) as f32
}

/// Edges of the row at `range` that are not excluded.
fn degree(range: &Range<usize>, excluded: &ExcludedEdges) -> u64 {
    (range.len() - excluded.within(range).len()) as u64
}
