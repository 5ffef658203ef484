//! [`Dims`]: sizes that a model is built for.

use girih_compute::ComputeError;
use girih_datasets::{Dataset, Outline, TypeWidth};
use girih_graph_format::RelationSizes;

use crate::config::ModelConfig;

/// Sizes that a model takes from a data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dims {
    /// Number of nodes, for models that learn a row per node.
    pub n_nodes: usize,
    /// Width of the features.
    pub n_features: usize,
    /// Width of the features of edges, for models that read them; 0 without any.
    pub edge_width: usize,
    /// Width of the logits.
    pub n_classes: usize,
    /// Sizes of a typed graph, for models that read relations.
    pub relations: RelationSizes,
    /// Width of the features of each node type, if there are several.
    pub type_widths: Vec<TypeWidth>,
    /// Node type whose nodes have logits; `None` for all types.
    pub target: Option<usize>,
}

impl Dims {
    /// Sizes of a data set.
    #[must_use]
    pub fn of(dataset: &Dataset) -> Self {
        Self::of_outline(&dataset.outline())
    }

    /// As [`of`](Self::of), but before the data set is loaded.
    #[must_use]
    pub fn of_outline(outline: &Outline) -> Self {
        Self {
            n_nodes: outline.n_nodes,
            n_features: outline.n_features,
            edge_width: 0,
            n_classes: outline.n_classes,
            relations: outline.relations.clone(),
            type_widths: outline.type_widths.clone(),
            target: (outline.relations.node_types.len() > 1).then_some(outline.target),
        }
    }

    /// Width of the features of a node type.
    ///
    /// # Panics
    /// When there is no such type.
    #[must_use]
    pub fn type_width(&self, node_type: usize) -> TypeWidth {
        match self.type_widths.is_empty() {
            true if self.n_features == 0 => TypeWidth::None,
            true => TypeWidth::Given(self.n_features),
            false => self.type_widths[node_type],
        }
    }

    /// Creates a sequence of layers: features to hidden, hidden to hidden, hidden to classes. `layer` takes index,
    /// input width and output width.
    ///
    /// # Errors
    /// When `layer` fails.
    pub fn stack<L>(
        &self,
        config: &ModelConfig,
        mut layer: impl FnMut(usize, usize, usize) -> Result<L, ComputeError>,
    ) -> Result<Vec<L>, ComputeError> {
        let widths = |i: usize| {
            let inputs = if i == 0 { self.n_features } else { config.hidden };
            let outputs = if i + 1 == config.layers { self.n_classes } else { config.hidden };
            (inputs, outputs)
        };
        (0..config.layers).map(|i| layer(i, widths(i).0, widths(i).1)).collect()
    }
}
