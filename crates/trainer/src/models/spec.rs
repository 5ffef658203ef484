//! [`InputSpec`]: inputs that a model reads, and [`Adjacency`]: the normalisation of its graph.

use girih_graph_format::{Degrees, Norm, UndefinedDegree};

use crate::TrainError;
use crate::config::ModelConfig;

/// Inputs that a model reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InputSpec {
    /// Adjacency that the model aggregates over; `None` for a model that ignores the graph.
    pub graph: Option<Adjacency>,
    /// Number of aggregations of the raw features that come first (`k` of `Âᵏ·X`).
    pub hops: usize,
    /// Whether the model also reads the raw features.
    pub raw_features: bool,
    /// Rule for computing the aggregated features once, before training.
    pub propagation: Propagation,
}

/// Rule for computing `Âᵏ·X` once, before training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Always: the model's features are the aggregated ones.
    Always,
    /// Only for dense features. Products with sparse features are cheaper than with their dense aggregate.
    WhenDense,
    /// Never: the raw features change from epoch to epoch, or the configuration forbids it.
    Never,
}

impl Propagation {
    /// Rule for a model that aggregates its raw features first: once, if nothing masks them and the configuration
    /// allows it.
    #[must_use]
    pub fn of(config: &ModelConfig) -> Self {
        if config.aggregate_once && config.input_dropout() == 0.0 { Self::WhenDense } else { Self::Never }
    }
}

/// Specification of the adjacency that a model reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjacency {
    /// Whether every node is its own neighbour.
    pub self_loops: bool,
    /// Normalisation.
    pub norm: Norm,
    /// Weights whose sums are the degrees.
    pub degrees: Degrees,
}

impl Adjacency {
    /// An adjacency whose degrees are sums of the edge weights.
    #[must_use]
    pub const fn new(self_loops: bool, norm: Norm) -> Self {
        Self { self_loops, norm, degrees: Degrees::Default }
    }

    /// This adjacency with degrees that are sums of other weights.
    #[must_use]
    pub const fn with_degrees(self, degrees: Degrees) -> Self {
        Self { degrees, ..self }
    }

    /// Error for a graph that this normalisation cannot handle, with a remedy.
    pub(crate) fn undefined(self, undefined: UndefinedDegree) -> TrainError {
        let UndefinedDegree { node, is_column, degree } = undefined;
        let (edges, sum) =
            (if is_column { "out of" } else { "into" }, if self.self_loops { ", its self loop included," } else { "" });
        let weights = match self.degrees {
            Degrees::Default => "weights",
            Degrees::Absolute => "absolute weights",
        };
        let what = format!("the {weights} of the edges {edges} node {node}{sum} sum to {degree}");
        TrainError::invalid(if degree > 0.0 {
            format!("{what}, whose inverse is larger than any 32-bit float: multiply all weights by one factor")
        } else {
            format!(
                "{what}, by which this model would divide: normalise by sums of absolute weights (--normalization absolute), or choose a \
                 model that does not normalise (--model gin)"
            )
        })
    }
}
