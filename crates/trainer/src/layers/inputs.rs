//! [`Inputs`]: graph and features on the device, as a model reads them.

use std::sync::Arc;

use girih_compute::{Backend, ComputeError};

use super::{RelationInput, Rows, TypeRows};
use crate::tape::ranks::Ranks;
use crate::tape::{EncodedInput, Graph, ParamId, Tape, Var};

/// Features on the device.
pub enum FeatureInput<B: Backend> {
    /// Dense, `n × f`. Mini-batches that read rows in place share them with the whole graph.
    Dense(Arc<B::Matrix>),
    /// Sparse. Values that dropout masks are a separate matrix, others belong to the sparse one.
    Sparse {
        /// Features, `n × f`, or their pattern.
        matrix: B::Sparse,
        /// Values that dropout masks, `nnz × 1`; without them, nothing may mask the features.
        values: Option<B::Matrix>,
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
    /// Relations of a typed graph, if the model reads them.
    pub relations: Option<RelationInput<B>>,
    /// This rank and its world; `None` for a single rank.
    pub ranks: Option<Arc<Ranks<B>>>,
}

impl<B: Backend> Inputs<B> {
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
        let of_types = self.relations.iter().flat_map(|relations| &relations.first_rows);
        let of_types = of_types.filter_map(|rows| match rows {
            TypeRows::Features(features) => Some(features),
            TypeRows::Learned(_) => None,
        });
        self.features.iter().chain(of_types).any(|features| matches!(features, FeatureInput::Encoded(_)))
    }

    /// Relations of a typed graph.
    ///
    /// # Panics
    /// When the model did not ask for them in its [`InputSpec`](crate::InputSpec).
    #[must_use]
    pub fn relations(&self) -> &RelationInput<B> {
        self.relations.as_ref().expect("the model asked for relations")
    }

    /// Features of a node type of the first layer, by its place there.
    ///
    /// # Errors
    /// When the backend fails.
    ///
    /// # Panics
    /// When there are none.
    pub fn rows_of_type<'a>(&'a self, tape: &mut Tape<'a, B>, place: usize) -> Result<Rows<'a, B>, ComputeError> {
        match self.relations().first_rows.get(place) {
            None => Rows::raw_input(tape, self),
            Some(TypeRows::Features(features)) => Rows::of_features(tape, features),
            Some(TypeRows::Learned(_)) => panic!("types without features learn rows"),
        }
    }

    /// Rows that the model learns for the nodes of a type of the first layer, by its place there. `all` has a row for each
    /// node of the type.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn learned_of_type<'a>(
        &'a self,
        tape: &mut Tape<'a, B>,
        place: usize,
        all: ParamId,
    ) -> Result<Var, ComputeError> {
        match self.relations().first_rows.get(place) {
            Some(TypeRows::Learned(Some(nodes))) => tape.param_rows(all, nodes),
            _ => Ok(tape.param(all)),
        }
    }

    /// Normalised adjacency of a layer, counted from 0 at the inputs.
    ///
    /// # Panics
    /// When the model did not ask for the graph in its [`InputSpec`](crate::InputSpec), or a mini-batch has no block for that layer.
    #[must_use]
    pub fn graph(&self, layer: usize) -> &Graph<B> {
        match &self.graphs {
            LayerGraphs::None => panic!("the model did not ask for the graph"),
            LayerGraphs::Shared(graph) => graph,
            LayerGraphs::Blocks(blocks) => blocks.get(layer).unwrap_or_else(|| {
                panic!("layer {layer} has no block: the model's configuration has {} layer(s)", blocks.len())
            }),
        }
    }
}
