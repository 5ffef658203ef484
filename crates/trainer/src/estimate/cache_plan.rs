//! [`CachePlan`]: cache shares for the available memory.
//!
//! ```text
//! Plan::beside_rows   device memory of training       ─┐
//! hotness, reads      of batches that are not trained ─┴─▶ girih_features::Planner ──▶ CacheConfig, and expected reads
//! ```
//! If a device has memory for all data, nothing is cached: features are read in place, and scores are computed as
//! usual. Otherwise features are divided between device and host. Rows of the adjacency are divided too, unless every
//! device has memory for all of them.

use girih_compress::CodecSpec;
use girih_compute::Symbolic;
use girih_datasets::{Dataset, Features};
use girih_features::{CacheShares, MemoryBudget, Planner, Rates, RowPlacement, Storage, Tier, TierPlan};
use girih_graph_format::{Csr, NodeId};

use super::minibatch::RowsOnDevice;
use super::plan::Plan;
use super::sizes::DataSizes;
use crate::TrainError;
use crate::config::{CacheConfig, Combination, TrainConfig};
use crate::engine::CacheReport;
use crate::minibatch::{Neighborhoods, check_features, frequencies, frequencies_and_reads, no_neighbors};

/// Division of device and host memory between topology and features.
#[derive(Clone, Debug, PartialEq)]
pub struct CachePlan {
    /// Cache settings for a configuration; the default where every device holds all data.
    pub tiers: CacheConfig,
    /// Contents of each kind of memory, with the expected share of reads. It assumes that nodes are read as often as
    /// their hotness says.
    pub shares: Vec<CacheReport>,
    /// Rows on the device that has most.
    pub rows: RowsOnDevice,
    /// Bytes that must be free on a device, for training and for rows, with the allocator's waste.
    pub needed_bytes: u64,
    /// Bytes of these for training, with the reserved bytes.
    pub training_bytes: u64,
    /// Bytes of the sampled neighbors, with offsets and the index of cached rows.
    pub topology_bytes: u64,
    /// Bytes of features, with the index of cached rows.
    pub feature_bytes: u64,
    /// Bytes of host memory for placed rows, and for rows of hidden layers during layer-wise inference.
    pub host_bytes: u64,
}

impl CachePlan {
    /// Divides the memory of `budget` for neighbor batches; `reserved` bytes of each device are in other use. It
    /// ignores the shares of the configuration, but not its hotness. Each device is planned for a whole batch, even
    /// if several devices divide it.
    ///
    /// # Errors
    /// When the configuration is [refused](Self::check), or devices cannot read single rows of the features. Also
    /// when training alone does not fit on a device, or devices and host cannot hold all rows. The message names
    /// bytes and a remedy.
    pub fn new(
        dataset: &Dataset,
        config: &TrainConfig,
        budget: MemoryBudget,
        reserved: u64,
    ) -> Result<Self, TrainError> {
        Self::check(config)?;
        let config = &with_tiers(config);
        check_data(dataset, config)?;
        let sizes = DataSizes::of(dataset);
        if let Some(whole) = Self::without_tiers(&sizes, config, budget, reserved)? {
            return Ok(whole);
        }
        let training = Plan::beside_rows(config, &sizes)?;
        let training_bytes = training.device_bytes() + reserved;
        budget.beside(training_bytes)?;
        let left = training.bytes_left(budget.gpu_bytes - reserved).unwrap_or(0);
        let budget = MemoryBudget { host_bytes: budget.host_beside(training.host_layer_bytes)?, ..budget };
        let (neighborhoods, seeds) = (drawn_from(dataset, config)?, seeds(dataset));
        let (frequencies, reads) = frequencies_and_reads(&neighborhoods, seeds, config)?;
        let symbolic = Symbolic::cuda(config.precision, None);
        let planner = Planner {
            // Plans also count self loops, which are not sampled.
            indptr: dataset.graph.indptr(),
            // Edge weights matter to rows of a batch, but not to draws.
            weighted: false,
            feature_bytes: sizes.row_bytes(&symbolic, config) as u64,
            frequencies: &frequencies,
            reads: reads.among(budget.n_gpus),
            n_hops: config.model.layers,
            cut: None,
            budget,
            training_bytes: budget.gpu_bytes - left,
            storage: Storage::Copied,
            rates: Rates::h200(),
        };
        let planned = planner.plan(None)?;
        let tiers = shares_of(&planned, dataset.n_nodes(), config.tiers);
        let rows = rows_on_device(&dataset.graph, tiers, budget.n_gpus, Some(frequencies.rows().order()));
        let placed = TrainConfig { tiers, ..config.clone() };
        Ok(Self {
            tiers,
            shares: expected(&planned),
            rows,
            needed_bytes: Plan::on_cuda_with(&placed, &sizes, rows)?.device_bytes() + reserved,
            training_bytes,
            topology_bytes: planned.topology.gpu_bytes,
            feature_bytes: planned.features.gpu_bytes,
            host_bytes: planned.topology.host_bytes + planned.features.host_bytes + training.host_layer_bytes,
        })
    }

