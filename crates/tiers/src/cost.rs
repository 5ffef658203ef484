//! What a choice among placements comes to.

use girih_graph_format::NodeId;

/// The share of all reads that the first `k` of some nodes get, for every `k`.
pub(crate) fn running_shares(nodes: impl ExactSizeIterator<Item = NodeId>, frequency: &[f64], total: f64) -> Vec<f64> {
    let mut shares = Vec::with_capacity(nodes.len() + 1);
    let mut sum = 0.0;
    shares.push(0.0);
    for (at, node) in nodes.enumerate() {
        sum += frequency[node as usize];
        // Without any reads all nodes are alike.
        shares.push(if total > 0.0 { sum / total } else { (at + 1) as f64 / frequency.len() as f64 });
    }
    shares
}

/// Seconds that a batch's reads take by tier, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Seconds {
    /// Of what lies on every card.
    pub(crate) every_card: f64,
    /// Of what lies on one card each.
    pub(crate) one_card: f64,
    /// Of host memory.
    pub(crate) host: f64,
    /// Of the disk.
    pub(crate) disk: f64,
    /// Of exchanges among cards that are no reads.
    pub(crate) exchange: f64,
}

impl Seconds {
    pub(crate) fn total(&self) -> f64 {
        self.every_card + self.one_card + self.host + self.disk + self.exchange
    }
}
