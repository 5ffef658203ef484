//! [`ModelKind`]: networks of girih, and what is known of each without building it.
//!
//! [`ModelKind::properties`] is the table of networks: names, settings, weights and batches. All else that
//! lists networks reads it: checks of settings, [`supported`](super::supported()), and the command line.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::rules::joined;
use crate::TrainError;

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
    /// Graph isomorphism network with features of edges (Hu et al., ICLR 2020).
    Gine,
    /// N-GCN: several powers of the adjacency (Abu-El-Haija et al., UAI 2019).
    Ngcn,
    /// APPNP: prediction, then personalised propagation (Gasteiger et al., ICLR 2019).
    Appnp,
    /// Multi-layer perceptron that ignores the graph: the baseline.
    Mlp,
    /// R-GCN, for types of edges (Schlichtkrull et al., ESWC 2018).
    Rgcn,
    /// `GraphSAGE` over the relations of typed graphs (Hamilton et al., NeurIPS 2017).
    Hsage,
    /// Graph attention within each relation, as in the R-GAT of MLPerf.
    Rgat,
    /// Heterogeneous graph transformer (Hu et al., WWW 2020).
    Hgt,
    /// LightGCN, a recommender (He et al., SIGIR 2020).
    LightGcn,
    /// A learned row for each node, without layers: entities of triples.
    Embedding,
}

/// Use of edge weights by a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeWeights {
    /// Weights of a sum, divided by degrees that are sums of weights.
    Normalize,
    /// As `Normalize`, but only with the aggregator mean.
    NormalizeMean,
    /// Weights of a sum.
    Sum,
    /// None, with the reason.
    Unread(&'static str),
}

/// Batches that the steps of a network can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelBatches {
    /// The full graph.
    Full,
    /// The full graph, or blocks of sampled neighbors.
    Neighbors,
    /// The full graph or subgraphs, but no blocks: it takes more hops than blocks contain.
    Subgraphs,
    /// The full graph, subgraphs or blocks.
    All,
}

/// Properties of a network that are known without building it.
#[derive(Debug)]
pub struct ModelProperties {
    /// Name on the command line, in files and in results.
    pub name: &'static str,
    /// Names of the settings of [`ModelConfig`](super::ModelConfig) that this network reads and some other does not,
    /// without `normalization`.
    pub settings: &'static [&'static str],
    /// Use of edge weights.
    pub weights: EdgeWeights,
    /// Batches that its steps can see.
    pub batches: ModelBatches,
    /// Class of PyG whose names its exported tensors have; `None` if its weights have no counterpart in other
    /// libraries. Export then refuses it, and nothing below `weights/` needs to know it.
    pub exports: Option<&'static str>,
}

const LEARNS_WEIGHTS: EdgeWeights = EdgeWeights::Unread("learns how much each neighbor counts, and reads no weights");

static GCN: ModelProperties = ModelProperties {
    name: "gcn",
    settings: &["aggregate_once", "residual", "norm", "jump"],
    weights: EdgeWeights::Normalize,
    batches: ModelBatches::All,
    exports: Some("GCNConv"),
};
static SGC: ModelProperties = ModelProperties {
    name: "sgc",
    settings: &["aggregate_once"],
    weights: EdgeWeights::Normalize,
    batches: ModelBatches::Full,
    exports: Some("SGConv"),
};
static SAGE: ModelProperties = ModelProperties {
    name: "sage",
    settings: &["aggregate_once", "aggregator"],
    weights: EdgeWeights::NormalizeMean,
    batches: ModelBatches::All,
    exports: Some("SAGEConv"),
};
static GAT: ModelProperties = ModelProperties {
    name: "gat",
    settings: &["aggregate_once", "residual", "norm", "jump", "heads", "out_heads", "attention_dropout", "slope"],
    weights: LEARNS_WEIGHTS,
    batches: ModelBatches::All,
    exports: Some("GATConv"),
};
static GATV2: ModelProperties = ModelProperties { name: "gatv2", exports: Some("GATv2Conv"), ..GAT };
static GIN: ModelProperties =
    ModelProperties { name: "gin", weights: EdgeWeights::Sum, exports: Some("GINConv"), ..GCN };
