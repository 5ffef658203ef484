//! [`TrainConfig`]: all settings that decide a run's result, besides the data. Every checkpoint contains it.

use girih_compress::{CodecSpec, CompressError};
use girih_compute::Dtype;
use girih_datasets::FeaturesFrom;
use girih_graph_format::{Degrees, Notes};
use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::batching::{BatchConfig, BatchKind, DEFAULT_BATCH_SIZE};
use crate::links::LinkConfig;
use crate::sampled::{CacheConfig, sampled_by_device};

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
    /// Batch size. For a recommender, interactions in a step; `None` for all of them. For a mini-batch, seeds:
    /// training nodes or links, or GraphSAINT's number of draws; `None` for [`DEFAULT_BATCH_SIZE`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<usize>,
    /// Part of the graph that a step sees.
    #[serde(skip_serializing_if = "is_full")]
    pub batch: BatchConfig,
    /// Split, negatives and embedding width of link prediction.
    #[serde(skip_serializing_if = "is_default")]
    pub links: LinkConfig,
    /// Type of stored features and gathered rows. Sums are always `f32`.
    pub precision: Dtype,
    /// Codec that compresses features before training, fitted with `seed`; `None` for features as in the data.
    #[serde(with = "codec_text", skip_serializing_if = "Option::is_none")]
    pub codec: Option<CodecSpec>,
    /// Rule that generates features for data without any; `None` for features of the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features_from: Option<FeaturesFrom>,
    /// Placement of graph and features on devices, for sampling and reading mini-batches.
    #[serde(default, skip_serializing_if = "CacheConfig::is_default")]
    pub tiers: CacheConfig,
    /// Validation score that chooses the epoch of a node classifier. Recommenders use recall, link predictors
    /// ROC-AUC.
    pub metric: Metric,
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

/// Whether a setting has its default value.
fn is_default<T: Default + PartialEq>(setting: &T) -> bool {
    *setting == T::default()
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
}

impl TaskKind {
    /// Name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Links => "links",
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
            precision: Dtype::F32,
            codec: None,
            features_from: None,
            tiers: CacheConfig::default(),
            metric: Metric::Accuracy,
        }
    }
}

impl TrainConfig {
    /// Published settings of a model, which files and flags may override. GCN's settings are the general ones.
    #[must_use]
    pub fn for_model(kind: ModelKind) -> Self {
        let general = Self { model: ModelConfig { kind, ..ModelConfig::default() }, ..Self::default() };
        match kind {
            ModelKind::Gcn | ModelKind::Sgc | ModelKind::Sage | ModelKind::Gin | ModelKind::Mlp => general,
            // Veličković et al., ICLR 2018, section 3.3.
            ModelKind::Gat | ModelKind::Gatv2 => Self {
                model: ModelConfig { hidden: 8, heads: 8, dropout: 0.6, ..general.model },
                optimizer: OptimizerConfig { lr: 0.005, decay: Decay::All, ..general.optimizer },
                epochs: 1000,
                patience: Some(100),
                ..general
            },
            // More dropout than in the publication: 140 labels are few for so many weights.
            ModelKind::Ngcn => Self { model: ModelConfig { hops: 4, dropout: 0.7, ..general.model }, ..general },
            // Gasteiger et al., ICLR 2019, section 5.
            ModelKind::Appnp => Self { model: ModelConfig { hops: 10, hidden: 64, ..general.model }, ..general },
            // He et al., SIGIR 2020, section 4.1.2, and the authors' code.
            ModelKind::LightGcn => Self {
                model: ModelConfig { layers: 3, hidden: 64, dropout: 0.0, ..general.model },
                optimizer: OptimizerConfig { lr: 1e-3, weight_decay: 1e-4, ..general.optimizer },
                epochs: 1000,
                eval_every: 10,
                batch_size: Some(2048),
                ..general
            },
        }
    }

