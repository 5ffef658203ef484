//! Forward passes of the models, in the names and layouts of PyG's tensors.

use girih_graph_format::Norm;

use super::edges::Edges;
use super::graph::Attribute::{Float, Int};
use super::graph::Graph;
use crate::config::{ModelConfig, ModelKind};
use crate::weights::convert::NamedWeight;

/// Graph to which the operations of a model are added.
struct Builder<'a> {
    graph: &'a mut Graph,
    model: &'a ModelConfig,
    weights: &'a [NamedWeight],
}

/// Adds all operations of the model. The last one's result is the logits.
pub(super) fn add_model(graph: &mut Graph, model: &ModelConfig, weights: &[NamedWeight]) {
    let mut builder = Builder { graph, model, weights };
    match model.kind {
        ModelKind::Gcn => builder.gcn(),
        ModelKind::Sgc => builder.sgc(),
        ModelKind::Sage => builder.sage(),
        ModelKind::Gat => builder.attention(false),
        ModelKind::Gatv2 => builder.attention(true),
        ModelKind::Gin => builder.gin(),
        ModelKind::Appnp => builder.appnp(),
        ModelKind::Mlp => drop(builder.perceptron()),
        _ => unreachable!("the table of ONNX refuses {}", model.name()),
    }
}

impl Builder<'_> {
    fn edges(&mut self, self_loops: bool, norm: Option<Norm>) -> Edges {
        Edges::new(self.graph, self_loops, norm)
    }

    /// `activation` of `rows`, but not after the last layer.
    fn activated(&mut self, layer: usize, rows: String, activation: &'static str) -> String {
        if layer + 1 == self.model.layers { rows } else { self.graph.add(activation, &[&rows], &[]) }
    }

    /// `rows · weightᵀ + bias`.
    fn linear(&mut self, rows: &str, weight: &str, bias: Option<&str>) -> String {
        let inputs: Vec<&str> = [rows, weight].into_iter().chain(bias).collect();
        self.graph.add("Gemm", &inputs, &[Int("transB", 1)])
    }

    /// `Âᵏ · rows · weightᵀ + bias`. The sums over edges are of the narrower rows.
    fn propagated(&mut self, edges: &Edges, hops: usize, rows: &str, (weight, bias): (&str, &str)) -> String {
        let tensor = self.weights.iter().find(|tensor| tensor.name == weight).expect("a tensor of the table");
        let is_narrower = tensor.shape[0] < tensor.shape[1];
        let mut rows = if is_narrower { self.linear(rows, weight, None) } else { rows.to_owned() };
        for _ in 0..hops {
            rows = edges.aggregate(self.graph, &rows);
        }
        if is_narrower { self.graph.add("Add", &[&rows, bias], &[]) } else { self.linear(&rows, weight, Some(bias)) }
    }

    fn gcn(&mut self) {
        let edges = self.edges(true, Some(Norm::Symmetric));
        let mut rows = "x".to_owned();
        for layer in 0..self.model.layers {
            let weights = (&*format!("convs.{layer}.lin.weight"), &*format!("convs.{layer}.bias"));
            rows = self.propagated(&edges, 1, &rows, weights);
            rows = self.activated(layer, rows, "Relu");
        }
    }

    fn sgc(&mut self) {
        let edges = self.edges(true, Some(Norm::Symmetric));
        self.propagated(&edges, self.model.layers, "x", ("convs.0.lin.weight", "convs.0.lin.bias"));
    }

    fn sage(&mut self) {
        let edges = self.edges(false, Some(Norm::Row));
        let mut rows = "x".to_owned();
        for layer in 0..self.model.layers {
            let conv = format!("convs.{layer}");
            let own = self.linear(&rows, &format!("{conv}.lin_r.weight"), None);
            let weights = (&*format!("{conv}.lin_l.weight"), &*format!("{conv}.lin_l.bias"));
            let mean = self.propagated(&edges, 1, &rows, weights);
            rows = self.graph.add("Add", &[&mean, &own], &[]);
            rows = self.activated(layer, rows, "Relu");
        }
    }

    fn gin(&mut self) {
        let edges = self.edges(true, Some(Norm::None));
        let mut rows = "x".to_owned();
        for layer in 0..self.model.layers {
            let conv = format!("convs.{layer}.nn");
            rows = self.propagated(&edges, 1, &rows, (&format!("{conv}.0.weight"), &format!("{conv}.0.bias")));
            rows = self.graph.add("Relu", &[&rows], &[]);
            rows = self.linear(&rows, &format!("{conv}.2.weight"), Some(&format!("{conv}.2.bias")));
            rows = self.activated(layer, rows, "Relu");
        }
    }

    /// Linear layers with ReLU between them. Returns the logits.
    fn perceptron(&mut self) -> String {
        let mut rows = "x".to_owned();
        for layer in 0..self.model.layers {
            let (weight, bias) = (format!("lins.{layer}.weight"), format!("lins.{layer}.bias"));
            rows = self.linear(&rows, &weight, Some(&bias));
            rows = self.activated(layer, rows, "Relu");
        }
        rows
    }

    fn appnp(&mut self) {
        let logits = self.perceptron();
        let edges = self.edges(true, Some(Norm::Symmetric));
        let teleport = self.model.teleport as f32;
        let (teleport, rest) = (self.graph.float(teleport), self.graph.float(1.0 - teleport));
        let own = self.graph.add("Mul", &[&logits, &teleport], &[]);
        let mut rows = logits;
        for _ in 0..self.model.hops {
            let neighbors = edges.aggregate(self.graph, &rows);
            let neighbors = self.graph.add("Mul", &[&neighbors, &rest], &[]);
            rows = self.graph.add("Add", &[&neighbors, &own], &[]);
        }
    }

    /// GAT; if `dynamic`, GATv2.
    fn attention(&mut self, dynamic: bool) {
        let edges = self.edges(true, None);
        let mut rows = "x".to_owned();
        for layer in 0..self.model.layers {
            let is_last = layer + 1 == self.model.layers;
            let heads = if is_last { self.model.out_heads } else { self.model.heads };
            let conv = format!("convs.{layer}");
            let (values, scores) = if dynamic {
                self.dynamic_scores(&edges, &conv, &rows, heads)
            } else {
                self.additive_scores(&edges, &conv, &rows, heads)
            };
            let shares = edges.softmax(self.graph, &scores, heads);
            rows = self.attended(&edges, (&values, &shares), heads, is_last);
            rows = self.graph.add("Add", &[&rows, &format!("{conv}.bias")], &[]);
            rows = self.activated(layer, rows, "Elu");
        }
    }

    /// Values, nodes × heads × columns, and scores, edges × heads, of GAT.
    fn additive_scores(&mut self, edges: &Edges, conv: &str, rows: &str, heads: usize) -> (String, String) {
        let values = self.linear(rows, &format!("{conv}.lin.weight"), None);
        let values = self.by_heads(&values, heads);
        let ends = [("att_src", &edges.sources), ("att_dst", &edges.destinations)];
        let [source, destination] = ends.map(|(vector, end)| {
            let of_nodes = self.head_dots(&values, &format!("{conv}.{vector}"));
            self.graph.add("Gather", &[&of_nodes, end], &[Int("axis", 0)])
        });
        let sums = self.graph.add("Add", &[&source, &destination], &[]);
        let scores = self.graph.add("LeakyRelu", &[&sums], &[Float("alpha", self.model.slope as f32)]);
        (values, scores)
    }

    /// Values, nodes × heads × columns, and scores, edges × heads, of GATv2.
    fn dynamic_scores(&mut self, edges: &Edges, conv: &str, rows: &str, heads: usize) -> (String, String) {
        let ends = [("lin_l", &edges.sources), ("lin_r", &edges.destinations)];
        let [(values, source), (_, destination)] = ends.map(|(lin, end)| {
            let of_nodes = self.linear(rows, &format!("{conv}.{lin}.weight"), None);
            let of_nodes = self.by_heads(&of_nodes, heads);
            let of_edges = self.graph.add("Gather", &[&of_nodes, end], &[Int("axis", 0)]);
            (of_nodes, of_edges)
        });
        let sums = self.graph.add("Add", &[&source, &destination], &[]);
        let leaky = self.graph.add("LeakyRelu", &[&sums], &[Float("alpha", self.model.slope as f32)]);
        let scores = self.head_dots(&leaky, &format!("{conv}.att"));
        (values, scores)
    }

    /// Rows divided into heads.
    fn by_heads(&mut self, rows: &str, heads: usize) -> String {
        let shape = self.graph.ints(&[0, heads as i64, -1]);
        self.graph.add("Reshape", &[rows, &shape], &[])
    }

    /// Scalar product of each head with its vector.
    fn head_dots(&mut self, rows: &str, vector: &str) -> String {
        let products = self.graph.add("Mul", &[rows, vector], &[]);
        let axes = self.graph.ints(&[-1]);
        self.graph.add("ReduceSum", &[&products, &axes], &[Int("keepdims", 0)])
    }

    /// Sums of values by their shares, with heads side by side or averaged.
    fn attended(&mut self, edges: &Edges, (values, shares): (&str, &str), heads: usize, is_last: bool) -> String {
        let messages = self.graph.add("Gather", &[values, &edges.sources], &[Int("axis", 0)]);
        let axes = self.graph.ints(&[2]);
        let shares = self.graph.add("Unsqueeze", &[shares, &axes], &[]);
        let messages = self.graph.add("Mul", &[&messages, &shares], &[]);
        let flat = self.graph.ints(&[0, -1]);
        let [messages, like] = [&*messages, values].map(|rows| self.graph.add("Reshape", &[rows, &flat], &[]));
        let shape = self.graph.add("Shape", &[&like], &[]);
        let sums = edges.sum(self.graph, &messages, &shape);
        if !is_last {
            return sums;
        }
        let sums = self.by_heads(&sums, heads);
        let axes = self.graph.ints(&[1]);
        self.graph.add("ReduceMean", &[&sums, &axes], &[Int("keepdims", 0)])
    }
}
