//! Attention layers: GAT (Veličković et al., ICLR 2018) and GATv2 (Brody et al., ICLR 2022).

use girih_compute::{Activation, Backend, ComputeError, Dropout, Shape};

use super::{Linear, Rows};
use crate::tape::{AttentionOperands, AttentionOptions, Graph, LinearOptions, ParamId, ParamInit, Tape, Var};

/// Attention score of the edge from `j` to `i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionKind {
    /// `leaky(aᵈ·z_i + aˢ·z_j)`: GAT.
    Additive,
    /// `a·leaky(y_i + z_j)`: GATv2.
    Dynamic,
}

/// Sizes of an attention layer.
#[derive(Clone, Copy, Debug)]
pub struct AttentionSizes {
    /// Number of columns of the operand.
    pub inputs: usize,
    /// Number of heads.
    pub heads: usize,
    /// Number of columns of a head.
    pub width: usize,
    /// If true, heads are averaged, otherwise concatenated.
    pub averaged: bool,
    /// Number of columns of the features of edges that scores read; 0 for none.
    pub edge_width: usize,
}

/// Attention over neighbors: `activation(Σ_j α_ij z_j + b)`, with heads concatenated or averaged.
///
/// With features `e_ij` of edges, a linear function of them is added to `aˢ·z_j` or, in the score alone, to `z_j`, as in
/// PyG's `edge_dim`.
///
/// Columns of heads are interleaved: column `k · heads + h` is column `k` of head `h`.
pub struct GraphAttention {
    sizes: AttentionSizes,
    source: Linear,
    scores: Scores,
    bias: ParamId,
    /// Weight of the features of edges, if scores read them.
    edge: Option<Linear>,
}

enum Scores {
    Additive { destination: ParamId, source: ParamId },
    Dynamic { destination: Linear, vector: ParamId },
}

impl GraphAttention {
    /// A layer with newly initialised parameters.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    pub fn new<B: Backend>(
        init: &mut ParamInit<'_, B>,
        layer: usize,
        kind: AttentionKind,
        sizes: AttentionSizes,
    ) -> Result<Self, ComputeError> {
        let AttentionSizes { inputs, heads, width, averaged, edge_width } = sizes;
        let all = heads * width;
        let row = Shape::new(1, all);
        let source = Linear::part(init, layer, "weight_source", (inputs, all), 1)?;
        let scores = match kind {
            // The fan-in of the initialisation is the width of one head, the length of its attention vector.
            AttentionKind::Additive => Scores::Additive {
                destination: init.glorot(layer, "attention_destination", row, 1 + width)?,
                source: init.glorot(layer, "attention_source", row, 1 + width)?,
            },
            AttentionKind::Dynamic => Scores::Dynamic {
                destination: Linear::part(init, layer, "weight_destination", (inputs, all), 1)?,
                vector: init.glorot(layer, "attention", row, 1 + width)?,
            },
        };
        let bias = init.zeros(layer, "bias", Shape::new(1, if averaged { width } else { all }))?;
        let score_width = if kind == AttentionKind::Additive { heads } else { all };
        let edge = (edge_width > 0).then(|| Linear::part(init, layer, "weight_edge", (edge_width, score_width), 1));
        Ok(Self { sizes, source, scores, bias, edge: edge.transpose()? })
    }

    /// Applies the layer to `rows`. The dropouts mask the rows and the attention weights.
    ///
    /// # Errors
    /// When the backend fails.
    pub fn forward<'a, B: Backend>(
        &self,
        tape: &mut Tape<'a, B>,
        graph: &'a Graph<B>,
        rows: &Rows<'a, B>,
        (dropout, share_dropout): (Option<Dropout>, Option<Dropout>),
        (slope, activation): (f32, Activation),
    ) -> Result<Var, ComputeError> {
        let heads = self.sizes.heads;
        let options = LinearOptions { dropout, ..LinearOptions::default() };
        let values = self.source.forward(tape, rows, options)?;
        let (pattern, neighbors) = tape.neighbors(graph, values)?;
        let operands = match &self.scores {
            Scores::Additive { destination, source } => {
                let (destination, source) = (tape.param(*destination), tape.param(*source));
                let of_all = tape.head_dots(values, destination, heads)?;
                AttentionOperands {
                    destination: tape.destinations(graph, of_all)?,
                    source: tape.head_dots(neighbors, source, heads)?,
                    vector: None,
                    values: neighbors,
                }
            }
            Scores::Dynamic { destination, vector } => {
                let (destination, vector) =
                    (destination.forward_own(tape, graph, rows, options)?, Some(tape.param(*vector)));
                AttentionOperands { destination, source: neighbors, vector, values: neighbors }
            }
        };
        let (pattern, operands) = match &self.edge {
            Some(edge) => of_edges(tape, graph, edge, operands)?,
            None => (pattern, operands),
        };
        let attended = tape.attention(pattern, operands, AttentionOptions { heads, slope, dropout: share_dropout })?;
        let bias = Some(tape.param(self.bias));
        if self.sizes.averaged && heads > 1 {
            let mean = self.mean_of_heads(tape)?;
            return tape.linear(attended, mean, LinearOptions { bias, activation, ..LinearOptions::default() });
        }
        tape.combine(&[(1.0, attended)], bias, activation)
    }

    /// Matrix that averages heads, `(heads · width) × width`.
    fn mean_of_heads<B: Backend>(&self, tape: &mut Tape<'_, B>) -> Result<Var, ComputeError> {
        let AttentionSizes { heads, width, .. } = self.sizes;
        let share = |c: usize, k: usize| if c / heads == k { 1.0 / heads as f32 } else { 0.0 };
        tape.made(Shape::new(heads * width, width), share)
    }
}

/// Operands of attention over edges, one by one: each has the score and the value of its source, and a score of its own.
fn of_edges<'a, B: Backend>(
    tape: &mut Tape<'a, B>,
    graph: &'a Graph<B>,
    edge: &Linear,
    operands: AttentionOperands,
) -> Result<(&'a B::Sparse, AttentionOperands), ComputeError> {
    let edges = graph.edges().ok_or_else(|| {
        ComputeError::argument("attention", "scores read features of edges, which this graph does not have")
    })?;
    let of_sources = tape.gather_rows(operands.source, &edges.sources, edges.n_edges)?;
    let values = tape.gather_rows(operands.values, &edges.sources, edges.n_edges)?;
    let features = tape.constant(&edges.features);
    let options = LinearOptions { add: Some(of_sources), ..LinearOptions::default() };
    let source = edge.forward(tape, &Rows::Dense(features), options)?;
    Ok((&edges.sums, AttentionOperands { source, values, ..operands }))
}
