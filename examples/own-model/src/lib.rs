//! GCNII (Chen et al., ICML 2020, arXiv 2007.02133): a deep graph convolutional network, outside of girih.
//!
//! - [`Gcnii`]: its settings, and the builder that girih calls.
//! - `operation`: an operation of its own on the tape, composed of operations that every backend has.

mod operation;

use girih_compute::{Activation, Backend, ComputeError, Shape};
use girih_graph_format::Norm;
use girih_trainer::{
    Adjacency, AggregateOptions, BuildModel, Dims, InputSpec, Inputs, Linear, LinearOptions, Model, ModelConfig,
    ParamId, ParamInit, Rows, Tape, Var,
};
use serde::Serialize;

pub use operation::identity_mapping;

/// Settings of GCNII.
#[derive(Clone, Debug, Serialize)]
pub struct Gcnii {
    /// Number of convolutions.
    pub layers: usize,
    /// Width of hidden layers.
    pub hidden: usize,
    /// Share `α` of the first layer in each operand: the initial residual.
    pub alpha: f32,
    /// Strength `λ` of weights: layer `l`, from 1, has `β = ln(λ / l + 1)`.
    pub lambda: f32,
    /// Dropout rate of every layer's operand.
    pub dropout: f64,
}

impl Default for Gcnii {
    /// Settings of the publication for Cora, with fewer layers.
    fn default() -> Self {
        Self { layers: 8, hidden: 64, alpha: 0.1, lambda: 0.5, dropout: 0.6 }
    }
}

/// Network: `H₀ = relu(X·W + b)`, then `H ← relu(((1 - α)·Â·H + α·H₀)·((1 - β)·I + β·Wₗ))`, then a linear layer.
struct Network {
    settings: Gcnii,
    entry: Linear,
    weights: Vec<ParamId>,
    last: Linear,
}

impl<B: Backend> BuildModel<B> for Gcnii {
    /// Each layer reads a graph of its own in mini-batches, so that `layers` is also the number of blocks.
    fn config(&self) -> ModelConfig {
        ModelConfig { layers: self.layers, ..ModelConfig::from_outside("gcnii", self) }
    }

    fn build(&self, dims: Dims, init: &mut ParamInit<'_, B>) -> Result<Box<dyn Model<B>>, ComputeError> {
        let (n, width) = (self.layers, self.hidden);
        let entry = Linear::new(init, 0, dims.n_features, width)?;
        let square = Shape::new(width, width);
        let weights = (1..=n).map(|layer| init.glorot(layer, "weight", square, width)).collect::<Result<_, _>>()?;
        let last = Linear::new(init, n + 1, width, dims.n_classes)?;
        Ok(Box::new(Network { settings: self.clone(), entry, weights, last }))
    }
}

impl<B: Backend> Model<B> for Network {
    fn input_spec(&self) -> InputSpec {
        // A network with a choice of degrees passes `ModelConfig::normalization` on by `with_degrees`, as
        // `models/appnp.rs` of girih does. One that is told of other degrees and forgets it is refused.
        InputSpec::of_raw_features(Some(Adjacency::new(true, Norm::Symmetric)))
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError> {
        let &Gcnii { alpha, lambda, dropout, .. } = &self.settings;
        let features = Rows::raw_input(tape, inputs)?;
        let options = LinearOptions {
            dropout: tape.next_dropout(dropout),
            activation: Activation::Relu,
            ..LinearOptions::default()
        };
        let mut first = self.entry.forward(tape, &features, options)?;
        let mut hidden = first;
        for (layer, &weight) in self.weights.iter().enumerate() {
            let (graph, mask) = (inputs.graph(layer), tape.next_dropout(dropout));
            let masked = tape.dropout(hidden, mask)?;
            let aggregated = tape.aggregate(graph, masked, AggregateOptions::default())?;
            // In a mini-batch, a block's destinations are the first of its sources.
            first = tape.destinations(graph, first)?;
            let mixed = tape.combine(&[(1.0 - alpha, aggregated), (alpha, first)], None, Activation::Identity)?;
            let (weight, beta) = (tape.param(weight), (lambda / (layer + 1) as f32).ln_1p());
            hidden = identity_mapping(tape, mixed, weight, beta)?;
            tape.mark_layer(hidden);
        }
        let dropout = tape.next_dropout(dropout);
        self.last.forward(tape, &Rows::Dense(hidden), LinearOptions { dropout, ..LinearOptions::default() })
    }
}
