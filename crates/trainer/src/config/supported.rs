//! [`supported()`]: the one place that says which tasks, models, batches, ranks, devices and features go together.
//!
//! A [`Combination`] is plain data. It goes through the rows of [a table](table), of which the first that refuses it
//! gives the [`Reason`]. Otherwise the [`ExecutionPlan`] names the engine, so that callers need not match again.

mod table;

use std::fmt;

use girih_compute::Dtype;
use girih_datasets::FeaturesFrom;
use girih_features::CacheShares;
use girih_partition::Scheme;

use self::table::TABLE;
use super::rules::joined;
use super::{
    BatchKind, GraphPlacement, ModelBatches, ModelKind, NormKind, RankOptions, ScoreBy, TaskKind, TrainConfig,
};
use crate::TrainError;

/// Values that decide together whether a session can run, and which engine runs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Combination {
    /// Task.
    pub task: TaskKind,
    /// Network.
    pub model: ModelKind,
    /// Whether the network is from outside: its input spec, not its kind, says what it reads.
    pub is_outside: bool,
    /// Whether the network counts a neighbor once, even if it is drawn several times.
    pub reads_neighbors_once: bool,
    /// Normalisation of hidden layers.
    pub norm: NormKind,
    /// Part of the graph that a step sees.
    pub batch: BatchKind,
    /// Whether sampling is with replacement.
    pub replace: bool,
    /// Whether seeds see the edges up to their times alone.
    pub in_time: bool,
    /// Whether a trained model is used, instead of training one.
    pub is_trained: bool,
    /// Whether features of edges are given, or encodings of their ages.
    pub has_edge_features: bool,
    /// Whether labels of edges are given.
    pub has_edge_labels: bool,
    /// Whether fan-outs differ by edge type.
    pub has_typed_fan_out: bool,
    /// Method that computes the scores of mini-batch runs, if one is given.
    pub score_by: Option<ScoreBy>,
    /// Number of subgraphs in a step of cluster and saint batches.
    pub subgraphs_per_step: usize,
    /// Type of stored features.
    pub precision: Dtype,
    /// Whether a codec is given.
    pub codec: bool,
    /// Whether features are codes, by that codec or as the data have them.
    pub has_codes: bool,
    /// Rule that makes features, if one is given.
    pub features_from: Option<FeaturesFrom>,
    /// Features that devices hold.
    pub feature_cache: Cache,
    /// Rows of the adjacency that devices hold.
    pub topology_cache: Cache,
    /// Whether a [`CachePlan`](crate::CachePlan) chooses the caches.
    pub plans_caches: bool,
    /// Whether nodes are ordered before training.
    pub reorders: bool,
    /// Number of ranks; `None` without ranks.
    pub n_ranks: Option<usize>,
    /// Placement of graph and features on ranks, if one is given.
    pub placement: Option<GraphPlacement>,
    /// Partition over ranks; `None` if a plan chooses it.
    pub scheme: Option<Scheme>,
    /// Kind of device; `None` if it is not known yet.
    pub device: Option<DeviceKind>,
    /// Whether a dry run predicts the session, instead of training.
    pub is_dry_run: bool,
}

/// Kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// CPU, which reads the memory of the host.
    Cpu,
    /// GPU, with memory of its own.
    Gpu,
}

/// Rows that devices hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// All rows, without a cache.
    None,
    /// A share of the rows, the same on every device.
    Same,
    /// As `Same`, and a second share, of which each device holds a part.
    Spread,
}

impl From<Option<CacheShares>> for Cache {
    fn from(shares: Option<CacheShares>) -> Self {
        match shares {
            None => Self::None,
            Some(shares) if shares.one_gpu > 0.0 => Self::Spread,
            Some(_) => Self::Same,
        }
    }
}

/// Engine that runs a combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionPlan {
    /// Classes of nodes, in steps that see the whole graph.
    FullBatch,
    /// Classes of nodes, on mini-batches.
    MiniBatch,
    /// Links, on the whole graph or on mini-batches.
    Links,
    /// Items for users, in steps of some interactions.
    Recommend,
    /// Entities of triples, in steps of some triples.
    Triples,
    /// Full batches or recommendations on ranks, each with its rows of every matrix.
    Partitioned,
    /// Mini-batches on ranks that each hold all of graph and features.
    Replicas,
    /// Mini-batches on ranks that each hold a patch of the features, and perhaps of the graph.
    Patches,
}

/// Why a combination is not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Flags or settings that do not go together.
    pub asked: String,
    /// Cause that keeps them apart.
    pub why: &'static str,
    /// Remedy.
    pub instead: String,
    /// Whether flags alone contradict each other, so that the command line is wrong.
    pub is_usage: bool,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, why, instead, .. } = self;
        write!(f, "{asked} is not supported: {why}; {instead}")
    }
}

impl From<Reason> for TrainError {
    fn from(reason: Reason) -> Self {
        Self::invalid(reason.to_string())
    }
}

/// Engine that runs this combination.
///
/// # Errors
/// When it is not supported: the first reason of the table.
pub fn supported(asked: &Combination) -> Result<ExecutionPlan, Reason> {
    match TABLE.iter().find(|row| (row.refuses)(asked)) {
        Some(row) => Err(row.reason(asked)),
        None => Ok(asked.execution()),
    }
}

/// Reason of each row of the table, and whether the row is about flags that contradict each other.
pub fn reasons() -> impl Iterator<Item = (&'static str, bool)> {
    TABLE.iter().map(|row| row.reason_alone())
}