    /// Refuses configurations that cannot use a cache.
    ///
    /// # Errors
    /// As [`TrainConfig::validate`] for a configuration with shares of both.
    pub fn check(config: &TrainConfig) -> Result<(), TrainError> {
        with_tiers(config).validate()
    }

    /// Combination of a configuration with a plan of its caches, for [`supported()`](crate::supported()).
    #[must_use]
    pub fn combination(config: &TrainConfig) -> Combination {
        Combination { plans_caches: true, ..Combination::of(&with_tiers(config)) }
    }

    /// Plan with all data on every device and no cache, if that fits.
    fn without_tiers(
        sizes: &DataSizes,
        config: &TrainConfig,
        budget: MemoryBudget,
        reserved: u64,
    ) -> Result<Option<Self>, TrainError> {
        let tiers = CacheConfig::default();
        let config = TrainConfig { tiers, ..config.clone() };
        let needed_bytes = Plan::on_cuda(&config, sizes)?.device_bytes() + reserved;
        if needed_bytes > budget.gpu_bytes {
            return Ok(None);
        }
        let (n_nodes, n_edges) = (sizes.n_nodes, sizes.n_edges);
        let of_features = (n_nodes * sizes.row_bytes(&Symbolic::cuda(config.precision, None), &config)) as u64;
        let of_neighbors = (n_edges * size_of::<NodeId>()) as u64;
        let topology_bytes = of_neighbors + ((n_nodes + 1) * size_of::<u64>()) as u64;
        let all = |of, bytes| CacheReport { of, tier: Tier::EveryGpu, n_nodes, bytes, reads: 1.0 };
        Ok(Some(Self {
            tiers,
            shares: vec![all("features", of_features), all("neighbors", of_neighbors)],
            rows: RowsOnDevice { features: n_nodes, neighbors: n_edges },
            needed_bytes,
            training_bytes: needed_bytes.saturating_sub(topology_bytes + of_features),
            topology_bytes,
            feature_bytes: of_features,
            host_bytes: 0,
        }))
    }
}

impl RowsOnDevice {
    /// Rows on the device that has most, among `n_devices` that share one cache, for neighbor batches. Shares of the
    /// adjacency require the hotness of nodes to be computed.
    ///
    /// # Errors
    /// When the configuration is refused, or the batches that measure hotness cannot be sampled.
    pub fn of(dataset: &Dataset, config: &TrainConfig, n_devices: usize) -> Result<Self, TrainError> {
        config.validate()?;
        let is_ordered = config.tiers.topology.is_some_and(|shares| !is_all_or_nothing(shares));
        if !is_ordered {
            return Ok(rows_on_device(&dataset.graph, config.tiers, n_devices, None));
        }
        let (frequencies, _) = frequencies(&drawn_from(dataset, config)?, seeds(dataset), config)?;
        Ok(rows_on_device(&dataset.graph, config.tiers, n_devices, Some(frequencies.rows().order())))
    }
}

/// Configuration with both features and topology placed, on the host until shares are known.
fn with_tiers(config: &TrainConfig) -> TrainConfig {
    let CacheConfig { features, topology, .. } = CacheConfig::on_host();
    let tiers = CacheConfig { features, topology, ..config.tiers };
    TrainConfig { tiers, ..config.clone() }
}

