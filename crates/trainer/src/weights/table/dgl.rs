//! Names and layouts of DGL's layers.
//!
//! DGL adds the bias of a `GATConv` to each head, before the mean of the last layer. A `GATv2Conv` has its bias inside of
//! `fc_src`: weights of attention add up to one, so it reaches the result unchanged. The bias of `fc_dst` cancels it in
//! the scores.

use super::{Content, Entries, Entry, LayerWidths, NO_EPS, without_layers};
use crate::config::{ModelConfig, ModelKind};
use crate::weights::layout::{Form, Width};

const NO_SCORE_BIAS: &str = "gatv2 of girih has no bias inside of its scores: make GATv2Conv with bias=False and save zeros as \
                             fc_src.bias and fc_dst.bias, or keep fc_dst.bias at the negative of fc_src.bias";

/// Tensors of `model`.
pub(super) fn entries(model: &ModelConfig) -> Vec<Entry> {
    let mut to = Entries::default();
    match model.kind {
        ModelKind::LightGcn => to.embedding(model),
        ModelKind::Sgc => to.linear("layers.0.fc", "layer0", "", (Width::FEATURES, Width::CLASSES)),
        _ => (0..model.layers).for_each(|layer| add_layer(model, layer, &mut to)),
    }
    to.0
}

/// Adds the tensors of one layer.
fn add_layer(model: &ModelConfig, layer: usize, to: &mut Entries) {
    let LayerWidths { ends: widths, bias, hidden } = LayerWidths::of(model, layer);
    let (inputs, outputs) = widths;
    let (conv, own) = (format!("layers.{layer}"), format!("layer{layer}"));
    let mut add = |name: &str, param: &str, widths, form| {
        to.param(format!("{conv}.{name}"), format!("{own}.{param}"), widths, form);
    };
    let row = |width| (Width::ONE, width);
    let bias_form = if layer + 1 == model.layers { Form::Repeated(model.out_heads) } else { Form::Vector };
    match model.kind {
        ModelKind::Gcn => {
            add("weight", "weight", widths, Form::Plain);
            add("bias", "bias", row(outputs), Form::Vector);
        }
        ModelKind::Sage => {
            add("fc_neigh.weight", "weight_neighbors", widths, Form::Transposed);
            add("fc_self.weight", "weight_own", widths, Form::Transposed);
            add("fc_self.bias", "bias", row(outputs), Form::Vector);
        }
        ModelKind::Gat => {
            add("attn_l", "attention_source", row(outputs), Form::Heads);
            add("attn_r", "attention_destination", row(outputs), Form::Heads);
            add("bias", "bias", row(bias), bias_form);
            add("fc.weight", "weight_source", widths, Form::Transposed);
        }
        ModelKind::Gatv2 => {
            add("attn", "attention", row(outputs), Form::Heads);
            add("fc_src.weight", "weight_source", widths, Form::Transposed);
            add("fc_src.bias", "bias", row(bias), bias_form);
            add("fc_dst.weight", "weight_destination", widths, Form::Transposed);
            let content = Content::Negative { of: format!("{conv}.fc_src.bias"), len: outputs, why: NO_SCORE_BIAS };
            to.0.push(Entry { name: format!("{conv}.fc_dst.bias"), content });
        }
        ModelKind::Gin => {
            to.linear(&format!("{conv}.apply_func.0"), &own, "", (inputs, hidden));
            to.linear(&format!("{conv}.apply_func.2"), &own, "_out", (hidden, outputs));
            to.fixed(format!("{conv}.eps"), Width::ONE, 0.0, NO_EPS);
        }
        ModelKind::Mlp | ModelKind::Appnp => to.linear(&conv, &own, "", widths),
        _ => without_layers(model),
    }
}
