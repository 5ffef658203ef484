//! [`Gcn`]: the graph convolutional network of Kipf and Welling (ICLR 2017).

use girih_compute::{Activation, Backend, ComputeError};
use girih_graph_format::Norm;

use super::spec::Adjacency;
use super::stack::{Convolution, Place, Stack};
use crate::config::ModelConfig;
use crate::layers::{GraphConv, Rows};
use crate::tape::{Graph, Masks, ParamInit, Tape, Var};

/// Layers `H' = relu(Â·dropout(H)·W + b)` with `Â = D^-½ (A + I) D^-½`. The last layer has no ReLU.
pub type Gcn = Stack<GraphConv>;

impl Convolution for GraphConv {
    const ADJACENCY: Adjacency = Adjacency::new(true, Norm::Symmetric);
    const AGGREGATES_FIRST: bool = true;

    fn new<B: Backend>(init: &mut ParamInit<'_, B>, _: &ModelConfig, place: Place) -> Result<Self, ComputeError> {
        Self::new(init, place.layer, place.inputs, place.outputs)
    }

    fn forward<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        graph: &'a Graph<B>,
        rows: &Rows<'a, B>,
        masks: Masks,
        activation: Activation,
    ) -> Result<Var, ComputeError> {
        self.forward(tape, graph, rows, masks, activation)
    }
}
