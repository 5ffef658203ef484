//! [`TrainConfig`]: all settings that decide a run's result, besides the data. Every checkpoint contains it.

mod arrangement;
mod batch;
mod cache;
mod edges;
mod links;
mod model;
mod model_kind;
mod optimizer;
mod optional_text;
mod own;
mod published;
mod ranks;
mod read_settings;
mod rules;
pub(crate) mod supported;
mod text;
mod time;
mod triples;
mod validation;

use std::collections::BTreeMap;

use girih_compress::{CodecSpec, CompressError};
use girih_compute::Dtype;
use girih_datasets::{FeaturesFrom, TypeRule, TypeRules};
use girih_graph_format::Notes;
use serde::{Deserialize, Serialize};

use self::rules::is_default;
pub(crate) use self::rules::joined;

pub use arrangement::{Arrangement, differences};
pub use batch::{BatchConfig, BatchKind, DEFAULT_BATCH_SIZE, DEFAULT_FANOUT, DEFAULT_LAYER_NODES, SaintKind, ScoreBy};
pub use cache::CacheConfig;
pub use edges::EdgeConfig;
pub use links::LinkConfig;
pub use model::{Aggregator, Jump, ModelConfig, NormKind, SelfWeight};
pub use model_kind::{EdgeWeights, ModelBatches, ModelKind, ModelProperties};
pub use optimizer::{Decay, OptimizerConfig, OptimizerKind, Schedule};
pub use own::OwnModel;
pub use ranks::{GraphPlacement, RankOptions};
pub use supported::{Cache, Combination, DeviceKind, ExecutionPlan, Reason, supported};
pub use time::{TimeConfig, TimeSpan};
pub use triples::{DecoderKind, Distance, TripleConfig};

/// Training configuration. Equal configurations and data give the same result, bit for bit, on one kind of device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// Task.
    #[serde(skip_serializing_if = "is_nodes")]
    pub task: TaskKind,
    /// Network and its sizes.
    pub model: ModelConfig,
    /// Optimiser and its settings.
    pub optimizer: OptimizerConfig,
    /// Maximum number of epochs of a run.
    pub epochs: u64,
    /// Number of epochs without a better validation score that ends a run; `None` for never.
    pub patience: Option<u64>,
    /// Number of epochs between two evaluations. The last epoch is always evaluated.
    pub eval_every: u64,
    /// Number of independent runs. Each has its own initial weights, dropout masks and, if there are several splits,
    /// the next split.
    pub runs: u64,
    /// Random seed of all runs.
    pub seed: u64,
    /// Batch size. For a recommender, interactions in a step, and for triples, triples; `None` for all. For a mini-batch, seeds:
    /// training nodes or links, or GraphSAINT's number of draws; `None` for [`DEFAULT_BATCH_SIZE`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<usize>,
    /// Part of the graph that a step sees.
    #[serde(skip_serializing_if = "is_full")]
    pub batch: BatchConfig,
    /// Split, negatives and embedding width of link prediction.
    #[serde(skip_serializing_if = "is_default")]
    pub links: LinkConfig,
    /// Edges that the seeds of a batch see at their times; by default, edges have no times.
    #[serde(skip_serializing_if = "is_default")]
    pub time: TimeConfig,
    /// Features and labels of edges; by default, edges have neither.
    #[serde(skip_serializing_if = "is_default")]
    pub edges: EdgeConfig,
    /// Decoder, width and negatives of the task on triples.
    #[serde(skip_serializing_if = "is_default")]
    pub triples: TripleConfig,
    /// Type of stored features and gathered rows. Sums are always `f32`.
    pub precision: Dtype,
    /// Codec that compresses features before training, fitted with `seed`; `None` for features as in the data.
    #[serde(with = "codec_text", skip_serializing_if = "Option::is_none")]
    pub codec: Option<CodecSpec>,
    /// Rule that generates features for data without any; `None` for features of the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features_from: Option<FeaturesFrom>,
    /// Settings of node types, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node: BTreeMap<String, NodeTypeConfig>,
    /// Placement of graph and features on devices, for sampling and reading mini-batches.
    #[serde(default, skip_serializing_if = "CacheConfig::is_default")]
    pub tiers: CacheConfig,
    /// Validation score that chooses the epoch of a node classifier. Recommenders use recall, link predictors
    /// ROC-AUC, and triples the mean reciprocal rank.
    pub metric: Metric,
}

/// Settings of a node type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeTypeConfig {
    /// Rule for its features.
    pub features: TypeRule,
}

