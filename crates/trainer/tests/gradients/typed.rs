//! Gradient checks of networks of relations.

use girih_datasets::{TypeFeatures, TypeWidth, TypedData};
use girih_graph_format::{EdgeType, NodeType, Schema, TypedGraph};
use girih_trainer::SelfWeight;

use super::networks::move_off_zero;
use super::*;

const SELF_WEIGHTS: [SelfWeight; 4] = [SelfWeight::Shared, SelfWeight::Type, SelfWeight::Relation, SelfWeight::None];

/// R-GCN with and without bases, features, and weights of the node itself, on one type of nodes.
#[test]
fn relations() {
    for bases in [0, 2] {
        for self_weight in SELF_WEIGHTS {
            for (has_features, layers) in [(true, 2), (false, 2), (false, 1)] {
                let base = ModelConfig { kind: ModelKind::Rgcn, layers, hidden: 3, ..ModelConfig::default() };
                check_relations(&ModelConfig { bases, self_weight, dropout: 0.3, ..base }, has_features);
            }
        }
    }
}

/// Weights of blocks, beside layers whose widths they do not divide.
#[test]
fn blocks() {
    for (kind, blocks) in [(ModelKind::Rgcn, 2), (ModelKind::Rgcn, 4), (ModelKind::Hsage, 2)] {
        let base = ModelConfig { kind, layers: 3, hidden: 4, blocks, ..ModelConfig::default() };
        check_types(&ModelConfig { dropout: 0.3, ..base.clone() }, None);
        check_relations(&base, true);
        check_relations(&base, false);
    }
}

/// Products with whole matrices of blocks are those with the blocks, and so are gradients.
#[test]
fn block_diagonals() {
    let (n, inputs, outputs) = (2, 4, 6);
    let mut init = ParamInit::new(&Reference, 7, 0);
    let x = init.glorot(0, "x", Shape::new(NODES, inputs), 3).unwrap();
    let weights = init.glorot(0, "weights", Shape::new(3, inputs * outputs / n), 3).unwrap();
    let last = init.glorot(0, "last", Shape::new(outputs, CLASSES), 3).unwrap();
    let runs = vec![0, 2, 2, NODES];
    check(init.finish(), &single_targets(), &|tape| {
        let (x, blocks) = (tape.param(x), tape.param(weights));
        let whole = tape.block_diagonal(blocks, n, outputs).unwrap();
        let rows = tape.linear_runs(runs.clone(), x, whole, outputs).unwrap();
        let part = |tape: &mut Tape<'_, Reference>, at: usize| {
            let of_x = tape.columns(x, at * inputs / n, inputs / n).unwrap();
            let len = inputs * outputs / n / n;
            let of_block = tape.columns(blocks, at * len, len).unwrap();
            tape.linear_runs(runs.clone(), of_x, of_block, outputs / n).unwrap()
        };
        let parts: Vec<Var> = (0..n).map(|at| part(tape, at)).collect();
        let by_parts = tape.concat(&parts).unwrap();
        let places = tape.value(rows).data().iter().zip(tape.value(by_parts).data());
        assert!(places.into_iter().all(|(a, b)| (a - b).abs() < 1e-12));
        let sum = tape.add(rows, by_parts).unwrap();
        let last = tape.param(last);
        tape.linear(sum, last, LinearOptions::default()).unwrap()
    });
}

/// Networks of several types of nodes, with features of several kinds, for one type or all.
#[test]
fn node_types() {
    for kind in [ModelKind::Rgcn, ModelKind::Hsage, ModelKind::Rgat, ModelKind::Hgt] {
        let own: &[SelfWeight] = if kind == ModelKind::Hgt { &SELF_WEIGHTS[..1] } else { &SELF_WEIGHTS };
        for &self_weight in own {
            for target in [None, Some(0), Some(2)] {
                let base = ModelConfig { kind, layers: 2, hidden: 2, heads: 2, ..ModelConfig::default() };
                let rates = ModelConfig { dropout: 0.3, input_dropout: Some(0.2), ..base };
                check_types(&ModelConfig { self_weight, ..rates }, target);
            }
        }
    }
}

fn edges(relation: String, source: usize, destination: usize) -> EdgeType {
    EdgeType { relation, source, destination, reverse_of: None }
}

