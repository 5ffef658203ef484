//! [`Planner`]: divides memory between topology and features.

use girih_machine::readable_bytes;

use crate::cost::Seconds;
use crate::features::{FeatureChoice, Features};
use crate::topology::{Adjacency, RowChoice, RowCosts, Topology};
use crate::{AccessFrequencies, Cut, Placement, Rates, Reads, Storage, Tier, TierError};

/// Shares of a card's memory that topology is given in turn, beside those at which something changes.
const STEPS: u64 = 200;

/// Cards, and what memory there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Cards; each trains batches of its own.
    pub n_cards: usize,
    /// Bytes of a card.
    pub card_bytes: u64,
    /// Bytes of host memory that may be pinned; `None` for as many as it takes.
    pub host_bytes: Option<u64>,
}

/// What is placed, where there is room, and what reads cost.
#[derive(Clone, Copy, Debug)]
pub struct Planner<'a> {
    /// Offsets of the rows of the adjacency.
    pub indptr: &'a [u64],
    /// Whether edges have weights to be drawn by.
    pub weighted: bool,
    /// Bytes of a row of features, as it is stored; 0 without features.
    pub feature_bytes: u64,
    /// How often nodes are read.
    pub heats: &'a AccessFrequencies,
    /// What a batch reads.
    pub reads: Reads,
    /// Hops of a batch.
    pub n_hops: usize,
    /// Patches that topology may lie in, one for each card.
    pub cut: Option<&'a Cut>,
    /// Where there is room.
    pub room: Room,
    /// Bytes of a card that training takes beside topology and features.
    pub training_bytes: u64,
    /// How rows are stored.
    pub storage: Storage,
    /// What reads cost.
    pub rates: Rates,
}

impl Room {
    /// What training leaves of a card.
    ///
    /// # Errors
    /// When a card has not even what training takes: the message names bytes and what would help.
    pub fn beside(&self, training_bytes: u64) -> Result<u64, TierError> {
        self.card_bytes.checked_sub(training_bytes).ok_or_else(|| {
            TierError::invalid(format!(
                "training alone needs {} on each GPU, which has {}: give a smaller --batch-size or --fanout, or use GPUs with \
                 more memory",
                bytes(training_bytes),
                bytes(self.card_bytes)
            ))
        })
    }

    /// What rows of hidden layers leave of the host, where it is known how much that has.
    ///
    /// # Errors
    /// When it has not even what these take: the message names bytes and what would help.
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

/// Where topology and features lie.
#[derive(Clone, Debug)]
pub struct TierPlan {
    /// Rows of the adjacency.
    pub topology: Part,
    /// Rows of features.
    pub features: Part,
    /// Whether each card has the topology of a patch alone.
    pub in_patches: bool,
    /// Bytes of a card that topology and features share.
    pub shared_bytes: u64,
    /// Seconds that the reads of a batch take, one after the other.
    pub seconds: f64,
}

/// One of the two.
#[derive(Clone, Debug)]
pub struct Part {
    /// A place for each node.
    pub placement: Placement,
    /// What each tier holds, fastest first; those that hold nothing are left out.
    pub tiers: Vec<TierUse>,
    /// Seconds of a batch in which cards exchange ids.
    pub exchange_seconds: f64,
    /// Bytes of each card: data, and lists of positions.
    pub card_bytes: u64,
    /// Bytes of host memory.
    pub host_bytes: u64,
}

/// What a tier holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierUse {
    /// Which one.
    pub tier: Tier,
    /// Nodes in it.
    pub n_nodes: usize,
    /// Bytes of their rows: of one copy.
    pub bytes: u64,
    /// Share of reads that it is expected to serve, if nodes are read as often as their heat says.
    pub expected: f64,
    /// Seconds of these reads in a batch.
    pub seconds: f64,
}

impl Part {
    /// The share of some reads that each tier serves, in the order of `tiers`.
    ///
    /// # Panics
    /// When there is not a count for each node.
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
        (card_bytes, host_bytes): (u64, u64),
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
            (Tier::EveryCard, seconds.every_card),
            (Tier::OneCard, seconds.one_card),
            (Tier::Host, seconds.host),
            (Tier::Disk, seconds.disk),
        ];
        let tiers = tiers.into_iter().filter_map(used).collect();
        Self { tiers, exchange_seconds: seconds.exchange, card_bytes, host_bytes, placement }
    }
}

/// The sum of the shares of a tier's spans.
fn by_tier(placement: &Placement, shares: &[f64], tier: Tier) -> f64 {
    let spans = placement.spans().iter().zip(shares);
    spans.filter(|(span, _)| span.holder.tier() == tier).map(|(_, share)| share).sum()
}

