//! [`Dataset`]: graph, features, labels and splits of one set of nodes.

mod edge_features;
mod edge_split;
mod features;
mod labels;
mod names;
mod split;
mod triples;
mod types;

use std::ops::Range;
use std::sync::Arc;

use girih_compress::CodecSpec;
use girih_graph_format::{Csr, EdgeFeatures, NodeId, Notes, Permutation, TimedRows, TypedGraph};

pub(crate) use self::edge_split::check_train;
pub use self::edge_split::{Edge, EdgeSplit, HeldOutEdges, Negatives};
pub use self::features::Features;
use self::features::{add_csr, add_features};
pub use self::labels::{Labels, UNLABELLED};
pub use self::names::{NameList, Names};
pub use self::split::Split;
pub use self::triples::{Triple, Triples};
pub use self::types::{TypeFeatures, TypeWidth, TypedData};
use crate::{DatasetError, FeatureNorm, FeaturesFrom, Interactions, TypeRules};

/// A graph with features, labels and splits; node `v` is row `v` of each.
///
/// # Invariants
/// [`Dataset::validate`] checks them. [`Dataset::new`] and every loader and generator of this crate return only sets
/// that pass it. Fields are public, so that a caller can replace one (a reordered graph, another split) and validate
/// again.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Name for people and records, such as `cora` or `synth:reddit@0.1`.
    pub name: String,
    /// The adjacency as used for training: row `v` lists the in-neighbors of `v`; `n_nodes × n_nodes`.
    pub graph: Csr,
    /// Types of nodes and edges, if they have types; `graph` is then the union of all relations over global ids, without
    /// weights.
    pub typed: Option<Arc<TypedData>>,
    /// Edges with their times, if these are read; `graph` merges those between two nodes.
    pub timed: Option<Arc<TimedRows>>,
    /// One row per timed edge, by the numbers of edges in `timed`, if features of edges are read.
    pub edge_features: Option<Arc<EdgeFeatures>>,
    /// Names of nodes and classes, if the data has names.
    pub names: Option<Arc<Names>>,
    /// One row per node, if there are features.
    pub features: Option<Features>,
    /// Rule by which training makes features, if there are none; set by [`Dataset::with_features_from`].
    pub features_from: Option<FeaturesFrom>,
    /// Rules that the features of node types were made by; set by [`Dataset::with_type_rules`].
    pub type_rules: TypeRules,
    /// Norm that the loader has divided rows of features by; those of new nodes need the same.
    pub feature_norm: FeatureNorm,
    /// One label (or one row of targets) per node, if there are labels.
    pub labels: Option<Labels>,
    /// Split sets; several when the data set ships several or several were drawn. May be empty.
    pub splits: Vec<Split>,
    /// The data's own split of edges, for link prediction; the graph has its training edges alone.
    pub edge_split: Option<Arc<EdgeSplit>>,
    /// Users and items as the nodes of the graph, if this is data for a recommender.
    pub interactions: Option<Interactions>,
    /// Statements of a knowledge graph, if this is one; the relations of `typed` are those of its training part.
    pub triples: Option<Arc<Triples>>,
    /// Whether a generator made this data; reports state it.
    pub generated: bool,
    /// Notes of the loader: data left out, made up or doubtful.
    pub notes: Notes,
}

/// Compares data without notes and rules for types, which depend on how it was read.
impl PartialEq for Dataset {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.graph == other.graph
            && self.typed == other.typed
            && self.timed == other.timed
            && self.edge_features == other.edge_features
            && self.names == other.names
            && self.features == other.features
            && self.features_from == other.features_from
            && self.labels == other.labels
            && self.splits == other.splits
            && self.edge_split == other.edge_split
            && self.interactions == other.interactions
            && self.triples == other.triples
            && self.generated == other.generated
    }
}

impl Dataset {
    /// Makes a data set from its parts, and checks it.
    ///
    /// # Errors
    /// As [`Dataset::validate`].
    pub fn new(
        name: impl Into<String>,
        graph: Csr,
        features: Option<Features>,
        labels: Option<Labels>,
        splits: Vec<Split>,
    ) -> Result<Self, DatasetError> {
        let dataset = Self {
            name: name.into(),
            graph,
            typed: None,
            timed: None,
            edge_features: None,
            names: None,
            features,
            features_from: None,
            type_rules: TypeRules::new(),
            feature_norm: FeatureNorm::None,
            labels,
            splits,
            edge_split: None,
            interactions: None,
            triples: None,
            generated: false,
            notes: Notes::default(),
        };
        dataset.validate()?;
        Ok(dataset)
    }