    /// Default settings of a model for a task. Link prediction starts from [`Self::for_model`], but without dropout
    /// and weight decay: decay shrinks embeddings until their products carry no information. Widths are those of Kipf
    /// and Welling (2016, section 3): 32 hidden columns and embeddings of 16.
    #[must_use]
    pub fn for_task(task: TaskKind, kind: ModelKind) -> Self {
        let nodes = Self::for_model(kind);
        if task == TaskKind::Nodes {
            return nodes;
        }
        let hidden = if kind.has_heads() { nodes.model.hidden } else { 32 };
        Self {
            task,
            model: ModelConfig { hidden, dropout: 0.0, ..nodes.model },
            optimizer: OptimizerConfig { weight_decay: 0.0, ..nodes.optimizer },
            ..nodes
        }
    }

    /// A GCN for heterophilous graphs, scored by ROC-AUC. It has residual connections and layer normalisation, as
    /// Platonov et al. (ICLR 2023) use. It is narrower and has a higher learning rate, so that 200 epochs suffice.
    #[must_use]
    pub fn heterophilous() -> Self {
        let model = ModelConfig {
            layers: 3,
            hidden: 32,
            dropout: 0.2,
            residual: true,
            norm: NormKind::Layer,
            ..ModelConfig::default()
        };
        let optimizer = OptimizerConfig { lr: 0.003, weight_decay: 0.0, ..OptimizerConfig::default() };
        Self { model, optimizer, metric: Metric::RocAuc, ..Self::default() }
    }
}

/// Kind of network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelKind {
    /// Graph convolutional network (Kipf and Welling, ICLR 2017).
    #[default]
    Gcn,
    /// Simplified graph convolution (Wu et al., ICML 2019).
    Sgc,
    /// GraphSAGE (Hamilton et al., NeurIPS 2017).
    Sage,
    /// Graph attention network (Veličković et al., ICLR 2018).
    Gat,
    /// Graph attention network with dynamic scores (Brody et al., ICLR 2022).
    Gatv2,
    /// Graph isomorphism network (Xu et al., ICLR 2019).
    Gin,
    /// N-GCN: several powers of the adjacency (Abu-El-Haija et al., UAI 2019).
    Ngcn,
    /// APPNP: prediction, then personalised propagation (Gasteiger et al., ICLR 2019).
    Appnp,
    /// Multi-layer perceptron that ignores the graph: the baseline.
    Mlp,
    /// LightGCN, a recommender (He et al., SIGIR 2020).
    LightGcn,
}

impl ModelKind {
    /// All models that classify nodes. The remaining models are recommenders.
    pub const CLASSIFIERS: [Self; 9] =
        [Self::Gcn, Self::Sgc, Self::Sage, Self::Gat, Self::Gatv2, Self::Gin, Self::Ngcn, Self::Appnp, Self::Mlp];

    /// Whether layers have several heads, each [`ModelConfig::hidden`] wide.
    #[must_use]
    pub fn has_heads(self) -> bool {
        matches!(self, Self::Gat | Self::Gatv2)
    }

    /// Name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gcn => "gcn",
            Self::Sgc => "sgc",
            Self::Sage => "sage",
            Self::Gat => "gat",
            Self::Gatv2 => "gatv2",
            Self::Gin => "gin",
            Self::Ngcn => "ngcn",
            Self::Appnp => "appnp",
            Self::Mlp => "mlp",
            Self::LightGcn => "lightgcn",
        }
    }

    /// Whether the model ranks items for users, instead of classifying nodes.
    #[must_use]
    pub fn is_recommender(self) -> bool {
        self == Self::LightGcn
    }
}

/// GraphSAGE's aggregator over neighbours (Hamilton et al., NeurIPS 2017, section 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aggregator {
    /// Mean.
    #[default]
    Mean,
    /// Element-wise maximum over transformed neighbours.
    Pool,
    /// Last state of an LSTM that reads the neighbours in a random order.
    Lstm,
}

impl Aggregator {
    /// Name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Pool => "pool",
            Self::Lstm => "lstm",
        }
    }
}

