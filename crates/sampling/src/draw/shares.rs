//! Division of the draws of a hop among its nodes (layer-wise sampling of Cai et al., DSP, PPoPP 2023).

use super::rule::Rule;
use crate::chances::Chances;
use crate::key::HopDraws;
use crate::{NodeId, Patch};

/// Number of draws that each node of a hop makes, out of `count`: a draw falls to a node with a chance in proportion
/// to its weight.
pub(crate) fn shares(weights: &[f64], count: u32, draws: HopDraws) -> Vec<u32> {
    let chances = Chances::new(weights);
    let (sums, mut stream) = (chances.sums(), draws.shared());
    let mut shares = vec![0; weights.len()];
    if sums.total() > 0 {
        (0..count).for_each(|_| shares[sums.find(stream.below(sums.total())) as usize] += 1);
    }
    shares
}

/// Sum of the weights of each node's edges that are not excluded, or their number in a graph without weights.
pub(crate) fn row_weights(patch: Patch<'_>, frontier: &[NodeId], rule: Rule<'_>) -> Vec<f64> {
    frontier.iter().map(|&node| row_weight(patch, node, rule)).collect()
}

fn row_weight(patch: Patch<'_>, node: NodeId, rule: Rule<'_>) -> f64 {
    let range = patch.row_range(node);
    let edges = patch.edges(&range);
    let excluded = rule.excluded.within(&edges);
    match rule.bias {
        None => (range.len() - excluded.len()) as f64,
        Some(bias) => {
            let row = bias.row(range);
            let left_out: u64 = excluded.iter().map(|&edge| row.weight((edge - edges.start) as u32)).sum();
            bias.in_row((row.total() - left_out) as f64, patch.row(node))
        }
    }
}