static GINE: ModelProperties = ModelProperties {
    name: "gine",
    settings: &["residual", "norm", "jump"],
    weights: EdgeWeights::Unread("reads features of edges in place of their weights"),
    batches: ModelBatches::Neighbors,
    exports: None,
};
static NGCN: ModelProperties = ModelProperties {
    name: "ngcn",
    settings: &["aggregate_once", "hops", "mixing"],
    weights: EdgeWeights::Normalize,
    batches: ModelBatches::Subgraphs,
    exports: None,
};
static APPNP: ModelProperties = ModelProperties {
    name: "appnp",
    settings: &["aggregate_once", "hops", "teleport"],
    weights: EdgeWeights::Normalize,
    batches: ModelBatches::Subgraphs,
    exports: Some("APPNP"),
};
static MLP: ModelProperties = ModelProperties {
    name: "mlp",
    settings: &["aggregate_once"],
    weights: EdgeWeights::Unread("reads no edges"),
    batches: ModelBatches::Full,
    exports: Some("Linear"),
};
static RGCN: ModelProperties = ModelProperties {
    name: "rgcn",
    settings: &["bases", "blocks", "self_weight"],
    weights: EdgeWeights::Unread("weighs the neighbors of a type of edges alike"),
    batches: ModelBatches::Neighbors,
    exports: None,
};
static HSAGE: ModelProperties = ModelProperties { name: "hsage", ..RGCN };
static RGAT: ModelProperties = ModelProperties {
    name: "rgat",
    settings: &["heads", "attention_dropout", "slope", "self_weight"],
    weights: LEARNS_WEIGHTS,
    ..RGCN
};
static HGT: ModelProperties = ModelProperties { name: "hgt", settings: &["heads"], ..RGAT };
static LIGHT_GCN: ModelProperties = ModelProperties {
    name: "lightgcn",
    settings: &[],
    weights: EdgeWeights::Normalize,
    batches: ModelBatches::Full,
    exports: Some("LightGCN"),
};

static EMBEDDING: ModelProperties = ModelProperties {
    name: "embedding",
    settings: &[],
    weights: EdgeWeights::Unread("reads no edges"),
    batches: ModelBatches::Full,
    exports: None,
};

impl ModelKind {
    /// All networks.
    pub const ALL: [Self; 16] = [
        Self::Gcn,
        Self::Sgc,
        Self::Sage,
        Self::Gat,
        Self::Gatv2,
        Self::Gin,
        Self::Gine,
        Self::Ngcn,
        Self::Appnp,
        Self::Mlp,
        Self::Rgcn,
        Self::Hsage,
        Self::Rgat,
        Self::Hgt,
        Self::LightGcn,
        Self::Embedding,
    ];

    /// Row of the table of networks.
    #[must_use]
    pub fn properties(self) -> &'static ModelProperties {
        match self {
            Self::Gcn => &GCN,
            Self::Sgc => &SGC,
            Self::Sage => &SAGE,
            Self::Gat => &GAT,
            Self::Gatv2 => &GATV2,
            Self::Gin => &GIN,
            Self::Gine => &GINE,
            Self::Ngcn => &NGCN,
            Self::Appnp => &APPNP,
            Self::Mlp => &MLP,
            Self::Rgcn => &RGCN,
            Self::Hsage => &HSAGE,
            Self::Rgat => &RGAT,
            Self::Hgt => &HGT,
            Self::LightGcn => &LIGHT_GCN,
            Self::Embedding => &EMBEDDING,
        }
    }

    /// Networks that classify nodes. The remaining ones learn rows alone, or read features of edges, which only links in
    /// time have.
    pub fn classifiers() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|kind| kind.reads_features() && !kind.needs_edge_features())
    }

    /// Whether the network reads features of nodes. The others learn a row for each node instead.
    #[must_use]
    pub fn reads_features(self) -> bool {
        !matches!(self, Self::LightGcn | Self::Embedding)
    }

    /// Whether layers have several heads, each [`ModelConfig::hidden`](super::ModelConfig::hidden) wide.
    #[must_use]
    pub fn has_heads(self) -> bool {
        self.reads("heads")
    }

    /// Name on the command line, in files and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.properties().name
    }

    /// Whether the model ranks items for users, instead of classifying nodes.
    #[must_use]
    pub fn is_recommender(self) -> bool {
        self == Self::LightGcn
    }

    /// Whether the network reads types of edges, and learns rows for nodes where data has no features.
    #[must_use]
    pub fn reads_relations(self) -> bool {
        matches!(self, Self::Rgcn | Self::Hsage | Self::Rgat | Self::Hgt)
    }

    /// Whether the network reads features of edges where there are any.
    #[must_use]
    pub fn reads_edge_features(self) -> bool {
        matches!(self, Self::Gat | Self::Gatv2 | Self::Gine)
    }

    /// Whether the network makes a message of each edge, of its features.
    #[must_use]
    pub fn needs_edge_features(self) -> bool {
        self == Self::Gine
    }

    /// Whether the network reads a setting that only some networks read.
    #[must_use]
    pub fn reads(self, setting: &str) -> bool {
        self.properties().settings.contains(&setting)
    }
}

impl FromStr for ModelKind {
    type Err = TrainError;

    fn from_str(text: &str) -> Result<Self, TrainError> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names = joined(Self::ALL.iter().map(|kind| kind.name()), "or");
            TrainError::invalid(format!("`{text}` is not a model: give {names}"))
        })
    }
}