/// Network and its sizes. A setting that the network does not read must keep its value of [`TrainConfig::for_model`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// Kind of network.
    pub kind: ModelKind,
    /// Number of layers; for SGC and LightGCN, of hops.
    pub layers: usize,
    /// Width of hidden layers; for LightGCN, of embeddings. SGC has no hidden layer.
    pub hidden: usize,
    /// Dropout rate of hidden activations in training.
    pub dropout: f64,
    /// Dropout rate of input features; `None` for `dropout`. At zero the first aggregation is a constant and is
    /// computed once.
    pub input_dropout: Option<f64>,
    /// If true, a constant first aggregation is computed once, before training, instead of in every epoch. Results
    /// agree up to the order of sums. SGC reads only aggregated features and always computes them once.
    pub aggregate_once: bool,
    /// GraphSAGE's aggregator.
    pub aggregator: Aggregator,
    /// Number of heads in the hidden layers of attention networks; each head is `hidden` wide.
    pub heads: usize,
    /// Number of heads in their last layer, which are averaged.
    pub out_heads: usize,
    /// Dropout rate of attention weights after the softmax; `None` for `dropout`.
    pub attention_dropout: Option<f64>,
    /// Negative slope of the leaky ReLU of attention scores.
    pub slope: f64,
    /// Number of hops of APPNP's propagation; for N-GCN, the highest power.
    pub hops: usize,
    /// Teleport probability of APPNP.
    pub teleport: f64,
    /// If true, a last linear layer mixes N-GCN's powers; otherwise they are averaged.
    pub mixing: bool,
    /// Weights whose sums are the degrees, where the network normalises by degree.
    #[serde(skip_serializing_if = "is_default")]
    pub normalization: Degrees,
    /// Residual connections around hidden layers of GCN, GAT, GATv2 and GIN.
    pub residual: bool,
    /// Normalisation of hidden layers of GCN, GAT, GATv2 and GIN.
    pub norm: NormKind,
    /// Jumping knowledge of GCN, GAT, GATv2 and GIN: logits may read all hidden layers.
    pub jump: Jump,
}

/// Normalisation of hidden layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NormKind {
    /// None.
    #[default]
    None,
    /// Layer normalisation (Ba et al., 2016).
    Layer,
    /// Batch normalisation (Ioffe and Szegedy, ICML 2015), over all nodes.
    Batch,
}

/// Jumping knowledge: hidden layers that the logits read (Xu et al., ICML 2018).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Jump {
    /// Only the last hidden layer.
    #[default]
    None,
    /// All hidden layers, concatenated.
    Concat,
    /// Element-wise maximum of all hidden layers.
    Max,
}

impl ModelConfig {
    /// Whether the network is a stack of convolutions, so that it supports residual connections, norms and jumps.
    fn stacks(&self) -> bool {
        matches!(self.kind, ModelKind::Gcn | ModelKind::Gat | ModelKind::Gatv2 | ModelKind::Gin)
    }

    /// Whether the network normalises by degree.
    #[must_use]
    pub fn normalizes(&self) -> bool {
        match self.kind {
            ModelKind::Gcn | ModelKind::Sgc | ModelKind::Ngcn | ModelKind::Appnp | ModelKind::LightGcn => true,
            ModelKind::Sage => self.aggregator == Aggregator::Mean,
            ModelKind::Gat | ModelKind::Gatv2 | ModelKind::Gin | ModelKind::Mlp => false,
        }
    }

    /// Whether the network reads edge weights.
    #[must_use]
    pub fn reads_weights(&self) -> bool {
        self.normalizes() || self.kind == ModelKind::Gin
    }

