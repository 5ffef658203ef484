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
use crate::minibatch::{Neighborhoods, check_features, frequencies, frequencies_and_reads, no_neighbours};

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
    /// Bytes of the sampled neighbours, with offsets and the index of cached rows.
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
    let adjacency = input_spec.graph.ok_or_else(|| no_neighbours(config))?;
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

#[cfg(test)]
mod tests {
    use girih_compress::CodecSpec;
    use girih_datasets::{LoadOptions, load};
    use girih_features::Hotness;

    use super::*;
    use crate::config::{BatchConfig, BatchKind, ScoreBy};
    use crate::config::{ModelConfig, ModelKind};
    use crate::minibatch::Placements;

    /// Data with more nodes than are scored at a time, of which a batch reads few. Features take twelve times the
    /// memory of neighbours. There is no prefetch, so that all data take more memory than divided data.
    fn data(codec: Option<CodecSpec>) -> (Dataset, TrainConfig) {
        let spec = "synth:planted,nodes=120000,degree=6,features=72,classes=4";
        let dataset = load(spec, &LoadOptions { codec, ..LoadOptions::default() }).unwrap();
        let batch =
            BatchConfig { kind: BatchKind::Neighbor, fanout: vec![4, 3], prefetch: 0, ..BatchConfig::default() };
        let model = ModelConfig { kind: ModelKind::Sage, hidden: 64, ..ModelConfig::default() };
        (dataset, TrainConfig { model, batch, batch_size: Some(64), codec, ..TrainConfig::default() })
    }

    fn budget(n_gpus: usize, gpu_bytes: u64) -> MemoryBudget {
        MemoryBudget { n_gpus, gpu_bytes, host_bytes: None }
    }

    /// Device bytes of training alone, and of training with all rows placed.
    fn ends(dataset: &Dataset, config: &TrainConfig) -> (u64, u64) {
        let sizes = DataSizes::of(dataset);
        let (least, rows) = (Plan::beside_rows(config, &sizes).unwrap().device_bytes(), CacheConfig::on_host());
        let config = TrainConfig { tiers: rows, ..config.clone() };
        let all = RowsOnDevice { features: sizes.n_nodes, neighbors: sizes.n_edges };
        (least, Plan::on_cuda_with(&config, &sizes, all).unwrap().device_bytes())
    }

    /// Device bytes with which a device holds some of both. Without a cache, all fits with little more than the
    /// middle of the range: scores then read rows in place, and nothing is prefetched.
    fn some((least, most): (u64, u64)) -> u64 {
        least + (most - least) * 2 / 5
    }

    fn planned(dataset: &Dataset, config: &TrainConfig, rows: RowsOnDevice) -> u64 {
        Plan::on_cuda_with(config, &DataSizes::of(dataset), rows).unwrap().device_bytes()
    }

    /// Compares a cache plan with the budget, with the plan of the resulting configuration, and with the placement in
    /// training.
    fn check(dataset: &Dataset, config: &TrainConfig, budget: MemoryBudget, reserved: u64) -> CachePlan {
        let division = CachePlan::new(dataset, config, budget, reserved).unwrap();
        let config = TrainConfig { tiers: division.tiers, ..config.clone() };
        config.validate().unwrap();
        assert!(division.needed_bytes <= budget.gpu_bytes, "{division:?} in {budget:?}");
        let rows = RowsOnDevice::of(dataset, &config, budget.n_gpus).unwrap();
        assert_eq!(rows, division.rows);
        assert_eq!(planned(dataset, &config, rows) + reserved, division.needed_bytes);
        let row_bytes = DataSizes::of(dataset).row_bytes(&Symbolic::cuda(config.precision, None), &config);
        let neighborhoods = drawn_from(dataset, &config).unwrap();
        let placed = (seeds(dataset), row_bytes);
        let placed = Placements::new(&neighborhoods, placed, &config, Some(budget.n_gpus)).unwrap();
        let sizes = |share: &CacheReport| (share.of, share.tier, share.n_nodes, share.bytes);
        let is_placed = |share: &&CacheReport| match share.of {
            "features" => config.tiers.features.is_some(),
            _ => config.tiers.topology.is_some(),
        };
        let expected: Vec<_> = division.shares.iter().filter(is_placed).map(sizes).collect();
        assert_eq!(placed.shares.iter().map(sizes).collect::<Vec<_>>(), expected);
        for of in ["features", "neighbors"] {
            let of: Vec<_> = division.shares.iter().filter(|share| share.of == of).collect();
            assert_eq!(of.iter().map(|share| share.n_nodes).sum::<usize>(), dataset.n_nodes());
            assert!((of.iter().map(|share| share.reads).sum::<f64>() - 1.0).abs() < 1e-9, "{of:?}");
        }
        division
    }

