//! Rows of the adjacency on cards and in host memory: what each number of hot rows comes to.

use girih_graph_format::NodeId;

use crate::cost::{Seconds, running_shares};
use crate::storage::OFFSET_BYTES;
use crate::{AccessFrequency, Cut, Placement, Rates, Reads, Storage};

/// Bytes of a neighbour's id, and of what it weighs.
const WORD_BYTES: u64 = 4;

/// The rows of an adjacency.
#[derive(Clone, Copy)]
pub(crate) struct Adjacency<'a> {
    pub(crate) indptr: &'a [u64],
    pub(crate) weighted: bool,
    pub(crate) storage: Storage,
}

impl Adjacency<'_> {
    /// Bytes of a row where it lies, with its offset where that goes with it.
    pub(crate) fn row_bytes(self, v: NodeId) -> u64 {
        let entry = if self.weighted { 2 * WORD_BYTES } else { WORD_BYTES };
        let of_entries = entry * (self.indptr[v as usize + 1] - self.indptr[v as usize]);
        match self.storage {
            Storage::Once => OFFSET_BYTES + of_entries,
            Storage::Copied => of_entries,
        }
    }
}

/// The rows that one card may have, hottest first.
struct Ladder {
    storage: Storage,
    /// Bytes of the first `k` rows.
    bytes: Vec<u64>,
    /// Share of reads of them, of those of all rows.
    shares: Vec<f64>,
}

impl Ladder {
    fn n_rows(&self) -> usize {
        self.bytes.len() - 1
    }

    /// Bytes on the card of the first `n_hot` rows: with a list, unless it has all.
    fn card_bytes(&self, n_hot: usize) -> u64 {
        let list = if n_hot < self.n_rows() { self.storage.list_bytes(self.n_rows()) } else { 0 };
        match self.storage {
            Storage::Once if n_hot == 0 => 0,
            _ => self.offset_bytes() + list + self.bytes[n_hot],
        }
    }

    /// Bytes of offsets on a card beside those that go with rows.
    fn offset_bytes(&self) -> u64 {
        match self.storage {
            Storage::Once => OFFSET_BYTES,
            Storage::Copied => OFFSET_BYTES * self.bytes.len() as u64,
        }
    }

    /// Bytes in host memory with so many on the card.
    fn host_bytes(&self, n_hot: usize) -> u64 {
        let all = self.bytes[self.n_rows()];
        match self.storage {
            _ if n_hot == self.n_rows() => 0,
            Storage::Once => OFFSET_BYTES + all - self.bytes[n_hot],
            Storage::Copied => all,
        }
    }

    /// The most hot rows in so many bytes; `None` where these do not hold what it takes to have none.
    fn n_hot(&self, capacity: u64) -> Option<usize> {
        if self.card_bytes(self.n_rows()) <= capacity {
            return Some(self.n_rows());
        }
        let least = self.offset_bytes() + self.storage.list_bytes(self.n_rows());
        let rows_in = |left: u64| {
            let n_rows = self.bytes.partition_point(|&bytes| bytes <= left) - 1;
            n_rows.min(self.n_rows().saturating_sub(1))
        };
        match (capacity.checked_sub(least), self.storage) {
            (Some(left), _) => Some(rows_in(left)),
            (None, Storage::Once) => Some(0),
            (None, Storage::Copied) => None,
        }
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
    pub(crate) fn new(
        adjacency: Adjacency<'_>,
        heat: &'a AccessFrequency,
        cut: Option<&'a Cut>,
        costs: RowCosts,
    ) -> Self {
        let (order, total) = (heat.order(), heat.frequency().iter().sum());
        let ladder = |nodes: Vec<NodeId>| {
            let running = nodes.iter().scan(0, |sum, &v| {
                *sum += adjacency.row_bytes(v);
                Some(*sum)
            });
            let bytes = std::iter::once(0).chain(running).collect();
            let shares = running_shares(nodes.iter().copied(), heat.frequency(), total);
            Ladder { storage: adjacency.storage, bytes, shares }
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

    /// Bytes of the card that has most, at least.
    pub(crate) fn least_bytes(&self) -> u64 {
        let least = |ladder: &Ladder| ladder.card_bytes(0).min(ladder.card_bytes(ladder.n_rows()));
        self.ladders.iter().map(least).max().unwrap_or(0)
    }

    /// As many hot rows as so many bytes of each card hold; `None` where these do not hold what it takes to have none.
    pub(crate) fn within(&self, capacity: u64) -> Option<RowChoice> {
        let n_hot: Vec<usize> = self.ladders.iter().map(|ladder| ladder.n_hot(capacity)).collect::<Option<_>>()?;
        let each = || self.ladders.iter().zip(&n_hot);
        let card_bytes = each().map(|(ladder, &k)| ladder.card_bytes(k)).max().unwrap_or(0);
        let host_bytes = each().map(|(ladder, &k)| ladder.host_bytes(k)).sum();
        let hit = each().map(|(ladder, &k)| ladder.shares[k]).sum();
        Some(RowChoice { seconds: self.seconds(hit), n_hot, card_bytes, host_bytes })
    }

    /// A batch's reads when cards have such a share of them. Cards with patches draw for each other: ids go to the
    /// patch that has their row, and drawn ids come back, an exchange each way in every hop.
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
