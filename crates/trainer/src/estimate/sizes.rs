//! [`DataSizes`]: sizes of a data set, and its symbolic graph and features.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use girih_compress::CodecSpec;
use girih_compute::{Dtype, Shape, Symbolic, SymbolicMatrix};
use girih_datasets::{Dataset, Features, Interactions, Outline, TypeFeatures, TypeWidth};
use girih_features::HostRows;
use girih_graph_format::{Csr, RelationSizes, Schema};

use crate::TrainError;
use crate::config::TrainConfig;
use crate::data;
use crate::engine::ModelSource;
use crate::layers::{FeatureInput, Inputs, RelationInput, TypeRows};
use crate::minibatch::NODES_AT_ONCE;
use crate::models::{Adjacency, Dims, InputSpec, Propagation};
use crate::tape::{EncodedInput, Graph, ParamId, ParamInit};
use crate::tasks::links::{n_scored_pairs, training_links};

/// Sizes of a data set, the only input of a plan besides the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSizes {
    /// Number of nodes.
    pub n_nodes: usize,
    /// Number of stored edges.
    pub n_edges: usize,
    /// Largest number of edges of a chunk of nodes in [layer-wise inference](crate::ScoreBy::Layers): the edges of the
    /// nodes with the most neighbors. A value below the average of such a chunk stands for that average.
    pub n_edges_at_once: usize,
    /// Whether edges carry weights.
    pub weighted: bool,
    /// Whether the adjacency equals its transpose.
    pub symmetric: bool,
    /// Number of features of a node.
    pub n_features: usize,
    /// Number of stored values of sparse features; `None` for dense ones.
    pub feature_nnz: Option<usize>,
    /// Bytes of a row of compressed features; `None` for uncompressed ones.
    pub code_bytes: Option<usize>,
    /// Whether compressed features are codes of a [code book](CodecSpec::has_book), which devices read directly.
    pub has_code_book: bool,
    /// Number of classes.
    pub n_classes: usize,
    /// Whether a node may have several labels.
    pub multi_label: bool,
    /// Number of training nodes.
    pub n_train: usize,
    /// Number of nodes in all three parts of the split.
    pub n_scored: usize,
    /// Types of nodes and edges, if they have types.
    pub schema: Option<Schema>,
    /// Sizes of all types; upper bounds without types.
    pub relations: RelationSizes,
    /// Sizes of the features of each node type, if there are several.
    pub type_features: Vec<TypeFeatureSizes>,
    /// Number of the node type that has labels; 0 without types.
    pub target: usize,
    /// Numbers of training links, and of validation and test pairs, of a split of edges that the data has.
    pub edge_split: Option<[usize; 3]>,
    /// Numbers of users, items and interactions, for recommendation data.
    pub interactions: Option<InteractionSizes>,
}

/// Sizes of a data set of users and items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InteractionSizes {
    /// Number of users.
    pub n_users: usize,
    /// Number of items.
    pub n_items: usize,
    /// Number of training interactions.
    pub n_train: usize,
}

impl InteractionSizes {
    /// Sizes of loaded interactions.
    #[must_use]
    pub fn of(interactions: &Interactions) -> Self {
        let n_train = interactions.train().nnz();
        Self { n_users: interactions.n_users(), n_items: interactions.n_items(), n_train }
    }
}

/// Features of the node types of a data set that has several.
fn features_of_types(dataset: &Dataset) -> impl Iterator<Item = &Features> {
    dataset.typed.iter().flat_map(|typed| typed.features.iter().filter_map(TypeFeatures::given))
}

/// Number of edges of the `n` rows with the most edges.
fn edges_of_largest(graph: &Csr, n: usize) -> usize {
    let mut largest = BinaryHeap::with_capacity(n.min(graph.n_rows()) + 1);
    for edges in graph.indptr().windows(2).map(|ends| ends[1] - ends[0]) {
        if largest.len() < n {
            largest.push(Reverse(edges));
        } else if let Some(mut least) = largest.peek_mut().filter(|least| least.0 < edges) {
            least.0 = edges;
        }
    }
    largest.into_iter().map(|Reverse(edges)| edges as usize).sum()
}

/// Sizes of the features of a node type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeFeatureSizes {
    /// Width of the features.
    pub width: TypeWidth,
    /// Number of stored values of sparse features; `None` for others.
    pub nnz: Option<usize>,
    /// Bytes of a row of compressed features; `None` for others.
    pub code_bytes: Option<usize>,
}

