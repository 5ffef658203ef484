//! Types of nodes and edges in `girih stats`.

use girih_datasets::{Dataset, Features, Labels, Split, TypeFeatures, TypedData, UNLABELLED};
use girih_graph_format::{Csr, Schema, TypedGraph};
use girih_partition::counted;
use serde_json::{Value, json};

use super::{Degrees, in_degrees, out_degrees};
use crate::output::Results;

/// Adds a line for each type of nodes, and for each type of edges that is no reverse of another; to the JSON all types.
pub(super) fn add(results: &mut Results, dataset: &Dataset) {
    let Some(data) = &dataset.typed else { return };
    let (typed, schema) = (&data.graph, data.graph.schema());
    let nodes: Vec<(Value, String)> =
        (0..schema.node_types().len()).map(|number| node_type(dataset, data, number)).collect();
    let edges: Vec<EdgeStats> =
        (0..schema.edge_types().len()).map(|number| EdgeStats::of(typed, schema, number)).collect();
    let node_lines: Vec<&str> = nodes.iter().map(|(_, line)| &line[..]).collect();
    let forward = edges.iter().filter(|edges| edges.reverse_of.is_none());
    let mut edge_lines: Vec<String> = forward.map(EdgeStats::line).collect();
    let n_reverse = edges.len() - edge_lines.len();
    if n_reverse > 0 {
        let noun = counted(n_reverse, "reverse relation");
        edge_lines.push(format!("and {noun} with as many edges (--json lists all)"));
    }
    let node_values: Vec<&Value> = nodes.iter().map(|(value, _)| value).collect();
    let edge_values: Vec<Value> = edges.iter().map(|edges| edges.value(schema)).collect();
    results.add("node_types", json!(node_values), "Node types", node_lines.join("\n")).add(
        "edge_types",
        edge_values,
        "Edge types",
        edge_lines.join("\n"),
    );
}

/// Description of a node type: its nodes, features and labels, and the parts of the first split.
fn node_type(dataset: &Dataset, data: &TypedData, number: usize) -> (Value, String) {
    let schema = data.graph.schema();
    let (of, is_target) = (&schema.node_types()[number], number == data.target);
    let ids = schema.first(number)..schema.first(number) + of.n_nodes;
    let labelled = match &dataset.labels {
        Some(Labels::Single { classes, .. }) => classes[ids].iter().filter(|&&class| class != UNLABELLED).count(),
        Some(Labels::Multi { .. }) if is_target => of.n_nodes,
        _ => 0,
    };
    let (kind, width) = features_of(dataset, data, number);
    let sizes = |split: &Split| split.parts().map(|(_, nodes)| nodes.len());
    let [train, val, test] = dataset.splits.first().filter(|_| is_target).map_or([0; 3], sizes);
    let value = json!({
        "name": of.name,
        "nodes": of.n_nodes,
        "labelled": labelled,
        "features": kind,
        "n_features": width,
        "train": train,
        "val": val,
        "test": test,
        "target": is_target,
    });
    let mut parts = vec![counted(of.n_nodes, "node")];
    parts.push(match (kind, width) {
        ("none", _) => "no features".to_owned(),
        (kind, Some(width)) => format!("{width} {kind} features"),
        (kind, None) => format!("{kind} features"),
    });
    if labelled > 0 {
        parts.push(format!("{labelled} labelled"));
    }
    if is_target && !dataset.splits.is_empty() {
        parts.push(format!("{train} train, {val} val, {test} test"));
    }
    let name = if is_target && data.has_several_types() { format!("{} (target)", of.name) } else { of.name.clone() };
    (value, format!("{name}: {}", parts.join(", ")))
}

/// Kind and width of the features of a node type.
fn features_of(dataset: &Dataset, data: &TypedData, number: usize) -> (&'static str, Option<usize>) {
    let given = |features: &Features| {
        let kind = match features {
            Features::Dense(_) => "dense",
            Features::Sparse(_) => "sparse",
            Features::Compressed(_) => "compressed",
        };
        (kind, Some(features.width()))
    };
    match (dataset.features_of_type(number), data.features.get(number)) {
        (Some(features), _) => given(features),
        (None, Some(TypeFeatures::Learned(width))) => ("learned", *width),
        (None, _) => ("none", Some(0)),
    }
}

/// Statistics of an edge type.
struct EdgeStats {
    number: usize,
    name: String,
    n_edges: usize,
    reverse_of: Option<usize>,
    /// Degrees in this relation of all nodes that may be sources, and of all that may be destinations.
    ends: [Degrees; 2],
    /// Number of sources with an edge, and of such destinations.
    n_with: [usize; 2],
}

impl EdgeStats {
    fn of(typed: &TypedGraph, schema: &Schema, number: usize) -> Self {
        let (edges, relation): (_, &Csr) = (&schema.edge_types()[number], &typed.relations()[number]);
        // With one type of nodes, the relation alone tells edge types apart.
        let is_only = schema.node_types().len() == 1;
        let name = if is_only { edges.relation.clone() } else { schema.edge_name(number) };
        let ends = [out_degrees(relation), in_degrees(relation)].map(Degrees::of);
        let n_with = [relation.n_cols() - ends[0].n_zero, relation.n_rows() - ends[1].n_zero];
        Self { number, name, n_edges: relation.nnz(), reverse_of: edges.reverse_of, ends, n_with }
    }

    fn value(&self, schema: &Schema) -> Value {
        let edges = &schema.edge_types()[self.number];
        let [source, destination] = [edges.source, edges.destination].map(|end| &schema.node_types()[end].name);
        let [out_degree, degree] = self.ends.each_ref().map(Degrees::to_json);
        json!({
            "source": source,
            "relation": edges.relation,
            "destination": destination,
            "reverse_of": self.reverse_of,
            "edges": self.n_edges,
            "out_degree": out_degree,
            "degree": degree,
        })
    }

    fn line(&self) -> String {
        let [from, to] = [("source", 0), ("destination", 1)].map(|(what, end)| self.end(what, end));
        format!("{}: {} from {from} to {to}", self.name, counted(self.n_edges, "edge"))
    }

    /// Nodes at one end that have an edge, with their degrees.
    fn end(&self, what: &str, end: usize) -> String {
        let (n_with, max) = (self.n_with[end], self.ends[end].max);
        let mean = self.n_edges as f64 / n_with.max(1) as f64;
        format!("{} (mean {mean:.1}, max {max})", counted(n_with, what))
    }
}
