//! Tables of names: every parameter of a model beside the tensor that holds it in another library.
//!
//! Export and import read these tables, and nothing else knows a name or a layout outside of girih.

mod dgl;
mod pyg;

use std::fmt;

use girih_graph_format::Degrees;

use super::layout::{Extent, Form, Width};
use crate::config::{Aggregator, Jump, ModelConfig, ModelKind, NormKind, TrainConfig, joined};

/// Library whose names and layouts the tensors have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// PyTorch Geometric: state dicts of its layers.
    Pyg,
    /// Deep Graph Library: state dicts of its layers.
    Dgl,
    /// ONNX: initialisers of the graph that girih writes, as PyG has them.
    Onnx,
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pyg => "PyG",
            Self::Dgl => "DGL",
            Self::Onnx => "ONNX",
        })
    }
}

impl Library {
    /// Place of the tensors, as messages name it.
    fn place(self) -> &'static str {
        match self {
            Self::Pyg => "a state dict of PyG's layers",
            Self::Dgl => "a state dict of DGL's layers",
            Self::Onnx => "the ONNX graphs of girih",
        }
    }
}

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
    /// The negative of another tensor. The message says why other values have no counterpart.
    Negative {
        /// Name of the other tensor.
        of: String,
        /// Length of the tensor.
        len: Width,
        /// Reason why girih has no other values, with a remedy.
        why: &'static str,
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

/// Reason why a configuration has no counterpart in the library, with a remedy; `None` if it has one.
fn refusal(config: &TrainConfig, library: Library) -> Option<String> {
    let model = &config.model;
    let name = model.name();
    let (residual, norm, jump) = (model.residual, model.norm != NormKind::None, model.jump != Jump::None);
    let no_counterpart =
        |what: &str, remedy: &str| Some(format!("{what} no counterpart in {}: {remedy}", library.place()));
    match () {
        () if model.own.is_some() => no_counterpart(
            &format!("the model {name} is from outside girih and has"),
            "its own package must write its weights",
        ),
        () if model.kind.is_recommender() && library == Library::Onnx => no_counterpart(
            &format!("{name}, which ranks items instead of computing logits, has"),
            "use --format pyg, dgl or npz",
        ),
        () if config.edges.has_features() => no_counterpart(
            &format!("{name} with features of edges has"),
            "train without --edge-features and --time-encoding",
        ),
        () if model.kind.properties().exports.is_none() => {
            let others = ModelKind::ALL.iter().filter(|kind| kind.properties().exports.is_some());
            let others = joined(others.map(|kind| kind.name()), "or");
            no_counterpart(&format!("{name} has"), &format!("train {others}"))
        }
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

/// Tensors of `config`'s model, in the order of the library's modules.
///
/// # Errors
/// When the configuration has no counterpart in the library; the message says which part.
pub(super) fn table(config: &TrainConfig, library: Library) -> Result<Vec<Entry>, String> {
    if let Some(refusal) = refusal(config, library) {
        return Err(refusal);
    }
    let model = &config.model;
    Ok(match library {
        Library::Pyg => pyg::entries(model),
        Library::Dgl => dgl::entries(model),
        // Fixed numbers are part of the graph.
        Library::Onnx => {
            pyg::entries(model).into_iter().filter(|entry| matches!(entry.content, Content::Param { .. })).collect()
        }
    })
}

/// Widths of the tensors of one layer.
#[derive(Clone, Copy, Debug)]
struct LayerWidths {
    /// Inputs and outputs, with their heads.
    ends: (Width, Width),
    /// Bias of an attention layer: heads of the last layer are averaged, and girih's bias comes after the mean.
    bias: Width,
    /// Hidden columns of the model, without heads.
    hidden: Width,
}

impl LayerWidths {
    /// Widths of layer `layer` of `model`.
    fn of(model: &ModelConfig, layer: usize) -> Self {
        let (is_first, is_last) = (layer == 0, layer + 1 == model.layers);
        let heads = if model.kind.has_heads() { model.heads } else { 1 };
        let hidden = Width::of_heads(heads, Extent::Size(model.hidden));
        let outputs = match is_last {
            true if model.kind.has_heads() => Width::of_heads(model.out_heads, Extent::Classes),
            true => Width::CLASSES,
            false => hidden,
        };
        Self {
            ends: (if is_first { Width::FEATURES } else { hidden }, outputs),
            bias: if is_last { Width::CLASSES } else { outputs },
            hidden: Width::of_heads(1, Extent::Size(model.hidden)),
        }
    }
}

/// Tensors of a list of entries, added module by module.
#[derive(Debug, Default)]
struct Entries(Vec<Entry>);

impl Entries {
    /// Adds the tensor `name` with the parameter `param`, a matrix of the given rows and columns.
    fn param(&mut self, name: String, param: String, (rows, cols): (Width, Width), form: Form) {
        self.0.push(Entry { name, content: Content::Param { param, rows, cols, form } });
    }

    /// Adds a tensor of equal numbers.
    fn fixed(&mut self, name: String, len: Width, value: f32, why: &'static str) {
        self.0.push(Entry { name, content: Content::Fixed { len, value, why } });
    }

    /// Adds weight and bias of a `torch.nn.Linear`. Names of the parameters end in `suffix`.
    fn linear(&mut self, module: &str, own: &str, suffix: &str, widths: (Width, Width)) {
        self.param(format!("{module}.weight"), format!("{own}.weight{suffix}"), widths, Form::Transposed);
        self.param(format!("{module}.bias"), format!("{own}.bias{suffix}"), (Width::ONE, widths.1), Form::Vector);
    }

    /// Adds the embeddings of a recommender.
    fn embedding(&mut self, model: &ModelConfig) {
        let widths = (Width::of_heads(1, Extent::Nodes), Width::of_heads(1, Extent::Size(model.hidden)));
        self.param("embedding.weight".to_owned(), "layer0.embedding".to_owned(), widths, Form::Plain);
    }
}

/// Panics at a network that has no layers of its own in a table, which is a mistake of the table.
fn without_layers(model: &ModelConfig) -> ! {
    unreachable!("{} exports layers, but this table has none of them", model.name())
}

/// Reason why the `eps` of GIN is zero.
const NO_EPS: &str = "gin of girih is GIN-0: train GINConv with its eps at zero, and do not learn it";
