//! [`onnx_model`]: a trained model as an ONNX graph of dense operations, from features and edges to logits.
//!
//! - `wire`: protocol buffers.
//! - `graph`: nodes and tensors of ONNX.
//! - `edges`: self-loops, degrees and sums over edges.
//! - `layers`: the models.

mod edges;
mod graph;
mod layers;
mod wire;

use self::graph::{Graph, Length, Type};
use super::convert::NamedWeight;
use crate::config::TaskKind;
use crate::engine::Progress;

/// Most bytes of a message of protocol buffers.
const BYTES_MAX: usize = i32::MAX as usize;

/// Bytes of an `.onnx` file with these weights.
///
/// Inputs are `x` (nodes × features), `edge_index` (2 × edges: sources, destinations) and, where the model reads
/// weights, `edge_weight` (edges; without it all are one). The output is `logits` (nodes × classes); of a link
/// predictor, `embeddings` (nodes × width).
///
/// # Errors
/// When the weights are larger than protocol buffers can be.
pub(super) fn onnx_model(progress: &Progress, weights: &[NamedWeight]) -> Result<Vec<u8>, String> {
    let n_bytes: usize = weights.iter().map(|weight| weight.values.len() * size_of::<f32>()).sum();
    if n_bytes > BYTES_MAX / 2 {
        return Err(format!("{n_bytes} bytes of weights are too many for one ONNX file: use --format pyg"));
    }
    let model = &progress.config.model;
    let mut graph = Graph::default();
    let nodes = Length::Named("nodes");
    graph.input("x", Type::Float, &[nodes, Length::Fixed(progress.data.n_features)]);
    graph.input("edge_index", Type::Int64, &[Length::Fixed(2), Length::Named("edges")]);
    for weight in weights {
        graph.floats(&weight.name, &weight.shape, &weight.values);
    }
    layers::add_model(&mut graph, model, weights);
    let (output, width) = match progress.config.task {
        TaskKind::Links => ("embeddings", progress.config.links.width),
        _ => ("logits", progress.data.n_classes),
    };
    let notes = format!("{} trained by girih on {}", model.name(), progress.data.name);
    Ok(graph.into_model(model.name(), output, &[nodes, Length::Fixed(width)], &notes))
}
