//! Construction of [`Inputs`]: graph and features are moved to the device, once for all epochs and runs.
//!
//! Computes everything that does not change from epoch to epoch. Without dropout on the features, the first
//! aggregation `Âᵏ·X` is a constant: it replaces the features, and an epoch saves its widest product.

use std::sync::Arc;

use girih_compute::{Backend, ComputeError, Dtype, Epilogue, Memory, SparseOperand, Transpose};
use girih_datasets::{Features, TypeFeatures, TypedData};
use girih_graph_format::{Csr, Matrix, Norm};

use super::features::NodeFeatures;
use super::partitioned_adjacency::PartitionedAdjacency;
use crate::TrainError;
use crate::layers::{FeatureInput, Inputs, RelationInput, TypeRows};
use crate::models::{Adjacency, InputSpec, Propagation};
use crate::tape::ranks::{BlockSource, PartitionedGraph, Ranks};
use crate::tape::{EncodedInput, Graph, ParamId, Pool};

/// Share of non-zeros above which sparse features are stored densely, because a dense product is then faster.
const DENSE_FROM: f64 = 0.125;

impl<B: Backend> Inputs<B> {
    /// Moves a graph to the device, with its features, and the relations that a model reads if it has types.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(crate) fn of_data(
        backend: &B,
        (graph, typed): (Csr, Option<&TypedData>),
        features: NodeFeatures,
        input_spec: &InputSpec,
        precision: Dtype,
    ) -> Result<Self, TrainError> {
        let inputs = Self::of_features(backend, graph, features, input_spec, precision)?;
        match typed {
            None => Ok(inputs),
            Some(typed) => Ok(inputs.with_relations(backend, typed, input_spec, precision)?),
        }
    }

    /// Moves a graph to the device, with its features if it has some that are not learned.
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
            NodeFeatures::None => Self::of_graph(backend, graph, input_spec),
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
        Ok(Self { graphs: graph.into(), features: None, propagated: None, n_nodes, relations: None, ranks: None })
    }

    /// Moves a graph to the device; its features are the parameter [`ParamId::FEATURES`].
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(crate) fn with_learned(backend: &B, graph: Csr, input_spec: &InputSpec) -> Result<Self, TrainError> {
        let features = Some(FeatureInput::Learned(ParamId::FEATURES));
        Ok(Self { features, ..Self::of_graph(backend, graph, input_spec)? })
    }

    /// These inputs with the relations that a model reads, and the features of node types, if there are several.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn with_relations(
        self,
        backend: &B,
        typed: &TypedData,
        input_spec: &InputSpec,
        precision: Dtype,
    ) -> Result<Self, ComputeError> {
        let Some(spec) = &input_spec.relations else { return Ok(self) };
        let first_rows = self.first_rows(backend, typed, input_spec, precision)?;
        let relations = RelationInput::upload(backend, &typed.graph, spec, first_rows)?;
        Ok(Self { relations: Some(relations), ..self })
    }

    /// As [`with_relations`](Self::with_relations), but with the features of node types alone: layers get parts of the graph.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub(crate) fn with_type_features(
        self,
        backend: &B,
        typed: &TypedData,
        input_spec: &InputSpec,
        precision: Dtype,
    ) -> Result<Self, ComputeError> {
        let first_rows = self.first_rows(backend, typed, input_spec, precision)?;
        let relations = RelationInput { layers: Vec::new(), first_rows, learned: None, placed: (0, self.n_nodes) };
        Ok(Self { relations: Some(relations), ..self })
    }

    /// First rows of each node type that the first layer reads, if there are several types or rows are learned.
    ///
    /// # Panics
    /// When the model reads no relations.
    fn first_rows(
        &self,
        backend: &B,
        typed: &TypedData,
        input_spec: &InputSpec,
        precision: Dtype,
    ) -> Result<Vec<TypeRows<B>>, ComputeError> {
        let spec = input_spec.relations.as_ref().expect("a model of relations");
        let of_type = |&node_type: &usize| match typed.features.get(node_type)? {
            TypeFeatures::Given(features) => {
                Some(upload_features(backend, features.clone(), input_spec, precision).map(TypeRows::Features))
            }
            TypeFeatures::None | TypeFeatures::Learned(_) => Some(Ok(TypeRows::Learned(None))),
        };
        match &self.features {
            None if typed.features.is_empty() => Ok(vec![TypeRows::Learned(None)]),
            _ => spec.layers[0].sources.iter().map_while(of_type).collect(),
        }
    }

    /// As [`of_graph`](Self::of_graph), but on one of several ranks, with its blocks of the adjacency.
    pub(crate) fn of_graph_on_rank(ranks: Arc<Ranks<B>>, adjacency: Option<Arc<PartitionedAdjacency>>) -> Self {
        let (graph, n_nodes) = (cut_graph(&ranks, adjacency), ranks.own().len());
        Self { graphs: graph.into(), features: None, propagated: None, n_nodes, relations: None, ranks: Some(ranks) }
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
        Ok(Self { graphs: graph.into(), features, propagated, n_nodes, relations: None, ranks: None })
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
        Features::Sparse(csr) if input_spec.relations.as_ref().is_some_and(|spec| !spec.masks_features) => {
            let operand = SparseOperand { csr: &csr, scales: csr.scales(Norm::None), symmetric: false, names: None };
            Ok(FeatureInput::Sparse { matrix: backend.upload_sparse(&operand)?, values: None, first_value: 0 })
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
    Ok(FeatureInput::Sparse { matrix, values: Some(backend.upload(&values, Dtype::F32)?), first_value: 0 })
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
