//! [`Gcn`]: the graph convolutional network of Kipf and Welling (ICLR 2017).

use girih_compute::{Activation, Backend, ComputeError};
use girih_graph_format::Norm;

use super::{Dims, Model};
use crate::config::ModelConfig;
use crate::inputs::{Adjacency, Inputs, Needs, Propagation};
use crate::layers::{GraphConv, Rows};
use crate::params::ParamInit;
use crate::tape::{Tape, Var};

/// Layers `H' = relu(Â·dropout(H)·W + b)` with `Â = D^-½ (A + I) D^-½`; the last one without relu.
pub struct Gcn {
    layers: Vec<GraphConv>,
    config: ModelConfig,
}

impl Gcn {
    /// A network with fresh parameters.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        config: &ModelConfig,
        dims: Dims,
        init: &mut ParamInit<'_, B>,
    ) -> Result<Self, ComputeError> {
        let layers = dims.stack(config, |i, inputs, outputs| GraphConv::new(init, i, inputs, outputs))?;
        Ok(Self { layers, config: config.clone() })
    }
}

impl<B: Backend> Model<B> for Gcn {
    fn needs(&self) -> Needs {
        Needs {
            graph: Some(Adjacency { self_loops: true, norm: Norm::Symmetric }),
            hops: 1,
            raw_features: false,
            propagation: Propagation::with_input_dropout(self.config.input_dropout()),
        }
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError> {
        let graph = inputs.graph();
        let mut dropout = tape.next_dropout(self.config.input_dropout());
        let mut rows = Rows::aggregated_input(tape, inputs);
        let (last, hidden) = self.layers.split_last().expect("at least one layer");
        for layer in hidden {
            rows = Rows::Dense(layer.forward(tape, graph, &rows, dropout, Activation::Relu)?);
            dropout = tape.next_dropout(self.config.dropout);
        }
        last.forward(tape, graph, &rows, dropout, Activation::Identity)
    }
}
