//! [`Planner`]: divides memory between topology and features.
//!
//! - `rows`, `topology`: divisions of the feature rows and of the adjacency over tiers, each with bytes and seconds.
//! - `cut`: patches of the adjacency, one per GPU.
//! - `storage`, `cost`: bytes of rows with their lists, and seconds of reads.

mod cost;
mod cut;
mod rows;
mod storage;
mod topology;

use girih_machine::readable_bytes;

use self::cost::Seconds;
pub use self::cut::Cut;
use self::rows::{FeatureChoice, Features};
pub use self::storage::Storage;
use self::topology::{Adjacency, RowChoice, RowCosts, Topology};
use crate::{AccessFrequencies, Placement, Rates, Reads, Tier, TierError};

/// Number of steps in which the topology's share of GPU memory is tried, besides the sizes at which the cost has a
/// kink.
const STEPS: u64 = 200;

/// Memory budget: number of GPUs, memory of each, and host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBudget {
    /// Number of GPUs; each trains batches of its own.
    pub n_gpus: usize,
    /// Memory of a GPU, in bytes.
    pub gpu_bytes: u64,
    /// Host memory that may be pinned, in bytes; `None` for no limit.
    pub host_bytes: Option<u64>,
}

/// Planner of a placement: data, memory budget and cost model.
#[derive(Clone, Copy, Debug)]
pub struct Planner<'a> {
    /// Row offsets of the adjacency (n + 1).
    pub indptr: &'a [u64],
    /// Whether edges have weights that draws use.
    pub weighted: bool,
    /// Bytes of a feature row, as stored; 0 without features.
    pub feature_bytes: u64,
    /// Access frequencies of features and adjacency rows.
    pub frequencies: &'a AccessFrequencies,
    /// Mean reads of a batch.
    pub reads: Reads,
    /// Number of hops of a batch.
    pub n_hops: usize,
    /// Patches that the topology may be placed in, one per GPU.
    pub cut: Option<&'a Cut>,
    /// Memory budget.
    pub budget: MemoryBudget,
    /// Bytes of a GPU that training takes besides topology and features.
    pub training_bytes: u64,
    /// Storage of rows in the tiers.
    pub storage: Storage,
    /// Rates of reads from each tier.
    pub rates: Rates,
}

impl MemoryBudget {
    /// Bytes of a GPU that training leaves free.
    ///
    /// # Errors
    /// When a GPU has less memory than training takes; the message names bytes and remedies.
    pub fn beside(&self, training_bytes: u64) -> Result<u64, TierError> {
        self.gpu_bytes.checked_sub(training_bytes).ok_or_else(|| {
            TierError::invalid(format!(
                "training alone needs {} on each GPU, which has {}: give a smaller --batch-size or --fanout, or use GPUs with \
                 more memory",
                bytes(training_bytes),
                bytes(self.gpu_bytes)
            ))
        })
    }

    /// Bytes of host memory that rows of hidden layers leave free; `None` if host memory has no limit.
    ///
    /// # Errors
    /// When the host has less memory than these rows take; the message names bytes and remedies.
    pub fn host_beside(&self, layer_bytes: u64) -> Result<Option<u64>, TierError> {
        let Some(host_bytes) = self.host_bytes else { return Ok(None) };
        let left = host_bytes.checked_sub(layer_bytes).ok_or_else(|| {
            TierError::invalid(format!(
                "evaluation layer by layer needs {} of host memory for hidden layers, and the host has {}: give a smaller \
                 --hidden, or --precision bf16",
                bytes(layer_bytes),
                bytes(host_bytes)
            ))
        })?;
        Ok(Some(left))
    }
}

/// Placement of topology and features, with expected costs.
#[derive(Clone, Debug)]
pub struct TierPlan {
    /// Adjacency rows.
    pub topology: RowPlacement,
    /// Feature rows.
    pub features: RowPlacement,
    /// Whether each GPU holds the topology of its patch only.
    pub in_patches: bool,
    /// Bytes of a GPU that topology and features share.
    pub shared_bytes: u64,
    /// Seconds of a batch's reads, one after the other.
    pub seconds: f64,
}

