//! [`Inputs`]: graph and features on the device, prepared once for all epochs and runs.
//!
//! Computes everything that does not change from epoch to epoch. Without dropout on the features, the first
//! aggregation `Âᵏ·X` is a constant: it replaces the features, and an epoch saves its widest product.

use std::sync::Arc;

use girih_compute::{Backend, ComputeError, Dtype, Epilogue, Memory, SparseOperand, Transpose};
use girih_datasets::Features;
use girih_graph_format::{Csr, Degrees, Matrix, Norm, UndefinedDegree};

use crate::TrainError;
use crate::config::ModelConfig;
use crate::distributed::{BlockSource, PartitionedAdjacency, PartitionedGraph, Ranks};
use crate::encoded::EncodedInput;
use crate::features::NodeFeatures;
use crate::graph::Graph;
use crate::params::ParamId;
use crate::tape::Pool;

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

/// Features on the device.
pub enum FeatureInput<B: Backend> {
    /// Dense, `n × f`. Mini-batches that read rows in place share them with the whole graph.
    Dense(Arc<B::Matrix>),
    /// Sparse: the pattern, and the values (`nnz × 1`) as a separate matrix, so that dropout can mask them.
    Sparse {
        /// The pattern, `n × f`.
        matrix: B::Sparse,
        /// Values, `nnz × 1`.
        values: B::Matrix,
        /// Number of values of the nodes before this rank's first node. Random draws are keyed by a value's global
        /// position.
        first_value: usize,
    },
    /// Codes or rows on the host, read one block of rows at a time.
    Encoded(EncodedInput),
    /// A parameter with a row for each local node.
    Learned(ParamId),
    /// Rows of such a parameter, for the nodes of a mini-batch: row `i` belongs to node `ids[i]`.
    LearnedRows {
        /// The parameter, with a row for each node of the graph.
        param: ParamId,
        /// Node ids of the mini-batch.
        ids: B::Ids,
        /// Number of ids.
        n_ids: usize,
    },
}

impl<B: Backend> FeatureInput<B> {
    /// Dense features.
    #[must_use]
    pub fn dense(matrix: B::Matrix) -> Self {
        Self::Dense(Arc::new(matrix))
    }
}

/// Normalised adjacency of each layer.
pub enum LayerGraphs<B: Backend> {
    /// None: the model does not read the graph.
    None,
    /// One adjacency for all layers.
    Shared(Graph<B>),
    /// Block of each layer of a mini-batch, from the input layer on.
    Blocks(Vec<Graph<B>>),
}

impl<B: Backend> From<Option<Graph<B>>> for LayerGraphs<B> {
    fn from(graph: Option<Graph<B>>) -> Self {
        graph.map_or(Self::None, Self::Shared)
    }
}

/// Graph and features on the device, of a whole graph or of a mini-batch. A model sees no nodes beside those of its
/// inputs.
pub struct Inputs<B: Backend> {
    /// Normalised adjacency, if the model reads it.
    pub graphs: LayerGraphs<B>,
    /// Raw features; `None` if the model reads only the aggregated ones.
    pub features: Option<FeatureInput<B>>,
    /// `Âᵏ·X`, if it is a constant.
    pub propagated: Option<B::Matrix>,
    /// Number of local nodes: the nodes of this rank; for a mini-batch, its sources.
    pub n_nodes: usize,
    /// This rank and its world; `None` for a single rank.
    pub ranks: Option<Arc<Ranks<B>>>,
}

/// Share of non-zeros above which sparse features are stored densely, because a dense product is then faster.
const DENSE_FROM: f64 = 0.125;

