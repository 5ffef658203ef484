//! [`Gat`] and [`Gatv2`]: graph attention networks (Veličković et al., ICLR 2018; Brody et al., ICLR 2022).

use girih_compute::{Activation, Backend, ComputeError};
use girih_graph_format::Norm;

use super::spec::Adjacency;
use super::stack::{Convolution, Place, Stack};
use crate::config::ModelConfig;
use crate::layers::{AttentionKind, AttentionSizes, GraphAttention, Rows};
use crate::tape::{Graph, Masks, ParamInit, Tape, Var};

/// Attention layers over neighbors and the node itself. Hidden layers concatenate their heads and apply ELU; the
/// last layer averages [`ModelConfig::out_heads`] heads.
pub type Gat = Stack<GatLayer<false>>;

/// As [`Gat`], but with dynamic attention: the ranking of neighbors depends on the node.
pub type Gatv2 = Stack<GatLayer<true>>;

/// One layer of [`Gat`], or of [`Gatv2`] if `DYNAMIC`.
pub struct GatLayer<const DYNAMIC: bool> {
    attention: GraphAttention,
    share_dropout: f64,
    slope: f32,
}

impl<const DYNAMIC: bool> Convolution for GatLayer<DYNAMIC> {
    const ACTIVATION: Activation = Activation::Elu;
    const ADJACENCY: Adjacency = Adjacency::new(true, Norm::None);
    const READS_EDGES: bool = true;

    fn hidden_width(config: &ModelConfig) -> usize {
        config.hidden * config.heads
    }

    fn new<B: Backend>(init: &mut ParamInit<'_, B>, config: &ModelConfig, place: Place) -> Result<Self, ComputeError> {
        let (heads, width) =
            if place.is_output { (config.out_heads, place.outputs) } else { (config.heads, config.hidden) };
        let sizes = AttentionSizes {
            inputs: place.inputs,
            heads,
            width,
            averaged: place.is_output,
            edge_width: place.edge_width,
        };
        let kind = if DYNAMIC { AttentionKind::Dynamic } else { AttentionKind::Additive };
        Ok(Self {
            attention: GraphAttention::new(init, place.layer, kind, sizes)?,
            share_dropout: config.attention_dropout(),
            slope: config.slope as f32,
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
        let dropouts = (masks.operand, tape.next_dropout(self.share_dropout));
        let out = self.attention.forward(tape, graph, rows, dropouts, (self.slope, activation))?;
        tape.dropout(out, masks.result)
    }
}
