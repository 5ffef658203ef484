//! [`CacheConfig`]: the placement of graph and features on devices and hosts.

use girih_datasets::Features;
use girih_graph_format::NodeId;
use girih_sampling::{LoaderOptions, SeedLoader};
use girih_tiers::{
    AccessFrequencies, AccessFrequency, CacheShares, HostReads, Hotness, PRESAMPLED_EPOCH, Placement, Reads, Tier,
    Visits,
};
use serde::{Deserialize, Serialize};

use super::Neighborhoods;
use super::batches::neighbor_sampler;
use crate::TrainError;
use crate::batching::DEFAULT_BATCH_SIZE;
use crate::config::TrainConfig;

/// Maximal number of presampled batches.
const PRESAMPLED_BATCHES: usize = 32;
/// Number of batches whose reads are counted by tier.
const COUNTED_BATCHES: usize = 8;

/// Features and rows of the adjacency that devices hold while they sample mini-batches. All others are in host
/// memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// Shares of the features on devices; `None`: every device has all.
    #[serde(with = "shares", skip_serializing_if = "Option::is_none")]
    pub features: Option<CacheShares>,
    /// Shares of the rows to sample from on devices; `None`: every device has all.
    #[serde(with = "shares", skip_serializing_if = "Option::is_none")]
    pub topology: Option<CacheShares>,
    /// Measure that orders nodes by hotness.
    #[serde(with = "text", skip_serializing_if = "is_default")]
    pub hotness: Hotness,
    /// Access to feature rows on the host. Devices read neighbours in place.
    #[serde(with = "text", skip_serializing_if = "is_default")]
    pub host_reads: HostReads,
}

impl CacheConfig {
    /// Configuration with all rows on the host, and none on devices.
    #[must_use]
    pub fn on_host() -> Self {
        let nothing = Some(CacheShares::default());
        Self { features: nothing, topology: nothing, ..Self::default() }
    }

    /// As this configuration, but with zero shares: it keeps what is placed, but not where.
    pub(crate) fn without_shares(&self) -> Self {
        let placed = |shares: Option<CacheShares>| shares.map(|_| CacheShares::default());
        Self { features: placed(self.features), topology: placed(self.topology), ..Self::default() }
    }

    /// Error of a CPU device, which cannot use a cache.
    #[must_use]
    pub fn refused_by_processors() -> TrainError {
        TrainError::invalid(
            "--feature-cache and --topology-cache have no effect on the CPU, which reads host memory directly: leave them out, \
             or give --device cuda",
        )
    }

    /// Whether devices have all data.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// First invalid setting and its rule; `None` if all are valid.
    pub(crate) fn complaint(&self) -> Option<(&'static str, &'static str)> {
        const IDLE: (&str, &str) =
            ("tiers.hotness", "left out: it orders what tiers.features and tiers.topology place");
        const READS: (&str, &str) =
            ("tiers.host_reads", "left out: it is about what tiers.features leaves to the host");
        const SHARES: &str = "from 0 to 1: a share of the nodes, or one for every device and one for one device each";
        let parts = [("tiers.features", self.features), ("tiers.topology", self.topology)];
        let wrong = parts.into_iter().find(|(_, shares)| shares.is_some_and(|shares| !shares.are_shares()));
        let is_idle = self.hotness != Hotness::default() && self.features.is_none() && self.topology.is_none();
        let reads_nothing = self.host_reads != HostReads::default() && self.features.is_none();
        wrong.map(|(name, _)| (name, SHARES)).or(is_idle.then_some(IDLE)).or(reads_nothing.then_some(READS))
    }
}