    #[test]
    fn a_division_fits_its_room_and_is_what_training_places() {
        for codec in [None, Some(CodecSpec::Topk(4))] {
            let (dataset, config) = data(codec);
            let (least, most) = ends(&dataset, &config);
            for (n_gpus, reserved) in [(1, 0), (3, 1 << 20)] {
                let in_steps = (0..=4).map(|step| {
                    // Offsets, and the indices of cached rows.
                    let least = least + 21 * (3 * 8 * 120_001) / 20 + 1;
                    let bytes = least + (most - least) * step / 4;
                    check(&dataset, &config, budget(n_gpus, bytes + reserved), reserved)
                });
                let divisions: Vec<CachePlan> = in_steps.collect();
                let on_gpus = |division: &CachePlan| {
                    let near = division.shares.iter().filter(|share| share.tier <= Tier::OneGpu);
                    near.map(|share| share.n_nodes).sum::<usize>()
                };
                let (first, last) = (&divisions[0], &divisions[4]);
                assert!(on_gpus(first) < 2 * dataset.n_nodes() && !first.tiers.is_default(), "{first:?}");
                assert_eq!(on_gpus(last), 2 * dataset.n_nodes(), "{last:?}");
            }
            let all = check(&dataset, &config, budget(1, 4 << 30), 0);
            assert!(all.tiers.is_default() && all.host_bytes == 0, "{all:?}");
        }
    }

    #[test]
    fn shares_are_those_of_the_planner() {
        let (dataset, config) = data(None);
        let bytes = some(ends(&dataset, &config));
        for hotness in Hotness::ALL {
            let config = TrainConfig { tiers: CacheConfig { hotness, ..CacheConfig::default() }, ..config.clone() };
            let budget = budget(1, bytes);
            let division = check(&dataset, &config, budget, 0);
            let sizes = DataSizes::of(&dataset);
            let config = with_tiers(&config);
            let (neighborhoods, nodes) = (drawn_from(&dataset, &config).unwrap(), seeds(&dataset));
            let (frequencies, reads) = frequencies_and_reads(&neighborhoods, nodes, &config).unwrap();
            let left = Plan::beside_rows(&config, &sizes).unwrap().bytes_left(budget.gpu_bytes).unwrap();
            let planner = Planner {
                indptr: dataset.graph.indptr(),
                weighted: false,
                feature_bytes: 4 * 72,
                frequencies: &frequencies,
                reads,
                n_hops: 2,
                cut: None,
                budget,
                training_bytes: budget.gpu_bytes - left,
                storage: Storage::Copied,
                rates: Rates::h200(),
            };
            let planned = planner.plan(None).unwrap();
            assert_eq!(division.tiers.hotness, hotness);
            assert_eq!(division.shares, expected(&planned));
            let every = |part: &RowPlacement| (part.tiers[0].tier == Tier::EveryGpu).then_some(part.tiers[0].n_nodes);
            let shares = division.tiers.features.unwrap();
            assert_eq!(shares.of_nodes(dataset.n_nodes()), (every(&planned.features).unwrap_or(0), 0));
            assert!(planned.topology.gpu_bytes + planned.features.gpu_bytes <= left);
        }
    }

