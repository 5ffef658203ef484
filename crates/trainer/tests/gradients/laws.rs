//! Laws of networks of relations, in `f64` and on the CPU: types that share their weights change nothing, and neither do the
//! orders of types, relations and nodes.

use std::collections::BTreeMap;

use girih_compute::{Backend, Cpu};
use girih_datasets::{TypeFeatures, TypedData};
use girih_graph_format::{EdgeType, NodeId, NodeType, Schema, TypedGraph};
use girih_random::Key;
use girih_trainer::{LayerTypes, SelfWeight};
use proptest::prelude::*;

use super::*;

/// Backend that laws are checked on.
trait Checked: Backend {
    /// Largest difference, as a share of the numbers, that the order of sums makes.
    const ROUNDING: f64;

    fn here() -> Self;

    fn elements(&self, matrix: &Self::Matrix) -> Vec<f64>;

    fn made(&self, shape: Shape, values: &[f64]) -> Self::Matrix;
}

impl Checked for Reference {
    const ROUNDING: f64 = 1e-10;

    fn here() -> Self {
        Self
    }

    fn elements(&self, matrix: &Self::Matrix) -> Vec<f64> {
        matrix.data().to_vec()
    }

    fn made(&self, shape: Shape, values: &[f64]) -> Self::Matrix {
        let mut matrix = self.zeros(shape, Dtype::F32).unwrap();
        matrix.data_mut().copy_from_slice(values);
        matrix
    }
}

impl Checked for Cpu {
    const ROUNDING: f64 = 2e-4;

    fn here() -> Self {
        Self::new()
    }

    fn elements(&self, matrix: &Self::Matrix) -> Vec<f64> {
        self.download(matrix).unwrap().data().iter().map(|&value| f64::from(value)).collect()
    }

    fn made(&self, shape: Shape, values: &[f64]) -> Self::Matrix {
        let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
        self.upload(&Matrix::new(shape.rows, shape.cols, values).unwrap(), Dtype::F32).unwrap()
    }
}

/// Networks with an [`Entry`](girih_trainer) for any number of node types.
const KINDS: [ModelKind; 3] = [ModelKind::Hsage, ModelKind::Rgat, ModelKind::Hgt];

/// Typed data with a class for each node, by global ids.
struct Typed {
    data: TypedData,
    classes: Vec<u32>,
}

/// Result of a network: logits, loss, and the gradient of each parameter by its name.
struct Outcome {
    logits: Vec<Vec<f64>>,
    loss: f64,
    grads: BTreeMap<String, Vec<Vec<f64>>>,
}

fn rows_of(values: &[f64], cols: usize) -> Vec<Vec<f64>> {
    values.chunks(cols.max(1)).map(<[f64]>::to_vec).collect()
}