/// Refuses features of which devices cannot read single rows.
fn check_data(dataset: &Dataset, config: &TrainConfig) -> Result<(), TrainError> {
    let codec = match &dataset.features {
        Some(Features::Compressed(codes)) => Some(codes.codec().spec()),
        Some(features @ Features::Sparse(_)) if config.codec.is_none() => return check_features(features, config),
        _ => config.codec,
    };
    match codec {
        None | Some(CodecSpec::Topk(_) | CodecSpec::TopkResidual(_)) => Ok(()),
        Some(codec) => Err(TrainError::invalid(format!(
            "--tier-memory is for dense features and topk codes; the host decodes codes of {codec}: give --codec \
             topk:8, or leave --tier-memory out"
        ))),
    }
}

/// Graph that batches are sampled from, as in training.
fn drawn_from(dataset: &Dataset, config: &TrainConfig) -> Result<Neighborhoods, TrainError> {
    let input_spec = DataSizes::of(dataset).input_spec(config)?;
    let adjacency = input_spec.graph.ok_or_else(|| no_neighbors(config))?;
    Neighborhoods::new(&dataset.graph, adjacency)
}

/// Seeds of batches.
fn seeds(dataset: &Dataset) -> &[NodeId] {
    dataset.splits.first().map_or(&[], |split| &split.train)
}

/// Cache settings of a plan.
fn shares_of(planned: &TierPlan, n_nodes: usize, asked: CacheConfig) -> CacheConfig {
    let shares = |part: &RowPlacement| {
        let nodes_on = |tier| part.tiers.iter().find(|used| used.tier == tier).map_or(0, |used| used.n_nodes);
        CacheShares::of_counts(nodes_on(Tier::EveryGpu), nodes_on(Tier::OneGpu), n_nodes)
    };
    // Rows of the adjacency that are all on every device need no index, and no copy on the host.
    let topology = Some(shares(&planned.topology)).filter(|shares| shares.every_gpu < 1.0);
    CacheConfig { features: Some(shares(&planned.features)), topology, ..asked }
}

fn is_all_or_nothing(shares: CacheShares) -> bool {
    shares.one_gpu == 0.0 && (shares.every_gpu == 0.0 || shares.every_gpu == 1.0)
}

/// Rows on the device that has most, for shares of nodes in an `order`. Without an order, the adjacency is on every
/// device or on none.
fn rows_on_device(graph: &Csr, tiers: CacheConfig, n_devices: usize, order: Option<&[NodeId]>) -> RowsOnDevice {
    let n_nodes = graph.n_rows();
    let of_nodes = |shares: Option<CacheShares>| shares.map_or((n_nodes, 0), |shares| shares.of_nodes(n_nodes));
    let (on_every, on_one) = of_nodes(tiers.features);
    let features = on_every + on_one.div_ceil(n_devices);
    let (on_every, on_one) = of_nodes(tiers.topology);
    let neighbors_of = |nodes: &mut dyn Iterator<Item = &NodeId>| nodes.map(|&v| graph.degree(v as usize)).sum();
    let neighbors = match order {
        _ if on_every == n_nodes => graph.nnz(),
        None => 0,
        Some(order) => {
            let (every, others) = order.split_at(on_every);
            let on_device = |device: usize| neighbors_of(&mut others[..on_one].iter().skip(device).step_by(n_devices));
            let on_every: usize = neighbors_of(&mut every.iter());
            on_every + (0..n_devices).map(on_device).max().unwrap_or(0)
        }
    };
    RowsOnDevice { features, neighbors }
}

/// Expected contents and reads of each kind of memory.
fn expected(planned: &TierPlan) -> Vec<CacheReport> {
    let parts = [("features", &planned.features), ("neighbors", &planned.topology)];
    let of_part = |(of, part): (&'static str, &RowPlacement)| {
        let share = |used: &girih_features::TierUse| {
            let &girih_features::TierUse { tier, n_nodes, bytes, expected, .. } = used;
            CacheReport { of, tier, n_nodes, bytes, reads: expected }
        };
        part.tiers.iter().map(share).collect::<Vec<_>>()
    };
    parts.into_iter().flat_map(of_part).collect()
}
