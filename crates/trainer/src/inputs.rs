//! [`Inputs`]: graph and features on the device, prepared once for all epochs and runs.
//!
//! What does not change from epoch to epoch is computed here. When features are not dropped out, the first
//! aggregation `Âᵏ·X` is a constant: the features are replaced by it, and an epoch saves its widest product.

use std::sync::Arc;

use girih_compute::{Backend, ComputeError, Dtype, Epilogue, SparseOperand, Transpose};
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

/// What a model reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InputSpec {
    /// The adjacency it aggregates over; `None` for a model that ignores the graph.
    pub graph: Option<Adjacency>,
    /// How many aggregations of the raw features come first (`k` of `Âᵏ·X`).
    pub hops: usize,
    /// Whether the raw features are read beside the aggregated ones.
    pub raw_features: bool,
    /// When the aggregated features are computed once, before training.
    pub propagation: Propagation,
}

/// When `Âᵏ·X` is computed once, before training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Always: it is what the model calls its features.
    Always,
    /// When that saves time: for dense features. Products with sparse ones are cheaper than with their dense aggregate.
    WhenDense,
    /// Never: the raw features change from epoch to epoch, or the configuration wants it so.
    Never,
}

impl Propagation {
    /// For a model that aggregates its raw features first: once if they stay as they are and the configuration lets it.
    #[must_use]
    pub fn of(config: &ModelConfig) -> Self {
        if config.aggregate_once && config.input_dropout() == 0.0 { Self::WhenDense } else { Self::Never }
    }
}

/// An adjacency as a model wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjacency {
    /// Every node is its own neighbour.
    pub self_loops: bool,
    /// How it is normalised.
    pub norm: Norm,
    /// Weights that degrees are sums of.
    pub degrees: Degrees,
}

impl Adjacency {
    /// An adjacency whose degrees are sums of weights as they are.
    #[must_use]
    pub const fn new(self_loops: bool, norm: Norm) -> Self {
        Self { self_loops, norm, degrees: Degrees::Default }
    }

    /// This adjacency with degrees that are sums of other weights.
    #[must_use]
    pub const fn with_degrees(self, degrees: Degrees) -> Self {
        Self { degrees, ..self }
    }

    /// Error about a graph that cannot be normalised so, with what helps.
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
    /// Every value stored, `n × f`; mini-batches that read rows where they lie share them with the whole graph.
    Dense(Arc<B::Matrix>),
    /// Only the non-zeros stored: the pattern, and the values (`nnz × 1`) apart, so that they can be dropped out.
    Sparse {
        /// The pattern, `n × f`.
        matrix: B::Sparse,
        /// The values.
        values: B::Matrix,
        /// Values of nodes before the first at hand: draws for values are keyed by their place among all.
        first_value: usize,
    },
    /// Codes or rows on the host, read block by block.
    Encoded(EncodedInput),
    /// A parameter with a row for each node at hand.
    Learned(ParamId),
    /// Rows of such a parameter, of the nodes of a mini-batch: row `i` is that of node `ids[i]`.
    LearnedRows {
        /// The parameter, with a row for each node of the graph.
        param: ParamId,
        /// Nodes of the mini-batch.
        ids: B::Ids,
        /// How many there are.
        n_ids: usize,
    },
}

impl<B: Backend> FeatureInput<B> {
    /// Features of which every value is stored.
    #[must_use]
    pub fn dense(matrix: B::Matrix) -> Self {
        Self::Dense(Arc::new(matrix))
    }
}

/// The normalised adjacency of each layer.
pub enum LayerGraphs<B: Backend> {
    /// The model does not read it.
    None,
    /// The same for all layers.
    Shared(Graph<B>),
    /// The block of each layer of a mini-batch, that at the inputs first.
    Blocks(Vec<Graph<B>>),
}

impl<B: Backend> From<Option<Graph<B>>> for LayerGraphs<B> {
    fn from(graph: Option<Graph<B>>) -> Self {
        graph.map_or(Self::None, Self::Shared)
    }
}

/// Graph and features on the device: of a whole graph, or of a mini-batch, whose nodes are then all that a model sees.
pub struct Inputs<B: Backend> {
    /// The normalised adjacency, if the model reads it.
    pub graphs: LayerGraphs<B>,
    /// The raw features, unless only the aggregated ones are read.
    pub features: Option<FeatureInput<B>>,
    /// `Âᵏ·X`, when it is a constant.
    pub propagated: Option<B::Matrix>,
    /// Number of nodes at hand: those of this rank, where several share the work; of a mini-batch, its sources.
    pub n_nodes: usize,
    /// This rank among those that share the work; `None` where one has it all.
    pub ranks: Option<Arc<Ranks<B>>>,
}