/// Passes of a network on a backend, whose parameters `set` chooses by name and shape, or keeps.
fn outcome<B: Checked>(
    config: &ModelConfig,
    Typed { data, classes }: &Typed,
    set: &dyn Fn(&str, Shape) -> Option<Vec<f64>>,
) -> (BTreeMap<String, Vec<Vec<f64>>>, Outcome) {
    let (backend, relations) = (&B::here(), data.graph.sizes().clone());
    let type_widths = data.features.iter().map(TypeFeatures::width).collect();
    let dims = Dims { n_nodes: classes.len(), n_features: 0, relations, type_widths, target: None, ..dims() };
    let mut init = ParamInit::new(backend, 7, 0);
    let model: Box<dyn Model<B>> = config.build(dims, &mut init).unwrap();
    let mut params = init.finish();
    let shapes: Vec<(ParamId, String, Shape)> =
        params.iter().map(|(id, param)| (id, param.name.clone(), backend.shape(&param.value))).collect();
    let mut values = BTreeMap::new();
    for (id, name, shape) in &shapes {
        let kept = || -> Vec<f64> {
            // Zeros are where a ReLU bends.
            let off_zero = |(at, value): (usize, f64)| value + 0.03 * ((at as f64) * 1.7 + 0.4).sin();
            backend.elements(params.value(*id)).into_iter().enumerate().map(off_zero).collect()
        };
        let value = set(name, *shape).unwrap_or_else(kept);
        *params.value_mut(*id) = backend.made(*shape, &value);
        values.insert(name.clone(), rows_of(&value, shape.cols));
    }
    let spec = model.input_spec();
    let inputs = Inputs::of_graph(backend, data.graph.union().unwrap(), &spec).unwrap();
    let inputs = inputs.with_relations(backend, data, &spec, Dtype::F32).unwrap();
    let (targets, mut pool) = (Targets::Single(backend.upload_ids(classes).unwrap()), Pool::default());
    let all: Vec<u32> = (0..classes.len() as u32).collect();
    let all = backend.upload_ids(&all).unwrap();
    let mut gradients = Gradients::new(backend, &params).unwrap();
    let mut tape = Tape::new(backend, &params, &mut pool, Mode::Train(Key::new(5, 1)));
    let logits = model.forward(&mut tape, &inputs).unwrap();
    let of_nodes = rows_of(&backend.elements(tape.value(logits)), CLASSES);
    let loss = tape.loss(logits, &targets, &all).unwrap();
    let value = backend.elements(loss.matrix())[0];
    let loss = tape.backward(loss, &mut gradients).unwrap();
    drop(loss);
    let grad = |(id, name, shape): &(ParamId, String, Shape)| {
        let values = gradients.get(*id).map_or_else(|| vec![0.0; shape.len()], |grad| backend.elements(grad));
        (name.clone(), rows_of(&values, shape.cols))
    };
    let grads = shapes.iter().map(grad).collect();
    (values, Outcome { logits: of_nodes, loss: value, grads })
}

fn assert_close<B: Checked>(found: &[f64], expected: &[f64], what: &str) -> Result<(), TestCaseError> {
    prop_assert_eq!(found.len(), expected.len(), "{}", what);
    for (a, b) in found.iter().zip(expected) {
        prop_assert!((a - b).abs() <= B::ROUNDING * (1.0 + a.abs().max(b.abs())), "{}: {} and {}", what, a, b);
    }
    Ok(())
}

fn node_type(name: String, n_nodes: usize) -> NodeType {
    NodeType { name, n_nodes }
}