    /// First setting that differs from `usual` although the network does not read it, with the networks that do.
    fn unread(&self, usual: &Self) -> Option<Unread> {
        const NORMALIZE: &str = "gcn, sgc, ngcn, appnp, lightgcn and sage with the aggregator mean";
        let recommends = self.kind.is_recommender();
        let (attends, hops) = (self.kind.has_heads(), matches!(self.kind, ModelKind::Ngcn | ModelKind::Appnp));
        let settings = [
            (self.stacks() || !self.residual, "residual", "gcn, gat, gatv2 and gin"),
            (self.stacks() || self.norm == NormKind::None, "norm", "gcn, gat, gatv2 and gin"),
            (self.stacks() || self.jump == Jump::None, "jump", "gcn, gat, gatv2 and gin"),
            (self.kind == ModelKind::Sage || self.aggregator == usual.aggregator, "aggregator", "sage"),
            (attends || self.heads == usual.heads, "heads", "gat and gatv2"),
            (attends || self.out_heads == usual.out_heads, "out_heads", "gat and gatv2"),
            (attends || self.attention_dropout == usual.attention_dropout, "attention_dropout", "gat and gatv2"),
            (attends || self.slope == usual.slope, "slope", "gat and gatv2"),
            (hops || self.hops == usual.hops, "hops", "ngcn and appnp"),
            (self.kind == ModelKind::Appnp || self.teleport == usual.teleport, "teleport", "appnp"),
            (self.kind == ModelKind::Ngcn || self.mixing == usual.mixing, "mixing", "ngcn"),
            (self.normalizes() || self.normalization == usual.normalization, "normalization", NORMALIZE),
            (!recommends || self.aggregate_once == usual.aggregate_once, "aggregate_once", "all others"),
        ];
        Unread::first(self.kind.name(), &settings)
    }

    /// Dropout rate of attention weights.
    #[must_use]
    pub fn attention_dropout(&self) -> f64 {
        self.attention_dropout.unwrap_or(self.dropout)
    }

    /// Dropout rate of input features.
    #[must_use]
    pub fn input_dropout(&self) -> f64 {
        self.input_dropout.unwrap_or(self.dropout)
    }
}

/// A setting that has no effect.
struct Unread {
    setting: &'static str,
    /// Network, optimiser or task that ignores the setting; `readers` use it.
    by: &'static str,
    readers: &'static str,
}

impl Unread {
    /// First setting that `by` ignores and that differs from its usual value. Tuples: (read or usual, setting,
    /// readers).
    fn first(by: &'static str, settings: &[(bool, &'static str, &'static str)]) -> Option<Self> {
        let (_, setting, readers) = settings.iter().find(|(is_read_or_usual, ..)| !is_read_or_usual)?;
        Some(Self { setting, by, readers })
    }
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            kind: ModelKind::Gcn,
            layers: 2,
            hidden: 16,
            dropout: 0.5,
            input_dropout: None,
            aggregate_once: true,
            heads: 8,
            out_heads: 1,
            attention_dropout: None,
            slope: 0.2,
            hops: 2,
            teleport: 0.1,
            mixing: true,
            normalization: Degrees::Default,
            residual: false,
            norm: NormKind::None,
            jump: Jump::None,
            aggregator: Aggregator::Mean,
        }
    }
}

/// Kind of optimiser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// Adam (Kingma and Ba, ICLR 2015). Weight decay is added to the gradient.
    #[default]
    Adam,
    /// AdamW (Loshchilov and Hutter, ICLR 2019). Weight decay is decoupled.
    Adamw,
    /// Stochastic gradient descent with momentum.
    Sgd,
}

impl OptimizerKind {
    /// Name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Adam => "adam",
            Self::Adamw => "adamw",
            Self::Sgd => "sgd",
        }
    }
}

/// Parameters that weight decay applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decay {
    /// Parameters of the first layer, as in Kipf and Welling.
    #[default]
    First,
    /// All parameters.
    All,
}

/// Schedule of the learning rate over epochs.
///
/// Variants without settings have braces, so that unknown settings are refused.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind", deny_unknown_fields)]
pub enum Schedule {
    /// Constant rate.
    Constant {},
    /// Half a cosine from the full rate to zero over all epochs.
    Cosine {},
    /// Multiplication by `factor` after every `every` epochs.
    Step {
        /// Number of epochs between two changes.
        every: u64,
        /// Factor of a change.
        factor: f64,
    },
}

impl Default for Schedule {
    fn default() -> Self {
        Self::Constant {}
    }
}

