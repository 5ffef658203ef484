//! Rows of the adjacency on cards and in host memory: what each number of hot rows comes to.

use girih_graph_format::NodeId;

use crate::cost::{Seconds, running_shares};
use crate::{Cut, Heat, Placement, Rates, Reads};

/// Bytes of an offset, of which a row has one and reading it takes two.
const OFFSET_BYTES: u64 = 8;
/// Bytes of a neighbour's id, and of what it weighs.
const WORD_BYTES: u64 = 4;
/// Bytes of a position in a list.
pub(crate) const POSITION_BYTES: u64 = 4;

/// Bytes of a row of the adjacency with its offset.
pub(crate) fn row_bytes(indptr: &[u64], weighted: bool, v: NodeId) -> u64 {
    let entry = if weighted { 2 * WORD_BYTES } else { WORD_BYTES };
    OFFSET_BYTES + entry * (indptr[v as usize + 1] - indptr[v as usize])
}

/// The rows that one card may have, hottest first.
struct Ladder {
    /// Bytes of the first `k` rows.
    bytes: Vec<u64>,
    /// Share of reads of them, of those of all rows.
    shares: Vec<f64>,
}

impl Ladder {
    fn n_rows(&self) -> usize {
        self.bytes.len() - 1
    }

    /// Bytes on the card of the first `n_hot` rows: with a position list, unless it has all or none.
    fn card_bytes(&self, n_hot: usize) -> u64 {
        let list = if n_hot < self.n_rows() { POSITION_BYTES * self.n_rows() as u64 } else { 0 };
        if n_hot == 0 { 0 } else { OFFSET_BYTES + self.bytes[n_hot] + list }
    }

    /// Bytes in host memory of the others.
    fn host_bytes(&self, n_hot: usize) -> u64 {
        let all = self.bytes[self.n_rows()];
        if n_hot == self.n_rows() { 0 } else { OFFSET_BYTES + all - self.bytes[n_hot] }
    }

    /// The most hot rows in so many bytes.
    fn n_hot(&self, capacity: u64) -> usize {
        if self.card_bytes(self.n_rows()) <= capacity {
            return self.n_rows();
        }
        let list = OFFSET_BYTES + POSITION_BYTES * self.n_rows() as u64;
        let Some(left) = capacity.checked_sub(list) else { return 0 };
        (self.bytes.partition_point(|&bytes| bytes <= left) - 1).min(self.n_rows() - 1)
    }
}

/// Ways to have the rows of a graph, whole on every card or in patches.
pub(crate) struct Topology<'a> {
    order: &'a [NodeId],
    cut: Option<&'a Cut>,
    ladders: Vec<Ladder>,
    costs: RowCosts,
}

/// What reading rows costs a batch.
#[derive(Clone, Copy)]
pub(crate) struct RowCosts {
    pub(crate) reads: Reads,
    pub(crate) rates: Rates,
    /// Reads for a neighbour that is drawn.
    pub(crate) reads_per_draw: f64,
    pub(crate) n_hops: usize,
}

/// So many hot rows.
#[derive(Clone, Debug)]
pub(crate) struct RowChoice {
    /// Of the whole, or of each patch.
    pub(crate) n_hot: Vec<usize>,
    /// On the card that has most.
    pub(crate) card_bytes: u64,
    pub(crate) host_bytes: u64,
    pub(crate) seconds: Seconds,
}

impl<'a> Topology<'a> {
    pub(crate) fn new(indptr: &[u64], weighted: bool, heat: &'a Heat, cut: Option<&'a Cut>, costs: RowCosts) -> Self {
        let (order, total) = (heat.order(), heat.frequency().iter().sum());
        let ladder = |nodes: Vec<NodeId>| {
            let running = nodes.iter().scan(0, |sum, &v| {
                *sum += row_bytes(indptr, weighted, v);
                Some(*sum)
            });
            let bytes = std::iter::once(0).chain(running).collect();
            Ladder { bytes, shares: running_shares(nodes.iter().copied(), heat.frequency(), total) }
        };
        let ladders = match cut.map(Cut::patches) {
            None => vec![ladder(order.to_vec())],
            Some(patches) => {
                let of = |patch| order.iter().copied().filter(|&v| patches.range(patch).contains(&v)).collect();
                (0..patches.len()).map(|patch| ladder(of(patch))).collect()
            }
        };
        Self { order, cut, ladders, costs }
    }

    pub(crate) fn is_in_patches(&self) -> bool {
        self.cut.is_some()
    }

    /// Bytes of the card that has most when no row is in host memory.
    pub(crate) fn whole_bytes(&self) -> u64 {
        self.ladders.iter().map(|ladder| ladder.card_bytes(ladder.n_rows())).max().unwrap_or(0)
    }

    /// As many hot rows as so many bytes of each card hold.
    pub(crate) fn within(&self, capacity: u64) -> RowChoice {
        let n_hot: Vec<usize> = self.ladders.iter().map(|ladder| ladder.n_hot(capacity)).collect();
        let each = || self.ladders.iter().zip(&n_hot);
        let card_bytes = each().map(|(ladder, &k)| ladder.card_bytes(k)).max().unwrap_or(0);
        let host_bytes = each().map(|(ladder, &k)| ladder.host_bytes(k)).sum();
        let hit = each().map(|(ladder, &k)| ladder.shares[k]).sum();
        RowChoice { seconds: self.seconds(hit), n_hot, card_bytes, host_bytes }
    }

    /// A batch's reads when cards have such a share of them. Cards with patches draw for each other: ids go to the patch that
    /// has their row, and drawn ids come back, an exchange each way in every hop.
    fn seconds(&self, hit: f64) -> Seconds {
        let RowCosts { reads, rates, reads_per_draw, n_hops } = self.costs;
        let n_draws = reads.draws * reads_per_draw;
        let of = |rate: crate::Rate, share: f64| {
            share * (rate.seconds(reads.rows, 2 * OFFSET_BYTES) + rate.seconds(n_draws, WORD_BYTES))
        };
        let (device, host) = (of(rates.device, hit), of(rates.host, 1.0 - hit));
        let Some(cut) = self.cut else { return Seconds { every_card: device, host, ..Seconds::default() } };
        let sent = cut.remote(n_hops) * WORD_BYTES as f64 * (2.0 * reads.rows + reads.draws);
        let exchange = sent / rates.peer.bytes_per_second + 2.0 * n_hops as f64 * rates.peer.latency;
        Seconds { one_card: device, host, exchange, ..Seconds::default() }
    }

    pub(crate) fn placement(&self, choice: &RowChoice, n_cards: usize) -> Placement {
        match self.cut {
            None => Placement::of_rows(self.order, choice.n_hot[0], n_cards),
            Some(cut) => Placement::of_patches(self.order, cut.patches(), &choice.n_hot),
        }
    }
}
