//! [`Sage`]: GraphSAGE with the mean aggregator (Hamilton et al., NeurIPS 2017).

use girih_compute::{Activation, Backend, ComputeError, Shape};
use girih_graph_format::Norm;

use super::{Dims, Model};
use crate::config::ModelConfig;
use crate::inputs::{Adjacency, Inputs, Needs, Propagation};
use crate::layers::{Linear, Rows};
use crate::params::{ParamId, ParamInit};
use crate::tape::{LinearOptions, SpmmOptions, Tape, Var};

/// Layers `H' = relu([H ‖ mean(H)]·W + b)`, where the mean is over in-neighbours; the last one without relu.
///
/// The concatenation is never stored: `W` is cut into the rows that meet `H` and those that meet the mean.
pub struct Sage {
    layers: Vec<SageLayer>,
    config: ModelConfig,
}

struct SageLayer {
    own: Linear,
    neighbors: Linear,
    bias: ParamId,
    /// The weight shrinks the rows, so aggregating after it is cheaper.
    aggregates_last: bool,
}

impl Sage {
    /// A network with fresh parameters.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        config: &ModelConfig,
        dims: Dims,
        init: &mut ParamInit<'_, B>,
    ) -> Result<Self, ComputeError> {
        let layers = dims.stack(config, |i, inputs, outputs| SageLayer::new(init, i, (inputs, outputs)))?;
        Ok(Self { layers, config: config.clone() })
    }
}

impl<B: Backend> Model<B> for Sage {
    fn needs(&self) -> Needs {
        Needs {
            graph: Some(Adjacency { self_loops: false, norm: Norm::Row }),
            hops: 1,
            raw_features: true,
            propagation: Propagation::with_input_dropout(self.config.input_dropout()),
        }
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError> {
        let n_layers = self.layers.len();
        let activation = |i: usize| if i + 1 == n_layers { Activation::Identity } else { Activation::Relu };
        let dropout = tape.next_dropout(self.config.input_dropout());
        let mut rows = Rows::raw_input(tape, inputs).masked(tape, dropout)?;
        for (i, layer) in self.layers.iter().enumerate() {
            let mean = inputs.propagated.as_ref().filter(|_| i == 0).map(|m| Rows::Propagated(tape.constant(m)));
            let hidden = layer.forward(tape, inputs.graph(), &rows, mean, activation(i))?;
            if i + 1 == n_layers {
                return Ok(hidden);
            }
            let dropout = tape.next_dropout(self.config.dropout);
            rows = Rows::Dense(tape.dropout(hidden, dropout)?);
        }
        unreachable!("a configuration has at least one layer")
    }
}

impl SageLayer {
    fn new<B: Backend>(
        init: &mut ParamInit<'_, B>,
        layer: usize,
        widths: (usize, usize),
    ) -> Result<Self, ComputeError> {
        Ok(Self {
            own: Linear::part(init, layer, "weight_own", widths, 2)?,
            neighbors: Linear::part(init, layer, "weight_neighbors", widths, 2)?,
            bias: init.zeros(layer, "bias", Shape::new(1, widths.1))?,
            aggregates_last: widths.1 <= widths.0,
        })
    }

    fn forward<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        graph: &'a B::Sparse,
        rows: &Rows<'a, B>,
        mean: Option<Rows<'a, B>>,
        activation: Activation,
    ) -> Result<Var, ComputeError> {
        let own = self.own.forward(tape, rows, LinearOptions::default())?;
        let bias = Some(tape.param(self.bias));
        let add = Some(own);
        let mean = match (mean, rows) {
            (Some(mean), _) => mean,
            (None, Rows::Dense(x)) if !self.aggregates_last => {
                Rows::Dense(tape.spmm(graph, *x, SpmmOptions::default())?)
            }
            (None, _) => {
                let transformed = self.neighbors.forward(tape, rows, LinearOptions::default())?;
                return tape.spmm(graph, transformed, SpmmOptions { weights: None, bias, activation, add });
            }
        };
        self.neighbors.forward(tape, &mean, LinearOptions { dropout: None, bias, activation, add })
    }
}
