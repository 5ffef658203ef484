//! [`ModelConfig`]: network and its sizes.

use girih_graph_format::Degrees;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::model_kind::{EdgeWeights, ModelKind};
use super::own::OwnModel;
use super::rules::{Unread, is_default, joined};

/// GraphSAGE's aggregator over neighbors (Hamilton et al., NeurIPS 2017, section 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aggregator {
    /// Mean.
    #[default]
    Mean,
    /// Element-wise maximum over transformed neighbors.
    Pool,
    /// Last state of an LSTM that reads the neighbors in a random order.
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

/// Weights of networks of relations for the row of the node itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SelfWeight {
    /// One weight for all nodes.
    #[default]
    Shared,
    /// One weight for each type of nodes.
    Type,
    /// One weight for each relation; a node has the sum of those of the relations that end in its type.
    Relation,
    /// None: only neighbors count.
    None,
}

impl SelfWeight {
    /// Name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Type => "type",
            Self::Relation => "relation",
            Self::None => "none",
        }
    }
}

/// Network and its sizes. A setting that the network does not read must keep its value of
/// [`TrainConfig::for_model`](super::TrainConfig::for_model).
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
    /// Number of bases of R-GCN's weights, which relations share; 0 for a weight of its own for each relation.
    #[serde(skip_serializing_if = "is_default")]
    pub bases: usize,
    /// Number of blocks of R-GCN's weights: each is zero but for that many equal blocks along its diagonal. 0 for whole
    /// weights. A layer whose inputs or outputs it does not divide has whole weights, too.
    #[serde(skip_serializing_if = "is_default")]
    pub blocks: usize,
    /// Weights of R-GCN for the row of the node itself.
    #[serde(skip_serializing_if = "is_default")]
    pub self_weight: SelfWeight,
    /// Name and settings of a model from outside; `None` for a model of girih, which `kind` names. Other settings are
    /// then those of a GCN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<OwnModel>,
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
    /// Configuration of a model from outside, with its name and the settings that its builder reads.
    ///
    /// # Panics
    /// When `settings` cannot be written as JSON: its maps need keys that are text.
    #[must_use]
    pub fn from_outside(name: impl Into<String>, settings: impl Serialize) -> Self {
        let settings = serde_json::to_value(settings).expect("settings are numbers, text, lists and tables");
        Self { own: Some(OwnModel { name: name.into(), settings }), ..Self::default() }
    }

    /// Name of the network in messages: that of a model from outside, or of its kind.
    #[must_use]
    pub fn name(&self) -> &str {
        self.own.as_ref().map_or(self.kind.name(), |own| &own.name)
    }

    /// Whether the network normalises by degree.
    #[must_use]
    pub fn normalizes(&self) -> bool {
        match self.kind.properties().weights {
            EdgeWeights::Normalize => true,
            EdgeWeights::NormalizeMean => self.aggregator == Aggregator::Mean,
            EdgeWeights::Sum | EdgeWeights::Unread(_) => false,
        }
    }

    /// Whether the network reads edge weights.
    #[must_use]
    pub fn reads_weights(&self) -> bool {
        self.normalizes() || self.kind.properties().weights == EdgeWeights::Sum
    }

    /// Whether the network counts a neighbor once, even if it is drawn several times.
    pub(super) fn reads_neighbors_once(&self) -> bool {
        self.kind.has_heads()
            || self.kind.reads_relations()
            || (self.kind == ModelKind::Sage && self.aggregator != Aggregator::Mean)
    }

    /// First setting that differs from `usual` although the network does not read it, with the networks that do.
    pub(super) fn unread(&self, usual: &Self) -> Option<Unread> {
        let by = self.kind.name();
        if !self.normalizes() && self.normalization != usual.normalization {
            return Some(Unread { setting: "normalization", by, readers: normalizing() });
        }
        let (own, usual) = (self.fields(), usual.fields());
        let setting = of_some().find(|name| !self.kind.reads(name) && own.get(*name) != usual.get(*name))?;
        let readers = ModelKind::ALL.iter().filter(|kind| kind.reads(setting)).map(|kind| kind.name());
        Some(Unread { setting, by, readers: joined(readers, "and") })
    }

    /// Whether the network reads a setting, by its name in files.
    pub(super) fn reads(&self, setting: &str) -> bool {
        match setting {
            "normalization" => self.normalizes(),
            "hidden" => !matches!(self.kind, ModelKind::Sgc | ModelKind::Embedding),
            "dropout" => !self.kind.is_recommender(),
            "input_dropout" => self.kind.reads_features(),
            _ => self.kind.reads(setting) || of_some().all(|name| name != setting),
        }
    }

    /// Settings by name, as files have them.
    fn fields(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            other => unreachable!("settings of a model are a table: {other:?}"),
        }
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
            bases: 0,
            blocks: 0,
            self_weight: SelfWeight::Shared,
            own: None,
        }
    }
}

/// Names of the settings that only some networks read.
fn of_some() -> impl Iterator<Item = &'static str> {
    ModelKind::ALL.iter().flat_map(|kind| kind.properties().settings).copied()
}

/// Names of the networks that normalise by degree.
fn normalizing() -> String {
    let names = ModelKind::ALL.iter().filter_map(|kind| match kind.properties().weights {
        EdgeWeights::Normalize => Some(kind.name().to_owned()),
        EdgeWeights::NormalizeMean => Some(format!("{} with the aggregator mean", kind.name())),
        EdgeWeights::Sum | EdgeWeights::Unread(_) => None,
    });
    joined(names, "and")
}
