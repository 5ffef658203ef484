//! [`Placements`]: the placement of graph and features on devices and hosts.

use girih_datasets::Features;
use girih_features::{
    AccessFrequencies, AccessFrequency, CacheShares, Hotness, PRESAMPLED_EPOCH, Placement, Reads, Visits,
};
use girih_graph_format::NodeId;
use girih_sampling::{LoaderOptions, SeedLoader};

use super::Neighborhoods;
use super::batches::neighbor_sampler;
use crate::TrainError;
use crate::config::{DEFAULT_BATCH_SIZE, TrainConfig};
use crate::engine::CacheReport;

/// Maximal number of presampled batches.
const PRESAMPLED_BATCHES: usize = 32;
/// Number of batches whose reads are counted by tier.
const COUNTED_BATCHES: usize = 8;

/// Placement of features and of rows to sample from.
#[derive(Default)]
pub struct Placements {
    /// Placement of features; `None` if every device has all.
    pub features: Option<Placement>,
    /// Placement of rows to sample from; `None` if every device has all.
    pub topology: Option<Placement>,
    /// Contents of each kind of memory, with its share of the reads.
    pub shares: Vec<CacheReport>,
}

impl Placements {
    /// Placement by a configuration, for batches of `seeds` on `n_devices`. With `None`, the host samples or has the
    /// only memory, and holds all rows.
    ///
    /// # Errors
    /// When the batches that measure hotness cannot be sampled.
    pub fn new(
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
        let is_ordered = |shares: CacheShares| shares.every_gpu > 0.0 || shares.one_gpu > 0.0;
        let graph = neighborhoods.graph();
        let frequencies = if parts.into_iter().flatten().any(is_ordered) {
            frequencies(neighborhoods, seeds, config)?.0
        } else {
            Hotness::InDegree.frequencies(graph, seeds, &Visits::default())
        };
        let placed = |shares: CacheShares, heat: &AccessFrequency| {
            Placement::of_shares(heat.order(), shares, n_devices.unwrap_or(1))
        };
        let features = features.map(|shares| placed(shares, &frequencies.features));
        let topology = topology.map(|shares| placed(shares, frequencies.rows()));
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
pub(crate) fn frequencies(
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
    let frequencies = hotness.frequencies(neighborhoods.graph(), seeds, presampled.as_ref().unwrap_or(&nothing));
    Ok((frequencies, presampled))
}

/// Access frequency of nodes, and reads of a batch.
///
/// # Errors
/// When the batches that measure them cannot be sampled.
pub fn frequencies_and_reads(
    neighborhoods: &Neighborhoods,
    seeds: &[NodeId],
    config: &TrainConfig,
) -> Result<(AccessFrequencies, Reads), TrainError> {
    let (frequencies, visits) = frequencies(neighborhoods, seeds, config)?;
    let visits = visits.map_or_else(|| presampled(neighborhoods, seeds, config), Ok)?;
    Ok((frequencies, visits.per_batch()))
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