    /// Training nodes of the first split; `None` if there are none.
    #[must_use]
    pub fn training_nodes(&self) -> Option<&[NodeId]> {
        self.splits.first().map(|split| &split.train[..]).filter(|train| !train.is_empty())
    }

    /// Seeds of mini-batches: the training nodes of the first split, or all nodes if there are none.
    #[must_use]
    pub fn seeds(&self) -> Vec<NodeId> {
        self.training_nodes().map_or_else(|| (0..self.n_nodes() as NodeId).collect(), <[NodeId]>::to_vec)
    }

    /// Makes the data set of a recommender: users and items are nodes, training interactions are edges.
    ///
    /// # Errors
    /// When there are more users and items than a graph may have.
    pub fn of_interactions(name: impl Into<String>, interactions: Interactions) -> Result<Self, DatasetError> {
        let dataset = Self::new(name, interactions.graph()?, None, None, Vec::new())?;
        Ok(Self { interactions: Some(interactions), ..dataset })
    }

    /// Makes the data set of a graph with types; its `graph` is the union of all relations.
    ///
    /// # Errors
    /// When memory for the union does not suffice.
    pub fn of_typed(name: impl Into<String>, typed: TypedData) -> Result<Self, DatasetError> {
        let dataset = Self::new(name, typed.graph.union()?, None, None, Vec::new())?;
        Ok(Self { typed: Some(typed.into()), ..dataset })
    }

    /// This data with one type of nodes and one of edges, if it has no types.
    ///
    /// # Errors
    /// When edges have weights, which edges with types do not have.
    pub fn with_types(self) -> Result<Self, DatasetError> {
        if self.typed.is_some() {
            return Ok(self);
        }
        if self.graph.values().is_some() {
            let name = &self.name;
            let message =
                format!("the edges of {name} have weights, which a model of relations does not read; leave them out");
            return Err(DatasetError::invalid(message));
        }
        let typed = TypedData::of_graph(TypedGraph::of_plain(self.graph.clone())?);
        Ok(Self { typed: Some(typed.into()), ..self })
    }

    /// Checks every invariant. The graph is square and well formed, features have one finite row per node, labels are
    /// existing classes, and splits are ascending, disjoint lists of existing nodes. Relations of types make up the graph,
    /// and names are one per node. Takes O(all values), in parallel.
    ///
    /// Empty parts are allowed here: a graph without a node, a split without training nodes. The trainer checks the
    /// needs of a model.
    ///
    /// # Errors
    /// At the first broken rule, naming the node and the value found.
    pub fn validate(&self) -> Result<(), DatasetError> {
        self.graph.validate()?;
        if !self.graph.is_square() {
            return Err(DatasetError::invalid(format!(
                "the adjacency is {} × {}; a graph needs as many rows as columns",
                self.graph.n_rows(),
                self.graph.n_cols()
            )));
        }
        if let Some(typed) = &self.typed {
            typed.check()?;
            types::check_union(&typed.graph, &self.graph)?;
            let has_features_of_all = self.features.is_some() || self.features_from.is_some();
            types::check_target(typed, self.labels.as_ref(), &self.splits, has_features_of_all)?;
        }
        if let Some(timed) = self.timed.as_ref().filter(|timed| timed.n_nodes() != self.n_nodes()) {
            let (n_timed, n_nodes) = (timed.n_nodes(), self.n_nodes());
            return Err(DatasetError::invalid(format!("timed edges of {n_timed} nodes, in a graph of {n_nodes}")));
        }
        edge_features::check(self.edge_features.as_deref(), self.timed.as_deref())?;
        if let Some(names) = &self.names {
            names.validate(self.n_nodes(), self.n_classes())?;
        }
        if let Some(features) = &self.features {
            features.validate(self.n_nodes())?;
        }
        if let Some(labels) = &self.labels {
            labels.validate(self.n_nodes())?;
        }
        if let Some(interactions) = &self.interactions {
            interactions.check_graph(&self.graph)?;
        }
        if let Some(edges) = &self.edge_split {
            edges.validate(&self.graph)?;
        }
        if let Some(triples) = &self.triples {
            triples.validate(&self.graph)?;
        }
        for (i, split) in self.splits.iter().enumerate() {
            split.validate(self.n_nodes()).map_err(|message| DatasetError::invalid(format!("split {i}: {message}")))?;
        }
        Ok(())
    }