/// Sparse features with more than this share of non-zeros are stored densely: a dense product is then faster.
const DENSE_FROM: f64 = 0.125;

impl<B: Backend> Inputs<B> {
    /// Moves a graph and given features to the device, or a graph alone where features are learned.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(crate) fn of_features(
        backend: &B,
        graph: Csr,
        features: NodeFeatures,
        needs: &InputSpec,
        precision: Dtype,
    ) -> Result<Self, TrainError> {
        match features {
            NodeFeatures::Given(features) => Self::prepare(backend, graph, features, needs, precision),
            NodeFeatures::Learned => Self::with_learned(backend, graph, needs),
        }
    }

    /// Moves graph and features to the device. Takes them by value, so that the host's copies are freed on the way.
    ///
    /// # Errors
    /// When the graph cannot be normalised as the model wants it, or the device's memory does not suffice.
    pub fn prepare(
        backend: &B,
        graph: Csr,
        features: Features,
        needs: &InputSpec,
        precision: Dtype,
    ) -> Result<Self, TrainError> {
        let n_nodes = graph.n_rows();
        let graph = needs.graph.map(|adjacency| upload_adjacency(backend, graph, adjacency)).transpose()?;
        let features = upload_features(backend, features, needs, precision)?;
        Ok(Self::assemble(backend, graph, features, n_nodes, needs, precision)?)
    }

    /// What one of several ranks holds: its part of the adjacency, and the features of its own nodes. `first_value`
    /// counts the values of sparse features that nodes before them have.
    ///
    /// # Errors
    /// When the device's memory does not suffice, or another rank fails.
    pub(crate) fn of_rank(
        backend: &B,
        ranks: Arc<Ranks<B>>,
        adjacency: Option<Arc<PartitionedAdjacency>>,
        (features, first_value): (Features, usize),
        needs: &InputSpec,
        precision: Dtype,
    ) -> Result<Self, ComputeError> {
        let mut features = upload_features(backend, features, needs, precision)?;
        if let FeatureInput::Sparse { first_value: first, .. } = &mut features {
            *first = first_value;
        }
        Self::of_rank_with(backend, ranks, adjacency, features, needs, precision)
    }

    /// The same of the features of a rank's nodes as it has them.
    pub(crate) fn of_rank_with(
        backend: &B,
        ranks: Arc<Ranks<B>>,
        adjacency: Option<Arc<PartitionedAdjacency>>,
        features: FeatureInput<B>,
        needs: &InputSpec,
        precision: Dtype,
    ) -> Result<Self, ComputeError> {
        let (graph, n_nodes) = (cut_graph(&ranks, adjacency), ranks.own().len());
        Ok(Self { ranks: Some(ranks), ..Self::assemble(backend, graph, features, n_nodes, needs, precision)? })
    }

    /// Moves a graph without features to the device, for a model that learns a row per node.
    ///
    /// # Errors
    /// When the graph cannot be normalised as the model wants it, or the device's memory does not suffice.
    pub fn of_graph(backend: &B, graph: Csr, needs: &InputSpec) -> Result<Self, TrainError> {
        let n_nodes = graph.n_rows();
        let graph = needs.graph.map(|adjacency| upload_adjacency(backend, graph, adjacency)).transpose()?;
        Ok(Self { graphs: graph.into(), features: None, propagated: None, n_nodes, ranks: None })
    }

    /// Moves a graph to the device whose features are the parameter [`ParamId::FEATURES`].
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(crate) fn with_learned(backend: &B, graph: Csr, needs: &InputSpec) -> Result<Self, TrainError> {
        let features = Some(FeatureInput::Learned(ParamId::FEATURES));
        Ok(Self { features, ..Self::of_graph(backend, graph, needs)? })
    }

    /// As [`of_graph`](Self::of_graph), on one of several ranks: its part of the adjacency.
    pub(crate) fn of_graph_on_rank(ranks: Arc<Ranks<B>>, adjacency: Option<Arc<PartitionedAdjacency>>) -> Self {
        let (graph, n_nodes) = (cut_graph(&ranks, adjacency), ranks.own().len());
        Self { graphs: graph.into(), features: None, propagated: None, n_nodes, ranks: Some(ranks) }
    }

    /// Takes what is on the device already, and aggregates the features once where that is possible.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn assemble(
        backend: &B,
        graph: Option<Graph<B>>,
        features: FeatureInput<B>,
        n_nodes: usize,
        needs: &InputSpec,
        precision: Dtype,
    ) -> Result<Self, ComputeError> {
        let (features, propagated) = match (&graph, features, needs.propagation) {
            (Some(graph), FeatureInput::Dense(x), Propagation::WhenDense | Propagation::Always) if needs.hops > 0 => {
                // What is computed once costs little to compute exactly.
                graph.unrounded(|| propagate(backend, graph, owned(x), needs, precision))?
            }
            (_, features, _) => (Some(features), None),
        };
        Ok(Self { graphs: graph.into(), features, propagated, n_nodes, ranks: None })
    }

    /// The adjacency, where operands are rounded before they travel and are multiplied.
    pub(crate) fn rounding(&self) -> Option<&Graph<B>> {
        match &self.graphs {
            LayerGraphs::Shared(graph) => Some(graph).filter(|graph| graph.rounds()),
            LayerGraphs::None | LayerGraphs::Blocks(_) => None,
        }
    }

    /// Whether a pass over them has the host at work on rows: a device cannot repeat such a step by itself.
    #[must_use]
    pub fn needs_host(&self) -> bool {
        matches!(self.features, Some(FeatureInput::Encoded(_)))
    }

    /// The normalised adjacency that a layer, counted from 0 at the inputs, aggregates over.
    ///
    /// # Panics
    /// When the model did not ask for it in its [`InputSpec`], or when a mini-batch has no block for that layer.
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

