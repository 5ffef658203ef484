//! Draws that destinations share: LABOR-0 (Balın and Çatalyürek, Layer-Neighbor Sampling, NeurIPS 2023, section 3.2).
//!
//! A source draws one number for all destinations. Each destination takes the sources whose numbers are low enough
//! for its degree. So destinations tend to choose equal sources, and a hop finds fewer nodes. Sixteen sources draw at
//! a time, one per lane.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use super::lanes::{LANES, Lanes, below, of, philox};
use super::rule::{Drawn, Sink};
use crate::key::HopDraws;
use crate::{ExcludedEdges, NodeId, Patch};

/// Takes each neighbor of a node of degree `d` with the chance `count / d`.
pub(super) fn hop<S: Sink>(
    patch: Patch<'_>,
    frontier: &[NodeId],
    (count, excluded): (u32, &ExcludedEdges),
    draws: HopDraws,
    drawn: Drawn<'_>,
    sink: &mut S,
) {
    Arch::new().dispatch(Hop { patch, frontier, count, excluded, draws, drawn, sink });
}

/// The arguments of [`hop`].
struct Hop<'a, 'd, S> {
    patch: Patch<'a>,
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
        let Self { patch, frontier, count, excluded, draws, mut drawn, sink } = self;
        let (mut positions, mut sources) = (Vec::new(), Vec::new());
        let mut end = drawn.indptr.last().copied().unwrap_or(0);
        for &node in frontier {
            let range = patch.row_range(node);
            let row = &patch.rows().indices()[range.clone()];
            let edges = patch.edges(&range);
            positions.clear();
            take(simd, row, (count, degree(&edges, excluded)), draws, &mut positions);
            let left_out = excluded.within(&edges);
            if !left_out.is_empty() {
                positions.retain(|&position| left_out.binary_search(&(edges.start + u64::from(position))).is_err());
            }
            sources.clear();
            sources.extend(positions.iter().map(|&position| row[position as usize]));
            sink.take(&sources);
            if let Some(edge_ids) = &mut drawn.edge_ids {
                edge_ids.extend(positions.iter().map(|&position| edges.start + u64::from(position)));
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

/// Weight of an edge of a node: the reciprocal of the chance to take it.
pub(super) fn weight(patch: Patch<'_>, node: NodeId, count: u32, excluded: &ExcludedEdges) -> f32 {
    let degree = degree(&patch.edges(&patch.row_range(node)), excluded);
    (f64::from(degree) / f64::from(count)).max(1.0) as f32
}

/// Number of edges of a row that are not excluded.
fn degree(edges: &Range<u64>, excluded: &ExcludedEdges) -> u32 {
    (edges.end - edges.start) as u32 - excluded.within(edges).len() as u32
}
