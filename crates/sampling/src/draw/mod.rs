//! Draws of neighbours: the edges that a hop takes, by the rules in `docs/formats.md`.
//!
//! - [`rows`]: one node after the other, for every rule; its results are the definition.
//! - [`lanes`]: sixteen nodes at a time, for fan-outs that fit, with equal results.
//! - [`shares`](mod@shares): number of draws of a hop that each node makes.
//! - [`labor`]: draws that nodes share.

mod labor;
mod lanes;
mod rows;
mod shares;

pub(crate) use shares::{row_weights, shares};

use crate::fan_out::Neighbors;
use crate::key::HopDraws;
use crate::{Bias, ExcludedEdges, NodeId, Patch};

/// Scope of the draws of a hop: per node, per layer or shared by all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Draws {
    /// Each node draws neighbours for itself, as many as the fan-out (Hamilton et al., GraphSAGE, NeurIPS 2017,
    /// section 3.1).
    #[default]
    PerNode,
    /// The fan-out is the number of draws of the whole hop. Each draw falls to a node with a chance in proportion to
    /// its degree, or to the weights of its edges. The node then draws that many neighbours for itself; without
    /// replacement, at most all that it has (Cai et al., DSP, PPoPP 2023, layer-wise sampling).
    PerLayer,
    /// Nodes share the drawn numbers: LABOR-0 (Balın and Çatalyürek, NeurIPS 2023, section 3.2). A node of degree `d`
    /// takes each neighbour with the chance `fan-out / d`, so that it gets the fan-out on average. One draw per
    /// neighbour serves all nodes, so that they tend to take equal neighbours. Blocks have weights. A hop reads all
    /// neighbours, and its cost is in proportion to their number.
    Labor,
}

/// Rule by which the edges of one hop are drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule<'a> {
    pub(crate) neighbors: Neighbors,
    pub(crate) draws: Draws,
    pub(crate) replace: bool,
    pub(crate) bias: Option<&'a Bias>,
    pub(crate) excluded: &'a ExcludedEdges,
}

/// Rule of a hop, with the fan-outs of its nodes where these are known.
#[derive(Clone, Copy)]
pub(crate) struct HopRule<'a> {
    /// Rule by which all nodes draw.
    pub(crate) rule: Rule<'a>,
    /// Number of draws of each node, which replaces the fan-out of the rule.
    pub(crate) shares: Option<&'a [u32]>,
}

/// Output arrays of a hop; draws are appended.
pub(crate) struct Drawn<'a> {
    /// Offsets of rows; begins with the end of the row before, and gets one more for each node.
    pub(crate) indptr: &'a mut Vec<u64>,
    /// Position of each edge in the graph, if wanted.
    pub(crate) edge_ids: Option<&'a mut Vec<u64>>,
}

/// Consumer of the sources of a hop's edges, in order, some at a time.
pub(crate) trait Sink {
    /// Takes the sources of the next edges. The division into calls is independent of rows.
    fn take(&mut self, sources: &[NodeId]);
}

impl Sink for Vec<NodeId> {
    #[inline(always)]
    fn take(&mut self, sources: &[NodeId]) {
        self.extend_from_slice(sources);
    }
}

/// Memory of draws, for one thread at a time.
#[derive(Default)]
pub struct DrawScratch {
    lanes: lanes::Ring,
    rows: rows::RowScratch,
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
    match rule.neighbors {
        Neighbors::Count(count) if rule.draws == Draws::Labor => {
            labor::hop(patch, frontier, (count, rule.excluded), draws, drawn, sink);
        }
        Neighbors::Count(count)
            if shares.is_none()
                && count as usize <= lanes::MAX_FAN_OUT
                && rule.bias.is_none()
                && rule.excluded.is_empty() =>
        {
            let (replace, ring) = (rule.replace, &mut scratch.lanes);
            lanes::hop(lanes::Hop { patch, frontier, count, replace, draws, ring, drawn, sink });
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
    use crate::DrawKey;
    use crate::key::Scheme;

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
                let (patch, frontier, ring, sink) = (Patch::whole(&graph), &frontier[..], &mut ring, &mut by_lanes.2);
                let hop = lanes::Hop { patch, frontier, count, replace, draws, ring, drawn, sink };
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
