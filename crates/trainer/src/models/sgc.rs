//! [`Sgc`]: simplified graph convolution (Wu et al., ICML 2019).

use girih_compute::{Backend, ComputeError};
use girih_graph_format::Norm;

use super::{Dims, Model};
use crate::config::ModelConfig;
use crate::inputs::{Adjacency, Inputs, Needs};
use crate::layers::{Linear, Rows};
use crate::params::ParamInit;
use crate::tape::{LinearOptions, SpmmOptions, Tape, Var};

/// A linear model on features that were aggregated `k` times: `Âᵏ·X·W + b`. `config.layers` is `k`.
pub struct Sgc {
    linear: Linear,
    config: ModelConfig,
}

impl Sgc {
    /// A model with fresh parameters.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        config: &ModelConfig,
        dims: Dims,
        init: &mut ParamInit<'_, B>,
    ) -> Result<Self, ComputeError> {
        Ok(Self { linear: Linear::new(init, 0, dims.n_features, dims.n_classes)?, config: config.clone() })
    }
}

impl<B: Backend> Model<B> for Sgc {
    fn needs(&self) -> Needs {
        Needs {
            graph: Some(Adjacency { self_loops: true, norm: Norm::Symmetric }),
            hops: self.config.layers,
            raw_features: false,
            input_dropout: self.config.input_dropout(),
        }
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError> {
        let dropout = tape.next_dropout(self.config.input_dropout());
        let rows = Rows::aggregated_input(tape, inputs);
        let options = LinearOptions { dropout, ..LinearOptions::default() };
        if let Rows::Propagated(_) = rows {
            return self.linear.forward(tape, &rows, options);
        }
        // Â is linear, so the weight may come first: the aggregations then run at the width of the classes.
        let mut hidden = self.linear.forward_without_bias(tape, &rows, options)?;
        for hop in 1..=self.config.layers {
            let bias = self.linear.bias(tape).filter(|_| hop == self.config.layers);
            hidden = tape.spmm(inputs.graph(), hidden, SpmmOptions { bias, ..SpmmOptions::default() })?;
        }
        Ok(hidden)
    }
}