/// Placement and cost of topology or features.
#[derive(Clone, Debug)]
pub struct RowPlacement {
    /// Location of each node's row.
    pub placement: Placement,
    /// Use of each tier, fastest first; tiers without rows are left out.
    pub tiers: Vec<TierUse>,
    /// Seconds per batch in which GPUs exchange ids.
    pub exchange_seconds: f64,
    /// Bytes of each GPU: data, and lists of positions.
    pub gpu_bytes: u64,
    /// Bytes of host memory.
    pub host_bytes: u64,
}

/// Use of a tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierUse {
    /// Tier of this entry.
    pub tier: Tier,
    /// Number of nodes in the tier.
    pub n_nodes: usize,
    /// Bytes of their rows, of one copy.
    pub bytes: u64,
    /// Expected share of the reads that the tier serves, by access frequency.
    pub expected: f64,
    /// Seconds of these reads per batch.
    pub seconds: f64,
}

impl RowPlacement {
    /// Share of the reads in `counts` that each tier serves, in the order of `tiers`. `counts` has one element per
    /// node.
    ///
    /// # Panics
    /// When `counts` has fewer elements than there are nodes.
    #[must_use]
    pub fn measured(&self, counts: &[u32]) -> Vec<f64> {
        let shares = self.placement.shares(|node| f64::from(counts[node as usize]));
        self.tiers.iter().map(|used| by_tier(&self.placement, &shares, used.tier)).collect()
    }

    fn new(
        placement: Placement,
        bytes_of: impl Fn(u32) -> u64,
        frequency: &[f64],
        seconds: Seconds,
        (gpu_bytes, host_bytes): (u64, u64),
    ) -> Self {
        let shares = placement.shares(|node| frequency[node as usize]);
        let used = |(tier, seconds): (Tier, f64)| {
            let spans = || placement.spans().iter().filter(move |span| span.holder.tier() == tier);
            let nodes = || spans().flat_map(|span| span.positions.clone()).map(|at| placement.node(at));
            let n_nodes = spans().map(|span| span.positions.len()).sum();
            let bytes = nodes().map(&bytes_of).sum();
            let expected = by_tier(&placement, &shares, tier);
            (n_nodes > 0).then_some(TierUse { tier, n_nodes, bytes, expected, seconds })
        };
        let tiers = [
            (Tier::EveryGpu, seconds.every_gpu),
            (Tier::OneGpu, seconds.one_gpu),
            (Tier::Host, seconds.host),
            (Tier::Disk, seconds.disk),
        ];
        let tiers = tiers.into_iter().filter_map(used).collect();
        Self { tiers, exchange_seconds: seconds.exchange, gpu_bytes, host_bytes, placement }
    }
}

/// Sum of the shares of a tier's spans.
fn by_tier(placement: &Placement, shares: &[f64], tier: Tier) -> f64 {
    let spans = placement.spans().iter().zip(shares);
    spans.filter(|(span, _)| span.holder.tier() == tier).map(|(_, share)| share).sum()
}

/// Division of a GPU's memory between topology and features.
struct Choice {
    /// Index of the topology's division: whole on every GPU, or in patches.
    way: usize,
    rows: RowChoice,
    features: FeatureChoice,
}

impl Choice {
    fn seconds(&self) -> f64 {
        self.rows.seconds.total() + self.features.seconds.total()
    }

    fn host_bytes(&self) -> u64 {
        self.rows.host_bytes + self.features.host_bytes
    }
}