/// Contents of one kind of memory, of features or neighbours, and the reads that it serves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CacheReport {
    /// `features`, or `neighbors` for rows to sample from.
    pub of: &'static str,
    /// Kind of memory.
    #[serde(serialize_with = "tier::serialize")]
    pub tier: Tier,
    /// Number of nodes with rows there.
    pub n_nodes: usize,
    /// Bytes of these rows, counted once.
    pub bytes: u64,
    /// Fraction of the reads of such rows that it serves, in some batches of the first epoch. Hotness is not measured
    /// on these batches.
    pub reads: f64,
}

/// Placement of features and of rows to sample from.
#[derive(Default)]
pub(crate) struct Placements {
    pub(crate) features: Option<Placement>,
    pub(crate) topology: Option<Placement>,
    pub(crate) shares: Vec<CacheReport>,
}

impl Placements {
    /// Placement by a configuration, for batches of `seeds` on `n_devices`. With `None`, the host samples or has the
    /// only memory, and holds all rows.
    ///
    /// # Errors
    /// When the batches that measure hotness cannot be sampled.
    pub(crate) fn new(
        neighborhoods: &Neighborhoods,
        (seeds, row_bytes): (&[NodeId], usize),
        config: &TrainConfig,
        n_devices: Option<usize>,
    ) -> Result<Self, TrainError> {
        let shares =
            |asked: Option<CacheShares>| asked.map(|shares| n_devices.map_or(CacheShares::default(), |_| shares));
        let parts @ [features, topology] = [config.tiers.features, config.tiers.topology].map(shares);
        if parts.iter().all(Option::is_none) {
            return Ok(Self::default());
        }
        let is_ordered = |shares: CacheShares| shares.every_card > 0.0 || shares.one_card > 0.0;
        let graph = neighborhoods.graph();
        let heats = if parts.into_iter().flatten().any(is_ordered) {
            heats(neighborhoods, seeds, config)?.0
        } else {
            Hotness::InDegree.heats(graph, seeds, &Visits::default())
        };
        let placed = |shares: CacheShares, heat: &AccessFrequency| {
            Placement::of_shares(heat.order(), shares, n_devices.unwrap_or(1))
        };
        let features = features.map(|shares| placed(shares, &heats.features));
        let topology = topology.map(|shares| placed(shares, heats.rows()));
        // A single kind of memory serves all reads.
        let is_divided = [&features, &topology].into_iter().flatten().any(|placement| placement.spans().len() > 1);
        let n_counted = if is_divided { COUNTED_BATCHES } else { 0 };
        let counted = visits(neighborhoods, seeds, config, (0, n_counted))?;
        let of_neighbors = |node: NodeId| (graph.degree(node as usize) * size_of::<NodeId>()) as u64;
        let mut shares = Vec::new();
        if let Some(placement) = &features {
            shares.extend(shares_of("features", placement, &counted.features, &|_| row_bytes as u64));
        }
        if let Some(placement) = &topology {
            shares.extend(shares_of("neighbors", placement, &counted.rows, &of_neighbors));
        }
        Ok(Self { features, topology, shares })
    }
}

/// Access frequency of nodes, with the presampled batches if it was measured on them.
pub(super) fn heats(
    neighborhoods: &Neighborhoods,
    seeds: &[NodeId],
    config: &TrainConfig,
) -> Result<(AccessFrequencies, Option<Visits>), TrainError> {
    let hotness = config.tiers.hotness;
    let presampled = match hotness {
        Hotness::Presampled => Some(presampled(neighborhoods, seeds, config)?),
        Hotness::InDegree | Hotness::PageRank | Hotness::ReversePageRank => None,
    };
    let nothing = Visits::default();
    let heats = hotness.heats(neighborhoods.graph(), seeds, presampled.as_ref().unwrap_or(&nothing));
    Ok((heats, presampled))
}

/// Access frequency of nodes, and reads of a batch.
pub(super) fn heats_and_reads(
    neighborhoods: &Neighborhoods,
    seeds: &[NodeId],
    config: &TrainConfig,
) -> Result<(AccessFrequencies, Reads), TrainError> {
    let (heats, visits) = heats(neighborhoods, seeds, config)?;
    let visits = visits.map_or_else(|| presampled(neighborhoods, seeds, config), Ok)?;
    Ok((heats, visits.per_batch()))
}