    /// Hash of all data for training and testing, in the order of the nodes: equal for equal data.
    #[must_use]
    pub fn fingerprint(&self) -> u32 {
        let mut hash = self.contents();
        self.splits.iter().for_each(|split| split.add_to(&mut hash));
        hash.finalize()
    }

    /// Hash of each split together with the data that all splits share. Data without splits has one hash, of the
    /// data. Further splits do not change the hashes of the first ones.
    #[must_use]
    pub fn fingerprints(&self) -> Vec<u32> {
        let contents = self.contents();
        let with = |split: &Split| {
            let mut hash = contents.clone();
            split.add_to(&mut hash);
            hash.finalize()
        };
        if self.splits.is_empty() { vec![contents.finalize()] } else { self.splits.iter().map(with).collect() }
    }

    /// Hash of everything but splits.
    fn contents(&self) -> crc32fast::Hasher {
        let mut hash = crc32fast::Hasher::new();
        add_csr(&self.graph, &mut hash);
        if let Some(features) = &self.features {
            add_features(features, &mut hash);
        }
        match &self.labels {
            None => {}
            Some(Labels::Single { classes, .. }) => hash.update(bytemuck::cast_slice(classes)),
            Some(Labels::Multi { targets, .. }) => hash.update(bytemuck::cast_slice(targets.data())),
        }
        if let Some(interactions) = &self.interactions {
            add_csr(interactions.test(), &mut hash);
        }
        if let Some(edges) = &self.edge_split {
            edges.add_to(&mut hash);
        }
        if let Some(typed) = &self.typed {
            types::add_to(typed, &mut hash);
        }
        if let Some(triples) = &self.triples {
            triples.add_to(&mut hash);
        }
        if let Some(timed) = &self.timed {
            hash.update(bytemuck::cast_slice(timed.indptr()));
            hash.update(bytemuck::cast_slice(timed.sources()));
            hash.update(bytemuck::cast_slice(timed.times()));
        }
        if let Some(features) = &self.edge_features {
            edge_features::add_to(features, self.timed.as_deref(), &mut hash);
        }
        hash
    }

    /// Renames node `v` to `order.map(v)` in graph, relations, names, features, labels and splits together.
    ///
    /// The inverse order brings results for the renamed nodes back to the old ids:
    /// `order.inverse().apply_rows(&result)`.
    ///
    /// # Errors
    /// When the order has another number of nodes, or there are several node types. When ids have a meaning: the data
    /// are users and items, or features are to be made from ids.
    pub fn permuted(self, order: &Permutation) -> Result<Self, DatasetError> {
        if order.len() != self.n_nodes() {
            return Err(DatasetError::invalid(format!(
                "an order of {} nodes for a graph of {}; it has to name every node once",
                order.len(),
                self.n_nodes()
            )));
        }
        if self.interactions.is_some() {
            return Err(DatasetError::invalid("users and items keep their ids; leave the order out".to_owned()));
        }
        if let Some(rule) = self.features_from.filter(|rule| rule.knows_nodes()) {
            return Err(DatasetError::invalid(format!(
                "{rule} has a row of its own for each id, and another order gives nodes other ids for training alone; write \
                 the order once (`girih reorder --out DIR`) and train on that, or leave --reorder out"
            )));
        }
        // All fields by name: one of nodes or edges must not keep its old order.
        let Self {
            name,
            graph,
            typed,
            timed,
            edge_features,
            names,
            features,
            features_from,
            type_rules,
            feature_norm,
            labels,
            splits,
            edge_split,
            interactions,
            triples,
            generated,
            notes,
        } = self;
        let renamed = |ids: Vec<NodeId>| {
            let mut ids: Vec<NodeId> = ids.into_iter().map(|v| order.map(v)).collect();
            ids.sort_unstable();
            ids
        };
        let split =
            |split: Split| Split { train: renamed(split.train), val: renamed(split.val), test: renamed(split.test) };
        Ok(Self {
            name,
            graph: graph.permuted(order),
            typed: typed.map(|typed| types::permuted(&typed, order).map(Arc::new)).transpose()?,
            timed: timed.map(|timed| Arc::new(timed.permuted(order))),
            edge_features,
            names: names.map(|names| Arc::new(names.permuted(order))),
            features: features.map(|features| features.permuted(order)).transpose()?,
            features_from,
            type_rules,
            feature_norm,
            labels: labels.map(|labels| match labels {
                Labels::Single { n_classes, classes } => Labels::Single { n_classes, classes: order.apply(&classes) },
                Labels::Multi { n_classes, targets } => {
                    Labels::Multi { n_classes, targets: order.apply_rows(&targets) }
                }
            }),
            splits: splits.into_iter().map(split).collect(),
            edge_split: edge_split.map(|edges| Arc::new(edges.permuted(order))),
            interactions,
            triples: triples.map(|triples| Arc::new(triples.permuted(order))),
            generated,
            notes,
        })
    }