impl Planner<'_> {
    /// Plans the division of GPU memory for which the reads of a batch take the least time. With `cache_share`,
    /// features get that share of the memory that training leaves, and the topology the rest.
    ///
    /// # Errors
    /// When training alone does not fit on a GPU. When GPUs and host memory do not hold the topology and, where there
    /// is no disk, the features. These messages name bytes and remedies. When the share is not in `0.0..=1.0`, the
    /// number of patches is not that of GPUs, or there are no GPUs.
    pub fn plan(&self, cache_share: Option<f64>) -> Result<TierPlan, TierError> {
        self.check(cache_share)?;
        let shared_bytes = self.budget.beside(self.training_bytes)?;
        let ways = self.ways();
        let stored = (self.feature_bytes, self.storage);
        let features =
            Features::new(&self.frequencies.features, stored, self.budget.n_gpus, self.reads.features, self.rates);
        let quickest = |a: &Choice, b: &Choice| a.seconds().total_cmp(&b.seconds());
        let divided = Divided { shared_bytes, cache_share, host_bytes: self.budget.host_bytes.unwrap_or(u64::MAX) };
        let choices = divided.choices(&ways, &features);
        let best = choices.into_iter().min_by(quickest).ok_or_else(|| match self.storage {
            Storage::Once => self.no_room_for_topology(&ways, shared_bytes, cache_share),
            Storage::Copied => self.no_room_for_copies(&ways, &features, divided),
        })?;
        Ok(self.written(&ways[best.way], &features, &best, shared_bytes))
    }

    fn check(&self, cache_share: Option<f64>) -> Result<(), TierError> {
        let n_gpus = self.budget.n_gpus;
        if n_gpus == 0 {
            return Err(TierError::invalid("a plan for 0 GPUs: give at least 1"));
        }
        if let Some(share) = cache_share.filter(|share| !(0.0..=1.0).contains(share)) {
            return Err(TierError::invalid(format!(
                "the feature cache has the share {share} of the memory: give a number from 0 to 1"
            )));
        }
        if let Some(n) = self.cut.map(|cut| cut.patches().len()).filter(|n| *n != n_gpus) {
            return Err(TierError::invalid(format!(
                "the graph has {n} parts for {n_gpus} GPUs: give one part for each GPU"
            )));
        }
        Ok(())
    }

    /// Divisions of the topology: whole on every GPU and, with several GPUs and a cut, in patches.
    fn ways(&self) -> Vec<Topology<'_>> {
        let n_rows = self.indptr.len().saturating_sub(1).max(1);
        let mean_degree = self.indptr.last().copied().unwrap_or(0) as f64 / n_rows as f64;
        // A draw by weight searches the prefix sums of a row, then reads the id.
        let reads_per_draw = if self.weighted { 1.0 + (1.0 + mean_degree).log2() } else { 1.0 };
        let costs = RowCosts { reads: self.reads, rates: self.rates, reads_per_draw, n_hops: self.n_hops };
        let cut = self.cut.filter(|_| self.budget.n_gpus > 1).map(Some);
        let way = |cut| Topology::new(self.adjacency(), self.frequencies.rows(), cut, costs);
        std::iter::once(None).chain(cut).map(way).collect()
    }

    fn adjacency(&self) -> Adjacency<'_> {
        Adjacency { indptr: self.indptr, weighted: self.weighted, storage: self.storage }
    }

    /// Plan of a choice.
    fn written(
        &self,
        topology: &Topology<'_>,
        features: &Features<'_>,
        choice: &Choice,
        shared_bytes: u64,
    ) -> TierPlan {
        let Choice { rows, features: chosen, .. } = choice;
        TierPlan {
            topology: RowPlacement::new(
                topology.placement(rows, self.budget.n_gpus),
                |v| self.adjacency().row_bytes(v),
                self.frequencies.rows().frequency(),
                rows.seconds,
                (rows.gpu_bytes, rows.host_bytes),
            ),
            features: RowPlacement::new(
                features.placement(chosen),
                |_| features.row_bytes,
                self.frequencies.features.frequency(),
                chosen.seconds,
                (chosen.gpu_bytes, chosen.host_bytes),
            ),
            in_patches: topology.is_in_patches(),
            shared_bytes,
            seconds: choice.seconds(),
        }
    }

    fn no_room_for_topology(&self, ways: &[Topology<'_>], shared_bytes: u64, cache_share: Option<f64>) -> TierError {
        let MemoryBudget { n_gpus, host_bytes, .. } = self.budget;
        let for_rows = cache_share.map_or(shared_bytes, |share| ((1.0 - share) * shared_bytes as f64) as u64);
        let on_host = |way: &Topology<'_>, for_rows| way.within(for_rows).map(|rows| rows.host_bytes);
        let least = |for_rows| ways.iter().filter_map(|way| on_host(way, for_rows)).min().unwrap_or(0);
        let (needed, host) = (least(for_rows), host_bytes.unwrap_or(u64::MAX));
        let whole = ways[0].whole_bytes();
        let mut remedies = vec![format!("give the host {}", bytes(needed))];
        if cache_share.is_some() && least(shared_bytes) <= host {
            remedies.push("give features a smaller share".to_owned());
        }
        let more = whole.saturating_sub(host).div_ceil(shared_bytes.max(1));
        if more > n_gpus as u64 {
            remedies.push(format!("partition it over about {more} GPUs"));
        }
        TierError::invalid(format!(
            "the graph takes {}: {n_gpus} GPU(s) have {} for it each, which leaves {} to the host, and the host has {}; {}",
            bytes(whole),
            bytes(for_rows),
            bytes(needed),
            bytes(host),
            remedies.join(", or ")
        ))
    }

    fn no_room_for_copies(&self, ways: &[Topology<'_>], features: &Features<'_>, divided: Divided) -> TierError {
        let whole = ways[0].whole_bytes() + features.whole_bytes();
        let (shared, host) = (divided.shared_bytes, divided.host_bytes);
        let choices = Divided { host_bytes: u64::MAX, ..divided }.choices(ways, features);
        let needed = choices.iter().map(Choice::host_bytes).min();
        TierError::invalid(match needed {
            None => format!(
                "training leaves {} of each GPU, and the indptr and the index of cached rows alone take {}: give a smaller \
                 --batch-size, or use GPUs with more memory (graph and features take {})",
                bytes(shared),
                bytes(ways[0].least_bytes() + features.list_of_one_place()),
                bytes(whole)
            ),
            Some(needed) => format!(
                "graph and features take {}: each GPU has {2} for both, which leaves {1} to the host, and the host has {3}; \
                 compress the features (--codec topk:8), or use more memory on the host or the GPUs",
                bytes(whole),
                bytes(needed),
                bytes(shared),
                bytes(host)
            ),
        })
    }
}

/// Memory to divide.
#[derive(Clone, Copy)]
struct Divided {
    /// Bytes of a GPU that topology and features share.
    shared_bytes: u64,
    /// Fixed share of the features; `None` if it is free.
    cache_share: Option<f64>,
    /// Bytes of host memory.
    host_bytes: u64,
}

impl Divided {
    /// All choices that are tried.
    fn choices(self, ways: &[Topology<'_>], features: &Features<'_>) -> Vec<Choice> {
        let of_way = |(way, topology): (usize, &Topology<'_>)| {
            let choice = move |(rows, features)| Choice { way, rows, features };
            self.of_topology(topology, features).into_iter().map(choice).collect::<Vec<_>>()
        };
        ways.iter().enumerate().flat_map(of_way).collect()
    }

    /// Possible divisions of a GPU's bytes, for one division of the topology.
    fn of_topology(self, topology: &Topology<'_>, features: &Features<'_>) -> Vec<(RowChoice, FeatureChoice)> {
        let shared_bytes = self.shared_bytes;
        let divided = |for_rows: u64, for_features: Option<u64>| {
            let rows = topology.within(for_rows)?;
            let for_features = for_features.unwrap_or(shared_bytes - rows.gpu_bytes);
            let left = self.host_bytes.checked_sub(rows.host_bytes)?;
            let features = features.within(for_features, left)?;
            Some((rows, features))
        };
        if let Some(share) = self.cache_share {
            let for_features = ((share * shared_bytes as f64) as u64).min(shared_bytes);
            return divided(shared_bytes - for_features, Some(for_features)).into_iter().collect();
        }
        let steps = (0..=STEPS).map(|step| (u128::from(shared_bytes) * u128::from(step) / u128::from(STEPS)) as u64);
        let beside = |bytes: u64| shared_bytes.saturating_sub(bytes);
        let of_features = [features.list_of_one_place(), features.spread_bytes(), features.whole_bytes()].map(beside);
        let kinks = std::iter::once(topology.whole_bytes().min(shared_bytes)).chain(of_features);
        kinks.chain(steps).filter_map(|for_rows| divided(for_rows, None)).collect()
    }
}

/// Readable size, with the exact number of bytes.
fn bytes(bytes: u64) -> String {
    format!("{} ({bytes} bytes)", readable_bytes(bytes))
}
