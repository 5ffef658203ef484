//! [`NodeFeatures`]: rows that a model reads first, given by the data, made from the graph, or learned.

use girih_datasets::{Dataset, Features, FeaturesFrom, WalkMethod};
use girih_graph_format::Csr;

use crate::TrainError;
use crate::session::check_features;

/// Rows that a model reads first.
pub(crate) enum NodeFeatures {
    /// Values of the data, or made from the graph.
    Given(Features),
    /// A parameter of the model with a row for each node: [`ParamId::FEATURES`](crate::params::ParamId::FEATURES).
    Learned,
}

impl NodeFeatures {
    /// Features of a data set, taken out of it. Those that are to be made are made from `messages`, the edges that
    /// messages travel over: all but held-out links, if links are predicted. Random walks draw by `seed`.
    ///
    /// # Errors
    /// When the data has no nodes, users and items instead, or no features and no rule to make them.
    pub(crate) fn take(dataset: &mut Dataset, messages: Option<&Csr>, seed: u64) -> Result<Self, TrainError> {
        check_features(&dataset.outline())?;
        if let Some(given) = dataset.features.take() {
            return Ok(Self::Given(given));
        }
        let rule = dataset.features_from.expect("checked");
        let (n_nodes, n_edges) = (dataset.n_nodes(), dataset.n_edges());
        // By the size of the whole graph, as the header has said.
        let method = match rule {
            FeaturesFrom::RandomWalk(n_steps) => WalkMethod::for_sizes(n_nodes, n_edges, n_steps),
            _ => WalkMethod::Exact,
        };
        let made = rule.features(messages.unwrap_or(&dataset.graph), method, seed)?;
        Ok(made.map_or(Self::Learned, Self::Given))
    }
}
