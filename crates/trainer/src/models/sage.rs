//! [`Sage`]: GraphSAGE (Hamilton et al., NeurIPS 2017).

mod aggregate;

use girih_compute::{Activation, Backend, ComputeError, Dropout, Shape};
use girih_graph_format::Norm;

use self::aggregate::Aggregate;
use super::spec::{Adjacency, InputSpec, Layers, Model, Propagation};
use crate::config::{Aggregator, ModelConfig};
use crate::layers::{Dims, Inputs, Linear, Rows};
use crate::tape::{AggregateOptions, Graph, LinearOptions, ParamId, ParamInit, Tape, Var};

/// Layers `H' = relu([H ‖ aggregate(H)]·W + b)`, which aggregate over in-neighbors. The last layer has no ReLU.
///
/// The concatenation is never stored: `W` is split into a row block for `H` and one for the aggregate.
pub struct Sage {
    layers: Vec<SageLayer>,
    config: ModelConfig,
}

struct SageLayer {
    own: Linear,
    neighbors: Linear,
    bias: ParamId,
    aggregate: Aggregate,
}

impl Sage {
    /// A network with newly initialised parameters.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        config: &ModelConfig,
        dims: &Dims,
        init: &mut ParamInit<'_, B>,
    ) -> Result<Self, ComputeError> {
        let layers = dims.stack(config, |i, inputs, outputs| SageLayer::new(init, config, i, (inputs, outputs)))?;
        Ok(Self { layers, config: config.clone() })
    }

    fn activation(&self, layer: usize) -> Activation {
        if layer + 1 == self.layers.len() { Activation::Identity } else { Activation::Relu }
    }
}

impl<B: Backend> Model<B> for Sage {
    fn input_spec(&self) -> InputSpec {
        let (norm, hops, propagation) = match self.config.aggregator {
            Aggregator::Mean => (Norm::Row, 1, Propagation::of(&self.config)),
            Aggregator::Pool | Aggregator::Lstm => (Norm::None, 0, Propagation::Never),
        };
        let graph = Some(Adjacency::new(false, norm).with_degrees(self.config.normalization));
        InputSpec { graph, hops, raw_features: true, propagation, relations: None, edges: false }
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError> {
        let n_layers = self.layers.len();
        let dropout = tape.next_dropout(self.config.input_dropout());
        let mut rows = Rows::raw_input(tape, inputs)?.masked(tape, dropout)?;
        for (i, layer) in self.layers.iter().enumerate() {
            let mean = inputs.propagated.as_ref().filter(|_| i == 0).map(|m| Rows::Propagated(tape.constant(m)));
            let mask = if i + 1 == n_layers { None } else { tape.next_dropout(self.config.dropout) };
            let hidden = layer.forward(tape, inputs.graph(i), &rows, mean, (self.activation(i), mask))?;
            tape.mark_layer(hidden);
            if i + 1 == n_layers {
                return Ok(hidden);
            }
            rows = Rows::Dense(hidden);
        }
        unreachable!("a configuration has at least one layer")
    }

    fn as_layers(&self) -> Option<&dyn Layers<B>> {
        Some(self)
    }
}

impl<B: Backend> Layers<B> for Sage {
    fn n_layers(&self) -> usize {
        self.layers.len()
    }

    fn layer<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>, layer: usize) -> Result<Var, ComputeError> {
        let (rows, ends) = (Rows::raw_input(tape, inputs)?, (self.activation(layer), None));
        self.layers[layer].forward(tape, inputs.graph(0), &rows, None, ends)
    }
}

impl SageLayer {
    fn new<B: Backend>(
        init: &mut ParamInit<'_, B>,
        config: &ModelConfig,
        layer: usize,
        (inputs, outputs): (usize, usize),
    ) -> Result<Self, ComputeError> {
        let own = Linear::part(init, layer, "weight_own", (inputs, outputs), 2)?;
        let aggregated = if config.aggregator == Aggregator::Mean { inputs } else { config.hidden };
        Ok(Self {
            own,
            neighbors: Linear::part(init, layer, "weight_neighbors", (aggregated, outputs), 2)?,
            bias: init.zeros(layer, "bias", Shape::new(1, outputs))?,
            aggregate: Aggregate::new(init, config.aggregator, layer, (inputs, aggregated), outputs)?,
        })
    }

    /// Computes `mask ⊙ activation([H ‖ aggregate(H)]·W + b)`. `aggregated` is the aggregate if it is a constant.
    fn forward<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        graph: &'a Graph<B>,
        rows: &Rows<'a, B>,
        aggregated: Option<Rows<'a, B>>,
        (activation, mask): (Activation, Option<Dropout>),
    ) -> Result<Var, ComputeError> {
        // Recorded before the aggregation. The backward pass then adds the gradient of these few rows to that of all
        // rows.
        let own = match rows {
            Rows::Dense(x) => Some(tape.destinations(graph, *x)?),
            _ => None,
        };
        let aggregated = match aggregated {
            None => self.aggregate.forward(tape, graph, rows)?,
            constant => constant,
        };
        let bias = Some(tape.param(self.bias));
        let options = LinearOptions { bias, activation, mask, ..LinearOptions::default() };
        if let (Some(own), Some(Rows::Dense(y) | Rows::Propagated(y))) = (own, &aggregated) {
            return Linear::forward_pair(tape, [(&self.own, own), (&self.neighbors, *y)], options);
        }
        let add = Some(match own {
            Some(own) => self.own.forward_without_bias(tape, &Rows::Dense(own), LinearOptions::default())?,
            None => self.own.forward_own(tape, graph, rows, LinearOptions::default())?,
        });
        match aggregated {
            Some(rows) => self.neighbors.forward(tape, &rows, LinearOptions { add, ..options }),
            None => {
                let transformed = self.neighbors.forward(tape, rows, LinearOptions::default())?;
                tape.aggregate(graph, transformed, AggregateOptions { bias, activation, mask, add })
            }
        }
    }
}
