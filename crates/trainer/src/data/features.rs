//! [`NodeFeatures`]: rows of the model's input features: from the data, generated from the graph, or learned. [`as_read`]: data
//! with the features that a configuration asks for.

use girih_datasets::{Dataset, Features, FeaturesFrom, WalkMethod};
use girih_graph_format::Csr;

use super::checks::check_features;
use crate::TrainError;
use crate::config::TrainConfig;

/// Rows of the model's input features.
pub(crate) enum NodeFeatures {
    /// Values from the data, or generated from the graph.
    Given(Features),
    /// A parameter of the model with a row per node: [`ParamId::FEATURES`](crate::tape::ParamId::FEATURES).
    Learned,
    /// None: the model learns rows of its own.
    None,
}

impl NodeFeatures {
    /// As [`take`](Self::take), for a model that learns rows of its own where there are no features and no rule.
    ///
    /// # Errors
    /// When the data has no nodes, or users and items instead.
    pub(crate) fn take_any(dataset: &mut Dataset, seed: u64) -> Result<Self, TrainError> {
        if dataset.n_features() == 0 { Ok(Self::None) } else { Self::take(dataset, None, seed) }
    }

    /// Takes the features out of a data set. Generated features are computed from `messages`, the edges of message
    /// passing: for link prediction, all but the held-out links. `seed` is the seed of random walks.
    ///
    /// # Errors
    /// When the data has no nodes, has users and items instead, or has neither features nor a rule that generates
    /// them.
    pub(crate) fn take(dataset: &mut Dataset, messages: Option<&Csr>, seed: u64) -> Result<Self, TrainError> {
        check_features(&dataset.outline())?;
        if let Some(given) = dataset.features.take() {
            return Ok(Self::Given(given));
        }
        let rule = dataset.features_from.expect("checked");
        let (n_nodes, n_edges) = (dataset.n_nodes(), dataset.n_edges());
        // The method depends on the size of the whole graph, as the header reports.
        let method = match rule {
            FeaturesFrom::RandomWalk(n_steps) => WalkMethod::for_sizes(n_nodes, n_edges, n_steps),
            _ => WalkMethod::Exact,
        };
        let made = rule.features(messages.unwrap_or(&dataset.graph), method, seed)?;
        Ok(made.map_or(Self::Learned, Self::Given))
    }
}

/// A data set as the model of a configuration reads it: with one type if a model of relations meets none, and with
/// features that are made and encoded.
pub(crate) fn as_read(dataset: Dataset, config: &TrainConfig) -> Result<Dataset, TrainError> {
    let reads_relations = config.model.own.is_none() && config.model.kind.reads_relations();
    let dataset = if reads_relations { dataset.with_types()? } else { dataset };
    let dataset = dataset.with_features_from(config.features_from)?.with_type_rules(&config.type_rules())?;
    Ok(dataset.with_codec(config.codec, config.seed)?)
}
