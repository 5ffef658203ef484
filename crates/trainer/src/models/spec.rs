//! [`Model`]: a forward function, and the [`InputSpec`] that it reads.

use girih_compute::{Backend, ComputeError};
use girih_graph_format::{Degrees, Norm, UndefinedDegree};

use crate::TrainError;
use crate::config::ModelConfig;
use crate::layers::{Inputs, RelationSpec};
use crate::tape::{ParamId, Tape, Var};

/// Graph neural network: parameters created once, and a forward pass over a [`Tape`].
///
/// A new model is a struct of layers with these two functions. The tape handles gradients, devices and memory.
pub trait Model<B: Backend>: Send {
    /// Inputs that the forward pass reads.
    fn input_spec(&self) -> InputSpec;

    /// Logits of all nodes, `n_nodes × n_classes`; for a recommender, embeddings, `n_nodes × hidden`. For the blocks
    /// of a mini-batch, only rows of the last layer's destinations.
    ///
    /// A device may capture one training step and replay it in later steps without calling this function. Training
    /// passes may therefore differ only in the tape's random draws.
    ///
    /// # Errors
    /// When the backend fails.
    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError>;

    /// Network as layers for layer-wise inference. `None` if a layer reads more than the previous layer's rows of a
    /// node and of its neighbors.
    fn as_layers(&self) -> Option<&dyn Layers<B>> {
        None
    }

    /// Last hidden layer among those that a forward pass with the result `output` has marked
    /// ([`Tape::mark_layer`]). `None` for a network without hidden layers.
    fn last_hidden(&self, tape: &Tape<'_, B>, output: Var) -> Option<Var> {
        tape.layers().iter().copied().rfind(|&layer| layer != output)
    }

    /// Learned row of each node, for models without features. A recommender's loss penalises these.
    fn embedding(&self) -> Option<ParamId> {
        None
    }
}

/// Network as a sequence of layers in evaluation, without random draws.
pub trait Layers<B: Backend> {
    /// Number of layers.
    fn n_layers(&self) -> usize;

    /// Output of layer `layer`, counted from 0 at the inputs, for the destinations of the graph of `inputs`. The
    /// features of `inputs` are the previous layer's output. The last layer's output is the logits.
    ///
    /// # Errors
    /// When the backend fails.
    ///
    /// # Panics
    /// When `layer` is not below the number of layers.
    fn layer<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>, layer: usize) -> Result<Var, ComputeError>;
}

/// Inputs that a model reads.
#[derive(Clone, Debug, PartialEq)]
pub struct InputSpec {
    /// Adjacency that the model aggregates over; `None` for a model that ignores the graph.
    pub graph: Option<Adjacency>,
    /// Number of aggregations of the raw features that come first (`k` of `Âᵏ·X`).
    pub hops: usize,
    /// Whether the model also reads the raw features.
    pub raw_features: bool,
    /// Rule for computing the aggregated features once, before training.
    pub propagation: Propagation,
    /// Relations of a typed graph that the model reads. Data without types then has one relation, and the model learns
    /// rows where data has no features.
    pub relations: Option<RelationSpec>,
    /// Whether the model reads features of edges ([`BlockGraph::edges`](crate::BlockGraph)).
    pub edges: bool,
}

impl InputSpec {
    /// Inputs of a model that reads the raw features, and aggregates over `graph` by itself.
    #[must_use]
    pub const fn of_raw_features(graph: Option<Adjacency>) -> Self {
        Self { graph, hops: 0, raw_features: true, propagation: Propagation::Never, relations: None, edges: false }
    }

    /// Refuses a model that would ignore [`ModelConfig::normalization`].
    ///
    /// # Errors
    /// When the configuration asks for degrees other than the usual ones, and the model's adjacency does not have them.
    pub(crate) fn check_degrees(&self, config: &ModelConfig) -> Result<(), TrainError> {
        let has_them = |graph: Adjacency| graph.norm != Norm::None && graph.degrees == config.normalization;
        if config.normalization == Degrees::Default || self.graph.is_some_and(has_them) {
            return Ok(());
        }
        Err(TrainError::invalid(format!(
            "{name} would ignore its setting `normalization`: the adjacency of its input spec has other degrees, or does not              normalise; leave --normalization out, or let {name} pass the setting to `Adjacency::with_degrees`",
            name = config.name()
        )))
    }
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
    /// Whether every node is its own neighbor.
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

    /// This adjacency with degrees that are sums of other weights. A network that normalises passes
    /// [`ModelConfig::normalization`] on here, and is refused if it forgets a setting other than the usual one.
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