impl Combination {
    /// Combination of a configuration, on one rank of a device that is not known yet.
    #[must_use]
    pub fn of(config: &TrainConfig) -> Self {
        let (model, batch) = (&config.model, &config.batch);
        Self {
            task: config.task,
            model: model.kind,
            is_outside: model.own.is_some(),
            reads_neighbors_once: model.reads_neighbors_once(),
            norm: model.norm,
            batch: batch.kind,
            replace: batch.replace,
            in_time: config.time.is_set(),
            is_trained: false,
            has_edge_features: config.edges.has_features(),
            has_edge_labels: config.edges.label.is_some(),
            has_typed_fan_out: !batch.fanout_by_type.is_empty(),
            score_by: batch.score_by,
            subgraphs_per_step: batch.subgraphs_per_step,
            precision: config.precision,
            codec: config.codec.is_some(),
            has_codes: config.codec.is_some(),
            features_from: config.features_from,
            feature_cache: config.tiers.features.into(),
            topology_cache: config.tiers.topology.into(),
            plans_caches: false,
            reorders: false,
            n_ranks: None,
            placement: None,
            scheme: Some(Scheme::OneD),
            device: None,
            is_dry_run: false,
        }
    }

    /// The combination on ranks with these options.
    #[must_use]
    pub fn on_ranks(self, ranks: &RankOptions) -> Self {
        // Replicas are the default, and cannot be told from no placement.
        let placement = Some(ranks.layout).filter(|layout| *layout != GraphPlacement::Replicated);
        Self { n_ranks: Some(ranks.grid.ranks()), placement, scheme: Some(ranks.grid.scheme()), ..self }
    }

    /// The combination on a device with or without memory of its own.
    #[must_use]
    pub fn on_device(self, has_own_memory: bool) -> Self {
        Self { device: Some(if has_own_memory { DeviceKind::Gpu } else { DeviceKind::Cpu }), ..self }
    }

    /// The combination for data whose features may be codes already.
    #[must_use]
    pub fn with_codes(self, has_codes: bool) -> Self {
        Self { has_codes: self.codec || has_codes, ..self }
    }

    /// Use of the trained model, which sees the whole graph at once.
    #[must_use]
    pub fn applied(self) -> Self {
        let caches = Cache::None;
        Self {
            batch: BatchKind::Full,
            replace: false,
            in_time: false,
            is_trained: true,
            has_edge_features: false,
            has_edge_labels: false,
            has_typed_fan_out: false,
            score_by: None,
            feature_cache: caches,
            topology_cache: caches,
            ..self
        }
    }

    fn execution(&self) -> ExecutionPlan {
        match (self.n_ranks, self.is_sampled()) {
            (Some(_), true) if self.is_divided() => ExecutionPlan::Patches,
            (Some(_), true) => ExecutionPlan::Replicas,
            (Some(_), false) => ExecutionPlan::Partitioned,
            (None, _) if self.model.is_recommender() => ExecutionPlan::Recommend,
            (None, _) if self.is_links() => ExecutionPlan::Links,
            (None, _) if self.is_triples() => ExecutionPlan::Triples,
            (None, true) => ExecutionPlan::MiniBatch,
            (None, false) => ExecutionPlan::FullBatch,
        }
    }

    fn is_links(&self) -> bool {
        self.task == TaskKind::Links
    }

    /// Text of a row with the values of this combination in place of fields.
    fn filled(&self, text: &str) -> String {
        let name = |known: Option<String>| known.unwrap_or_default();
        let sampled = ModelKind::ALL.iter().filter(|kind| kind.properties().batches == ModelBatches::All);
        let fields = [
            ("{batch}", self.batch.name().to_owned()),
            ("{model}", self.model.name().to_owned()),
            ("{task}", self.task.name().to_owned()),
            ("{rule}", name(self.features_from.map(|rule| rule.to_string()))),
            ("{layout}", name(self.placement.map(|placement| placement.name().to_owned()))),
            ("{scheme}", name(self.scheme.map(|scheme| scheme.to_string()))),
            ("{n_ranks}", name(self.n_ranks.map(|n_ranks| n_ranks.to_string()))),
            ("{sampled}", joined(sampled.map(|kind| kind.name()), "or")),
            ("{subgraphs}", self.subgraphs_per_step.to_string()),
        ];
        fields.iter().fold(text.to_owned(), |text, (field, value)| text.replace(field, value))
    }

    fn is_triples(&self) -> bool {
        self.task == TaskKind::Triples
    }

    fn is_sampled(&self) -> bool {
        self.batch != BatchKind::Full
    }

    /// Whether batches have blocks by edge type.
    fn batch_reads_types(&self) -> bool {
        self.batch == BatchKind::Neighbor && self.model.reads_relations()
    }

    fn is_on_ranks(&self) -> bool {
        self.n_ranks.is_some()
    }

    /// Whether ranks divide the features, and perhaps the graph, for mini-batches.
    fn is_divided(&self) -> bool {
        self.placement.is_some_and(|placement| placement != GraphPlacement::Replicated)
    }

    fn has_cache(&self) -> bool {
        (self.feature_cache, self.topology_cache) != (Cache::None, Cache::None)
    }

    /// Whether features are parameters.
    fn learns_features(&self) -> bool {
        self.features_from.is_some_and(FeaturesFrom::is_learned)
    }

    /// Whether a feature row belongs to one node.
    fn knows_nodes(&self) -> bool {
        self.features_from.is_some_and(FeaturesFrom::knows_nodes)
    }

    /// Whether a device that samples can draw these batches. It does not draw with replacement, and does not exclude
    /// the links of a batch.
    pub(crate) fn is_drawn_by_device(&self) -> bool {
        self.batch == BatchKind::Neighbor && !self.replace && !self.is_links()
    }
}
