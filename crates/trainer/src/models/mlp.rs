//! [`Mlp`]: multi-layer perceptron on the features alone, a baseline without the graph.

use girih_compute::{Activation, Backend, ComputeError};

use super::spec::{InputSpec, Model};
use crate::config::ModelConfig;
use crate::layers::{Dims, Inputs, Linear, Rows};
use crate::tape::{LinearOptions, ParamInit, Tape, Var};

/// Layers `H' = relu(dropout(H)·W + b)`. The last layer has no ReLU.
pub struct Mlp {
    layers: Vec<Linear>,
    config: ModelConfig,
}

impl Mlp {
    /// A network with newly initialised parameters.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        config: &ModelConfig,
        dims: &Dims,
        init: &mut ParamInit<'_, B>,
    ) -> Result<Self, ComputeError> {
        let layers = dims.stack(config, |i, inputs, outputs| Linear::new(init, i, inputs, outputs))?;
        Ok(Self { layers, config: config.clone() })
    }
}

impl<B: Backend> Model<B> for Mlp {
    fn input_spec(&self) -> InputSpec {
        InputSpec::of_raw_features(None)
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError> {
        let mut dropout = tape.next_dropout(self.config.input_dropout());
        let mut rows = Rows::raw_input(tape, inputs)?;
        let (last, hidden) = self.layers.split_last().expect("at least one layer");
        for layer in hidden {
            let (activation, mask) = (Activation::Relu, tape.next_dropout(self.config.dropout));
            let options = LinearOptions { dropout, activation, mask, ..LinearOptions::default() };
            let hidden = layer.forward(tape, &rows, options)?;
            tape.mark_layer(hidden);
            rows = Rows::Dense(hidden);
            dropout = None;
        }
        let logits = last.forward(tape, &rows, LinearOptions { dropout, ..LinearOptions::default() })?;
        tape.mark_layer(logits);
        Ok(logits)
    }
}