/// Serialised form of a codec: as users write it, or `none`.
mod codec_text {
    use girih_compress::CodecSpec;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(codec: &Option<CodecSpec>, out: S) -> Result<S::Ok, S::Error> {
        match codec {
            None => out.serialize_str("none"),
            Some(codec) => out.collect_str(codec),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Option<CodecSpec>, D::Error> {
        super::parse_codec(&String::deserialize(input)?).map_err(D::Error::custom)
    }
}

/// Parses a codec as users write it, or `none`.
///
/// # Errors
/// A message with the text found and the valid forms.
pub fn parse_codec(text: &str) -> Result<Option<CodecSpec>, String> {
    match text {
        "none" => Ok(None),
        _ => text.parse().map(Some).map_err(|error: CompressError| format!("{error}; or none")),
    }
}

/// Whether the batch settings are the default, full batches; configurations then omit them.
fn is_full(batch: &BatchConfig) -> bool {
    *batch == BatchConfig::default()
}

/// Whether the task is the default, [`TaskKind::Nodes`]; configurations then omit it.
fn is_nodes(task: &TaskKind) -> bool {
    *task == TaskKind::Nodes
}

/// Task that a model is trained for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskKind {
    /// Node classification; for a recommender, ranking items for users.
    #[default]
    Nodes,
    /// Link prediction: whether an edge joins a pair of nodes.
    Links,
    /// Completion of a knowledge graph: the entity that a head or tail of a triple is.
    Triples,
}

impl TaskKind {
    /// Name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Links => "links",
            Self::Triples => "triples",
        }
    }

    /// Network that the task is trained with if none is named.
    #[must_use]
    pub fn usual_model(self) -> ModelKind {
        match self {
            Self::Nodes | Self::Links => ModelKind::default(),
            Self::Triples => ModelKind::Embedding,
        }
    }
}

/// Score that chooses the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Share of correctly classified nodes; with several labels per node, micro-F1.
    #[default]
    Accuracy,
    /// Area under the receiver operating characteristic, for two classes; with several labels per node, the mean over
    /// labels.
    RocAuc,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            task: TaskKind::Nodes,
            model: ModelConfig::default(),
            optimizer: OptimizerConfig::default(),
            epochs: 200,
            patience: None,
            eval_every: 1,
            runs: 1,
            seed: 0,
            batch_size: None,
            batch: BatchConfig::default(),
            links: LinkConfig::default(),
            time: TimeConfig::default(),
            edges: EdgeConfig::default(),
            triples: TripleConfig::default(),
            precision: Dtype::F32,
            codec: None,
            features_from: None,
            node: BTreeMap::new(),
            tiers: CacheConfig::default(),
            metric: Metric::Accuracy,
        }
    }
}

impl TrainConfig {
    /// Configuration of one rank's share of a mini-batch step, where every rank holds all data: its share of the
    /// seeds or subgraphs, rounded up. Layer batches keep all seeds, because their layers are sampled for all seeds
    /// together.
    #[must_use]
    pub fn of_one_rank(&self, n_ranks: usize) -> Self {
        let n_seeds = self.batch_size.unwrap_or(DEFAULT_BATCH_SIZE).div_ceil(n_ranks);
        let batch_size = if self.batch.kind == BatchKind::Neighbor { Some(n_seeds) } else { self.batch_size };
        let batch =
            BatchConfig { subgraphs_per_step: self.batch.subgraphs_per_step.div_ceil(n_ranks), ..self.batch.clone() };
        Self { batch_size, batch, ..self.clone() }
    }

    /// Parts of a graph that the model does not use. `weighted`: whether its edges carry weights.
    #[must_use]
    pub fn notes(&self, weighted: bool) -> Notes {
        let mut notes = Notes::default();
        if weighted && !self.model.reads_weights() {
            let name = self.model.kind.name();
            let why = match self.model.kind.properties().weights {
                EdgeWeights::Unread(why) => format!("{name} {why}"),
                _ => format!(
                    "{name} with the aggregator {} reads which nodes are neighbors, not how much an edge weighs",
                    self.model.aggregator.name()
                ),
            };
            notes.leave_out("edge weights", why);
        }
        notes
    }

    /// Rules for the features of node types.
    #[must_use]
    pub fn type_rules(&self) -> TypeRules {
        self.node.iter().map(|(name, of)| (name.clone(), of.features.clone())).collect()
    }

    /// Whether features are parameters of the model.
    #[must_use]
    pub fn learns_features(&self) -> bool {
        self.features_from.is_some_and(FeaturesFrom::is_learned)
    }
}

/// Whether a device that samples can make the batches of these settings.
pub(crate) fn sampled_by_device(config: &TrainConfig) -> bool {
    Combination::of(config).is_drawn_by_device()
}