fn adjacency((n_rows, n_cols): (usize, usize), pairs: impl Iterator<Item = (NodeId, NodeId)>) -> Csr {
    let (rows, cols) = pairs.unzip();
    Coo::new(n_rows, n_cols, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap()
}

/// A graph of one type, and a color for each node. Neighbors of a node have one color where relations are averaged or
/// attended one by one, as there is no other case in which they equal the sum over all neighbors.
#[derive(Debug)]
struct Colored {
    n_colors: usize,
    colors: Vec<usize>,
    /// Destination and source of each edge.
    edges: Vec<(usize, usize)>,
}

fn colored() -> impl Strategy<Value = (Colored, bool)> {
    (1..4usize, 2..12usize, any::<bool>(), any::<u64>()).prop_map(|(n_colors, n, is_mixed, seed)| {
        let mut stream = Key::new(seed, 5).stream(0, 0);
        let mut below = |n: usize| stream.below(n as u64) as usize;
        let colors: Vec<usize> = (0..n).map(|_| below(n_colors)).collect();
        let wanted: Vec<usize> = (0..n).map(|_| below(n_colors)).collect();
        let drawn: Vec<(usize, usize)> = (0..3 * n).map(|_| (below(n), below(n))).collect();
        let edges = drawn.into_iter().filter(|&(v, u)| is_mixed || colors[u] == wanted[v]).collect();
        (Colored { n_colors, colors, edges }, is_mixed)
    })
}

impl Colored {
    /// Nodes by their colors, one color after the other.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.colors.len()).collect();
        order.sort_by_key(|&v| self.colors[v]);
        order
    }

    fn class(v: usize) -> u32 {
        (v % CLASSES) as u32
    }

    fn features(&self) -> Matrix {
        random(self.colors.len(), FEATURES, 3)
    }

    /// The graph with one type of nodes and edges.
    fn plain(&self) -> Typed {
        let n = self.colors.len();
        let graph = adjacency((n, n), self.edges.iter().map(|&(v, u)| (v as NodeId, u as NodeId)));
        let features = vec![TypeFeatures::Given(Features::Dense(self.features()))];
        let data = TypedData { graph: TypedGraph::of_plain(graph).unwrap(), features, target: 0 };
        Typed { data, classes: (0..n).map(Self::class).collect() }
    }

    /// The graph with a node type for each color, and a relation for each pair of colors.
    fn typed(&self) -> Typed {
        let order = self.order();
        let of_color = |color: usize| order.iter().copied().filter(move |&v| self.colors[v] == color);
        let local = |v: usize| of_color(self.colors[v]).position(|u| u == v).unwrap() as NodeId;
        let sizes: Vec<usize> = (0..self.n_colors).map(|color| of_color(color).count()).collect();
        let ends: Vec<(usize, usize)> =
            (0..self.n_colors).flat_map(|source| (0..self.n_colors).map(move |to| (source, to))).collect();
        let edge_type = |&(source, destination): &(usize, usize)| EdgeType {
            relation: "sees".to_owned(),
            source,
            destination,
            reverse_of: None,
        };
        let relation = |&(source, to): &(usize, usize)| {
            let here = self.edges.iter().filter(|&&(v, u)| (self.colors[u], self.colors[v]) == (source, to));
            adjacency((sizes[to], sizes[source]), here.map(|&(v, u)| (local(v), local(u))))
        };
        let nodes = sizes.iter().enumerate().map(|(color, &n)| node_type(format!("t{color}"), n));
        let schema = Schema::new(nodes.collect(), ends.iter().map(edge_type).collect()).unwrap();
        let graph = TypedGraph::new(schema, ends.iter().map(relation).collect()).unwrap();
        let all = self.features();
        let rows = |color: usize| {
            let values: Vec<f32> = of_color(color).flat_map(|v| all.row(v).to_vec()).collect();
            TypeFeatures::Given(Features::Dense(Matrix::new(sizes[color], FEATURES, values).unwrap()))
        };
        let features = (0..self.n_colors).map(rows).collect();
        Typed { data: TypedData { graph, features, target: 0 }, classes: order.into_iter().map(Self::class).collect() }
    }

    /// Compares the network of colors with that of the graph without types.
    fn check<B: Checked>(&self, (is_mixed, heads, shared): (bool, usize, bool)) -> Result<(), TestCaseError> {
        for kind in KINDS {
            if is_mixed && kind != ModelKind::Hgt {
                continue;
            }
            let self_weight = if shared { SelfWeight::Shared } else { SelfWeight::Type };
            let base = ModelConfig { kind, layers: 2, hidden: 3, heads, self_weight, ..ModelConfig::default() };
            let config = ModelConfig { dropout: 0.0, ..base };
            let (values, expected) = outcome::<B>(&config, &self.plain(), &|_, _| None);
            let repeated = |name: &str, shape: Shape| {
                let of_one = &values[&of_one_type(name)];
                Some((0..shape.rows).flat_map(|row| of_one[row % of_one.len()].clone()).collect())
            };
            let (_, found) = outcome::<B>(&config, &self.typed(), &repeated);
            assert_close::<B>(&[found.loss], &[expected.loss], "loss")?;
            for (row, v) in self.order().into_iter().enumerate() {
                assert_close::<B>(&found.logits[row], &expected.logits[v], &format!("{kind:?}: node {v}"))?;
            }
            let mut sums: BTreeMap<String, Vec<Vec<f64>>> = expected
                .grads
                .iter()
                .map(|(name, rows)| (name.clone(), vec![vec![0.0; rows[0].len()]; rows.len()]))
                .collect();
            for (name, rows) in &found.grads {
                let sums = sums.get_mut(&of_one_type(name)).expect("a parameter of one type");
                let n = sums.len();
                for (row, grad) in rows.iter().enumerate() {
                    sums[row % n].iter_mut().zip(grad).for_each(|(sum, grad)| *sum += grad);
                }
            }
            for (name, rows) in &expected.grads {
                assert_close::<B>(&sums[name].concat(), &rows.concat(), &format!("{kind:?}: gradient of {name}"))?;
            }
        }
        Ok(())
    }
}

