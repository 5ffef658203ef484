//! [`RelationInput`]: a typed graph on the device, as networks with a weight for each relation read it.

mod host;
mod types;

use std::sync::Arc;

use girih_compute::{Backend, ComputeError, RelationRows, Shape, SparseOperand, Symbolic};
use girih_graph_format::{Csr, Norm, RelationSizes, TypedGraph};

use self::host::{HostGraph, Pairs, SourcePairs, Uploaded, last};
use self::types::runs;
use super::FeatureInput;
use crate::tape::{RowIds, Tape, Var};

pub use host::{HostLayer, LayerEdges, RelationEdges};
pub use types::{LayerTypes, RelationForm};

/// Relations that a model reads, as part of its [`InputSpec`](crate::InputSpec).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelationSpec {
    /// Types of each layer, from the inputs on.
    pub layers: Vec<LayerTypes>,
    /// Form of the adjacency.
    pub form: RelationForm,
    /// Whether the first layer learns a row for each pair of a node and a relation.
    pub learns_pairs: bool,
    /// Whether dropout masks the features of node types.
    pub masks_features: bool,
}

/// Typed graph on the device.
pub struct RelationInput<B: Backend> {
    /// Relations of each layer, from the inputs on.
    pub layers: Vec<Arc<LayerRelations<B>>>,
    /// First rows of each node type that the first layer reads, if there are several types.
    pub first_rows: Vec<TypeRows<B>>,
    /// Learned rows, for networks that learn a row for each pair of a node and a relation.
    pub learned: Option<LearnedRows<B>>,
    /// First of the rows of the last layer among all nodes, and the number of all nodes.
    pub placed: (usize, usize),
}

/// First rows of the nodes of a type.
pub enum TypeRows<B: Backend> {
    /// Features.
    Features(FeatureInput<B>),
    /// Rows of a parameter with a row for each node of the type: of these nodes, or of all.
    Learned(Option<Arc<RowIds<B>>>),
}

/// Relations of a layer. Rows of nodes are those of the types in its [`LayerTypes`].
///
/// A *stacked row* stands for a pair of an edge type and a destination that has neighbors by it. Stacked rows of an edge
/// type are consecutive, those of a destination are not.
pub struct LayerRelations<B: Backend> {
    /// First row of each source type, then the number of rows.
    pub source_runs: Vec<usize>,
    /// First row of each destination type, then the number of rows.
    pub destination_runs: Vec<usize>,
    /// Row of each destination among the sources; `None` if they are the same.
    pub own: Option<RowIds<B>>,
    /// Relations in the form that the model reads.
    pub graph: RelationGraph<B>,
}

/// Relations of a layer, in one of three forms.
pub enum RelationGraph<B: Backend> {
    /// See [`RelationForm::Means`].
    Means {
        /// Means over the neighbors of each stacked row, `stacked rows × sources`.
        means: B::Sparse,
        /// First stacked row of each relation, then the number of stacked rows.
        runs: Vec<usize>,
        /// Sums over the stacked rows of each destination, `destinations × stacked rows`.
        sums: B::Sparse,
        /// Relations whose sources are transformed first, if there are some.
        transformed: Option<TransformedRelations<B>>,
    },
    /// See [`RelationForm::AttentionByRelation`].
    AttentionByRelation {
        /// Pairs of a relation and a source of it.
        pairs: RelationPairs<B>,
        /// Source row of the destination of each stacked row.
        stacked: RowIds<B>,
        /// First stacked row of each relation, then the number of stacked rows.
        runs: Vec<usize>,
        /// Neighbors of each stacked row, `stacked rows × pairs`.
        pattern: B::Sparse,
        /// Sums over the stacked rows of each destination, `destinations × stacked rows`.
        sums: B::Sparse,
    },
    /// See [`RelationForm::Attention`].
    Attention {
        /// Pairs of a relation and a source of it.
        pairs: RelationPairs<B>,
        /// Neighbors of each destination by all relations, `destinations × pairs`.
        pattern: B::Sparse,
        /// Identity, `destinations × destinations`, for factors of rows.
        diagonal: B::Sparse,
        /// Place of each destination's type among the destination types.
        types: RowIds<B>,
    },
}

