//! [`Gin`]: the graph isomorphism network of Xu et al. (ICLR 2019).

use girih_compute::{Activation, Backend, ComputeError};
use girih_graph_format::Norm;

use super::spec::Adjacency;
use super::stack::{Convolution, Place, Stack};
use crate::config::ModelConfig;
use crate::layers::{GraphConv, Linear, Rows};
use crate::tape::{Graph, LinearOptions, Masks, ParamInit, Tape, Var};

/// Layers `H' = relu(mlp(H + Σ_j H_j))` of GIN-0, whose ε is zero. The sum is over in-neighbors, and the perceptron
/// has two layers. The last layer has no ReLU. A self-loop replaces the node's own term, with its weight, instead of
/// adding to it.
pub type Gin = Stack<GinLayer>;

/// One layer of [`Gin`]. The perceptron's first layer is linear, so it may come before the sum.
pub struct GinLayer {
    sum: GraphConv,
    linear: Linear,
}

impl Convolution for GinLayer {
    const ADJACENCY: Adjacency = Adjacency::new(true, Norm::None);
    const AGGREGATES_FIRST: bool = true;

    fn new<B: Backend>(init: &mut ParamInit<'_, B>, config: &ModelConfig, place: Place) -> Result<Self, ComputeError> {
        let sum = GraphConv::new(init, place.layer, place.inputs, config.hidden)?;
        Ok(Self { sum, linear: Linear::named(init, place.layer, "out", (config.hidden, place.outputs))? })
    }

    fn forward<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        graph: &'a Graph<B>,
        rows: &Rows<'a, B>,
        masks: Masks,
        activation: Activation,
    ) -> Result<Var, ComputeError> {
        let sum = self.sum.forward(tape, graph, rows, Masks { result: None, ..masks }, Activation::Relu)?;
        let options = LinearOptions { activation, mask: masks.result, ..LinearOptions::default() };
        self.linear.forward(tape, &Rows::Dense(sum), options)
    }
}
