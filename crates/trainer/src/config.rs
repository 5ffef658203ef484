//! [`TrainConfig`]: everything that decides a run's result besides the data. Written into every checkpoint.

use girih_compress::{CodecSpec, CompressError};
use girih_compute::Dtype;
use girih_datasets::FeaturesFrom;
use girih_graph_format::{Degrees, Notes};
use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::batching::{BatchConfig, BatchKind, DEFAULT_BATCH_SIZE};
use crate::links::LinkConfig;
use crate::sampled::{CacheConfig, sampled_by_device};

/// A training configuration; the same configuration and data give the same result, bit for bit, on one kind of device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// What is learnt.
    #[serde(skip_serializing_if = "is_nodes")]
    pub task: TaskKind,
    /// The network.
    pub model: ModelConfig,
    /// How weights change.
    pub optimizer: OptimizerConfig,
    /// Passes over the data of a run, at most.
    pub epochs: u64,
    /// Ends a run after this many epochs without a better validation score; `None` for never.
    pub patience: Option<u64>,
    /// Scores are taken every so many epochs, and at the last.
    pub eval_every: u64,
    /// Independent runs: each with its own initial weights, its own dropout, and the next split if there are several.
    pub runs: u64,
    /// Names every random draw of all runs.
    pub seed: u64,
    /// Interactions in a step of a recommender, `None` for all of them at once; seeds of a mini-batch, `None` for
    /// [`DEFAULT_BATCH_SIZE`]: training nodes or links, or what GraphSAINT draws.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<usize>,
    /// What a step sees.
    #[serde(skip_serializing_if = "is_full")]
    pub batch: BatchConfig,
    /// How links are dealt and learnt, where they are the task.
    #[serde(skip_serializing_if = "is_default")]
    pub links: LinkConfig,
    /// How features are stored and rows are gathered; sums are `f32` in any case.
    pub precision: Dtype,
    /// How features are compressed before training, by a codec fitted with `seed`; `None`: as the data has them.
    #[serde(with = "codec_text", skip_serializing_if = "Option::is_none")]
    pub codec: Option<CodecSpec>,
    /// Rule that makes features for data that has none; `None`: features are those of the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features_from: Option<FeaturesFrom>,
    /// Where devices have what mini-batches are sampled from and read.
    #[serde(default, skip_serializing_if = "TierConfig::is_default")]
    pub tiers: CacheConfig,
    /// Which score on the validation nodes chooses the epoch. Recommenders go by their recall, link predictors by
    /// ROC-AUC.
    pub metric: Metric,
}

/// A codec as configurations hold it: as users write it, or `none`.
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

/// A codec as users write it, or `none`.
///
/// # Errors
/// What is written in its place, and what may be.
pub fn parse_codec(text: &str) -> Result<Option<CodecSpec>, String> {
    match text {
        "none" => Ok(None),
        _ => text.parse().map(Some).map_err(|error: CompressError| format!("{error}; or none")),
    }
}

/// Whether steps see the whole graph, about which there is nothing to be said.
fn is_full(batch: &BatchConfig) -> bool {
    *batch == BatchConfig::default()
}

/// Whether nodes are classified or items ranked, as the model does it, about which there is nothing to be said.
fn is_nodes(task: &TaskKind) -> bool {
    *task == TaskKind::Nodes
}

/// Whether a setting is as it is unless said otherwise.
fn is_default<T: Default + PartialEq>(setting: &T) -> bool {
    *setting == T::default()
}

/// What is learnt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskKind {
    /// Classes of nodes; of a recommender, items for users.
    #[default]
    Nodes,
    /// Which pairs of nodes an edge joins.
    Links,
}

impl TaskKind {
    /// The name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Links => "links",
        }
    }
}

/// A score that chooses the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Share of nodes whose class is right; with several labels a node, micro-F1.
    #[default]
    Accuracy,
    /// Area under the receiver operating characteristic, for two classes; with several labels a node, their mean.
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
    /// The published settings of a model, which files and flags then change; those of GCN are the general ones.
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
            // More dropout than in the paper: 140 labels are few for so many weights.
            ModelKind::Ngcn => Self { model: ModelConfig { hops: 4, dropout: 0.7, ..general.model }, ..general },
            // Gasteiger et al., ICLR 2019, section 5.
            ModelKind::Appnp => Self { model: ModelConfig { hops: 10, hidden: 64, ..general.model }, ..general },
            // He et al., SIGIR 2020, section 4.1.2, and the authors' program.
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

    /// The settings that a task starts from with a model. Links start from [`Self::for_model`] without dropout and
    /// decay of weights, which shrinks embeddings until their products tell nothing, with the widths of Kipf and
    /// Welling (2016, section 3): 32 hidden columns and embeddings of 16.
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

    /// A GCN for graphs whose neighbours differ, scored by ROC-AUC: residual connections and layer normalisation, as
    /// Platonov et al. (ICLR 2023) train on them, but narrower and at a higher rate, so that 200 epochs suffice.
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