/// Relations whose sources are transformed before they are averaged.
pub struct TransformedRelations<B: Backend> {
    /// Pairs of a relation and a source of it; relations that are averaged first have none.
    pub pairs: RelationPairs<B>,
    /// Sums, over these relations, of means over the neighbors of each destination: `destinations × pairs`.
    pub means: B::Sparse,
}

/// Pairs of a relation and a node that is the source of an edge of it, by ascending relations and nodes.
pub struct RelationPairs<B: Backend> {
    /// Source row of each pair.
    pub rows: RowIds<B>,
    /// First pair of each relation, then the number of pairs.
    pub runs: Vec<usize>,
    /// Place of each relation's source type among the source types.
    pub sources: RowIds<B>,
}

/// Rows that a network learns for pairs of an edge type and a node that is the source of an edge of it. No other rows are
/// read, so that there are no others.
pub struct LearnedRows<B: Backend> {
    /// Sums, over the edge types of each destination, of means over neighbors: `destinations × pairs`.
    pub means: B::Sparse,
    /// Pairs, by ascending nodes and edge types.
    pub pairs: RelationRows<B>,
    /// Number of pairs.
    pub n_pairs: usize,
}

impl<B: Backend> RelationInput<B> {
    /// Moves the relations that a model reads to the device, beside the first rows of node types.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    ///
    /// # Panics
    /// When a specification has no layers, or types that the graph does not have.
    pub fn upload(
        backend: &B,
        typed: &TypedGraph,
        spec: &RelationSpec,
        first_rows: Vec<TypeRows<B>>,
    ) -> Uploaded<Self> {
        let of_layer = |types: &LayerTypes| {
            let layer = HostLayer::new(&LayerEdges::of_graph(typed, types), types, spec.form)?;
            LayerRelations::upload(backend, &layer, B::upload_sparse)
        };
        let first = &spec.layers[0];
        let learned = spec.learns_pairs.then(|| LearnedRows::upload(backend, typed, first)).transpose()?;
        let layers = shared(&spec.layers, of_layer)?;
        Ok(Self { layers, first_rows, learned, placed: placed(typed.sizes(), &spec.layers) })
    }

    /// Moves the relations of a mini-batch to the device, from the inputs on, beside the first rows of node types.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn of_batch(backend: &B, layers: &[HostLayer], first_rows: Vec<TypeRows<B>>) -> Uploaded<Self> {
        let of_layer = |layer| LayerRelations::upload(backend, layer, B::upload_block).map(Arc::new);
        let n_outputs = layers.last().map_or(0, |layer| last(&layer.destination_runs));
        let layers = layers.iter().map(of_layer).collect::<Result<_, _>>()?;
        Ok(Self { layers, first_rows, learned: None, placed: (0, n_outputs) })
    }
}

impl RelationInput<Symbolic> {
    /// Symbolic typed graph of known sizes.
    pub(crate) fn symbolic(
        symbolic: &Symbolic,
        sizes: &RelationSizes,
        spec: &RelationSpec,
        first_rows: Vec<TypeRows<Symbolic>>,
    ) -> Uploaded<Self> {
        let sources = (&sizes.node_types[..], sizes);
        let layers = shared(&spec.layers, |types| LayerRelations::symbolic(symbolic, sources, types, spec.form))?;
        let learned = || {
            let types = &spec.layers[0];
            let n_pairs = last(&types.pair_runs(sizes));
            let (pairs, n_rows) = (vec![0; n_pairs], last(&types.destination_runs(sizes)));
            Ok(LearnedRows {
                means: symbolic.sparse(Shape::new(n_rows, n_pairs), types.n_edges(sizes), true, false),
                pairs: RelationRows::upload(symbolic, &pairs, &pairs)?,
                n_pairs,
            })
        };
        let learned = spec.learns_pairs.then(learned).transpose()?;
        Ok(Self { layers, first_rows, learned, placed: placed(sizes, &spec.layers) })
    }
}