/// The optimiser and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerConfig {
    /// Kind of optimiser.
    pub kind: OptimizerKind,
    /// Base learning rate.
    pub lr: f64,
    /// Weight decay; for LightGCN, the weight of the penalty on the embeddings of a batch.
    pub weight_decay: f64,
    /// Parameters that weight decay applies to.
    pub decay: Decay,
    /// Decay rate of Adam's first moment.
    pub beta1: f64,
    /// Decay rate of Adam's second moment.
    pub beta2: f64,
    /// Adam's epsilon, added to the denominator.
    pub eps: f64,
    /// Momentum of SGD.
    pub momentum: f64,
    /// Number of epochs of linear warm-up.
    pub warmup: u64,
    /// Schedule of the rate.
    pub schedule: Schedule,
}

impl OptimizerConfig {
    /// First setting that differs from `usual` although the optimiser does not read it, with the optimisers that do.
    fn unread(&self, usual: &Self) -> Option<Unread> {
        const ADAM: &str = "adam and adamw";
        let has_moments = self.kind != OptimizerKind::Sgd;
        let settings = [
            (has_moments || self.beta1 == usual.beta1, "beta1", ADAM),
            (has_moments || self.beta2 == usual.beta2, "beta2", ADAM),
            (has_moments || self.eps == usual.eps, "eps", ADAM),
            (!has_moments || self.momentum == usual.momentum, "momentum", "sgd"),
        ];
        Unread::first(self.kind.name(), &settings)
    }
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self {
            kind: OptimizerKind::Adam,
            lr: 0.01,
            weight_decay: 5e-4,
            decay: Decay::First,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            momentum: 0.9,
            warmup: 0,
            schedule: Schedule::default(),
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
            let (kind, aggregator) = (self.model.kind.name(), self.model.aggregator);
            let why = match self.model.kind {
                ModelKind::Mlp => "mlp reads no edges".to_owned(),
                ModelKind::Sage => format!(
                    "sage with the aggregator {} reads which nodes are neighbours, not how much an edge weighs",
                    aggregator.name()
                ),
                _ => format!("{kind} learns how much each neighbour counts, and reads no weights"),
            };
            notes.leave_out("edge weights", why);
        }
        notes
    }

    /// Whether features are parameters of the model.
    #[must_use]
    pub fn learns_features(&self) -> bool {
        self.features_from.is_some_and(FeaturesFrom::is_learned)
    }

    /// Refuses a feature rule that does not fit the other settings.
    fn check_features_from(&self) -> Result<(), TrainError> {
        let Some(rule) = self.features_from else { return Ok(()) };
        let (learns, kind) = (rule.is_learned(), self.model.kind);
        let rules = [
            (!kind.is_recommender(), "left out: lightgcn learns a row of its own for each user and item"),
            (self.codec.is_none(), "left out, or codec: features that are made are not compressed"),
            (
                kind != ModelKind::Sgc || !rule.knows_nodes(),
                "degree or random-walk for sgc: it aggregates features once before training, where onehot would fill a matrix \
                 of nodes × nodes and embeddings are not known yet",
            ),
            (
                !learns || self.precision == Dtype::F32,
                "another rule with precision bf16: embeddings are parameters, which are f32",
            ),
            (!learns || self.tiers.is_default(), "another rule with tiers: embeddings change where they are computed"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, what)) => Err(TrainError::invalid(format!("setting `features_from` ({rule}) must be {what}"))),
        }
    }

    /// First setting that differs from its usual value and has no effect.
    fn unread(&self) -> Option<Unread> {
        let usual = Self::for_task(self.task, self.model.kind);
        let recommends = self.model.kind.is_recommender();
        let of_recommenders = [
            (!recommends || self.optimizer.decay == usual.optimizer.decay, "decay", "all others"),
            (!recommends || self.metric == usual.metric, "metric", "all others"),
        ];
        self.model
            .unread(&usual.model)
            .or_else(|| self.optimizer.unread(&usual.optimizer))
            .or_else(|| Unread::first(self.model.kind.name(), &of_recommenders))
    }

    /// Refuses invalid settings; the message names the setting and its valid values.
    ///
    /// # Errors
    /// At the first such setting.
    pub fn validate(&self) -> Result<(), TrainError> {
        // Checked as `f32`, the type of the computation: rounding may reach the limit itself.
        let share = |v: f64| (0.0..1.0).contains(&(v as f32));
        let positive = |v: f64| (v as f32).is_finite() && v as f32 > 0.0;
        let not_negative = |v: f64| (v as f32).is_finite() && v >= 0.0;
        let o = &self.optimizer;
        let (recommends, tiers) = (self.model.kind.is_recommender(), self.tiers.complaint());
        let rules = [
            (self.model.layers >= 1, "layers", "at least 1"),
            (self.model.layers <= 1000, "layers", "at most 1000"),
            (self.model.hidden >= 1, "hidden", "at least 1"),
            (self.model.hidden <= 1 << 20, "hidden", "at most 1048576"),
            (share(self.model.dropout), "dropout", "at least 0 and below 1"),
            (share(self.model.input_dropout()), "input_dropout", "at least 0 and below 1"),
            ((1..=1024).contains(&self.model.heads), "heads", "from 1 to 1024"),
            ((1..=1024).contains(&self.model.out_heads), "out_heads", "from 1 to 1024"),
            (share(self.model.attention_dropout()), "attention_dropout", "at least 0 and below 1"),
            (share(self.model.slope), "slope", "at least 0 and below 1"),
            (self.model.hops <= 1000, "hops", "at most 1000"),
            ((0.0..=1.0).contains(&self.model.teleport), "teleport", "from 0 to 1"),
            (positive(o.lr), "lr", "positive, and finite in 32 bits"),
            (not_negative(o.weight_decay), "weight_decay", "zero or positive, and finite in 32 bits"),
            (share(o.beta1), "beta1", "at least 0 and below 1"),
            (share(o.beta2), "beta2", "at least 0 and below 1"),
            (positive(o.eps), "eps", "positive"),
            (share(o.momentum), "momentum", "at least 0 and below 1"),
            (!matches!(o.schedule, Schedule::Step { every: 0, .. }), "schedule.every", "at least 1"),
            (!matches!(o.schedule, Schedule::Step { factor, .. } if !positive(factor)), "schedule.factor", "positive"),
            (self.epochs >= 1, "epochs", "at least 1"),
            (self.patience != Some(0), "patience", "at least 1"),
            (self.eval_every >= 1, "eval_every", "at least 1"),
            (self.batch_size != Some(0), "batch_size", "at least 1"),
            (
                self.batch_size.is_none() || recommends || self.batch.is_sampled(),
                "batch_size",
                "left out: steps see the full graph; choose a batch kind (neighbor, layer, cluster, saint) or lightgcn",
            ),
            (
                self.batch_size.is_none() || self.batch.kind != BatchKind::Cluster,
                "batch_size",
                "left out: clusters_per_batch says how large cluster batches are",
            ),
            (!recommends || self.model.dropout == 0.0, "dropout", "0: lightgcn has none"),
            (!recommends || self.model.input_dropout() == 0.0, "input_dropout", "0: lightgcn has none"),
            (tiers.is_none(), tiers.map_or("", |(name, _)| name), tiers.map_or("", |(_, rule)| rule)),
            (
                self.tiers.is_default() || self.batch.is_sampled(),
                "tiers",
                "left out: full batches read all of graph and features at once",
            ),
            (
                self.tiers.topology.is_none() || sampled_by_device(self),
                "tiers.topology",
                "left out: devices draw for batches of neighbours of nodes, without replacement",
            ),
            (
                self.batch.score_by.is_none() || (self.batch.is_sampled() && self.task != TaskKind::Links),
                "batch.score_by",
                "left out: it is for classes of nodes, learnt on mini-batches",
            ),
            (!recommends || self.codec.is_none(), "codec", "left out: lightgcn reads no features"),
            (self.task == TaskKind::Links || is_default(&self.links), "links", "left out: choose the task links"),
            (self.runs >= 1, "runs", "at least 1"),
            (self.runs <= 10_000, "runs", "at most 10000"),
        ];
        if let Some(Unread { setting, by, readers }) = self.unread() {
            return Err(TrainError::invalid(format!(
                "setting `{setting}` must be left out: {by} does not read it, but {readers}"
            )));
        }
        match rules.iter().find(|(holds, ..)| !holds) {
            None => {
                if self.task == TaskKind::Links {
                    self.links.validate(&self.model, &self.batch)?;
                }
                if let Some(codec) = self.codec {
                    codec.check().map_err(|error| TrainError::invalid(format!("setting `codec`: {error}")))?;
                }
                self.check_features_from()?;
                self.batch.validate(&self.model)
            }
            Some((_, setting, rule)) => Err(TrainError::invalid(format!("setting `{setting}` must be {rule}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Configuration of a network with one changed setting.
    fn with(kind: ModelKind, change: impl FnOnce(&mut ModelConfig)) -> TrainConfig {
        let mut config = TrainConfig::for_model(kind);
        change(&mut config.model);
        config
    }

    #[test]
    fn what_a_network_does_not_read_is_refused_by_name() {
        use ModelKind::{Appnp, Gat, Gcn, Gin, LightGcn, Mlp, Ngcn, Sage, Sgc};
        /// A setting, a change of it, networks that read it, and networks that ignore it.
        type Case<'c> = (&'c str, fn(&mut ModelConfig), &'c [ModelKind], &'c [ModelKind]);
        let settings: [Case<'_>; 10] = [
            ("heads", |m| m.heads = 3, &[Gat], &[Gcn, Sage, Mlp]),
            ("out_heads", |m| m.out_heads = 3, &[Gat], &[Gin, Appnp]),
            ("attention_dropout", |m| m.attention_dropout = Some(0.3), &[Gat], &[Gcn, LightGcn]),
            ("hops", |m| m.hops = 3, &[Ngcn, Appnp], &[Gcn, Sgc]),
            ("teleport", |m| m.teleport = 0.3, &[Appnp], &[Ngcn]),
            ("mixing", |m| m.mixing = false, &[Ngcn], &[Appnp]),
            ("aggregator", |m| m.aggregator = Aggregator::Pool, &[Sage], &[Gcn, Gat]),
            ("residual", |m| m.residual = true, &[Gcn, Gat, Gin], &[Sage, Mlp]),
            ("norm", |m| m.norm = NormKind::Layer, &[Gcn, Gat, Gin], &[Sgc, Ngcn]),
            ("aggregate_once", |m| m.aggregate_once = false, &[Gcn, Sgc], &[LightGcn]),
        ];
        for (setting, change, readers, others) in settings {
            for &kind in readers {
                assert!(with(kind, change).validate().is_ok(), "{} reads {setting}", kind.name());
            }
            for &kind in others {
                let message = with(kind, change).validate().unwrap_err().to_string();
                assert!(message.contains(&format!("`{setting}`")) && message.contains(kind.name()), "{message}");
            }
        }
    }

    #[test]
    fn what_nothing_else_reads_is_refused_by_name_too() {
        let sgd = || TrainConfig {
            optimizer: OptimizerConfig { kind: OptimizerKind::Sgd, ..OptimizerConfig::default() },
            ..TrainConfig::default()
        };
        let (adam, recommender) = (TrainConfig::default, || TrainConfig::for_model(ModelKind::LightGcn));
        /// A setting, a change of it, a configuration that reads it, and one that ignores it.
        type Case<'c> = (&'c str, fn(&mut TrainConfig), &'c dyn Fn() -> TrainConfig, &'c dyn Fn() -> TrainConfig);
        let cases: [Case<'_>; 4] = [
            ("momentum", |config| config.optimizer.momentum = 0.5, &sgd, &adam),
            ("beta2", |config| config.optimizer.beta2 = 0.99, &adam, &sgd),
            ("decay", |config| config.optimizer.decay = Decay::All, &adam, &recommender),
            ("metric", |config| config.metric = Metric::RocAuc, &sgd, &recommender),
        ];
        for (setting, change, reads, ignores) in cases {
            let changed = |mut config: TrainConfig| {
                change(&mut config);
                config.validate().map_err(|error| error.to_string())
            };
            assert_eq!(changed(reads()), Ok(()), "{setting}");
            let message = changed(ignores()).unwrap_err();
            assert!(message.contains(&format!("`{setting}`")), "{message}");
        }
    }
}