impl TypeFeatureSizes {
    /// Sizes of loaded features.
    #[must_use]
    pub fn of(features: &TypeFeatures) -> Self {
        let (nnz, code_bytes) = match features {
            TypeFeatures::Given(Features::Sparse(csr)) => (Some(csr.nnz()), None),
            TypeFeatures::Given(Features::Compressed(rows)) => (None, Some(rows.codec().row_bytes())),
            TypeFeatures::Given(Features::Dense(_)) | TypeFeatures::None | TypeFeatures::Learned(_) => (None, None),
        };
        Self { width: features.width(), nnz, code_bytes }
    }
}

impl DataSizes {
    /// Sizes of an undirected graph that is not loaded: without weights, with dense features and one label a node, and
    /// with all nodes in the training part.
    #[must_use]
    pub fn undirected(n_nodes: usize, n_edges: usize, n_features: usize, n_classes: usize) -> Self {
        Self {
            n_nodes,
            n_edges,
            n_edges_at_once: 0,
            weighted: false,
            symmetric: true,
            n_features,
            feature_nnz: None,
            code_bytes: None,
            has_code_book: false,
            n_classes,
            multi_label: false,
            n_train: n_nodes,
            n_scored: n_nodes,
            schema: None,
            relations: RelationSizes::of_plain(n_nodes, n_edges),
            type_features: Vec::new(),
            target: 0,
            edge_split: None,
            interactions: None,
        }
    }

    /// Sizes of a [generated data set](girih_datasets::generate::large_outline) that is not made, with features as codes
    /// of a codec, if one is given. Without types, its graph is undirected.
    #[must_use]
    pub fn of_generated(outline: &Outline, codec: Option<CodecSpec>) -> Self {
        let [n_train, n_val, n_test] = outline.splits.first().copied().unwrap_or_default();
        let code_bytes = |width: usize| codec.filter(|_| width > 0).map(|codec| codec.row_bytes(width));
        let of_type = |&width: &TypeWidth| {
            let code_bytes = if let TypeWidth::Given(width) = width { code_bytes(width) } else { None };
            TypeFeatureSizes { width, nnz: None, code_bytes }
        };
        Self {
            symmetric: outline.schema.is_none(),
            code_bytes: code_bytes(outline.n_features),
            has_code_book: codec.is_some_and(CodecSpec::has_book),
            multi_label: outline.multi_label,
            n_train,
            n_scored: n_train + n_val + n_test,
            schema: outline.schema.clone(),
            relations: outline.relations.clone(),
            type_features: outline.type_widths.iter().map(of_type).collect(),
            target: outline.target,
            ..Self::undirected(outline.n_nodes, outline.n_edges, outline.n_features, outline.n_classes)
        }
    }

    /// Sizes of a loaded data set.
    #[must_use]
    pub fn of(dataset: &Dataset) -> Self {
        Self {
            n_nodes: dataset.n_nodes(),
            n_edges: dataset.n_edges(),
            n_edges_at_once: edges_of_largest(&dataset.graph, NODES_AT_ONCE),
            weighted: dataset.graph.values().is_some(),
            symmetric: dataset.graph.is_symmetric(),
            n_features: dataset.n_features(),
            feature_nnz: match &dataset.features {
                Some(Features::Sparse(csr)) => Some(csr.nnz()),
                None => dataset.features_from.and_then(|rule| rule.n_stored(dataset.n_nodes())),
                _ => None,
            },
            code_bytes: match &dataset.features {
                Some(Features::Compressed(features)) => Some(features.codec().row_bytes()),
                _ => None,
            },
            has_code_book: dataset
                .features
                .iter()
                .chain(features_of_types(dataset))
                .any(|features| matches!(features, Features::Compressed(rows) if rows.codec().spec().has_book())),
            n_classes: dataset.n_classes(),
            multi_label: dataset.is_multi_label(),
            n_train: dataset.splits.first().map_or(0, |split| split.train.len()),
            n_scored: dataset.splits.first().map_or(0, |split| split.parts().iter().map(|(_, part)| part.len()).sum()),
            schema: dataset.typed.as_ref().map(|typed| typed.graph.schema().clone()),
            relations: dataset.outline().relations,
            type_features: dataset.typed.iter().flat_map(|typed| &typed.features).map(TypeFeatureSizes::of).collect(),
            target: dataset.typed.as_ref().map_or(0, |typed| typed.target),
            edge_split: dataset
                .edge_split
                .as_ref()
                .map(|split| [training_links(split).len(), n_scored_pairs(&split.val), n_scored_pairs(&split.test)]),
            interactions: dataset.interactions.as_ref().map(InteractionSizes::of),
        }
    }

