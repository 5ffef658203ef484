//! [`Ngcn`]: graph convolutions over several powers of the adjacency (Abu-El-Haija et al., UAI 2019).

use girih_compute::{Activation, Backend, ComputeError, Dropout};
use girih_graph_format::Norm;

use super::spec::{Adjacency, InputSpec, Model};
use crate::config::ModelConfig;
use crate::layers::{Dims, Inputs, Linear, Rows};
use crate::tape::{AggregateOptions, LinearOptions, ParamId, ParamInit, Tape, Var};

/// One network `Âᵏ·relu(Âᵏ·X·W₀)·W₁` for each power `k` from zero to [`ModelConfig::hops`]. A last linear layer reads
/// their concatenated outputs; without [`ModelConfig::mixing`] the outputs are averaged.
pub struct Ngcn {
    /// Layers of each power's network.
    instances: Vec<Vec<Linear>>,
    /// Row block of the mixing layer for each network's output.
    mixing: Option<Vec<ParamId>>,
    config: ModelConfig,
}

impl Ngcn {
    /// A network with newly initialised parameters.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        config: &ModelConfig,
        dims: &Dims,
        init: &mut ParamInit<'_, B>,
    ) -> Result<Self, ComputeError> {
        let (n, classes) = (config.hops + 1, dims.n_classes);
        let mut instance = |k: usize| {
            dims.stack(config, |i, inputs, outputs| Linear::named(init, i, &format!("power{k}"), (inputs, outputs)))
        };
        let instances: Result<_, _> = (0..n).map(&mut instance).collect();
        let instances = instances?;
        // Initially, the mixing layer computes the mean.
        let mut part = |k: usize| init.diagonal(config.layers, &format!("mixing{k}"), classes, 1.0 / n as f32);
        let mixing = if config.mixing { Some((0..n).map(&mut part).collect::<Result<_, _>>()?) } else { None };
        Ok(Self { instances, mixing, config: config.clone() })
    }

    /// Output of the network for power `k`.
    fn instance<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        inputs: &'a Inputs<B>,
        k: usize,
        mut dropout: Option<Dropout>,
    ) -> Result<Var, ComputeError> {
        let mut rows = Rows::raw_input(tape, inputs)?;
        let (last, hidden) = self.instances[k].split_last().expect("at least one layer");
        for layer in hidden {
            rows = Rows::Dense(propagated(tape, inputs, k, layer, (&rows, dropout), Activation::Relu)?);
            dropout = tape.next_dropout(self.config.dropout);
        }
        propagated(tape, inputs, k, last, (&rows, dropout), Activation::Identity)
    }
}

/// Computes `activation(Âᵏ·(dropout(X)·W) + b)`.
fn propagated<'a, B: Backend>(
    tape: &mut Tape<'a, B>,
    inputs: &'a Inputs<B>,
    k: usize,
    layer: &Linear,
    (rows, dropout): (&Rows<'a, B>, Option<Dropout>),
    activation: Activation,
) -> Result<Var, ComputeError> {
    if k == 0 {
        return layer.forward(tape, rows, LinearOptions { dropout, activation, ..LinearOptions::default() });
    }
    let mut x = layer.forward_without_bias(tape, rows, LinearOptions { dropout, ..LinearOptions::default() })?;
    for _ in 1..k {
        x = tape.aggregate(inputs.graph(0), x, AggregateOptions::default())?;
    }
    let bias = layer.bias(tape);
    tape.aggregate(inputs.graph(0), x, AggregateOptions { bias, activation, ..AggregateOptions::default() })
}

impl<B: Backend> Model<B> for Ngcn {
    fn input_spec(&self) -> InputSpec {
        let graph = Some(Adjacency::new(true, Norm::Symmetric).with_degrees(self.config.normalization));
        InputSpec::of_raw_features(graph)
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError> {
        let mut outputs = Vec::with_capacity(self.instances.len());
        for k in 0..self.instances.len() {
            let dropout = tape.next_dropout(self.config.input_dropout());
            outputs.push(self.instance(tape, inputs, k, dropout)?);
        }
        let Some(parts) = &self.mixing else {
            let share = 1.0 / outputs.len() as f32;
            let terms: Vec<_> = outputs.into_iter().map(|output| (share, output)).collect();
            return tape.combine(&terms, None, Activation::Identity);
        };
        let mut mixed = None;
        for (&part, output) in parts.iter().zip(outputs) {
            let part = tape.param(part);
            mixed = Some(tape.linear(output, part, LinearOptions { add: mixed, ..LinearOptions::default() })?);
        }
        Ok(mixed.expect("at least the power zero"))
    }
}