/// Name of the parameter of a network of one type that a parameter of several types stands for.
fn of_one_type(name: &str) -> String {
    match name.split_once("_entry_") {
        Some((before, _)) => format!("{before}_entry_0"),
        None => name.to_owned(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Law of colors: node types and relations with equal weights make the network of the graph without types. A gradient is
    /// then the sum over types.
    #[test]
    fn types_with_equal_weights_are_no_types((graph, is_mixed) in colored(), heads in 1..3usize, shared in any::<bool>()) {
        graph.check::<Reference>((is_mixed, heads, shared))?;
        graph.check::<Cpu>((is_mixed, heads, shared))?;
    }

    /// Law of relabelling: other orders of node types, of relations, and of nodes inside their types give the same numbers.
    #[test]
    fn orders_of_types_relations_and_nodes_do_not_matter(seed in any::<u64>(), heads in 1..3usize, learned in any::<bool>()) {
        for kind in [ModelKind::Rgcn, ModelKind::Hsage, ModelKind::Rgat, ModelKind::Hgt] {
            for self_weight in [SelfWeight::Type, SelfWeight::Relation] {
                let base = ModelConfig { kind, layers: 2, hidden: 3, heads, self_weight, ..ModelConfig::default() };
                let config = ModelConfig { dropout: 0.0, ..base };
                let data = Relabelled::new(seed, learned);
                data.check::<Reference>(&config)?;
                data.check::<Cpu>(&config)?;
            }
        }
    }
}

/// Typed data, and the same in other orders.
struct Relabelled {
    before: Typed,
    after: Typed,
    /// Old number of each new node type, of each new relation, and of each new node inside each new type.
    types: Vec<usize>,
    relations: Vec<usize>,
    nodes: Vec<Vec<usize>>,
}

impl Relabelled {
    fn new(seed: u64, learned: bool) -> Self {
        let mut stream = Key::new(seed, 6).stream(0, 0);
        let mut shuffled = |n: usize| {
            let mut order: Vec<usize> = (0..n).collect();
            (1..n).for_each(|at| order.swap(at, stream.below(at as u64 + 1) as usize));
            order
        };
        let sizes = [4, 3, 2];
        let ends = [(0, 0), (1, 0), (0, 1), (2, 1), (1, 2), (0, 0)];
        let (types, relations) = (shuffled(sizes.len()), shuffled(ends.len()));
        let nodes: Vec<Vec<usize>> = types.iter().map(|&of| shuffled(sizes[of])).collect();
        let edge = |number: usize, v: usize, u: usize| !(v + 2 * u + number).is_multiple_of(3);
        let rows = |of: usize| random(sizes[of], 2 + of, 8 + of as u64);
        let made = |types: &[usize], relations: &[usize], nodes: &[Vec<usize>]| {
            let new_type = |old: usize| types.iter().position(|&of| of == old).unwrap();
            let node_types = types.iter().map(|&of| node_type(format!("t{of}"), sizes[of])).collect();
            let edge_type = |&of: &usize| EdgeType {
                relation: format!("r{of}"),
                source: new_type(ends[of].0),
                destination: new_type(ends[of].1),
                reverse_of: None,
            };
            let adjacency_of = |&of: &usize| {
                let (sources, destinations) = (&nodes[new_type(ends[of].0)], &nodes[new_type(ends[of].1)]);
                let pairs = (0..destinations.len()).flat_map(|v| (0..sources.len()).map(move |u| (v, u)));
                let there = pairs.filter(|&(v, u)| edge(of, destinations[v], sources[u]));
                adjacency((destinations.len(), sources.len()), there.map(|(v, u)| (v as NodeId, u as NodeId)))
            };
            let schema = Schema::new(node_types, relations.iter().map(edge_type).collect()).unwrap();
            let graph = TypedGraph::new(schema, relations.iter().map(adjacency_of).collect()).unwrap();
            let features = types.iter().zip(nodes).map(|(&of, nodes)| {
                if of == 2 && learned {
                    return TypeFeatures::Learned(Some(3));
                }
                let values: Vec<f32> = nodes.iter().flat_map(|&v| rows(of).row(v).to_vec()).collect();
                TypeFeatures::Given(Features::Dense(Matrix::new(nodes.len(), 2 + of, values).unwrap()))
            });
            let features = features.collect();
            let class = |of: usize, v: usize| ((of + v) % CLASSES) as u32;
            let classes = types.iter().zip(nodes).flat_map(|(&of, nodes)| nodes.iter().map(move |&v| class(of, v)));
            Typed { classes: classes.collect(), data: TypedData { graph, features, target: 0 } }
        };
        let identity: [Vec<usize>; 2] = [(0..sizes.len()).collect(), (0..ends.len()).collect()];
        let in_order: Vec<Vec<usize>> = sizes.iter().map(|&n| (0..n).collect()).collect();
        let before = made(&identity[0], &identity[1], &in_order);
        let after = made(&types, &relations, &nodes);
        Self { before, after, types, relations, nodes }
    }

    /// Old row of each new row of a parameter, with the old name.
    fn rows(&self, config: &ModelConfig, name: &str, n_rows: usize) -> (String, Vec<usize>) {
        let (layer, kind) = name.split_once('.').expect("parameters have a layer");
        let kept = || (name.to_owned(), (0..n_rows).collect());
        if let Some((before, of)) = name.split_once("_entry_") {
            let of: usize = of.parse().unwrap();
            return (format!("{before}_entry_{}", self.types[of]), (0..n_rows).collect());
        }
        if let Some((before, of)) = name.split_once("rows_") {
            let of: usize = of.parse().unwrap();
            return (format!("{before}rows_{}", self.types[of]), self.nodes[of].clone());
        }
        let number: usize = layer.trim_start_matches("layer").parse().unwrap();
        let layers = |typed: &Typed| LayerTypes::of(typed.data.graph.sizes(), None, config.layers);
        let first = usize::from(config.kind != ModelKind::Rgcn || number > 0);
        let Some(at) = number.checked_sub(first).filter(|&at| at < config.layers) else { return kept() };
        let (new, old) = (&layers(&self.after)[at], &layers(&self.before)[at]);
        let place = |list: &[usize], of: usize| list.iter().position(|&other| other == of).unwrap();
        let by = |new: &[usize], old: &[usize], numbers: &[usize]| {
            new.iter().map(|&of| place(old, numbers[of])).collect::<Vec<usize>>()
        };
        let relations = by(&new.relations, &old.relations, &self.relations);
        let destinations = by(&new.destinations, &old.destinations, &self.types);
        let sources = by(&new.sources, &old.sources, &self.types);
        let kind = kind.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_');
        let rows = match kind {
            "bias" => return kept(),
            "self" if config.self_weight == SelfWeight::Type => destinations,
            "query" | "out" | "gate" => destinations,
            "key" | "value" => sources,
            _ => relations,
        };
        (name.to_owned(), rows)
    }

    fn check<B: Checked>(&self, config: &ModelConfig) -> Result<(), TestCaseError> {
        let (values, expected) = outcome::<B>(config, &self.before, &|_, _| None);
        let moved = |name: &str, shape: Shape| {
            let (old, rows) = self.rows(config, name, shape.rows);
            Some(rows.into_iter().flat_map(|row| values[&old][row].clone()).collect())
        };
        let (_, found) = outcome::<B>(config, &self.after, &moved);
        assert_close::<B>(&[found.loss], &[expected.loss], "loss")?;
        let first = |of: usize| self.before.data.graph.schema().first(of);
        let olds =
            self.types.iter().zip(&self.nodes).flat_map(|(&of, nodes)| nodes.iter().map(move |&v| first(of) + v));
        for (row, old) in found.logits.iter().zip(olds) {
            assert_close::<B>(row, &expected.logits[old], &format!("{:?}: node {old}", config.kind))?;
        }
        for (name, grads) in &found.grads {
            let (old, rows) = self.rows(config, name, grads.len());
            for (grad, row) in grads.iter().zip(rows) {
                assert_close::<B>(grad, &expected.grads[&old][row], &format!("{:?}: gradient of {name}", config.kind))?;
            }
        }
        Ok(())
    }
}
