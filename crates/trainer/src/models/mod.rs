//! [`Model`]: a forward function, and the models that come with girih.

mod appnp;
mod gat;
mod gcn;
mod gin;
mod lightgcn;
mod mlp;
mod ngcn;
mod sage;
mod sgc;
mod stack;

use girih_compute::{Backend, ComputeError};
use girih_datasets::{Dataset, Outline};

pub use appnp::Appnp;
pub use gat::{Gat, GatLayer, Gatv2};
pub use gcn::Gcn;
pub use gin::{Gin, GinLayer};
pub use lightgcn::LightGcn;
pub use mlp::Mlp;
pub use ngcn::Ngcn;
pub use sage::Sage;
pub use sgc::Sgc;
pub use stack::{Convolution, Place, Stack};

use crate::config::{ModelConfig, ModelKind};
use crate::inputs::{InputSpec, Inputs};
use crate::params::{ParamId, ParamInit};
use crate::tape::{Tape, Var};

/// A graph neural network: parameters created once, and a forward pass over a [`Tape`].
///
/// A new model is a struct of layers and these two functions; gradients, devices and memory are the tape's concern.
pub trait Model<B: Backend>: Send {
    /// What the forward pass reads.
    fn input_spec(&self) -> InputSpec;

    /// The logits of all nodes, `n_nodes × n_classes`; of a recommender, the embeddings, `n_nodes × hidden`. On the
    /// blocks of a mini-batch, those of the destinations of the last layer.
    ///
    /// A device may repeat what it was asked in one training step in all later ones, without asking again: passes that
    /// train differ in what the tape draws, and in nothing else.
    ///
    /// # Errors
    /// When the backend fails.
    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError>;

    /// The network as layers that can be computed one after the other, each for all nodes; `None` where a layer reads
    /// more than the rows of the one before it and of its neighbours.
    fn as_layers(&self) -> Option<&dyn Layers<B>> {
        None
    }

    /// The learned row of each node, for models that have no features: what a recommender's loss penalises.
    fn embedding(&self) -> Option<ParamId> {
        None
    }
}

/// A network whose layers follow one another, as they are evaluated: nothing is drawn.
pub trait Layers<B: Backend> {
    /// How many there are.
    fn n_layers(&self) -> usize;

    /// What layer `layer`, counted from 0 at the inputs, leaves for the destinations of the one graph of `inputs`,
    /// whose features are what the layer before it left; of the last layer, the logits.
    ///
    /// # Errors
    /// When the backend fails.
    ///
    /// # Panics
    /// When there is no such layer.
    fn layer<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>, layer: usize) -> Result<Var, ComputeError>;
}

/// The sizes that a data set gives a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dims {
    /// Nodes, for models that learn a row of each.
    pub n_nodes: usize,
    /// Width of the features.
    pub n_features: usize,
    /// Width of the logits.
    pub n_classes: usize,
}

impl Dims {
    /// The sizes of a data set.
    #[must_use]
    pub fn of(dataset: &Dataset) -> Self {
        Self { n_nodes: dataset.n_nodes(), n_features: dataset.n_features(), n_classes: dataset.n_classes() }
    }

    /// The same, before the data set is read.
    #[must_use]
    pub fn of_outline(outline: &Outline) -> Self {
        Self { n_nodes: outline.n_nodes, n_features: outline.n_features, n_classes: outline.n_classes }
    }

    /// One layer after the other, each made by `layer` from its number, its input width and its output width:
    /// features to hidden, hidden to hidden, hidden to classes.
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

/// The model that `config` describes.
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
