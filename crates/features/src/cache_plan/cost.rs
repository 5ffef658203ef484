//! Seconds that the reads of a placement take.

use girih_graph_format::NodeId;

/// Prefix sums of reads: element `k` is the share of all reads that the first `k` nodes get.
pub(crate) fn running_shares(nodes: impl ExactSizeIterator<Item = NodeId>, frequency: &[f64], total: f64) -> Vec<f64> {
    let mut shares = Vec::with_capacity(nodes.len() + 1);
    let mut sum = 0.0;
    shares.push(0.0);
    for (at, node) in nodes.enumerate() {
        sum += frequency[node as usize];
        // Without any reads, all nodes count equally.
        shares.push(if total > 0.0 { sum / total } else { (at + 1) as f64 / frequency.len() as f64 });
    }
    shares
}

/// Seconds of a batch's reads by tier; tiers are read one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Seconds {
    /// Reads of rows that are on every GPU.
    pub(crate) every_gpu: f64,
    /// Reads of rows that are on one GPU each.
    pub(crate) one_gpu: f64,
    /// Reads from host memory.
    pub(crate) host: f64,
    /// Reads from disk.
    pub(crate) disk: f64,
    /// Exchanges between GPUs other than reads.
    pub(crate) exchange: f64,
}

impl Seconds {
    pub(crate) fn total(&self) -> f64 {
        self.every_gpu + self.one_gpu + self.host + self.disk + self.exchange
    }
}
