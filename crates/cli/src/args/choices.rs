//! Flag values that stand for enums of the libraries.

use clap::ValueEnum;
use girih_compute::Dtype;
use girih_datasets::FeatureNorm;
use girih_graph_format::Degrees;
use girih_sampling::{Draws, Expand};
use girih_trainer::distributed::GraphPlacement;
use girih_trainer::{
    Aggregator, BatchKind, Decay, Distance, Jump, Metric, NormKind, OptimizerKind, SaintKind, ScoreBy, SelfWeight,
    TaskKind,
};
use serde::{Deserialize, Serialize};

/// Declares a flag's values together with the library enum that they map to.
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
    /// Nodes whose neighbors a hop draws.
    ExpandChoice for Expand {
        /// Nodes that the hop before found.
        Once,
        /// All nodes found so far.
        PerLayer,
    }
}

value_enum! {
    /// Rule by which neighbors are drawn.
    DrawsChoice for Draws {
        /// Each node draws its own neighbors (GraphSAGE).
        #[value(name = "node")]
        PerNode,
        /// The nodes of a hop draw a fixed number together (layer-wise sampling of DSP).
        #[value(name = "layer")]
        PerLayer,
        /// Each node draws its own, with shared random numbers (LABOR-0).
        Labor,
    }
}

value_enum! {
    /// Kind of a sampled batch.
    SampledBatch for BatchKind { Neighbor, Layer, Cluster, Saint }
}

value_enum! {
    /// Distance between rows of entities.
    DistanceArg for Distance { L1, L2 }
}

value_enum! {
    /// Task.
    TaskArg for TaskKind { Nodes, Links, Triples }
}

value_enum! {
    /// Normalisation of hidden layers.
    NormArg for NormKind { None, Layer, Batch }
}

value_enum! {
    /// Edge weights that degrees are summed from.
    NormalizationArg for Degrees { Default, Absolute }
}

value_enum! {
    /// Way in which logits read hidden layers.
    JumpArg for Jump { None, Concat, Max }
}

value_enum! {
    /// Score that chooses the epoch.
    MetricArg for Metric { Accuracy, RocAuc }
}

value_enum! {
    /// Aggregator of GraphSAGE.
    AggregatorArg for Aggregator { Mean, Pool, Lstm }
}

value_enum! {
    /// Weights of networks of relations for the row of the node itself.
    SelfWeightArg for SelfWeight { Shared, Type, Relation, None }
}

value_enum! {
    /// Optimiser.
    Optimizer for OptimizerKind { Adam, Adamw, Sgd }
}

value_enum! {
    /// Parameters to which weight decay applies.
    DecayArg for Decay { First, All }
}

value_enum! {
    /// Divisor of each row of features.
    #[derive(Deserialize, Serialize)]
    #[serde(rename_all = "kebab-case")]
    RowDivisor for FeatureNorm { None, Sum, Length, RootLength }
}

value_enum! {
    /// Graph that a training step uses.
    Batch for BatchKind { Full, Neighbor, Layer, Cluster, Saint }
}

value_enum! {
    /// Unit that GraphSAINT draws: nodes, edges or walks.
    Saint for SaintKind { Node, Edge, Walk }
}

value_enum! {
    /// Evaluation method of runs on mini-batches.
    ScoreByArg for ScoreBy { Graph, Layers, Samples }
}

value_enum! {
    /// Storage type of floats.
    Precision for Dtype { F32, Bf16 }
}

value_enum! {
    /// Share of graph and features that each rank holds.
    LayoutChoice for GraphPlacement {
        /// Its patch of graph and features.
        Patches,
        /// The whole graph, and its patch of the features.
        SplitFeatures,
        /// The whole graph and all features.
        Replicated,
    }
}

/// Replaces a setting by a given value; `None` leaves it.
pub(super) fn set<T>(slot: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *slot = value;
    }
}