/// First of the rows of the last layer among all nodes, and the number of all nodes.
fn placed(sizes: &RelationSizes, layers: &[LayerTypes]) -> (usize, usize) {
    let destinations = &layers.last().expect("models have layers").destinations;
    let first = sizes.node_types[..destinations[0]].iter().sum();
    (first, sizes.node_types.iter().sum())
}

/// Relations of each layer; layers of equal types share theirs.
fn shared<L>(layers: &[LayerTypes], mut make: impl FnMut(&LayerTypes) -> Uploaded<L>) -> Uploaded<Vec<Arc<L>>> {
    let mut made: Vec<Arc<L>> = Vec::with_capacity(layers.len());
    for (i, types) in layers.iter().enumerate() {
        let relations = match layers[..i].iter().position(|before| before == types) {
            Some(same) => Arc::clone(&made[same]),
            None => Arc::new(make(types)?),
        };
        made.push(relations);
    }
    Ok(made)
}

impl<B: Backend> LayerRelations<B> {
    /// Moves relations to the device, with matrices by `put`.
    fn upload(
        backend: &B,
        layer: &HostLayer,
        put: fn(&B, &SparseOperand<'_>) -> Uploaded<B::Sparse>,
    ) -> Uploaded<Self> {
        let upload = |csr: &Csr, norm| put(backend, &operand(csr, norm));
        let graph = match &layer.graph {
            HostGraph::Means { means, runs, sums, transformed } => {
                let transformed = transformed.as_ref().map(|(pairs, means)| -> Uploaded<_> {
                    let means = upload(means, Norm::None)?;
                    Ok(TransformedRelations { pairs: RelationPairs::upload(backend, pairs)?, means })
                });
                RelationGraph::Means {
                    transformed: transformed.transpose()?,
                    means: upload(means, Norm::Row)?,
                    runs: runs.clone(),
                    sums: upload(sums, Norm::None)?,
                }
            }
            HostGraph::AttentionByRelation { pairs, stacked, runs, pattern, sums } => {
                RelationGraph::AttentionByRelation {
                    stacked: RowIds::upload(backend, stacked)?,
                    runs: runs.clone(),
                    pattern: upload(pattern, Norm::None)?,
                    sums: upload(sums, Norm::None)?,
                    pairs: RelationPairs::upload(backend, pairs)?,
                }
            }
            HostGraph::Attention { pairs, pattern, diagonal, types } => RelationGraph::Attention {
                pattern: upload(pattern, Norm::None)?,
                diagonal: upload(diagonal, Norm::None)?,
                types: RowIds::upload(backend, types)?,
                pairs: RelationPairs::upload(backend, pairs)?,
            },
        };
        let own = layer.own.as_ref().map(|own| RowIds::upload(backend, own)).transpose()?;
        let (source_runs, destination_runs) = (layer.source_runs.clone(), layer.destination_runs.clone());
        Ok(Self { source_runs, destination_runs, own, graph })
    }
}

impl<B: Backend> RelationInput<B> {
    /// Rows of the last layer, among those of all nodes; others are zero.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn place(&self, tape: &mut Tape<'_, B>, rows: Var) -> Result<Var, ComputeError> {
        let (first, n_nodes) = self.placed;
        tape.place_rows(rows, first, n_nodes)
    }
}

impl<B: Backend> LayerRelations<B> {
    /// Rows of the destinations among the rows of the sources.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn own_rows<'a>(&'a self, tape: &mut Tape<'a, B>, rows: Var) -> Result<Var, ComputeError> {
        match &self.own {
            None => Ok(rows),
            Some(own) => tape.gather_rows(rows, &own.ids, own.n),
        }
    }
}