impl<B: Backend> Inputs<B> {
    /// Moves a graph to the device, with its features unless these are learned.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(crate) fn of_features(
        backend: &B,
        graph: Csr,
        features: NodeFeatures,
        input_spec: &InputSpec,
        precision: Dtype,
    ) -> Result<Self, TrainError> {
        match features {
            NodeFeatures::Given(features) => Self::prepare(backend, graph, features, input_spec, precision),
            NodeFeatures::Learned => Self::with_learned(backend, graph, input_spec),
        }
    }

    /// Moves graph and features to the device. Takes them by value, so that the host frees its copies early.
    ///
    /// # Errors
    /// When the graph does not allow the normalisation that the model needs, or the device's memory does not suffice.
    pub fn prepare(
        backend: &B,
        graph: Csr,
        features: Features,
        input_spec: &InputSpec,
        precision: Dtype,
    ) -> Result<Self, TrainError> {
        let n_nodes = graph.n_rows();
        let graph = input_spec.graph.map(|adjacency| upload_adjacency(backend, graph, adjacency)).transpose()?;
        let features = upload_features(backend, features, input_spec, precision)?;
        Ok(Self::assemble(backend, graph, features, n_nodes, input_spec, precision)?)
    }

    /// Inputs of one of several ranks: its blocks of the adjacency, and the features of its own nodes. `first_value`
    /// is the number of values that the nodes before them have in sparse features.
    ///
    /// # Errors
    /// When the device's memory does not suffice, or another rank fails.
    pub(crate) fn of_rank(
        backend: &B,
        ranks: Arc<Ranks<B>>,
        adjacency: Option<Arc<PartitionedAdjacency>>,
        (features, first_value): (Features, usize),
        input_spec: &InputSpec,
        precision: Dtype,
    ) -> Result<Self, ComputeError> {
        let mut features = upload_features(backend, features, input_spec, precision)?;
        if let FeatureInput::Sparse { first_value: first, .. } = &mut features {
            *first = first_value;
        }
        Self::of_rank_with(backend, ranks, adjacency, features, input_spec, precision)
    }

    /// As [`of_rank`](Self::of_rank), for features that are already on the device.
    pub(crate) fn of_rank_with(
        backend: &B,
        ranks: Arc<Ranks<B>>,
        adjacency: Option<Arc<PartitionedAdjacency>>,
        features: FeatureInput<B>,
        input_spec: &InputSpec,
        precision: Dtype,
    ) -> Result<Self, ComputeError> {
        let (graph, n_nodes) = (cut_graph(&ranks, adjacency), ranks.own().len());
        Ok(Self { ranks: Some(ranks), ..Self::assemble(backend, graph, features, n_nodes, input_spec, precision)? })
    }

    /// Moves a graph without features to the device, for a model that learns a row per node.
    ///
    /// # Errors
    /// When the graph does not allow the normalisation that the model needs, or the device's memory does not suffice.
    pub fn of_graph(backend: &B, graph: Csr, input_spec: &InputSpec) -> Result<Self, TrainError> {
        let n_nodes = graph.n_rows();
        let graph = input_spec.graph.map(|adjacency| upload_adjacency(backend, graph, adjacency)).transpose()?;
        Ok(Self { graphs: graph.into(), features: None, propagated: None, n_nodes, ranks: None })
    }

    /// Moves a graph to the device; its features are the parameter [`ParamId::FEATURES`].
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(crate) fn with_learned(backend: &B, graph: Csr, input_spec: &InputSpec) -> Result<Self, TrainError> {
        let features = Some(FeatureInput::Learned(ParamId::FEATURES));
        Ok(Self { features, ..Self::of_graph(backend, graph, input_spec)? })
    }

    /// As [`of_graph`](Self::of_graph), but on one of several ranks, with its blocks of the adjacency.
    pub(crate) fn of_graph_on_rank(ranks: Arc<Ranks<B>>, adjacency: Option<Arc<PartitionedAdjacency>>) -> Self {
        let (graph, n_nodes) = (cut_graph(&ranks, adjacency), ranks.own().len());
        Self { graphs: graph.into(), features: None, propagated: None, n_nodes, ranks: Some(ranks) }
    }

    /// Combines graph and features that are already on the device, and aggregates the features once where that is
    /// possible.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn assemble(
        backend: &B,
        graph: Option<Graph<B>>,
        features: FeatureInput<B>,
        n_nodes: usize,
        input_spec: &InputSpec,
        precision: Dtype,
    ) -> Result<Self, ComputeError> {
        let (features, propagated) = match (&graph, features, input_spec.propagation) {
            (Some(graph), FeatureInput::Dense(x), Propagation::WhenDense | Propagation::Always)
                if input_spec.hops > 0 =>
            {
                // A product that is computed once need not be rounded.
                graph.unrounded(|| propagate(backend, graph, owned(x), input_spec, precision))?
            }
            (_, features, _) => (Some(features), None),
        };
        Ok(Self { graphs: graph.into(), features, propagated, n_nodes, ranks: None })
    }

    /// The adjacency, if operands are rounded before they are sent and multiplied.
    pub(crate) fn rounding(&self) -> Option<&Graph<B>> {
        match &self.graphs {
            LayerGraphs::Shared(graph) => Some(graph).filter(|graph| graph.rounds()),
            LayerGraphs::None | LayerGraphs::Blocks(_) => None,
        }
    }

    /// Whether a pass reads rows on the host. A CUDA graph cannot replay such a step.
    #[must_use]
    pub fn needs_host(&self) -> bool {
        matches!(self.features, Some(FeatureInput::Encoded(_)))
    }

    /// Normalised adjacency of a layer, counted from 0 at the inputs.
    ///
    /// # Panics
    /// When the model did not ask for the graph in its [`InputSpec`], or a mini-batch has no block for that layer.
    #[must_use]
    pub fn graph(&self, layer: usize) -> &Graph<B> {
        match &self.graphs {
            LayerGraphs::None => panic!("the model did not ask for the graph"),
            LayerGraphs::Shared(graph) => graph,
            LayerGraphs::Blocks(blocks) => &blocks[layer],
        }
    }
}

