//! Draws of neighbors: the edges that a hop takes, by the rules in `docs/draws.md`.
//!
//! - [`rows`]: one node after the other, for every rule; its results are the definition.
//! - [`lanes`]: sixteen nodes at a time, for fan-outs that fit, with equal results.
//! - [`rule`]: the rule of a hop, and where its edges go.
//! - [`shares`](mod@shares): number of draws of a hop that each node makes.
//! - [`labor`]: draws that nodes share.

mod labor;
mod lanes;
mod rows;
mod rule;
mod shares;

pub use rule::Draws;
pub(crate) use rule::{Drawn, DrawnRows, HopRule, Rule, Sink};
pub(crate) use shares::{row_weights, shares};

use crate::fan_out::Neighbors;
use crate::key::{HopDraws, Positions};
use crate::{NodeId, Patch};

/// Memory of draws, for one thread at a time.
#[derive(Default)]
pub struct DrawScratch {
    lanes: lanes::Ring,
    rows: rows::RowScratch,
}

impl DrawScratch {
    /// Positions below `degree`, as a node with so many edges draws them by a fan-out, with replacement or without.
    pub(crate) fn positions(
        &mut self,
        degree: u32,
        (neighbors, replace): (Neighbors, bool),
        draws: Positions,
    ) -> &[u32] {
        self.rows.positions.clear();
        self.rows.draw(degree, (neighbors, replace), draws);
        &self.rows.positions
    }

    /// Draws `count` edges of some rows for each node of `frontier`, all equally likely; for a `count` of [`lane_count`].
    pub(crate) fn plain_hop<S: Sink>(
        &mut self,
        rows: impl DrawnRows,
        frontier: &[NodeId],
        (count, replace): (u32, bool),
        draws: HopDraws,
        drawn: Drawn<'_>,
        sink: &mut S,
    ) {
        lanes::hop(lanes::Hop { rows, frontier, count, replace, draws, ring: &mut self.lanes, drawn, sink });
    }

    /// The last `count` positions below `degree`, ascending.
    pub(crate) fn last(&mut self, degree: u32, count: u32) -> &[u32] {
        self.rows.positions.clear();
        self.rows.positions.extend(degree.saturating_sub(count)..degree);
        &self.rows.positions
    }
}

/// Fan-out that lanes draw, if they do.
pub(crate) fn lane_count(neighbors: Neighbors) -> Option<u32> {
    match neighbors {
        Neighbors::Count(count) if count as usize <= lanes::MAX_FAN_OUT => Some(count),
        _ => None,
    }
}

/// Draws edges for each node of `frontier`.
pub(crate) fn hop<S: Sink>(
    patch: Patch<'_>,
    frontier: &[NodeId],
    rule: Rule<'_>,
    draws: HopDraws,
    scratch: &mut DrawScratch,
    drawn: Drawn<'_>,
    sink: &mut S,
) {
    let shares = match rule.neighbors {
        Neighbors::Count(count) if rule.draws == Draws::PerLayer => {
            Some(shares(&row_weights(patch, frontier, rule), count, draws))
        }
        _ => None,
    };
    hop_of_shares(patch, frontier, HopRule { rule, shares: shares.as_deref() }, draws, scratch, drawn, sink);
}

/// As [`hop`], where the nodes' shares of draws [per layer](Draws::PerLayer) are known already.
pub(crate) fn hop_of_shares<S: Sink>(
    patch: Patch<'_>,
    frontier: &[NodeId],
    hop_rule: HopRule<'_>,
    draws: HopDraws,
    scratch: &mut DrawScratch,
    drawn: Drawn<'_>,
    sink: &mut S,
) {
    let HopRule { rule, shares } = hop_rule;
    match (rule.neighbors, lane_count(rule.neighbors)) {
        (Neighbors::Count(count), _) if rule.draws == Draws::Labor => {
            labor::hop(patch, frontier, (count, rule.excluded), draws, drawn, sink);
        }
        (_, Some(count)) if shares.is_none() && rule.is_plain() => {
            scratch.plain_hop(patch, frontier, (count, rule.replace), draws, drawn, sink);
        }
        _ => rows::hop(patch, frontier, hop_rule, draws, &mut scratch.rows, drawn, sink),
    }
}

/// Edge weight of each node, equal for all edges of the node; nothing where all edges count alike.
pub(crate) fn edge_weights<'a>(
    patch: Patch<'a>,
    frontier: &'a [NodeId],
    rule: Rule<'a>,
) -> impl Iterator<Item = f32> + use<'a> {
    let nodes = if rule.draws == Draws::Labor { frontier } else { &[] };
    nodes.iter().map(move |&node| match rule.neighbors {
        Neighbors::Count(count) => labor::weight(patch, node, count, rule.excluded),
        Neighbors::All => 1.0,
    })
}

#[cfg(test)]
mod tests {
    use girih_graph_format::{Coo, Duplicates};
    use proptest::prelude::*;
    use pulp::{Arch, Scalar128b, Simd, WithSimd};

    use super::*;
    use crate::key::Scheme;
    use crate::{DrawKey, ExcludedEdges};

    /// Runs a hop with AVX2 where the CPU has it, else with one lane.
    fn narrower(hop: impl WithSimd<Output = ()>) {
        #[cfg(target_arch = "x86_64")]
        if let Some(v3) = pulp::x86::V3::try_new() {
            return Simd::vectorize(v3, hop);
        }
        pulp::Scalar::new().vectorize(hop);
    }

    proptest! {
        #[test]
        fn lanes_draw_what_rows_draw(
            edges in prop::collection::vec((0..80u32, 0..80u32), 0..2000),
            frontier in prop::collection::vec(0..80u32, 0..100),
            count in 1..=lanes::MAX_FAN_OUT as u32,
            replace: bool,
            key in any::<(u64, u32, u32, u32)>(),
        ) {
            let (rows, cols) = edges.into_iter().unzip();
            let graph = Coo::new(80, 80, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap();
            let draws = DrawKey::new(key.0, key.1, key.2).hop(Scheme::Neighbors, key.3);
            let excluded = ExcludedEdges::default();
            let rule = Rule { neighbors: Neighbors::Count(count), draws: Draws::PerNode, replace, bias: None, excluded: &excluded };
            let mut by_rows = (vec![0], vec![], vec![]);
            let drawn = Drawn { indptr: &mut by_rows.0, edge_ids: Some(&mut by_rows.1) };
            let rule = HopRule { rule, shares: None };
            rows::hop(Patch::whole(&graph), &frontier, rule, draws, &mut DrawScratch::default().rows, drawn, &mut by_rows.2);
            for isa in 0..3 {
                let (mut by_lanes, mut ring) = ((vec![0], vec![], vec![]), lanes::Ring::default());
                let drawn = Drawn { indptr: &mut by_lanes.0, edge_ids: Some(&mut by_lanes.1) };
                let (rows, frontier, ring, sink) = (Patch::whole(&graph), &frontier[..], &mut ring, &mut by_lanes.2);
                let hop = lanes::Hop { rows, frontier, count, replace, draws, ring, drawn, sink };
                match isa {
                    0 => Arch::new().dispatch(hop),
                    1 => Scalar128b.vectorize(hop),
                    _ => narrower(hop),
                }
                prop_assert_eq!(&by_lanes, &by_rows);
            }
        }
    }
}