/// Reads of batches in an epoch that is not trained.
fn presampled(neighborhoods: &Neighborhoods, seeds: &[NodeId], config: &TrainConfig) -> Result<Visits, TrainError> {
    visits(neighborhoods, seeds, config, (PRESAMPLED_EPOCH, PRESAMPLED_BATCHES))
}

/// Reads of `n_batches` batches of an epoch.
fn visits(
    neighborhoods: &Neighborhoods,
    seeds: &[NodeId],
    config: &TrainConfig,
    (epoch, n_batches): (u32, usize),
) -> Result<Visits, TrainError> {
    let sampler = neighbor_sampler(config, neighborhoods, false)?;
    let batch_size = config.batch_size.unwrap_or(DEFAULT_BATCH_SIZE);
    let options = LoaderOptions { batch_size, seed: config.seed, ..LoaderOptions::default() };
    let loader = SeedLoader::new(neighborhoods.graph(), sampler, seeds.to_vec(), options)?;
    Ok(Visits::of(&loader, epoch, n_batches, rayon::current_num_threads())?)
}

/// Report on each kind of memory: its contents, and its share of the reads.
fn shares_of<'p>(
    of: &'static str,
    placement: &'p Placement,
    reads: &[u32],
    bytes: &'p dyn Fn(NodeId) -> u64,
) -> impl Iterator<Item = CacheReport> + 'p {
    let shares = placement.shares(|node| f64::from(reads[node as usize]));
    placement.spans().iter().zip(shares).map(move |(span, reads)| CacheReport {
        of,
        tier: span.holder.tier(),
        n_nodes: span.positions.len(),
        bytes: span.positions.clone().map(|position| bytes(placement.node(position))).sum(),
        reads,
    })
}

/// Checks that features can be elsewhere than whole on a device.
///
/// # Errors
/// When they cannot.
pub(crate) fn check_features(features: &Features, config: &TrainConfig) -> Result<(), TrainError> {
    if config.tiers.features.is_some() && matches!(features, Features::Sparse(_)) {
        return Err(TrainError::invalid(
            "--feature-cache holds dense or compressed features, and these are sparse: leave it out; they take little memory",
        ));
    }
    Ok(())
}

fn is_default<T: Default + PartialEq>(setting: &T) -> bool {
    *setting == T::default()
}

