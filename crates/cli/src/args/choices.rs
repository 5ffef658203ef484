//! Values of flags that stand for enums of the libraries.

use clap::ValueEnum;
use girih_compute::Dtype;
use girih_datasets::FeatureNorm;
use girih_graph_format::Degrees;
use girih_sampling::{Draws, Expand};
use girih_trainer::distributed::GraphPlacement;
use girih_trainer::{
    Aggregator, BatchKind, Decay, Jump, Metric, ModelKind, NormKind, OptimizerKind, SaintKind, ScoreBy, TaskKind,
};
use serde::{Deserialize, Serialize};

/// Declares a flag's values beside the library's enum that they stand for.
macro_rules! value_enum {
    ($(#[$doc:meta])* $name:ident for $target:ty { $($(#[$value_doc:meta])* $value:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
        pub enum $name { $($(#[$value_doc])* $value),+ }

        impl From<$name> for $target {
            fn from(value: $name) -> Self {
                match value { $($name::$value => Self::$value),+ }
            }
        }
    };
}

value_enum! {
    /// For which nodes a hop draws neighbours.
    ExpandChoice for Expand {
        /// For the nodes that the hop before found.
        Once,
        /// For all nodes found so far.
        PerLayer,
    }
}

value_enum! {
    /// Who draws neighbours.
    DrawsChoice for Draws {
        /// Each node for itself (GraphSAGE).
        #[value(name = "node")]
        PerNode,
        /// The nodes of a hop together, so many for all (DSP's layer-wise sampling).
        #[value(name = "layer")]
        PerLayer,
        /// Each node for itself, with numbers in common (LABOR-0).
        Labor,
    }
}

value_enum! {
    /// What a sampled batch is.
    SampledBatch for BatchKind { Neighbor, Layer, Cluster, Saint }
}

value_enum! {
    /// A network.
    Model for ModelKind { Gcn, Sgc, Sage, Gat, Gatv2, Gin, Ngcn, Appnp, Mlp, #[value(name = "lightgcn")] LightGcn }
}

value_enum! {
    /// What is learnt.
    TaskArg for TaskKind { Nodes, Links }
}

value_enum! {
    /// What normalises hidden layers.
    NormArg for NormKind { None, Layer, Batch }
}

value_enum! {
    /// Weights that degrees are sums of.
    NormalizationArg for Degrees { Default, Absolute }
}

value_enum! {
    /// How logits read hidden layers.
    JumpArg for Jump { None, Concat, Max }
}

value_enum! {
    /// A score that chooses the epoch.
    MetricArg for Metric { Accuracy, RocAuc }
}

value_enum! {
    /// An aggregator of GraphSAGE.
    AggregatorArg for Aggregator { Mean, Pool, Lstm }
}

value_enum! {
    /// An optimiser.
    Optimizer for OptimizerKind { Adam, Adamw, Sgd }
}

value_enum! {
    /// Which parameters decay.
    DecayArg for Decay { First, All }
}

value_enum! {
    /// What rows of features are divided by.
    #[derive(Deserialize, Serialize)]
    #[serde(rename_all = "kebab-case")]
    RowDivisor for FeatureNorm { None, Sum, Length, RootLength }
}

value_enum! {
    /// What a training step sees.
    Batch for BatchKind { Full, Neighbor, Layer, Cluster, Saint }
}

value_enum! {
    /// What GraphSAINT draws.
    Saint for SaintKind { Node, Edge, Walk }
}

value_enum! {
    /// How runs on mini-batches are scored.
    ScoreByArg for ScoreBy { Graph, Layers }
}

value_enum! {
    /// A storage of floats.
    Precision for Dtype { F32, Bf16 }
}

value_enum! {
    /// What each rank holds of graph and features.
    LayoutChoice for GraphPlacement {
        /// Its patches of both.
        Patches,
        /// All of the graph, its patches of features.
        SplitFeatures,
        /// All.
        Replicated,
    }
}