/// A graph, normalised as a model wants it.
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
    needs: &InputSpec,
    precision: Dtype,
) -> Result<FeatureInput<B>, ComputeError> {
    match features {
        Features::Sparse(csr) if needs.propagation == Propagation::Always => {
            Ok(FeatureInput::dense(backend.upload(&Matrix::from_sparse(&csr), precision)?))
        }
        Features::Dense(matrix) => Ok(FeatureInput::dense(backend.upload(&matrix, precision)?)),
        Features::Sparse(csr) if !stay_sparse(csr.n_rows(), csr.n_cols(), csr.nnz()) => {
            Ok(FeatureInput::dense(backend.upload(&Matrix::from_sparse(&csr), precision)?))
        }
        Features::Sparse(csr) => upload_sparse_features(backend, &csr),
        Features::Compressed(features) => {
            let encoded = EncodedInput::new(Arc::new(features), precision);
            match needs.propagation {
                Propagation::Always => Ok(FeatureInput::dense(encoded.decoded(backend)?)),
                Propagation::WhenDense | Propagation::Never => Ok(FeatureInput::Encoded(encoded)),
            }
        }
    }
}

/// Features of which only the non-zeros are stored.
pub(crate) fn upload_sparse_features<B: Backend>(backend: &B, csr: &Csr) -> Result<FeatureInput<B>, ComputeError> {
    let values = csr.values().map_or_else(|| vec![1.0; csr.nnz()], <[f32]>::to_vec);
    let values = Matrix::new(csr.nnz(), 1, values).expect("one value per entry");
    let pattern = csr.clone().with_values(None).expect("a pattern without weights is valid");
    let scales = pattern.scales(Norm::None);
    let matrix = backend.upload_sparse(&SparseOperand { csr: &pattern, scales, symmetric: false, names: None })?;
    Ok(FeatureInput::Sparse { matrix, values: backend.upload(&values, Dtype::F32)?, first_value: 0 })
}

/// A matrix that nobody shares yet.
fn owned<M>(matrix: Arc<M>) -> M {
    Arc::into_inner(matrix).expect("features are shared after they were prepared")
}

/// Whether sparse features are worth keeping sparse on the device.
pub(crate) fn stay_sparse(n_rows: usize, n_cols: usize, nnz: usize) -> bool {
    nnz as f64 <= DENSE_FROM * n_rows as f64 * n_cols as f64
}

type Propagated<B> = (Option<FeatureInput<B>>, Option<<B as Backend>::Matrix>);

/// `Âᵏ·X`; `X` itself is dropped unless it is read.
fn propagate<B: Backend>(
    backend: &B,
    graph: &Graph<B>,
    x: B::Matrix,
    needs: &InputSpec,
    precision: Dtype,
) -> Result<Propagated<B>, ComputeError> {
    let mut pool = Pool::default();
    let (mut aggregated, features, hops_left) = if needs.raw_features {
        let mut first = backend.zeros(backend.shape(&x), precision)?;
        graph.multiply(backend, &mut pool, Transpose::No, &x, Epilogue::default(), &mut first)?;
        (first, Some(FeatureInput::dense(x)), needs.hops - 1)
    } else {
        (x, None, needs.hops)
    };
    for _ in 0..hops_left {
        graph.multiply_in_place(backend, &mut pool, &mut aggregated)?;
    }
    Ok((features, Some(aggregated)))
}
