//! Table of names: every parameter of a model beside the tensor that holds it in PyG's state dict.
//!
//! Export and import read this table, and nothing else knows a name or a layout outside of girih.

use girih_graph_format::Degrees;

use super::layout::{Extent, Form, Width};
use crate::config::{Aggregator, Jump, ModelConfig, ModelKind, NormKind, TrainConfig};

/// Tensor of a state dict.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Name outside, such as `convs.0.lin.weight`.
    pub(super) name: String,
    /// Values of the tensor.
    pub(super) content: Content,
}

/// Values of a tensor.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// Values of a parameter.
    Param {
        /// Name of the parameter in checkpoints.
        param: String,
        /// Rows of girih's matrix.
        rows: Width,
        /// Columns of girih's matrix.
        cols: Width,
        /// Form of the tensor.
        form: Form,
    },
    /// A number that girih's model fixes. The message says why another one has no counterpart.
    Fixed {
        /// Length of the tensor.
        len: Width,
        /// Value of every element.
        value: f32,
        /// Reason why girih has no other value, with a remedy.
        why: &'static str,
    },
}

/// Reason why a configuration has no counterpart in PyG, with a remedy; `None` if it has one.
fn refusal(config: &TrainConfig) -> Option<String> {
    let model = &config.model;
    let name = model.name();
    let (residual, norm, jump) = (model.residual, model.norm != NormKind::None, model.jump != Jump::None);
    let no_counterpart =
        |what: &str, remedy: &str| Some(format!("{what} no counterpart in a state dict of PyG's layers: {remedy}"));
    match () {
        () if model.own.is_some() => no_counterpart(
            &format!("the model {name} is from outside girih and has"),
            "its own package must write its weights",
        ),
        () if model.kind == ModelKind::Ngcn => no_counterpart("ngcn has", "train gcn or sgc"),
        () if residual => no_counterpart("residual connections have", "train without --residual"),
        () if norm => no_counterpart("normalised hidden layers have", "train with --norm none"),
        () if jump => no_counterpart("jumping knowledge has", "train with --jump none"),
        () if model.kind == ModelKind::Sage && model.aggregator != Aggregator::Mean => no_counterpart(
            &format!("the aggregator {} of sage has", model.aggregator.name()),
            "train with --aggregator mean",
        ),
        () if model.normalization != Degrees::Default => {
            no_counterpart("degrees of absolute weights have", "train with --normalization default")
        }
        () if config.codec.is_some() => no_counterpart("compressed features have", "train with --codec none"),
        () if config.learns_features() => no_counterpart(
            "learned features of nodes have",
            "train with --features-from degree, or with features of the data",
        ),
        () => None,
    }
}

/// Tensors of the state dict of `config`'s model, in the order of PyG's modules.
///
/// # Errors
/// When the configuration has no counterpart in PyG; the message says which part.
pub(super) fn table(config: &TrainConfig) -> Result<Vec<Entry>, String> {
    if let Some(refusal) = refusal(config) {
        return Err(refusal);
    }
    let model = &config.model;
    let mut entries = Vec::new();
    match model.kind {
        ModelKind::LightGcn => light_gcn(model, &mut entries),
        ModelKind::Sgc => linear(&mut entries, "convs.0.lin", "layer0", "", (Width::FEATURES, Width::CLASSES)),
        _ => (0..model.layers).for_each(|layer| add_layer(model, layer, &mut entries)),
    }
    Ok(entries)
}

/// Adds the tensors of one layer.
fn add_layer(model: &ModelConfig, layer: usize, to: &mut Vec<Entry>) {
    let (is_first, is_last) = (layer == 0, layer + 1 == model.layers);
    let heads = if model.kind.has_heads() { model.heads } else { 1 };
    let hidden = Width::of_heads(heads, Extent::Size(model.hidden));
    let inputs = if is_first { Width::FEATURES } else { hidden };
    let outputs = match is_last {
        true if model.kind.has_heads() => Width::of_heads(model.out_heads, Extent::Classes),
        true => Width::CLASSES,
        false => hidden,
    };
    let (conv, own) = (format!("convs.{layer}"), format!("layer{layer}"));
    let widths = (inputs, outputs);
    let add = &mut |name: &str, param: &str, (rows, cols), form| {
        let content = Content::Param { param: format!("{own}.{param}"), rows, cols, form };
        to.push(Entry { name: format!("{conv}.{name}"), content });
    };
    let row = |width| (Width::ONE, width);
    // Heads of the last layer are averaged, and the bias comes after the mean.
    let bias = if is_last { Width::CLASSES } else { outputs };
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
                to.push(Entry { name: format!("{conv}.{name}"), content: fixed(outputs, 0.0, NO_SCORE_BIAS) });
            }
        }
        ModelKind::Gin => {
            let hidden = Width::of_heads(1, Extent::Size(model.hidden));
            linear(to, &format!("{conv}.nn.0"), &own, "", (inputs, hidden));
            linear(to, &format!("{conv}.nn.2"), &own, "_out", (hidden, outputs));
            to.push(Entry { name: format!("{conv}.eps"), content: fixed(Width::ONE, 0.0, NO_EPS) });
        }
        ModelKind::Mlp | ModelKind::Appnp => linear(to, &format!("lins.{layer}"), &own, "", widths),
        ModelKind::Sgc | ModelKind::LightGcn | ModelKind::Ngcn => unreachable!("these have no such layers"),
    }
}

const NO_SCORE_BIAS: &str = "gatv2 of girih has no bias inside of its scores: set lin_l.bias and lin_r.bias to zero before training, and \
                             leave them out of the optimiser";
const NO_EPS: &str = "gin of girih is GIN-0: train GINConv with eps=0 and train_eps=False";
const OTHER_MEAN: &str = "lightgcn of girih is the mean over hops: give --layers as many as num_layers, and leave alpha of PyG's \
                          LightGCN at its default";

fn fixed(len: Width, value: f32, why: &'static str) -> Content {
    Content::Fixed { len, value, why }
}

/// Adds weight and bias of a `torch.nn.Linear`. Names of the parameters end in `suffix`.
fn linear(to: &mut Vec<Entry>, module: &str, own: &str, suffix: &str, (inputs, outputs): (Width, Width)) {
    let weight = (format!("{own}.weight{suffix}"), inputs, Form::Transposed, "weight");
    let bias = (format!("{own}.bias{suffix}"), Width::ONE, Form::Vector, "bias");
    for (param, rows, form, name) in [weight, bias] {
        let content = Content::Param { param, rows, cols: outputs, form };
        to.push(Entry { name: format!("{module}.{name}"), content });
    }
}

/// Adds the embeddings of `torch_geometric.nn.LightGCN`, and its weights of hops.
fn light_gcn(model: &ModelConfig, to: &mut Vec<Entry>) {
    let n_terms = model.layers + 1;
    let alpha = fixed(Width::of_heads(1, Extent::Size(n_terms)), 1.0 / n_terms as f32, OTHER_MEAN);
    to.push(Entry { name: "alpha".to_owned(), content: alpha });
    let (rows, cols) = (Width::of_heads(1, Extent::Nodes), Width::of_heads(1, Extent::Size(model.hidden)));
    let content = Content::Param { param: "layer0.embedding".to_owned(), rows, cols, form: Form::Plain };
    to.push(Entry { name: "embedding.weight".to_owned(), content });
}