    /// Encodes the features, of all types, if a codec is named; loaders may have encoded them already.
    ///
    /// # Errors
    /// As [`Features::encoded`].
    pub fn with_codec(self, codec: Option<CodecSpec>, seed: u64) -> Result<Self, DatasetError> {
        let Some(codec) = codec else { return Ok(self) };
        let encoded = self.with_type_features(|features| features.encoded(codec, seed))?;
        match encoded.features {
            Some(features) => Ok(Self { features: Some(features.encoded(codec, seed)?), ..encoded }),
            None => Ok(encoded),
        }
    }

    /// Changes the features of each node type, if there are several; errors name the type.
    pub(crate) fn with_type_features(
        self,
        change: impl Fn(Features) -> Result<Features, DatasetError>,
    ) -> Result<Self, DatasetError> {
        let Some(typed) = self.typed else { return Ok(self) };
        let mut typed = Arc::unwrap_or_clone(typed);
        for (of, features) in typed.graph.schema().node_types().iter().zip(&mut typed.features) {
            let named = |error| DatasetError::invalid(format!("type {}: {error}", of.name));
            *features = match std::mem::replace(features, TypeFeatures::None) {
                TypeFeatures::Given(given) => TypeFeatures::Given(change(given).map_err(named)?),
                other => other,
            };
        }
        Ok(Self { typed: Some(typed.into()), ..self })
    }

    /// Sets the rule by which training makes features, with a note; `None` sets no rule.
    ///
    /// # Errors
    /// When the data has features already, or users and items.
    pub fn with_features_from(self, rule: Option<FeaturesFrom>) -> Result<Self, DatasetError> {
        let Some(rule) = rule.filter(|_| rule != self.features_from) else {
            return Ok(Self { features_from: rule, ..self });
        };
        let own = Self { features_from: None, ..self };
        rule.check_data(&own.outline())?;
        let (n_nodes, n_edges) = (own.n_nodes(), own.n_edges());
        let mut notes = own.notes;
        rule.note(&mut notes, n_nodes, n_edges);
        Ok(Self { features_from: Some(rule), notes, ..own })
    }

    /// Rows that the data has for a node type. Those of a single type are [`Dataset::features`].
    #[must_use]
    pub fn features_of_type(&self, node_type: usize) -> Option<&Features> {
        let several = self.typed.as_ref().filter(|typed| typed.has_several_types());
        several.map_or(self.features.as_ref(), |typed| typed.features[node_type].given())
    }

    /// Ids of the nodes that have labels and splits: those of the target type, or all.
    #[must_use]
    pub fn target_ids(&self) -> Range<usize> {
        self.typed.as_ref().map_or(0..self.n_nodes(), |typed| typed.target_ids())
    }

    /// Number of nodes.
    #[must_use]
    pub fn n_nodes(&self) -> usize {
        self.graph.n_rows()
    }

    /// Number of stored edges; an undirected edge counts twice.
    #[must_use]
    pub fn n_edges(&self) -> usize {
        self.graph.nnz()
    }

    /// Width of the features, including features that are still to be made; 0 without features.
    #[must_use]
    pub fn n_features(&self) -> usize {
        let made = self.features_from.map_or(0, |rule| rule.width(self.n_nodes()));
        self.features.as_ref().map_or(made, Features::width)
    }

    /// Whether a node may have several labels.
    #[must_use]
    pub fn is_multi_label(&self) -> bool {
        matches!(self.labels, Some(Labels::Multi { .. }))
    }

    /// Number of classes; 0 without labels.
    #[must_use]
    pub fn n_classes(&self) -> usize {
        self.labels.as_ref().map_or(0, Labels::n_classes)
    }
}