/// A way to divide the memory of a card.
struct Choice {
    /// Which of the ways to have topology.
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
    /// The division of a card's memory by which the reads of a batch take the least time; or the one in which features
    /// get the share `cache_share` of what training leaves, and topology the rest.
    ///
    /// # Errors
    /// When training alone does not fit on a card, or cards and host memory do not hold the topology and, where there
    /// is no disk, the features: the message names bytes and what would help. When the share is not from 0 to 1,
    /// patches are not one a card, or there are no cards.
    pub fn plan(&self, cache_share: Option<f64>) -> Result<TierPlan, TierError> {
        self.check(cache_share)?;
        let shared_bytes = self.room.beside(self.training_bytes)?;
        let ways = self.ways();
        let stored = (self.feature_bytes, self.storage);
        let features = Features::new(&self.heats.features, stored, self.room.n_cards, self.reads.features, self.rates);
        let quickest = |a: &Choice, b: &Choice| a.seconds().total_cmp(&b.seconds());
        let divided = Divided { shared_bytes, cache_share, host_bytes: self.room.host_bytes.unwrap_or(u64::MAX) };
        let choices = divided.choices(&ways, &features);
        let best = choices.into_iter().min_by(quickest).ok_or_else(|| match self.storage {
            Storage::Once => self.no_room_for_topology(&ways, shared_bytes, cache_share),
            Storage::Copied => self.no_room_for_copies(&ways, &features, divided),
        })?;
        Ok(self.written(&ways[best.way], &features, &best, shared_bytes))
    }

    fn check(&self, cache_share: Option<f64>) -> Result<(), TierError> {
        let n_cards = self.room.n_cards;
        if n_cards == 0 {
            return Err(TierError::invalid("a plan for 0 GPUs: give at least 1"));
        }
        if let Some(share) = cache_share.filter(|share| !(0.0..=1.0).contains(share)) {
            return Err(TierError::invalid(format!(
                "the feature cache has the share {share} of the memory: give a number from 0 to 1"
            )));
        }
        if let Some(n) = self.cut.map(|cut| cut.patches().len()).filter(|n| *n != n_cards) {
            return Err(TierError::invalid(format!(
                "the graph has {n} parts for {n_cards} GPUs: give one part for each GPU"
            )));
        }
        Ok(())
    }

    /// Topology whole on every card and, if there are several, in patches.
    fn ways(&self) -> Vec<Topology<'_>> {
        let n_rows = self.indptr.len().saturating_sub(1).max(1);
        let mean_degree = self.indptr.last().copied().unwrap_or(0) as f64 / n_rows as f64;
        // A draw by weight searches sums of a row, then reads the id.
        let reads_per_draw = if self.weighted { 1.0 + (1.0 + mean_degree).log2() } else { 1.0 };
        let costs = RowCosts { reads: self.reads, rates: self.rates, reads_per_draw, n_hops: self.n_hops };
        let cut = self.cut.filter(|_| self.room.n_cards > 1).map(Some);
        let way = |cut| Topology::new(self.adjacency(), self.heats.rows(), cut, costs);
        std::iter::once(None).chain(cut).map(way).collect()
    }

    fn adjacency(&self) -> Adjacency<'_> {
        Adjacency { indptr: self.indptr, weighted: self.weighted, storage: self.storage }
    }

    /// The plan of a choice.
    fn written(
        &self,
        topology: &Topology<'_>,
        features: &Features<'_>,
        choice: &Choice,
        shared_bytes: u64,
    ) -> TierPlan {
        let Choice { rows, features: chosen, .. } = choice;
        TierPlan {
            topology: Part::new(
                topology.placement(rows, self.room.n_cards),
                |v| self.adjacency().row_bytes(v),
                self.heats.rows().frequency(),
                rows.seconds,
                (rows.card_bytes, rows.host_bytes),
            ),
            features: Part::new(
                features.placement(chosen),
                |_| features.row_bytes,
                self.heats.features.frequency(),
                chosen.seconds,
                (chosen.card_bytes, chosen.host_bytes),
            ),
            in_patches: topology.is_in_patches(),
            shared_bytes,
            seconds: choice.seconds(),
        }
    }

    fn no_room_for_topology(&self, ways: &[Topology<'_>], shared_bytes: u64, cache_share: Option<f64>) -> TierError {
        let Room { n_cards, host_bytes, .. } = self.room;
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
        if more > n_cards as u64 {
            remedies.push(format!("partition it over about {more} GPUs"));
        }
        TierError::invalid(format!(
            "the graph takes {}: {n_cards} GPU(s) have {} for it each, which leaves {} to the host, and the host has {}; {}",
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

/// How memory is divided.
#[derive(Clone, Copy)]
struct Divided {
    /// Bytes of a card that topology and features share.
    shared_bytes: u64,
    /// The share of features, if it is fixed.
    cache_share: Option<f64>,
    /// Bytes of host memory that there are.
    host_bytes: u64,
}

impl Divided {
    /// All that are tried.
    fn choices(self, ways: &[Topology<'_>], features: &Features<'_>) -> Vec<Choice> {
        let of_way = |(way, topology): (usize, &Topology<'_>)| {
            let choice = move |(rows, features)| Choice { way, rows, features };
            self.of_topology(topology, features).into_iter().map(choice).collect::<Vec<_>>()
        };
        ways.iter().enumerate().flat_map(of_way).collect()
    }

    /// Those of the bytes of a card that are possible, with topology in one way.
    fn of_topology(self, topology: &Topology<'_>, features: &Features<'_>) -> Vec<(RowChoice, FeatureChoice)> {
        let shared_bytes = self.shared_bytes;
        let divided = |for_rows: u64, for_features: Option<u64>| {
            let rows = topology.within(for_rows)?;
            let for_features = for_features.unwrap_or(shared_bytes - rows.card_bytes);
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

/// For people, and to the byte.
fn bytes(bytes: u64) -> String {
    format!("{} ({bytes} bytes)", readable_bytes(bytes))
}
