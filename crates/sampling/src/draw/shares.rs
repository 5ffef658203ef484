//! Shares: how the draws of a hop are divided among its nodes (layer-wise sampling of Cai et al., DSP, PPoPP 2023).

use girih_graph_format::Csr;

use super::Rule;
use crate::NodeId;
use crate::chances::Chances;
use crate::key::HopDraws;

/// How many of `count` draws each node of `frontier` makes: a draw falls to a node with a chance in proportion to the weights
/// of its edges, or to their number.
pub(super) fn shares(graph: &Csr, frontier: &[NodeId], count: u32, rule: Rule<'_>, draws: HopDraws) -> Vec<u32> {
    let weights: Vec<f64> = frontier.iter().map(|&node| row_weight(graph, node, rule)).collect();
    let chances = Chances::new(&weights);
    let (sums, mut stream) = (chances.sums(), draws.shared());
    let mut shares = vec![0; frontier.len()];
    if sums.total() > 0 {
        (0..count).for_each(|_| shares[sums.find(stream.below(sums.total())) as usize] += 1);
    }
    shares
}

/// The weight of all edges of a node that are not excluded.
fn row_weight(graph: &Csr, node: NodeId, rule: Rule<'_>) -> f64 {
    let range = graph.row_range(node as usize);
    let excluded = rule.excluded.within(&range);
    match rule.bias {
        None => (range.len() - excluded.len()) as f64,
        Some(bias) => {
            let row = bias.row(range.clone());
            let left_out: u64 = excluded.iter().map(|&edge| row.weight((edge - range.start as u64) as u32)).sum();
            bias.in_row((row.total() - left_out) as f64, node as usize)
        }
    }
}