/// Graph whose edges have three relations.
pub(super) fn typed() -> TypedGraph {
    let node = NodeType { name: "node".to_owned(), n_nodes: NODES };
    let schema = Schema::new(vec![node], (0..3).map(|number| edges(format!("r{number}"), 0, 0)).collect()).unwrap();
    let graph = graph().with_values(None).unwrap();
    let relation = |number: usize| graph.filtered(|v, u| (v + 2 * u as usize) % 3 == number);
    TypedGraph::new(schema, (0..3).map(relation).collect()).unwrap()
}

/// Checks a model of relations on the whole graph, with features or learned rows.
fn check_relations(config: &ModelConfig, has_features: bool) {
    let mut init = ParamInit::new(&Reference, 7, 0);
    let n_features = if has_features { FEATURES } else { 0 };
    let dims = Dims { n_features, relations: typed().sizes().clone(), ..dims() };
    let model: Box<dyn Model<Reference>> = config.build(dims, &mut init).unwrap();
    let mut params = init.finish();
    move_off_zero(&mut params);
    let spec = model.input_spec();
    let inputs = match has_features {
        true => Inputs::prepare(&Reference, graph(), networks::features(true), &spec, Dtype::F32).unwrap(),
        false => Inputs::of_graph(&Reference, graph(), &spec).unwrap(),
    };
    let typed = TypedData::of_graph(typed());
    let inputs: &'static _ = Box::leak(Box::new(inputs.with_relations(&Reference, &typed, &spec, Dtype::F32).unwrap()));
    check(params, &single_targets(), &|tape| model.forward(tape, inputs).unwrap());
}

/// Three nodes of type 0 with dense features, two of type 1 with sparse ones, and two of type 2 that learn rows of another
/// width than the layers'. Type 2 is a source of type 1 alone, so that a layer for type 0 does not read it.
fn several() -> TypedData {
    let node = |(i, &n_nodes): (usize, &usize)| NodeType { name: format!("t{i}"), n_nodes };
    let relations = [(0, 0), (1, 0), (0, 1), (2, 1), (1, 2)];
    let named = relations.iter().enumerate().map(|(i, &(source, to))| edges(format!("r{i}"), source, to));
    let n_nodes = [3, 2, 2];
    let schema = Schema::new(n_nodes.iter().enumerate().map(node).collect(), named.collect()).unwrap();
    let relation = |(number, &(source, to)): (usize, &(usize, usize))| {
        let pairs = (0..n_nodes[to] as u32).flat_map(|v| (0..n_nodes[source] as u32).map(move |u| (v, u)));
        let (rows, cols) = pairs.filter(|(v, u)| !(v + 2 * u + number as u32).is_multiple_of(3)).unzip();
        Coo::new(n_nodes[to], n_nodes[source], rows, cols, None).unwrap().to_csr(Duplicates::Refuse).unwrap()
    };
    let graph = TypedGraph::new(schema, relations.iter().enumerate().map(relation).collect()).unwrap();
    let sparse = Coo::new(2, 9, vec![0, 1], vec![4, 7], Some(vec![0.5, -1.5])).unwrap();
    let features = vec![
        TypeFeatures::Given(Features::Dense(random(3, 2, 8))),
        TypeFeatures::Given(Features::Sparse(sparse.to_csr(Duplicates::Refuse).unwrap())),
        TypeFeatures::Learned(Some(3)),
    ];
    TypedData { graph, features, target: 0 }
}

fn check_types(config: &ModelConfig, target: Option<usize>) {
    let typed = several();
    let widths: Vec<TypeWidth> = typed.features.iter().map(TypeFeatures::width).collect();
    let relations = typed.graph.sizes().clone();
    let dims = Dims { n_features: 0, relations, type_widths: widths, target, ..dims() };
    let mut init = ParamInit::new(&Reference, 7, 0);
    let model: Box<dyn Model<Reference>> = config.build(dims, &mut init).unwrap();
    let mut params = init.finish();
    move_off_zero(&mut params);
    let spec = model.input_spec();
    let inputs = Inputs::of_graph(&Reference, typed.graph.union().unwrap(), &spec).unwrap();
    let inputs: &'static _ = Box::leak(Box::new(inputs.with_relations(&Reference, &typed, &spec, Dtype::F32).unwrap()));
    check(params, &single_targets(), &|tape| model.forward(tape, inputs).unwrap());
}
