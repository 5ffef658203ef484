//! [`Model`]: a forward function, and the models that come with girih.

mod gcn;
mod mlp;
mod sage;
mod sgc;

use girih_compute::{Backend, ComputeError};

pub use gcn::Gcn;
pub use mlp::Mlp;
pub use sage::Sage;
pub use sgc::Sgc;

use crate::config::{ModelConfig, ModelKind};
use crate::inputs::{Inputs, Needs};
use crate::params::ParamInit;
use crate::tape::{Tape, Var};

/// A graph neural network: parameters created once, and a forward pass over a [`Tape`].
///
/// A new model is a struct of layers and these two functions; gradients, devices and memory are the tape's concern.
pub trait Model<B: Backend>: Send {
    /// What the forward pass reads.
    fn needs(&self) -> Needs;

    /// The logits of all nodes, `n_nodes × n_classes`.
    ///
    /// # Errors
    /// When the backend fails.
    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError>;
}

/// The sizes that a data set gives a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dims {
    /// Width of the features.
    pub n_features: usize,
    /// Width of the logits.
    pub n_classes: usize,
}

impl Dims {
    /// Input and output width of each of `layers` layers, with `hidden` columns between them.
    pub fn chain(self, layers: usize, hidden: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..layers).map(move |i| {
            let inputs = if i == 0 { self.n_features } else { hidden };
            let outputs = if i + 1 == layers { self.n_classes } else { hidden };
            (inputs, outputs)
        })
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
        ModelKind::Mlp => Box::new(Mlp::new(config, dims, init)?),
    })
}
