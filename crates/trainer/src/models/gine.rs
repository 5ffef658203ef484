//! [`Gine`]: the graph isomorphism network with features of edges, of Hu et al. (ICLR 2020).

use girih_compute::{Activation, Backend, ComputeError};
use girih_graph_format::Norm;

use super::spec::Adjacency;
use super::stack::{Convolution, Place, Stack};
use crate::config::ModelConfig;
use crate::layers::{Linear, Rows};
use crate::tape::{BlockEdges, Graph, LinearOptions, Masks, ParamInit, SpmmOptions, Tape, Var};

/// Layers `h'_v = mlp(h_v + Σ_u relu(h_u + W·e_uv + b))` over the edges from `u` to `v` with features `e_uv`. The
/// perceptron has two layers. Features of nodes first go through a linear layer to the hidden width. The last layer has
/// no ReLU. A pair of nodes with several edges has as many messages.
///
/// The layer reads blocks whose edges have features ([`BlockGraph::edges`](crate::BlockGraph)).
pub type Gine = Stack<GineLayer>;

/// One layer of [`Gine`].
pub struct GineLayer {
    /// Linear layer from the features of nodes to the hidden width, in the first layer.
    entry: Option<Linear>,
    edge: Linear,
    inner: Linear,
    outer: Linear,
}

impl Convolution for GineLayer {
    const ADJACENCY: Adjacency = Adjacency::new(false, Norm::None);
    const READS_EDGES: bool = true;

    fn new<B: Backend>(init: &mut ParamInit<'_, B>, config: &ModelConfig, place: Place) -> Result<Self, ComputeError> {
        let Place { layer, inputs, outputs, edge_width, .. } = place;
        let width = config.hidden;
        // A network with residual connections has brought features to the hidden width already.
        let has_entry = layer == 0 && !config.residual;
        Ok(Self {
            entry: has_entry.then(|| Linear::named(init, layer, "node", (inputs, width))).transpose()?,
            edge: Linear::named(init, layer, "edge", (edge_width, width))?,
            inner: Linear::named(init, layer, "inner", (width, width))?,
            outer: Linear::named(init, layer, "outer", (width, outputs))?,
        })
    }

    fn forward<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        graph: &'a Graph<B>,
        rows: &Rows<'a, B>,
        masks: Masks,
        activation: Activation,
    ) -> Result<Var, ComputeError> {
        let x = self.operand(tape, rows, masks)?;
        let edges = graph.edges().ok_or_else(|| {
            ComputeError::argument("gine", "makes a message of each edge, and this graph has no features of edges")
        })?;
        let sums = self.message_sums(tape, edges, x)?;
        let own = tape.destinations(graph, x)?;
        let sum = tape.add(sums, own)?;
        let options = LinearOptions { activation: Activation::Relu, ..LinearOptions::default() };
        let inner = self.inner.forward(tape, &Rows::Dense(sum), options)?;
        let options = LinearOptions { activation, mask: masks.result, ..LinearOptions::default() };
        self.outer.forward(tape, &Rows::Dense(inner), options)
    }
}

impl GineLayer {
    /// Rows of nodes of the hidden width, masked.
    fn operand<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        rows: &Rows<'a, B>,
        masks: Masks,
    ) -> Result<Var, ComputeError> {
        match (&self.entry, rows) {
            (Some(entry), rows) => {
                let options = LinearOptions { dropout: masks.operand, ..LinearOptions::default() };
                entry.forward(tape, rows, options)
            }
            (None, Rows::Dense(x)) => Ok(Rows::Dense(*x).masked(tape, masks.operand)?.into_dense()),
            (None, _) => unreachable!("layers behind a linear one read dense rows"),
        }
    }

    /// Sum of the messages into each destination.
    fn message_sums<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        edges: &'a BlockEdges<B>,
        x: Var,
    ) -> Result<Var, ComputeError> {
        let sources = tape.gather_rows(x, &edges.sources, edges.n_edges)?;
        let features = tape.constant(&edges.features);
        let options = LinearOptions { add: Some(sources), activation: Activation::Relu, ..LinearOptions::default() };
        let messages = self.edge.forward(tape, &Rows::Dense(features), options)?;
        tape.spmm(&edges.sums, messages, SpmmOptions::default())
    }
}
