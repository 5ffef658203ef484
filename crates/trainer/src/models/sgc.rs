//! [`Sgc`]: simplified graph convolution (Wu et al., ICML 2019).

use girih_compute::{Backend, ComputeError};
use girih_graph_format::Norm;

use super::spec::{Adjacency, InputSpec, Model, Propagation};
use crate::config::ModelConfig;
use crate::layers::{Dims, Inputs, Linear, Rows};
use crate::tape::{LinearOptions, ParamInit, Tape, Var};

/// Linear model on features that are aggregated `k` times before training: `dropout(Âᵏ·X)·W + b`. `config.layers` is
/// `k`.
pub struct Sgc {
    linear: Linear,
    config: ModelConfig,
}

impl Sgc {
    /// A model with newly initialised parameters.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        config: &ModelConfig,
        dims: &Dims,
        init: &mut ParamInit<'_, B>,
    ) -> Result<Self, ComputeError> {
        Ok(Self { linear: Linear::zeroed(init, 0, dims.n_features, dims.n_classes)?, config: config.clone() })
    }
}

impl<B: Backend> Model<B> for Sgc {
    fn input_spec(&self) -> InputSpec {
        InputSpec {
            graph: Some(Adjacency::new(true, Norm::Symmetric).with_degrees(self.config.normalization)),
            hops: self.config.layers,
            raw_features: false,
            propagation: Propagation::Always,
            relations: None,
            edges: false,
        }
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError> {
        let dropout = tape.next_dropout(self.config.input_dropout());
        let rows = Rows::aggregated_input(tape, inputs)?;
        self.linear.forward(tape, &rows, LinearOptions { dropout, ..LinearOptions::default() })
    }
}