fn cut_graph<B: Backend>(ranks: &Arc<Ranks<B>>, adjacency: Option<Arc<PartitionedAdjacency>>) -> Option<Graph<B>> {
    let blocks = |adjacency: Arc<PartitionedAdjacency>| -> Arc<dyn BlockSource<B>> { adjacency };
    adjacency.map(|adjacency| Graph::Partitioned(Box::new(PartitionedGraph::new(Arc::clone(ranks), blocks(adjacency)))))
}

/// Normalises a graph as the model needs it and moves it to the device.
pub(crate) fn upload_adjacency<B: Backend>(
    backend: &B,
    mut graph: Csr,
    adjacency: Adjacency,
) -> Result<Graph<B>, TrainError> {
    if adjacency.self_loops {
        graph = graph.with_self_loops();
    }
    let scales = graph.checked_scales(adjacency.norm, adjacency.degrees).map_err(|node| adjacency.undefined(node))?;
    let symmetric = graph.is_symmetric();
    let uploaded = backend.upload_sparse(&SparseOperand { csr: &graph, scales, symmetric, names: None })?;
    Ok(Graph::Whole(uploaded))
}

fn upload_features<B: Backend>(
    backend: &B,
    features: Features,
    input_spec: &InputSpec,
    precision: Dtype,
) -> Result<FeatureInput<B>, ComputeError> {
    match features {
        Features::Sparse(csr) if input_spec.propagation == Propagation::Always => {
            Ok(FeatureInput::dense(backend.upload(&Matrix::from_sparse(&csr), precision)?))
        }
        Features::Dense(matrix) => Ok(FeatureInput::dense(backend.upload(&matrix, precision)?)),
        Features::Sparse(csr) if !stay_sparse(csr.n_rows(), csr.n_cols(), csr.nnz()) => {
            Ok(FeatureInput::dense(backend.upload(&Matrix::from_sparse(&csr), precision)?))
        }
        Features::Sparse(csr) => upload_sparse_features(backend, &csr),
        Features::Compressed(features) => {
            let encoded = EncodedInput::new(Arc::new(features), precision);
            match input_spec.propagation {
                Propagation::Always => Ok(FeatureInput::dense(encoded.decoded(backend)?)),
                Propagation::WhenDense | Propagation::Never => Ok(FeatureInput::Encoded(encoded)),
            }
        }
    }
}

/// Moves sparse features to the device: their pattern, and their values as a separate matrix.
pub(crate) fn upload_sparse_features<B: Backend>(backend: &B, csr: &Csr) -> Result<FeatureInput<B>, ComputeError> {
    let values = csr.values().map_or_else(|| vec![1.0; csr.nnz()], <[f32]>::to_vec);
    let values = Matrix::new(csr.nnz(), 1, values).expect("one value per entry");
    let pattern = csr.clone().with_values(None).expect("a pattern without weights is valid");
    let scales = pattern.scales(Norm::None);
    let matrix = backend.upload_sparse(&SparseOperand { csr: &pattern, scales, symmetric: false, names: None })?;
    Ok(FeatureInput::Sparse { matrix, values: backend.upload(&values, Dtype::F32)?, first_value: 0 })
}

/// Unwraps a matrix that is not shared yet.
fn owned<M>(matrix: Arc<M>) -> M {
    Arc::into_inner(matrix).expect("features are shared after they were prepared")
}

/// Whether sparse features stay sparse on the device.
pub(crate) fn stay_sparse(n_rows: usize, n_cols: usize, nnz: usize) -> bool {
    nnz as f64 <= DENSE_FROM * n_rows as f64 * n_cols as f64
}

type Propagated<B> = (Option<FeatureInput<B>>, Option<<B as Memory>::Matrix>);

/// Computes `Âᵏ·X`. Frees `X` unless the model reads it.
fn propagate<B: Backend>(
    backend: &B,
    graph: &Graph<B>,
    x: B::Matrix,
    input_spec: &InputSpec,
    precision: Dtype,
) -> Result<Propagated<B>, ComputeError> {
    let mut pool = Pool::default();
    let (mut aggregated, features, hops_left) = if input_spec.raw_features {
        let mut first = backend.zeros(backend.shape(&x), precision)?;
        graph.multiply(backend, &mut pool, Transpose::No, &x, Epilogue::default(), &mut first)?;
        (first, Some(FeatureInput::dense(x)), input_spec.hops - 1)
    } else {
        (x, None, input_spec.hops)
    };
    for _ in 0..hops_left {
        graph.multiply_in_place(backend, &mut pool, &mut aggregated)?;
    }
    Ok((features, Some(aggregated)))
}