    #[test]
    fn memory_of_training_is_named_where_it_does_not_fit() {
        let (dataset, config) = data(None);
        let (least, _) = ends(&dataset, &config);
        let refused = |budget| CachePlan::new(&dataset, &config, budget, 0).unwrap_err().to_string();
        let message = refused(budget(1, least - 1));
        for part in [&*format!("({least} bytes)"), &format!("({} bytes)", least - 1), "a smaller --batch-size"] {
            assert!(message.contains(part), "no {part}: {message}");
        }
        let no_lists = refused(budget(1, least));
        assert!(no_lists.contains("the index of cached rows"), "{no_lists}");
        let message = CachePlan::new(&dataset, &config, budget(1, least), 5).unwrap_err().to_string();
        assert!(message.contains(&format!("({} bytes)", least + 5)), "{message}");
    }

    #[test]
    fn hosts_hold_what_is_not_whole_on_devices() {
        let (dataset, config) = data(None);
        let bytes = some(ends(&dataset, &config));
        let of_host =
            |host_bytes| CachePlan::new(&dataset, &config, MemoryBudget { host_bytes, ..budget(1, bytes) }, 0);
        // Rows of the hidden layer take memory during scoring.
        let layers = 4 * 64 * dataset.n_nodes() as u64;
        let message = of_host(Some(layers - 1)).unwrap_err().to_string();
        assert!(
            message.contains(&format!("({layers} bytes)")) && message.contains("give a smaller --hidden"),
            "{message}"
        );
        let message = of_host(Some(layers + 1000)).unwrap_err().to_string();
        assert!(message.contains("(1000 bytes)") && message.contains("compress the features"), "{message}");
        let named = message.split("which leaves ").nth(1).and_then(|rest| rest.split(['(', ' ']).nth(3)).unwrap();
        let named = layers + named.parse::<u64>().unwrap();
        assert!(of_host(Some(named - 1)).is_err());
        assert!(of_host(Some(named)).unwrap().host_bytes <= named);
    }

    #[test]
    fn scores_of_the_whole_graph_are_planned_for() {
        let (dataset, config) = data(None);
        let batch = BatchConfig { score_by: Some(ScoreBy::Graph), ..config.batch.clone() };
        let by_graph = TrainConfig { batch, ..config.clone() };
        let (least, most) = ends(&dataset, &by_graph);
        assert!(least > ends(&dataset, &config).0);
        check(&dataset, &by_graph, budget(1, least + (most - least) / 2), 0);
    }

    #[test]
    fn runs_without_tiers_are_refused_as_tiers_are() {
        let (dataset, config) = data(None);
        let refused = |dataset: &Dataset, config: &TrainConfig| {
            CachePlan::new(dataset, config, budget(1, 1 << 40), 0).unwrap_err().to_string()
        };
        let of_kind = |kind| {
            let batch = BatchConfig { kind, ..BatchConfig::default() };
            refused(&dataset, &TrainConfig { batch, batch_size: None, ..config.clone() })
        };
        assert!(of_kind(BatchKind::Full).contains("full batches read the whole graph"));
        assert!(of_kind(BatchKind::Cluster).contains("GPUs sample neighbor batches"));
        let (coded, config_of_codes) = data(Some(CodecSpec::Int8));
        assert!(refused(&coded, &config_of_codes).contains("topk:8"));
        let indptr: Vec<u64> = (0..=dataset.n_nodes() as u64).collect();
        let sparse = Csr::new(dataset.n_nodes(), 9, indptr, vec![1; dataset.n_nodes()], None).unwrap();
        let sparse = Dataset { features: Some(Features::Sparse(sparse)), ..dataset.clone() };
        assert!(refused(&sparse, &config).contains("these are sparse: leave it out"));
        assert!(Plan::beside_rows(&TrainConfig::default(), &DataSizes::of(&dataset)).is_err());
    }
}
