//! [`Outline`]: sizes and kinds of a data set, known before its rows are read.

use girih_graph_format::{RelationSizes, Schema};

use crate::{Dataset, DatasetError, Features, FeaturesFrom, Interactions, TypeFeatures, TypeWidth};

/// Sizes and kinds of a data set, known before its rows are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Name for people and records.
    pub name: String,
    /// Whether a generator made this data.
    pub generated: bool,
    /// Number of nodes.
    pub n_nodes: usize,
    /// Number of stored edges.
    pub n_edges: usize,
    /// Width of the features; 0 without features.
    pub n_features: usize,
    /// Rule that makes the features, if the data has none.
    pub features_from: Option<FeaturesFrom>,
    /// Whether edges carry weights.
    pub weighted: bool,
    /// Number of features of each edge, if these are read.
    pub edge_features: Option<usize>,
    /// Codec and bytes per row of compressed features: of the node type with the longest rows, if there are several.
    pub codes: Option<(String, usize)>,
    /// Number of classes; 0 without labels.
    pub n_classes: usize,
    /// Whether a node may have several labels.
    pub multi_label: bool,
    /// Numbers of training, validation and test nodes of each split set.
    pub splits: Vec<[usize; 3]>,
    /// Number of users, in data for a recommender. Users are the first nodes, and all others are items. Each
    /// interaction is two edges.
    pub n_users: Option<usize>,
    /// Numbers of training, validation and test triples, in a knowledge graph.
    pub triples: Option<[usize; 3]>,
    /// Types of nodes and edges, if they have types.
    pub schema: Option<Schema>,
    /// Sizes of all types; upper bounds without types.
    pub relations: RelationSizes,
    /// Width of the features of each node type, if there are several.
    pub type_widths: Vec<TypeWidth>,
    /// Number of the node type that has labels; 0 without types.
    pub target: usize,
}

impl Outline {
    /// Sets the rule by which features are made, as [`Dataset::with_features_from`].
    ///
    /// # Errors
    /// When the data has features already, or users and items.
    pub(crate) fn with_features_from(self, rule: Option<FeaturesFrom>) -> Result<Self, DatasetError> {
        let Some(rule) = rule else { return Ok(self) };
        rule.check_data(&self)?;
        Ok(Self { features_from: Some(rule), n_features: rule.width(self.n_nodes), ..self })
    }
}

impl Dataset {
    /// Outline of this data set.
    #[must_use]
    pub fn outline(&self) -> Outline {
        Outline {
            name: self.name.clone(),
            generated: self.generated,
            n_nodes: self.n_nodes(),
            n_edges: self.n_edges(),
            n_features: self.n_features(),
            features_from: self.features_from,
            weighted: self.graph.values().is_some(),
            edge_features: self.edge_features.as_ref().map(|features| features.width()),
            codes: self.codes(),
            n_classes: self.n_classes(),
            multi_label: self.is_multi_label(),
            splits: self.splits.iter().map(|split| split.parts().map(|(_, nodes)| nodes.len())).collect(),
            n_users: self.interactions.as_ref().map(Interactions::n_users),
            triples: self.triples.as_ref().map(|triples| triples.parts().map(|(_, part)| part.len())),
            schema: self.typed.as_ref().map(|typed| typed.graph.schema().clone()),
            relations: self
                .typed
                .as_ref()
                .map_or(RelationSizes::of_plain(self.n_nodes(), self.n_edges()), |typed| typed.graph.sizes().clone()),
            type_widths: self.typed.iter().flat_map(|typed| &typed.features).map(TypeFeatures::width).collect(),
            target: self.typed.as_ref().map_or(0, |typed| typed.target),
        }
    }

    /// Codec and bytes per row of compressed features: of the node type with the longest rows, if there are several.
    fn codes(&self) -> Option<(String, usize)> {
        let of_types = self.typed.iter().flat_map(|typed| typed.features.iter().filter_map(TypeFeatures::given));
        let codes = self.features.iter().chain(of_types).filter_map(|features| match features {
            Features::Compressed(codes) => Some((codes.codec().spec().to_string(), codes.codec().row_bytes())),
            Features::Dense(_) | Features::Sparse(_) => None,
        });
        codes.max_by_key(|(_, row_bytes)| *row_bytes)
    }
}
