//! Feature rows on GPUs, in host memory and on disk: bytes and seconds of each division.

use super::cost::{Seconds, running_shares};
use crate::{AccessFrequency, Placement, Rates, Storage};

/// Number of steps in which the count of replicated rows is tried, besides the counts at which the cost has a kink.
const STEPS: usize = 32;

/// Divisions of a graph's feature rows over tiers.
pub(crate) struct Features<'a> {
    heat: &'a AccessFrequency,
    shares: Vec<f64>,
    pub(crate) row_bytes: u64,
    storage: Storage,
    n_gpus: usize,
    /// Number of rows that a batch reads.
    n_reads: f64,
    rates: Rates,
}

/// Number of feature rows in each tier, hottest first, with its cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FeatureChoice {
    pub(crate) on_every_gpu: usize,
    pub(crate) on_one_gpu: usize,
    pub(crate) on_host: usize,
    /// Bytes on the GPU that holds most.
    pub(crate) gpu_bytes: u64,
    pub(crate) host_bytes: u64,
    pub(crate) seconds: Seconds,
}

/// Feature rows in host memory, and the memory that they take.
struct OnHost {
    n_rows: usize,
    /// Bytes of host memory, including the list of positions.
    bytes: u64,
    /// Whether GPUs store a list of row positions.
    list_on_gpu: bool,
}

impl<'a> Features<'a> {
    pub(crate) fn new(
        heat: &'a AccessFrequency,
        (row_bytes, storage): (u64, Storage),
        n_gpus: usize,
        n_reads: f64,
        rates: Rates,
    ) -> Self {
        let total = heat.frequency().iter().sum();
        let shares = running_shares(heat.order().iter().copied(), heat.frequency(), total);
        Self { heat, shares, row_bytes, storage, n_gpus, n_reads, rates }
    }

    fn n_rows(&self) -> usize {
        self.heat.order().len()
    }

    /// Bytes of each GPU if every GPU holds all rows.
    pub(crate) fn whole_bytes(&self) -> u64 {
        self.list_of_one_place() + self.row_bytes * self.n_rows() as u64
    }

    /// Bytes of each GPU if all of them together hold all rows.
    pub(crate) fn spread_bytes(&self) -> u64 {
        self.list_of_one_place() + self.row_bytes * self.n_rows().div_ceil(self.n_gpus) as u64
    }

    /// Bytes of a GPU's list if all rows are in one tier: the minimum size of the list.
    pub(crate) fn list_of_one_place(&self) -> u64 {
        match self.storage {
            Storage::Once => 0,
            Storage::Copied => self.storage.list_bytes(self.n_rows()),
        }
    }

    /// Returns the fastest division within `capacity` bytes of each GPU and `host_bytes` of host memory; `None` if no
    /// division fits.
    pub(crate) fn within(&self, capacity: u64, host_bytes: u64) -> Option<FeatureChoice> {
        let n = self.n_rows();
        let of_rows = capacity.checked_sub(self.list_of_one_place())?;
        let rows_of = |bytes: u64| bytes.checked_div(self.row_bytes).map_or(n, |rows| (rows as usize).min(n));
        if rows_of(of_rows) == n {
            return self.choice(n, 0, host_bytes);
        }
        let (list, n_gpus) = (self.storage.list_bytes(n), self.n_gpus);
        let is_spread = n.div_ceil(n_gpus) <= rows_of(of_rows);
        let on_gpu = rows_of(capacity.saturating_sub(list));
        let split = |on_every_gpu: usize| {
            let rest = (n - on_every_gpu).min(n_gpus * (on_gpu - on_every_gpu));
            self.choice(on_every_gpu, if n_gpus == 1 { 0 } else { rest }, host_bytes)
        };
        if n_gpus == 1 {
            return split(on_gpu);
        }
        // With this number of replicated rows, the sharded tier holds exactly all others.
        let kink = (n_gpus * on_gpu).saturating_sub(n) / (n_gpus - 1);
        let tried = (0..=STEPS).map(|step| on_gpu * step / STEPS).chain([kink]).map(split);
        let spread = is_spread.then(|| self.choice(0, n, host_bytes)).flatten();
        let quickest = |a: &FeatureChoice, b: &FeatureChoice| a.seconds.total().total_cmp(&b.seconds.total());
        spread.into_iter().chain(tried.flatten()).min_by(quickest)
    }

