//! Names and layouts of PyG's layers.

use super::{Entries, Entry, LayerWidths, NO_EPS, without_layers};
use crate::config::{ModelConfig, ModelKind};
use crate::weights::layout::{Extent, Form, Width};

const NO_SCORE_BIAS: &str = "gatv2 of girih has no bias inside of its scores: set lin_l.bias and lin_r.bias to zero before training, and \
                             leave them out of the optimiser";
const OTHER_MEAN: &str = "lightgcn of girih is the mean over hops: give --layers as many as num_layers, and leave alpha of PyG's \
                          LightGCN at its default";

/// Tensors of `model`.
pub(super) fn entries(model: &ModelConfig) -> Vec<Entry> {
    let mut to = Entries::default();
    match model.kind {
        ModelKind::LightGcn => {
            let n_terms = model.layers + 1;
            let len = Width::of_heads(1, Extent::Size(n_terms));
            to.fixed("alpha".to_owned(), len, 1.0 / n_terms as f32, OTHER_MEAN);
            to.embedding(model);
        }
        ModelKind::Sgc => to.linear("convs.0.lin", "layer0", "", (Width::FEATURES, Width::CLASSES)),
        _ => (0..model.layers).for_each(|layer| add_layer(model, layer, &mut to)),
    }
    to.0
}

/// Adds the tensors of one layer.
fn add_layer(model: &ModelConfig, layer: usize, to: &mut Entries) {
    let LayerWidths { ends: widths, bias, hidden } = LayerWidths::of(model, layer);
    let (inputs, outputs) = widths;
    let (conv, own) = (format!("convs.{layer}"), format!("layer{layer}"));
    let mut add = |name: &str, param: &str, widths, form| {
        to.param(format!("{conv}.{name}"), format!("{own}.{param}"), widths, form);
    };
    let row = |width| (Width::ONE, width);
    match model.kind {
        ModelKind::Gcn => {
            add("bias", "bias", row(outputs), Form::Vector);
            add("lin.weight", "weight", widths, Form::Transposed);
        }
        ModelKind::Sage => {
            add("lin_l.weight", "weight_neighbors", widths, Form::Transposed);
            add("lin_l.bias", "bias", row(outputs), Form::Vector);
            add("lin_r.weight", "weight_own", widths, Form::Transposed);
        }
        ModelKind::Gat => {
            add("att_src", "attention_source", row(outputs), Form::Heads);
            add("att_dst", "attention_destination", row(outputs), Form::Heads);
            add("bias", "bias", row(bias), Form::Vector);
            add("lin.weight", "weight_source", widths, Form::Transposed);
        }
        ModelKind::Gatv2 => {
            add("att", "attention", row(outputs), Form::Heads);
            add("bias", "bias", row(bias), Form::Vector);
            add("lin_l.weight", "weight_source", widths, Form::Transposed);
            add("lin_r.weight", "weight_destination", widths, Form::Transposed);
            for name in ["lin_l.bias", "lin_r.bias"] {
                to.fixed(format!("{conv}.{name}"), outputs, 0.0, NO_SCORE_BIAS);
            }
        }
        ModelKind::Gin => {
            to.linear(&format!("{conv}.nn.0"), &own, "", (inputs, hidden));
            to.linear(&format!("{conv}.nn.2"), &own, "_out", (hidden, outputs));
            to.fixed(format!("{conv}.eps"), Width::ONE, 0.0, NO_EPS);
        }
        ModelKind::Mlp | ModelKind::Appnp => to.linear(&format!("lins.{layer}"), &own, "", widths),
        _ => without_layers(model),
    }
}
