//! Adjacency rows on GPUs and in host memory: bytes and seconds of each number of hot rows.

use girih_graph_format::NodeId;

use super::cost::{Seconds, running_shares};
use super::storage::OFFSET_BYTES;
use crate::{AccessFrequency, Cut, Placement, Rates, Reads, Storage};

/// Bytes of a neighbor's id, and of an edge weight.
const WORD_BYTES: u64 = 4;

/// Sizes of the rows of an adjacency.
#[derive(Clone, Copy)]
pub(crate) struct Adjacency<'a> {
    pub(crate) indptr: &'a [u64],
    pub(crate) weighted: bool,
    pub(crate) storage: Storage,
}

impl Adjacency<'_> {
    /// Bytes of a row, including its offset where that is stored next to it.
    pub(crate) fn row_bytes(self, v: NodeId) -> u64 {
        let entry = if self.weighted { 2 * WORD_BYTES } else { WORD_BYTES };
        let of_entries = entry * (self.indptr[v as usize + 1] - self.indptr[v as usize]);
        match self.storage {
            Storage::Once => OFFSET_BYTES + of_entries,
            Storage::Copied => of_entries,
        }
    }
}

/// Adjacency rows that one GPU may hold, hottest first.
struct Ladder {
    storage: Storage,
    /// Prefix sums of bytes: `bytes[k]` is the size of the first `k` rows.
    bytes: Vec<u64>,
    /// Prefix sums of reads: `shares[k]` is the share of the first `k` rows in the reads of all rows.
    shares: Vec<f64>,
}

impl Ladder {
    fn n_rows(&self) -> usize {
        self.bytes.len() - 1
    }

    /// Bytes on the GPU of the first `n_hot` rows, with a list of locations unless it holds all rows.
    fn gpu_bytes(&self, n_hot: usize) -> u64 {
        let list = if n_hot < self.n_rows() { self.storage.list_bytes(self.n_rows()) } else { 0 };
        match self.storage {
            Storage::Once if n_hot == 0 => 0,
            _ => self.offset_bytes() + list + self.bytes[n_hot],
        }
    }

    /// Bytes of offsets on a GPU, besides those that are stored next to rows.
    fn offset_bytes(&self) -> u64 {
        match self.storage {
            Storage::Once => OFFSET_BYTES,
            Storage::Copied => OFFSET_BYTES * self.bytes.len() as u64,
        }
    }

    /// Bytes in host memory if `n_hot` rows are on the GPU.
    fn host_bytes(&self, n_hot: usize) -> u64 {
        let all = self.bytes[self.n_rows()];
        match self.storage {
            _ if n_hot == self.n_rows() => 0,
            Storage::Once => OFFSET_BYTES + all - self.bytes[n_hot],
            Storage::Copied => all,
        }
    }

    /// Maximum number of hot rows in `capacity` bytes; `None` if the fixed part alone does not fit.
    fn n_hot(&self, capacity: u64) -> Option<usize> {
        if self.gpu_bytes(self.n_rows()) <= capacity {
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

/// Divisions of a graph's adjacency rows: on every GPU, or in patches.
pub(crate) struct Topology<'a> {
    order: &'a [NodeId],
    cut: Option<&'a Cut>,
    ladders: Vec<Ladder>,
    costs: RowCosts,
}

/// Cost model of a batch's reads of adjacency rows.
#[derive(Clone, Copy)]
pub(crate) struct RowCosts {
    pub(crate) reads: Reads,
    pub(crate) rates: Rates,
    /// Number of reads per drawn neighbor.
    pub(crate) reads_per_draw: f64,
    pub(crate) n_hops: usize,
}

/// Number of hot rows, with its cost.
#[derive(Clone, Debug)]
pub(crate) struct RowChoice {
    /// Number of hot rows: one element for the whole graph, or one per patch.
    pub(crate) n_hot: Vec<usize>,
    /// Bytes on the GPU that holds most.
    pub(crate) gpu_bytes: u64,
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

    /// Bytes on the GPU that holds most, if no row is in host memory.
    pub(crate) fn whole_bytes(&self) -> u64 {
        self.ladders.iter().map(|ladder| ladder.gpu_bytes(ladder.n_rows())).max().unwrap_or(0)
    }

    /// Minimum bytes on the GPU that holds most.
    pub(crate) fn least_bytes(&self) -> u64 {
        let least = |ladder: &Ladder| ladder.gpu_bytes(0).min(ladder.gpu_bytes(ladder.n_rows()));
        self.ladders.iter().map(least).max().unwrap_or(0)
    }

    /// Returns as many hot rows as fit into `capacity` bytes of each GPU; `None` if the fixed part alone does not
    /// fit.
    pub(crate) fn within(&self, capacity: u64) -> Option<RowChoice> {
        let n_hot: Vec<usize> = self.ladders.iter().map(|ladder| ladder.n_hot(capacity)).collect::<Option<_>>()?;
        let each = || self.ladders.iter().zip(&n_hot);
        let gpu_bytes = each().map(|(ladder, &k)| ladder.gpu_bytes(k)).max().unwrap_or(0);
        let host_bytes = each().map(|(ladder, &k)| ladder.host_bytes(k)).sum();
        let hit = each().map(|(ladder, &k)| ladder.shares[k]).sum();
        Some(RowChoice { seconds: self.seconds(hit), n_hot, gpu_bytes, host_bytes })
    }

    /// Seconds of a batch's reads if GPUs serve the share `hit` of them. GPUs with patches sample for each other: ids
    /// go to the patch that holds their row, and drawn ids come back. Each hop takes one exchange each way.
    fn seconds(&self, hit: f64) -> Seconds {
        let RowCosts { reads, rates, reads_per_draw, n_hops } = self.costs;
        let n_draws = reads.draws * reads_per_draw;
        let of = |rate: crate::Rate, share: f64| {
            share * (rate.seconds(reads.rows, 2 * OFFSET_BYTES) + rate.seconds(n_draws, WORD_BYTES))
        };
        let (device, host) = (of(rates.device, hit), of(rates.host, 1.0 - hit));
        let Some(cut) = self.cut else { return Seconds { every_gpu: device, host, ..Seconds::default() } };
        let sent = cut.remote(n_hops) * WORD_BYTES as f64 * (2.0 * reads.rows + reads.draws);
        let exchange = sent / rates.peer.bytes_per_second + 2.0 * n_hops as f64 * rates.peer.latency;
        Seconds { one_gpu: device, host, exchange, ..Seconds::default() }
    }

    pub(crate) fn placement(&self, choice: &RowChoice, n_gpus: usize) -> Placement {
        match self.cut {
            None => Placement::of_rows(self.order, choice.n_hot[0], n_gpus),
            Some(cut) => Placement::of_patches(self.order, cut.patches(), &choice.n_hot),
        }
    }
}