/// Which network.
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
    /// Several powers of the adjacency (Abu-El-Haija et al., UAI 2019).
    Ngcn,
    /// Prediction, then personalised propagation (Gasteiger et al., ICLR 2019).
    Appnp,
    /// A perceptron that ignores the graph: the control.
    Mlp,
    /// LightGCN, a recommender (He et al., SIGIR 2020).
    LightGcn,
}

impl ModelKind {
    /// All models that classify nodes; the others are recommenders.
    pub const CLASSIFIERS: [Self; 9] =
        [Self::Gcn, Self::Sgc, Self::Sage, Self::Gat, Self::Gatv2, Self::Gin, Self::Ngcn, Self::Appnp, Self::Mlp];

    /// Whether layers have heads side by side, each [`ModelConfig::hidden`] wide.
    #[must_use]
    pub fn has_heads(self) -> bool {
        matches!(self, Self::Gat | Self::Gatv2)
    }

    /// The name on the command line and in results.
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

    /// Whether the model ranks items for users, instead of telling classes of nodes.
    #[must_use]
    pub fn is_recommender(self) -> bool {
        self == Self::LightGcn
    }
}

/// How GraphSAGE aggregates over neighbours (Hamilton et al., NeurIPS 2017, section 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aggregator {
    /// Their mean.
    #[default]
    Mean,
    /// The element-wise maximum of what a layer makes of each.
    Pool,
    /// The last state of an LSTM that reads them in a random order.
    Lstm,
}

impl Aggregator {
    /// The name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Pool => "pool",
            Self::Lstm => "lstm",
        }
    }
}

/// The network and its sizes. What a network does not read stays as [`TrainConfig::for_model`] has it, or is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// Which network.
    pub kind: ModelKind,
    /// Layers; for SGC and LightGCN, hops.
    pub layers: usize,
    /// Width of hidden layers, of which SGC has none; for LightGCN, of embeddings.
    pub hidden: usize,
    /// Share of hidden activations dropped out in training.
    pub dropout: f64,
    /// Share of input features dropped out; `None` for the same as `dropout`. At zero the first aggregation is a
    /// constant and computed once.
    pub input_dropout: Option<f64>,
    /// Whether a first aggregation that is a constant is computed once, before training, instead of in every epoch. The
    /// results agree up to the order of sums. SGC looks only at aggregated features and always computes them once.
    pub aggregate_once: bool,
    /// How GraphSAGE aggregates.
    pub aggregator: Aggregator,
    /// Heads of the hidden layers of attention networks; each is `hidden` wide.
    pub heads: usize,
    /// Heads of their last layer, averaged.
    pub out_heads: usize,
    /// Share of attention dropped out after the softmax; `None` for the same as `dropout`.
    pub attention_dropout: Option<f64>,
    /// Slope of the leaky rectifier of attention scores below zero.
    pub slope: f64,
    /// Hops of APPNP's propagation; the highest power of N-GCN.
    pub hops: usize,
    /// Teleport probability of APPNP.
    pub teleport: f64,
    /// Whether N-GCN's powers go through a last linear layer; otherwise they are averaged.
    pub mixing: bool,
    /// Weights that degrees are sums of where the network normalises by degree.
    #[serde(skip_serializing_if = "is_default")]
    pub normalization: Degrees,
    /// Hidden layers of GCN, GAT, GATv2 and GIN add to what they read.
    pub residual: bool,
    /// What normalises hidden layers of GCN, GAT, GATv2 and GIN.
    pub norm: NormKind,
    /// Whether logits of GCN, GAT, GATv2 and GIN read all hidden layers.
    pub jump: Jump,
}

/// What normalises hidden layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NormKind {
    /// Nothing.
    #[default]
    None,
    /// Layer normalisation (Ba et al., 2016).
    Layer,
    /// Batch normalisation (Ioffe and Szegedy, ICML 2015), over all nodes.
    Batch,
}

/// How logits read hidden layers: jumping knowledge (Xu et al., ICML 2018).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Jump {
    /// Only the last.
    #[default]
    None,
    /// All, side by side.
    Concat,
    /// Their element-wise maximum.
    Max,
}

impl ModelConfig {
    /// Whether the network is a stack of convolutions, which residual connections, norms and jumps fit around.
    fn stacks(&self) -> bool {
        matches!(self.kind, ModelKind::Gcn | ModelKind::Gat | ModelKind::Gatv2 | ModelKind::Gin)
    }

    /// Whether the network divides by degrees.
    #[must_use]
    pub fn normalizes(&self) -> bool {
        match self.kind {
            ModelKind::Gcn | ModelKind::Sgc | ModelKind::Ngcn | ModelKind::Appnp | ModelKind::LightGcn => true,
            ModelKind::Sage => self.aggregator == Aggregator::Mean,
            ModelKind::Gat | ModelKind::Gatv2 | ModelKind::Gin | ModelKind::Mlp => false,
        }
    }