    /// Sizes of the features of a node type.
    #[must_use]
    pub fn features_of_type(&self, node_type: usize) -> TypeFeatureSizes {
        let width = if self.n_features == 0 { TypeWidth::None } else { TypeWidth::Given(self.n_features) };
        let of_all = TypeFeatureSizes { width, nnz: self.feature_nnz, code_bytes: self.code_bytes };
        self.type_features.get(node_type).copied().unwrap_or(of_all)
    }

    /// Sizes of the data with features stored as in `config`.
    pub(super) fn as_stored(&self, symbolic: &Symbolic, config: &TrainConfig) -> Self {
        // Rows in host memory are planned like codes of the same size.
        let codes = self.encoded_bytes(config);
        let has_code_book = self.has_code_book || config.codec.is_some_and(CodecSpec::has_book);
        match codes.or_else(|| config.tiers.features.map(|_| self.row_bytes(symbolic, config))) {
            None => self.clone(),
            code_bytes => Self { code_bytes, has_code_book, feature_nnz: None, ..self.clone() },
        }
    }

    /// Bytes of a row of features in the cache.
    pub(crate) fn row_bytes(&self, symbolic: &Symbolic, config: &TrainConfig) -> usize {
        self.encoded_bytes(config).unwrap_or_else(|| symbolic.stride(self.n_features, config.precision))
    }

    /// Bytes of a row of codes, if `config` compresses features.
    fn encoded_bytes(&self, config: &TrainConfig) -> Option<usize> {
        self.code_bytes.or_else(|| config.codec.map(|codec| codec.row_bytes(self.n_features)))
    }

    /// Inputs that the model of `config` reads.
    ///
    /// # Errors
    /// When the configuration is refused.
    pub(crate) fn input_spec(&self, config: &TrainConfig) -> Result<InputSpec, TrainError> {
        config.validate()?;
        let symbolic = Symbolic::cuda(config.precision, None);
        let source = self.model_source(config)?;
        Ok(source.build_with(&mut ParamInit::new(&symbolic, config.seed, 0))?.input_spec())
    }

