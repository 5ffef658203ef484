//! [`Edges`]: the adjacency that a model reads, computed in the graph from `edge_index` and `edge_weight`.

use girih_graph_format::Norm;

use super::graph::Attribute::{Int, Text};
use super::graph::{Graph, Length, Type};

/// List of edges with a factor for each, as names of values.
#[derive(Debug)]
pub(super) struct Edges {
    /// Number of nodes, a list of one integer.
    n_nodes: String,
    /// Source of each edge.
    pub(super) sources: String,
    /// Destination of each edge.
    pub(super) destinations: String,
    /// Entry of `Â` for each edge; `None` for a model that reads no weights.
    factors: Option<String>,
}

impl Edges {
    /// Edges as the inputs have them, or with a self-loop for each node that has none. With `norm`, weights are read and
    /// normalised.
    pub(super) fn new(graph: &mut Graph, self_loops: bool, norm: Option<Norm>) -> Self {
        let n_nodes = graph.add("Shape", &["x"], &[Int("start", 0), Int("end", 1)]);
        let [first, second] = [0, 1].map(|end| {
            let end = graph.int(end);
            graph.add("Gather", &["edge_index", &end], &[Int("axis", 0)])
        });
        let weights = norm.map(|_| {
            graph.floats("edge_weight", &[1], &[1.0]);
            let weights = graph.input("edge_weight", Type::Float, &[Length::Named("weights")]);
            let n_edges = graph.add("Shape", &[&first], &[]);
            graph.add("Expand", &[&weights, &n_edges], &[])
        });
        let mut edges = Self { n_nodes, sources: first, destinations: second, factors: weights };
        if self_loops {
            edges.add_self_loops(graph);
        }
        edges.normalize(graph, norm.unwrap_or(Norm::None));
        edges
    }

    /// Moves self-loops to the end, one for each node. A missing one has weight one.
    fn add_self_loops(&mut self, graph: &mut Graph) {
        let is_loop = graph.add("Equal", &[&self.sources, &self.destinations], &[]);
        let is_edge = graph.add("Not", &[&is_loop], &[]);
        let (zero, one, axes) = (graph.int(0), graph.int(1), graph.ints(&[0]));
        let n_nodes = graph.add("Squeeze", &[&self.n_nodes, &axes], &[]);
        let ids = graph.add("Range", &[&zero, &n_nodes, &one], &[]);
        let rest_and = |graph: &mut Graph, list: &str, loops: &str| {
            let rest = graph.add("Compress", &[list, &is_edge], &[Int("axis", 0)]);
            graph.add("Concat", &[&rest, loops], &[Int("axis", 0)])
        };
        let (sources, destinations) = (rest_and(graph, &self.sources, &ids), rest_and(graph, &self.destinations, &ids));
        if let Some(weights) = &self.factors {
            let loops = graph.add("Cast", &[&is_loop], &[Int("to", Type::Float as i64)]);
            let weights_of_loops = graph.add("Mul", &[weights, &loops], &[]);
            let [counts, sums] = [loops, weights_of_loops].map(|list| self.sums(graph, &self.destinations, &list));
            let (none, one) = (graph.float(0.0), graph.float(1.0));
            let has_loop = graph.add("Greater", &[&counts, &none], &[]);
            let own = graph.add("Where", &[&has_loop, &sums, &one], &[]);
            self.factors = Some(rest_and(graph, weights, &own));
        }
        (self.sources, self.destinations) = (sources, destinations);
    }

    /// Multiplies weights by powers of degrees. A degree of zero or below gives zero.
    fn normalize(&mut self, graph: &mut Graph, norm: Norm) {
        let Some(weights) = self.factors.clone() else { return };
        let mut factors = weights.clone();
        for (end, power) in [&self.destinations, &self.sources].into_iter().zip(norm.powers()) {
            let Some(power) = power else { continue };
            let degrees = self.sums(graph, end, &weights);
            let (zero, power) = (graph.float(0.0), graph.float(power as f32));
            let is_positive = graph.add("Greater", &[&degrees, &zero], &[]);
            let powers = graph.add("Pow", &[&degrees, &power], &[]);
            let scales = graph.add("Where", &[&is_positive, &powers, &zero], &[]);
            let of_edges = graph.add("Gather", &[&scales, end], &[Int("axis", 0)]);
            factors = graph.add("Mul", &[&factors, &of_edges], &[]);
        }
        self.factors = Some(factors);
    }

    /// Sum over the edges of each node, which `ends` names, of a list of numbers.
    fn sums(&self, graph: &mut Graph, ends: &str, list: &str) -> String {
        let zeros = graph.add("ConstantOfShape", &[&self.n_nodes], &[]);
        graph.add("ScatterElements", &[&zeros, ends, list], &[Int("axis", 0), Text("reduction", "add")])
    }

    /// `Â·rows`, of as many columns.
    pub(super) fn aggregate(&self, graph: &mut Graph, rows: &str) -> String {
        let messages = graph.add("Gather", &[rows, &self.sources], &[Int("axis", 0)]);
        let axes = graph.ints(&[1]);
        let factors = self.factors.as_ref().expect("a model that aggregates reads weights");
        let factors = graph.add("Unsqueeze", &[factors, &axes], &[]);
        let messages = graph.add("Mul", &[&messages, &factors], &[]);
        let shape = graph.add("Shape", &[rows], &[]);
        let zeros = graph.add("ConstantOfShape", &[&shape], &[]);
        self.scatter(graph, &zeros, &messages, "add")
    }

    /// Softmax of scores, edges × heads, over the edges into each node.
    pub(super) fn softmax(&self, graph: &mut Graph, scores: &str, heads: usize) -> String {
        let heads = graph.ints(&[heads as i64]);
        let shape = graph.add("Concat", &[&self.n_nodes, &heads], &[Int("axis", 0)]);
        let least = graph.float(f32::MIN);
        let least = graph.add("Expand", &[&least, &shape], &[]);
        let largest = self.scatter(graph, &least, scores, "max");
        let largest = graph.add("Gather", &[&largest, &self.destinations], &[Int("axis", 0)]);
        let below = graph.add("Sub", &[scores, &largest], &[]);
        let powers = graph.add("Exp", &[&below], &[]);
        let sums = self.sum(graph, &powers, &shape);
        let sums = graph.add("Gather", &[&sums, &self.destinations], &[Int("axis", 0)]);
        graph.add("Div", &[&powers, &sums], &[])
    }

    /// Sum of messages, edges × columns, over the edges into each node. `shape` is that of the result.
    pub(super) fn sum(&self, graph: &mut Graph, messages: &str, shape: &str) -> String {
        let zeros = graph.add("ConstantOfShape", &[shape], &[]);
        self.scatter(graph, &zeros, messages, "add")
    }

    /// Rows of `start`, to which messages are reduced by their destinations.
    fn scatter(&self, graph: &mut Graph, start: &str, messages: &str, reduction: &'static str) -> String {
        let axes = graph.ints(&[1]);
        let column = graph.add("Unsqueeze", &[&self.destinations, &axes], &[]);
        let shape = graph.add("Shape", &[messages], &[]);
        let index = graph.add("Expand", &[&column, &shape], &[]);
        graph.add("ScatterElements", &[start, &index, messages], &[Int("axis", 0), Text("reduction", reduction)])
    }
}