    /// Choice with the given numbers of rows on GPUs, and as many of the others in host memory as fit into
    /// `host_bytes`.
    fn choice(&self, on_every_gpu: usize, on_one_gpu: usize, host_bytes: u64) -> Option<FeatureChoice> {
        let on_host = match self.storage {
            Storage::Once => self.on_host_once(on_every_gpu, on_one_gpu, host_bytes),
            Storage::Copied => {
                let all = self.row_bytes * self.n_rows() as u64;
                let on_host = self.n_rows() - on_every_gpu - on_one_gpu;
                (all <= host_bytes).then_some(OnHost { n_rows: on_host, bytes: all, list_on_gpu: true })?
            }
        };
        Some(self.costed(on_every_gpu, on_one_gpu, &on_host))
    }

    /// Rows in host memory, if each row is stored in one tier only.
    fn on_host_once(&self, on_every_gpu: usize, on_one_gpu: usize, host_bytes: u64) -> OnHost {
        let n = self.n_rows();
        let cached = on_every_gpu + on_one_gpu;
        // No list of positions is needed if all rows are in one tier. With rows on GPUs the list is there, else in
        // host memory.
        let list = self.storage.list_bytes(n);
        let is_single = |count: usize| count == n;
        let needs_list = |on_host: usize| !(is_single(on_every_gpu) || is_single(on_one_gpu) || is_single(on_host));
        let rows_in = |bytes: u64| bytes.checked_div(self.row_bytes).map_or(n, |rows| rows.min(n as u64) as usize);
        let mut on_host = rows_in(host_bytes).min(n - cached);
        let mut list_on_host = cached == 0 && on_host > 0 && needs_list(on_host);
        if list_on_host {
            on_host = rows_in(host_bytes.saturating_sub(list)).min(n);
            list_on_host = on_host > 0;
        }
        let bytes = self.row_bytes * on_host as u64 + if list_on_host { list } else { 0 };
        OnHost { n_rows: on_host, bytes, list_on_gpu: cached > 0 && needs_list(0) }
    }

    fn costed(&self, on_every_gpu: usize, on_one_gpu: usize, host: &OnHost) -> FeatureChoice {
        let n = self.n_rows();
        let (cached, n_gpus, on_host) = (on_every_gpu + on_one_gpu, self.n_gpus as f64, host.n_rows);
        let share = |from: usize, len: usize| self.shares[from + len] - self.shares[from];
        let reads = |from, len| self.n_reads * share(from, len);
        let Self { rates, row_bytes, .. } = *self;
        let one = reads(on_every_gpu, on_one_gpu);
        let latency = if on_one_gpu > 0 && self.n_gpus > 1 { 2.0 * rates.peer.latency } else { 0.0 };
        let seconds = Seconds {
            every_gpu: rates.device.seconds(reads(0, on_every_gpu), row_bytes),
            one_gpu: rates.device.seconds(one / n_gpus, row_bytes)
                + rates.peer.seconds(one * (n_gpus - 1.0) / n_gpus, row_bytes)
                + latency,
            host: rates.host.seconds(reads(cached, on_host), row_bytes),
            disk: rates.disk.seconds(reads(cached + on_host, n - cached - on_host), row_bytes),
            exchange: 0.0,
        };
        let on_gpu = on_every_gpu + on_one_gpu.div_ceil(self.n_gpus);
        let list_on_gpu = if host.list_on_gpu { self.storage.list_bytes(n) } else { 0 };
        FeatureChoice {
            on_every_gpu,
            on_one_gpu,
            on_host,
            gpu_bytes: row_bytes * on_gpu as u64 + list_on_gpu,
            host_bytes: host.bytes,
            seconds,
        }
    }

    pub(crate) fn placement(&self, choice: &FeatureChoice) -> Placement {
        let FeatureChoice { on_every_gpu, on_one_gpu, on_host, .. } = *choice;
        Placement::of_features(self.heat.order(), (on_every_gpu, on_one_gpu, on_host), self.n_gpus)
    }
}