    /// Source of symbolic models of girih for data of these sizes.
    ///
    /// # Errors
    /// When the model of the configuration is from outside.
    pub(super) fn model_source<'c>(&self, config: &'c TrainConfig) -> Result<ModelSource<'c, Symbolic>, TrainError> {
        let Self { n_nodes, n_features, n_classes, .. } = *self;
        let dims = Dims {
            n_nodes,
            n_features,
            edge_width: 0,
            n_classes,
            relations: self.relations.clone(),
            type_widths: self.type_features.iter().map(|features| features.width).collect(),
            target: (self.relations.node_types.len() > 1).then_some(self.target),
        };
        ModelSource::with_dims(&config.model, config, dims)
    }

    /// Sizes of one rank's share, with `n_nodes` nodes.
    pub(super) fn of_rank(&self, n_nodes: usize) -> Self {
        let share = |n: usize| (n as u128 * n_nodes as u128).div_ceil(self.n_nodes.max(1) as u128) as usize;
        Self {
            n_nodes,
            n_edges: share(self.n_edges),
            n_edges_at_once: self.n_edges_at_once.min(share(self.n_edges)),
            feature_nnz: self.feature_nnz.map(share),
            n_train: share(self.n_train),
            ..self.clone()
        }
    }

    /// Symbolic adjacency of all nodes.
    pub(super) fn whole_graph(&self, symbolic: &Symbolic, adjacency: Adjacency) -> Graph<Symbolic> {
        let nnz = self.n_edges + if adjacency.self_loops { self.n_nodes } else { 0 };
        Graph::Whole(symbolic.sparse(Shape::new(self.n_nodes, self.n_nodes), nnz, self.weighted, self.symmetric))
    }

    /// Symbolic relations of a typed graph, if the model reads them; without the graph, the features of node types alone.
    pub(super) fn relations(
        &self,
        device: (&Symbolic, bool),
        input_spec: &InputSpec,
        (precision, has_graph): (Dtype, bool),
    ) -> Result<Option<RelationInput<Symbolic>>, TrainError> {
        let Some(spec) = &input_spec.relations else { return Ok(None) };
        let of_type = |&node_type: &usize| {
            let (n_nodes, sizes) = (self.relations.node_types[node_type], self.type_features.get(node_type)?);
            let TypeWidth::Given(width) = sizes.width else { return Some(TypeRows::Learned(None)) };
            let (shape, stored) = (Shape::new(n_nodes, width), (sizes.nnz, sizes.code_bytes));
            Some(TypeRows::Features(symbolic_features(device, shape, stored, input_spec, precision)))
        };
        let first_rows = spec.layers[0].sources.iter().map_while(of_type).collect();
        if !has_graph {
            let placed = (0, self.n_nodes);
            return Ok(Some(RelationInput { layers: Vec::new(), first_rows, learned: None, placed }));
        }
        Ok(Some(RelationInput::symbolic(device.0, &self.relations, spec, first_rows)?))
    }

    /// Symbolic graph and features, as a model reads them.
    pub(super) fn inputs(
        &self,
        (symbolic, is_main_memory): (&Symbolic, bool),
        graph: Option<Graph<Symbolic>>,
        input_spec: &InputSpec,
        config: &TrainConfig,
    ) -> Result<Inputs<Symbolic>, TrainError> {
        let precision = config.precision;
        let learns_rows = input_spec.relations.is_some() && self.n_features == 0;
        if self.interactions.is_some() || config.learns_features() || learns_rows {
            return Ok(Inputs {
                graphs: graph.into(),
                features: config.learns_features().then_some(FeatureInput::Learned(ParamId::FEATURES)),
                propagated: None,
                n_nodes: self.n_nodes,
                relations: None,
                ranks: None,
            });
        }
        let shape = Shape::new(self.n_nodes, self.n_features);
        let stored = (self.feature_nnz, self.code_bytes);
        let features = symbolic_features((symbolic, is_main_memory), shape, stored, input_spec, precision);
        Ok(Inputs::assemble(symbolic, graph, features, self.n_nodes, input_spec, precision)?)
    }
}

/// Symbolic features of a shape. They are stored as so many values, or in so many bytes of codes a row, or densely.
fn symbolic_features(
    (symbolic, is_main_memory): (&Symbolic, bool),
    shape: Shape,
    (nnz, code_bytes): (Option<usize>, Option<usize>),
    input_spec: &InputSpec,
    precision: Dtype,
) -> FeatureInput<Symbolic> {
    let may_stay = input_spec.propagation != Propagation::Always;
    let is_whole = input_spec.relations.as_ref().is_some_and(|spec| !spec.masks_features);
    let keeps_sparse = |nnz: &usize| may_stay && data::stay_sparse(shape.rows, shape.cols, *nnz);
    match (code_bytes.filter(|_| may_stay), nnz.filter(keeps_sparse)) {
        (Some(row_bytes), _) => {
            let codes = SymbolicRows::new(symbolic, shape, row_bytes, is_main_memory);
            FeatureInput::Encoded(EncodedInput::new(Arc::new(codes), precision))
        }
        (None, None) => FeatureInput::dense(symbolic.uploaded(shape, precision)),
        (None, Some(nnz)) => FeatureInput::Sparse {
            matrix: symbolic.sparse(shape, nnz, is_whole, false),
            values: (!is_whole).then(|| symbolic.matrix(Shape::new(nnz, 1), Dtype::F32)),
            first_value: 0,
        },
    }
}

/// Symbolic encoded features: codes of `row_bytes` per row, counted where main memory is planned.
pub(crate) struct SymbolicRows {
    shape: Shape,
    /// Symbolic matrix that counts the bytes of the codes.
    _codes: Option<SymbolicMatrix>,
}

impl SymbolicRows {
    pub(crate) fn new(symbolic: &Symbolic, shape: Shape, row_bytes: usize, is_main_memory: bool) -> Self {
        let words = (shape.rows * row_bytes).div_ceil(size_of::<f32>());
        Self { shape, _codes: is_main_memory.then(|| symbolic.matrix(Shape::new(words, 1), Dtype::F32)) }
    }
}

impl HostRows for SymbolicRows {
    fn shape(&self) -> Shape {
        self.shape
    }

    /// Zeros: a symbolic backend never reads the values.
    fn read(&self, _first: usize, out: &mut [f32]) {
        out.fill(0.0);
    }
}
