//! [`Outline`]: what is known of a data set before its rows are read.

use crate::{Dataset, DatasetError, Features, FeaturesFrom, Interactions};

/// What is known of a data set before its rows are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Name for people and records.
    pub name: String,
    /// Whether a generator made this data.
    pub generated: bool,
    /// Nodes.
    pub n_nodes: usize,
    /// Stored edges.
    pub n_edges: usize,
    /// Width of the features; 0 without features.
    pub n_features: usize,
    /// Rule that makes the features, if the data has none.
    pub features_from: Option<FeaturesFrom>,
    /// Whether edges carry weights.
    pub weighted: bool,
    /// Codec and bytes of a row of compressed features.
    pub codes: Option<(String, usize)>,
    /// Classes; 0 without labels.
    pub n_classes: usize,
    /// Whether a node may have several labels.
    pub multi_label: bool,
    /// Nodes to train, validate and test with, of each split set.
    pub splits: Vec<[usize; 3]>,
    /// Users among the nodes, of data for a recommender: the first ones. All others are items, and each interaction is
    /// two edges.
    pub n_users: Option<usize>,
}

impl Outline {
    /// Outline with features to be made by `rule`; as [`Dataset::with_features_from`].
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
    /// Its outline.
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
            codes: match &self.features {
                Some(Features::Compressed(features)) => {
                    Some((features.codec().spec().to_string(), features.codec().row_bytes()))
                }
                _ => None,
            },
            n_classes: self.n_classes(),
            multi_label: self.is_multi_label(),
            splits: self.splits.iter().map(|split| split.parts().map(|(_, nodes)| nodes.len())).collect(),
            n_users: self.interactions.as_ref().map(Interactions::n_users),
        }
    }
}
