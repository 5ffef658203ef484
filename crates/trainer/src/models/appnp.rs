//! [`Appnp`]: prediction, then propagation (Gasteiger et al., ICLR 2019).

use girih_compute::{Activation, Backend, ComputeError};
use girih_graph_format::{Degrees, Norm};

use super::mlp::Mlp;
use super::spec::{Adjacency, InputSpec, Model};
use crate::config::ModelConfig;
use crate::layers::{Dims, Inputs};
use crate::tape::{AggregateOptions, ParamInit, Tape, Var};

/// Logits `H` of a multi-layer perceptron, then `Z ← (1 - α)·Â·Z + α·H` for a number of hops: personalised PageRank
/// with teleport probability `α`.
pub struct Appnp {
    predict: Mlp,
    hops: usize,
    teleport: f32,
    degrees: Degrees,
}

impl Appnp {
    /// A network with newly initialised parameters.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        config: &ModelConfig,
        dims: &Dims,
        init: &mut ParamInit<'_, B>,
    ) -> Result<Self, ComputeError> {
        let ModelConfig { hops, teleport, normalization, .. } = *config;
        Ok(Self { predict: Mlp::new(config, dims, init)?, hops, teleport: teleport as f32, degrees: normalization })
    }
}

impl<B: Backend> Model<B> for Appnp {
    fn input_spec(&self) -> InputSpec {
        let graph = Some(Adjacency::new(true, Norm::Symmetric).with_degrees(self.degrees));
        InputSpec::of_raw_features(graph)
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError> {
        let logits = self.predict.forward(tape, inputs)?;
        let mut spread = logits;
        for _ in 0..self.hops {
            let neighbors = tape.aggregate(inputs.graph(0), spread, AggregateOptions::default())?;
            let terms = [(1.0 - self.teleport, neighbors), (self.teleport, logits)];
            spread = tape.combine(&terms, None, Activation::Identity)?;
        }
        Ok(spread)
    }

    /// The last layer that is marked before propagation is the perceptron's logits.
    fn last_hidden(&self, tape: &Tape<'_, B>, _: Var) -> Option<Var> {
        tape.layers().split_last().and_then(|(_, hidden)| hidden.last().copied())
    }
}