    /// Whether the network reads weights of edges.
    #[must_use]
    pub fn reads_weights(&self) -> bool {
        self.normalizes() || self.kind == ModelKind::Gin
    }

    /// The first setting that the network does not read, but that is not as `usual`, and which networks read it.
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

    /// Share of attention dropped out.
    #[must_use]
    pub fn attention_dropout(&self) -> f64 {
        self.attention_dropout.unwrap_or(self.dropout)
    }

    /// Share of input features dropped out.
    #[must_use]
    pub fn input_dropout(&self) -> f64 {
        self.input_dropout.unwrap_or(self.dropout)
    }
}

/// A setting that means nothing beside others.
struct Unread {
    setting: &'static str,
    /// What does not read it, and what does.
    by: &'static str,
    readers: &'static str,
}

impl Unread {
    /// The first setting that `by` does not read, and that is not as usual.
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

/// Which rule changes the weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// Adam (Kingma and Ba, ICLR 2015); weight decay goes through the gradient.
    #[default]
    Adam,
    /// AdamW (Loshchilov and Hutter, ICLR 2019); weight decay is decoupled.
    Adamw,
    /// Stochastic gradient descent with momentum.
    Sgd,
}

impl OptimizerKind {
    /// The name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Adam => "adam",
            Self::Adamw => "adamw",
            Self::Sgd => "sgd",
        }
    }
}

/// Which parameters decay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decay {
    /// Those of the first layer, as Kipf and Welling do.
    #[default]
    First,
    /// All.
    All,
}

/// How the learning rate changes from epoch to epoch.
///
/// Those without settings have braces, so that settings they do not have are refused.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind", deny_unknown_fields)]
pub enum Schedule {
    /// Not at all.
    Constant {},
    /// Half a cosine from the full rate to zero over all epochs.
    Cosine {},
    /// Multiplied by `factor` after every `every` epochs.
    Step {
        /// Epochs between two changes.
        every: u64,
        /// The factor.
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
    /// The rule.
    pub kind: OptimizerKind,
    /// Learning rate at full height.
    pub lr: f64,
    /// Weight decay; for LightGCN, the weight of the penalty on the embeddings of a batch.
    pub weight_decay: f64,
    /// Which parameters decay.
    pub decay: Decay,
    /// Decay of Adam's first moment.
    pub beta1: f64,
    /// Decay of Adam's second moment.
    pub beta2: f64,
    /// Adam's epsilon.
    pub eps: f64,
    /// Momentum of SGD.
    pub momentum: f64,
    /// Epochs over which the rate first rises linearly.
    pub warmup: u64,
    /// How the rate changes after that.
    pub schedule: Schedule,
}

impl OptimizerConfig {
    /// The first setting that the rule does not read, but that is not as `usual`, and which rules read it.
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
    /// What one of several ranks that each hold all of the data has of every step on mini-batches: its share of the
    /// seeds, or of the subgraphs, rounded up. Of layer batches, whose layers are drawn for all seeds together, it may
    /// need all.
    #[must_use]
    pub fn of_one_rank(&self, n_ranks: usize) -> Self {
        let n_seeds = self.batch_size.unwrap_or(DEFAULT_BATCH_SIZE).div_ceil(n_ranks);
        let batch_size = if self.batch.kind == BatchKind::Neighbor { Some(n_seeds) } else { self.batch_size };
        let batch =
            BatchConfig { subgraphs_per_step: self.batch.subgraphs_per_step.div_ceil(n_ranks), ..self.batch.clone() };
        Self { batch_size, batch, ..self.clone() }
    }

    /// Parts of a graph that the model leaves unused; its edges may be `weighted`.
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

    /// Refuses a rule for features beside settings that do not go with it.
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

    /// The first setting that is not as usual, and that nothing reads.
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

    /// Refuses settings that make no sense, naming the setting and the values it can take.
    ///
    /// # Errors
    /// At the first such setting.
    pub fn validate(&self) -> Result<(), TrainError> {
        // As what computes has them: the nearest number of 32 bits may be a limit itself.
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

    /// The configuration of a network with another value of one setting.
    fn with(kind: ModelKind, change: impl FnOnce(&mut ModelConfig)) -> TrainConfig {
        let mut config = TrainConfig::for_model(kind);
        change(&mut config.model);
        config
    }

    #[test]
    fn what_a_network_does_not_read_is_refused_by_name() {
        use ModelKind::{Appnp, Gat, Gcn, Gin, LightGcn, Mlp, Ngcn, Sage, Sgc};
        /// A setting, a change of it, networks that read it, and some that do not.
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
        /// A setting, a change of it, a configuration that reads it, and one that does not.
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
