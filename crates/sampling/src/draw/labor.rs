//! Draws that destinations share: LABOR-0 (Balın and Çatalyürek, Layer-Neighbor Sampling, NeurIPS 2023, section 3.2).
//!
//! A source draws one number for all destinations, and each destination takes the sources whose numbers are low enough for
//! its degree. So destinations choose the same sources where they can, and a hop finds fewer nodes. Sixteen sources draw side
//! by side.

use std::ops::Range;

use girih_graph_format::Csr;
use pulp::{Arch, Simd, WithSimd};

use super::lanes::{LANES, Lanes, below, of, philox};
use super::{Drawn, Sink};
use crate::key::HopDraws;
use crate::{ExcludedEdges, NodeId};

/// Takes each neighbour of a node of degree `d` with the chance `count / d`.
pub(super) fn hop<S: Sink>(
    graph: &Csr,
    frontier: &[NodeId],
    (count, excluded): (u32, &ExcludedEdges),
    draws: HopDraws,
    drawn: Drawn<'_>,
    sink: &mut S,
) {
    Arch::new().dispatch(Hop { graph, frontier, count, excluded, draws, drawn, sink });
}

/// The arguments of [`hop`].
struct Hop<'a, 'd, S> {
    graph: &'a Csr,
    frontier: &'a [NodeId],
    count: u32,
    excluded: &'a ExcludedEdges,
    draws: HopDraws,
    drawn: Drawn<'d>,
    sink: &'a mut S,
}

impl<K: Sink> WithSimd for Hop<'_, '_, K> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { graph, frontier, count, excluded, draws, mut drawn, sink } = self;
        let (mut positions, mut sources) = (Vec::new(), Vec::new());
        let mut end = drawn.indptr.last().copied().unwrap_or(0);
        for &node in frontier {
            let range = graph.row_range(node as usize);
            let row = &graph.indices()[range.clone()];
            positions.clear();
            take(simd, row, (count, degree(&range, excluded)), draws, &mut positions);
            let left_out = excluded.within(&range);
            if !left_out.is_empty() {
                positions
                    .retain(|&position| left_out.binary_search(&(range.start as u64 + u64::from(position))).is_err());
            }
            sources.clear();
            sources.extend(positions.iter().map(|&position| row[position as usize]));
            sink.take(&sources);
            if let Some(edge_ids) = &mut drawn.edge_ids {
                edge_ids.extend(positions.iter().map(|&position| range.start as u64 + u64::from(position)));
            }
            end += positions.len() as u64;
            drawn.indptr.push(end);
        }
    }
}

/// Appends the positions in `row` of sources whose draw below `degree` is less than `count`.
#[inline(always)]
fn take<S: Simd>(simd: S, row: &[NodeId], (count, degree): (u32, u32), draws: HopDraws, positions: &mut Vec<u32>) {
    if degree <= count {
        positions.extend(0..row.len() as u32);
        return;
    }
    let mut found = [0; LANES];
    for (sources, first) in row.chunks(LANES).zip((0..).step_by(LANES)) {
        let mut ids = [0; LANES];
        ids[..sources.len()].copy_from_slice(sources);
        numbers(simd, &ids, degree, draws, &mut found);
        let is_taken = |&(_, &number): &(u32, &u32)| number < count;
        positions.extend((first..).zip(&found[..sources.len()]).filter(is_taken).map(|(position, _)| position));
    }
}

/// Draw 0 of each source, below `degree`.
#[inline(always)]
fn numbers<S: Simd>(simd: S, sources: &Lanes, degree: u32, draws: HopDraws, found: &mut Lanes) {
    for vector in 0..LANES / S::U32_LANES {
        let [low, high, ..] = philox(simd, draws, 0, of::<S>(sources, vector));
        S::as_mut_simd_u32s(found).0[vector] = below(simd, (low, high), simd.splat_u32s(degree));
    }
}

/// What an edge of a node counts: one over the chance to take it.
pub(super) fn weight(graph: &Csr, node: NodeId, count: u32, excluded: &ExcludedEdges) -> f32 {
    let degree = degree(&graph.row_range(node as usize), excluded);
    (f64::from(degree) / f64::from(count)).max(1.0) as f32
}

/// Edges of the row at `range` that are not excluded.
fn degree(range: &Range<usize>, excluded: &ExcludedEdges) -> u32 {
    (range.len() - excluded.within(range).len()) as u32
}