/// Shares in the text of a configuration: a number, or a string with two.
mod shares {
    use girih_tiers::CacheShares;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(f64),
        Text(String),
    }

    #[allow(clippy::ref_option)]
    pub(super) fn serialize<S: Serializer>(shares: &Option<CacheShares>, out: S) -> Result<S::Ok, S::Error> {
        match shares {
            None => out.serialize_none(),
            Some(shares) if shares.one_card > 0.0 => out.collect_str(shares),
            Some(shares) => out.serialize_f64(shares.every_card),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Option<CacheShares>, D::Error> {
        match Written::deserialize(input)? {
            Written::Number(every_card) => Ok(Some(CacheShares { every_card, one_card: 0.0 })),
            Written::Text(text) => text.parse().map(Some).map_err(D::Error::custom),
        }
    }
}

/// Tier in results, by name.
mod tier {
    use girih_tiers::Tier;
    use serde::Serializer;

    #[allow(clippy::trivially_copy_pass_by_ref)]
    pub(super) fn serialize<S: Serializer>(tier: &Tier, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(tier.name())
    }
}

/// Settings that configurations hold as text.
mod text {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<T: Display, S: Serializer>(setting: &T, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(setting)
    }

    pub(super) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(input: D) -> Result<T, D::Error> {
        String::deserialize(input)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use girih_datasets::{LoadOptions, load};
    use girih_graph_format::Norm;

    use super::*;
    use crate::batching::{BatchConfig, BatchKind};
    use crate::inputs::Adjacency;

    #[test]
    fn shares_are_of_all_nodes_bytes_and_reads() {
        let spec = "synth:planted,nodes=3000,degree=20,features=4,classes=3";
        let dataset = load(spec, &LoadOptions::default()).unwrap();
        let neighborhoods = Neighborhoods::new(&dataset.graph, Adjacency::new(false, Norm::Row)).unwrap();
        let tiers = CacheConfig {
            features: Some(CacheShares { every_card: 0.1, one_card: 0.4 }),
            topology: Some(CacheShares { every_card: 0.2, one_card: 0.0 }),
            ..CacheConfig::default()
        };
        let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![5, 5], ..BatchConfig::default() };
        let config = TrainConfig { tiers, batch, batch_size: Some(100), ..TrainConfig::default() };
        let seeds = &dataset.splits[0].train;
        let placed = Placements::new(&neighborhoods, (seeds, 16), &config, Some(2)).unwrap();
        let all_of = |of: &str| placed.shares.iter().filter(|share| share.of == of).collect::<Vec<_>>();
        for (of, names, bytes) in [
            ("features", &["every-card", "one-card", "host"][..], 3000 * 16),
            ("neighbors", &["every-card", "host"][..], 4 * dataset.graph.nnz() as u64),
        ] {
            let shares = all_of(of);
            assert_eq!(shares.iter().map(|share| share.tier.name()).collect::<Vec<_>>(), names);
            assert_eq!(shares.iter().map(|share| share.n_nodes).sum::<usize>(), 3000);
            assert_eq!(shares.iter().map(|share| share.bytes).sum::<u64>(), bytes);
            assert!((shares.iter().map(|share| share.reads).sum::<f64>() - 1.0).abs() < 1e-9);
            // The hottest tenth or fifth serves more than its share, and less than all.
            assert!(shares[0].reads > shares[0].n_nodes as f64 / 3000.0 * 1.2 && shares[0].reads < 0.9, "{shares:?}");
        }
    }

    #[test]
    fn tiers_are_written_as_they_are_read() {
        let every = |every_card| Some(CacheShares { every_card, one_card: 0.0 });
        let spread = Some(CacheShares { every_card: 0.25, one_card: 0.5 });
        let all = [
            CacheConfig::default(),
            CacheConfig { features: every(0.2), ..CacheConfig::default() },
            CacheConfig {
                features: every(0.0),
                topology: spread,
                hotness: Hotness::PageRank,
                host_reads: HostReads::InPlace,
            },
        ];
        for tiers in all {
            let text = toml::to_string(&tiers).unwrap();
            assert_eq!(toml::from_str::<CacheConfig>(&text).unwrap(), tiers, "{text}");
            let json = serde_json::to_string(&tiers).unwrap();
            assert_eq!(serde_json::from_str::<CacheConfig>(&json).unwrap(), tiers, "{json}");
        }
        for text in ["features = \"0.9,0.9\"", "hotness = \"warm\"", "host_reads = \"mapped\"", "topolgy = 0.2"] {
            assert!(toml::from_str::<CacheConfig>(text).is_err(), "{text}");
        }
        let wrong = CacheConfig { topology: every(1.5), ..CacheConfig::default() };
        assert_eq!(wrong.complaint().unwrap().0, "tiers.topology");
        let idle = CacheConfig { hotness: Hotness::PageRank, ..CacheConfig::default() };
        assert_eq!(idle.complaint().unwrap().0, "tiers.hotness");
        let nothing = CacheConfig { topology: every(0.5), host_reads: HostReads::Staged, ..CacheConfig::default() };
        assert_eq!(nothing.complaint().unwrap().0, "tiers.host_reads");
        assert!(all.iter().all(|tiers| tiers.complaint().is_none()));
    }
}
