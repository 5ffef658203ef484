//! [`Model`]: a forward function, and the models of girih.

mod appnp;
mod gat;
mod gcn;
mod gin;
mod lightgcn;
mod mlp;
mod ngcn;
mod sage;
mod sgc;
mod spec;
mod stack;

use girih_compute::{Backend, ComputeError};
use girih_datasets::{Dataset, Outline};

use crate::config::{ModelConfig, ModelKind};
use crate::layers::Inputs;
use crate::tape::{ParamId, ParamInit, Tape, Var};

pub use appnp::Appnp;
pub use gat::{Gat, GatLayer, Gatv2};
pub use gcn::Gcn;
pub use gin::{Gin, GinLayer};
pub use lightgcn::LightGcn;
pub use mlp::Mlp;
pub use ngcn::Ngcn;
pub use sage::Sage;
pub use sgc::Sgc;
pub use spec::{Adjacency, InputSpec, Propagation};
pub use stack::{Convolution, Place, Stack};

/// Graph neural network: parameters created once, and a forward pass over a [`Tape`].
///
/// A new model is a struct of layers with these two functions. The tape handles gradients, devices and memory.
pub trait Model<B: Backend>: Send {
    /// Inputs that the forward pass reads.
    fn input_spec(&self) -> InputSpec;

    /// Logits of all nodes, `n_nodes × n_classes`; for a recommender, embeddings, `n_nodes × hidden`. For the blocks
    /// of a mini-batch, only rows of the last layer's destinations.
    ///
    /// A device may capture one training step and replay it in later steps without calling this function. Training
    /// passes may therefore differ only in the tape's random draws.
    ///
    /// # Errors
    /// When the backend fails.
    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError>;

    /// Network as layers for layer-wise inference. `None` if a layer reads more than the previous layer's rows of a
    /// node and of its neighbours.
    fn as_layers(&self) -> Option<&dyn Layers<B>> {
        None
    }

    /// Learned row of each node, for models without features. A recommender's loss penalises these.
    fn embedding(&self) -> Option<ParamId> {
        None
    }
}

/// Network as a sequence of layers in evaluation, without random draws.
pub trait Layers<B: Backend> {
    /// Number of layers.
    fn n_layers(&self) -> usize;

    /// Output of layer `layer`, counted from 0 at the inputs, for the destinations of the graph of `inputs`. The
    /// features of `inputs` are the previous layer's output. The last layer's output is the logits.
    ///
    /// # Errors
    /// When the backend fails.
    ///
    /// # Panics
    /// When `layer` is not below the number of layers.
    fn layer<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>, layer: usize) -> Result<Var, ComputeError>;
}

/// Sizes that a model takes from a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dims {
    /// Number of nodes, for models that learn a row per node.
    pub n_nodes: usize,
    /// Width of the features.
    pub n_features: usize,
    /// Width of the logits.
    pub n_classes: usize,
}

impl Dims {
    /// Sizes of a data set.
    #[must_use]
    pub fn of(dataset: &Dataset) -> Self {
        Self { n_nodes: dataset.n_nodes(), n_features: dataset.n_features(), n_classes: dataset.n_classes() }
    }

    /// As [`of`](Self::of), but before the data set is loaded.
    #[must_use]
    pub fn of_outline(outline: &Outline) -> Self {
        Self { n_nodes: outline.n_nodes, n_features: outline.n_features, n_classes: outline.n_classes }
    }

    /// Creates a sequence of layers: features to hidden, hidden to hidden, hidden to classes. `layer` takes index,
    /// input width and output width.
    ///
    /// # Errors
    /// When `layer` fails.
    pub fn stack<L>(
        self,
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

/// Creates the model of `config`.
///
/// # Errors
/// When the device's memory does not suffice.
pub fn build<B: Backend>(
    config: &ModelConfig,
    dims: Dims,
    init: &mut ParamInit<'_, B>,
) -> Result<Box<dyn Model<B>>, ComputeError> {
    Ok(match config.kind {
        ModelKind::Gcn => Box::new(Gcn::new(config, dims, init)?),
        ModelKind::Sgc => Box::new(Sgc::new(config, dims, init)?),
        ModelKind::Sage => Box::new(Sage::new(config, dims, init)?),
        ModelKind::Gat => Box::new(Gat::new(config, dims, init)?),
        ModelKind::Gatv2 => Box::new(Gatv2::new(config, dims, init)?),
        ModelKind::Gin => Box::new(Gin::new(config, dims, init)?),
        ModelKind::Ngcn => Box::new(Ngcn::new(config, dims, init)?),
        ModelKind::Appnp => Box::new(Appnp::new(config, dims, init)?),
        ModelKind::Mlp => Box::new(Mlp::new(config, dims, init)?),
        ModelKind::LightGcn => Box::new(LightGcn::new(config, dims.n_nodes, init)?),
    })
}