impl LayerRelations<Symbolic> {
    /// Symbolic relations of a layer with `n_sources` of each node type; `sizes` has its destinations and edges.
    pub(crate) fn symbolic(
        symbolic: &Symbolic,
        (n_sources, sizes): (&[usize], &RelationSizes),
        types: &LayerTypes,
        form: RelationForm,
    ) -> Uploaded<Self> {
        let source_runs = runs(types.sources.iter().map(|&of| n_sources[of]));
        let destination_runs = types.destination_runs(sizes);
        let (n_sources, n_destinations) = (last(&source_runs), last(&destination_runs));
        let (runs, pair_runs, n_edges) = (types.stacked_runs(sizes), types.pair_runs(sizes), types.n_edges(sizes));
        let (n_stacked, n_pairs) = (last(&runs), last(&pair_runs));
        let sparse = |rows, cols, nnz| symbolic.sparse(Shape::new(rows, cols), nnz, false, false);
        let ids = |n: usize| RowIds::upload(symbolic, &vec![0; n]);
        let transformed = || -> Uploaded<_> {
            let (runs, n_edges) = (types.transformed_runs(sizes), types.n_transformed_edges(sizes));
            let n_pairs = last(&runs);
            let means = symbolic.sparse(Shape::new(n_destinations, n_pairs), n_edges, true, false);
            let pairs = RelationPairs { rows: ids(n_pairs)?, sources: ids(types.relations.len())?, runs };
            Ok(TransformedRelations { pairs, means })
        };
        let graph = match form {
            RelationForm::Means => RelationGraph::Means {
                means: sparse(n_stacked, n_sources, n_edges - types.n_transformed_edges(sizes)),
                runs,
                sums: sparse(n_destinations, n_stacked, n_stacked),
                transformed: if types.transformed.is_empty() { None } else { Some(transformed()?) },
            },
            RelationForm::AttentionByRelation => RelationGraph::AttentionByRelation {
                pairs: RelationPairs { rows: ids(n_pairs)?, sources: ids(types.relations.len())?, runs: pair_runs },
                stacked: ids(n_stacked)?,
                runs,
                pattern: sparse(n_stacked, n_pairs, n_edges),
                sums: sparse(n_destinations, n_stacked, n_stacked),
            },
            RelationForm::Attention => RelationGraph::Attention {
                pairs: RelationPairs { rows: ids(n_pairs)?, sources: ids(types.relations.len())?, runs: pair_runs },
                pattern: sparse(n_destinations, n_pairs, n_edges),
                diagonal: sparse(n_destinations, n_destinations, n_destinations),
                types: ids(n_destinations)?,
            },
        };
        let keeps_rows = types.keeps_rows() && source_runs == destination_runs;
        let own = if keeps_rows { None } else { Some(ids(n_destinations)?) };
        Ok(Self { source_runs, destination_runs, own, graph })
    }
}

/// Operand of a matrix of relations, scaled by `norm`.
fn operand(csr: &Csr, norm: Norm) -> SparseOperand<'_> {
    SparseOperand { csr, scales: csr.scales(norm), symmetric: false, names: None }
}

impl<B: Backend> RelationPairs<B> {
    fn upload(backend: &B, pairs: &Pairs) -> Uploaded<Self> {
        let sources = RowIds::upload(backend, &pairs.sources)?;
        Ok(Self { rows: RowIds::upload(backend, &pairs.rows)?, sources, runs: pairs.runs.clone() })
    }
}

impl<B: Backend> LearnedRows<B> {
    fn upload(backend: &B, typed: &TypedGraph, types: &LayerTypes) -> Uploaded<Self> {
        let SourcePairs { rows, relations, means } = SourcePairs::of(&LayerEdges::of_graph(typed, types), types)?;
        let means = backend.upload_sparse(&operand(&means, Norm::None))?;
        Ok(Self { means, n_pairs: rows.len(), pairs: RelationRows::upload(backend, &rows, &relations)? })
    }
}
