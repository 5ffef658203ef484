//! Gradient checks in `f64`: compares every operation and every model with central differences.
//!
//! Runs on the `Reference` backend, whose matrices hold `f64`. With a step of 10⁻⁶ the difference quotient of a
//! smooth function has about nine correct digits, so that a wrong term shows.

mod laws;
mod networks;
mod own;
mod triples;
mod typed;

use girih_compute::prelude::*;
use girih_compute::{Activation, Dtype, Function, Reference, Shape, SparseOperand};
use girih_datasets::Features;
use girih_graph_format::{Coo, Csr, Duplicates, Matrix, Norm, RelationSizes};
use girih_random::Key;
use girih_sampling::{Block, Columns, DrawKey, MiniBatch, NeighborOptions, NeighborSampler, Sampler};
use girih_trainer::models::{BuildModel, Dims};
use girih_trainer::{
    Adjacency, Aggregator, AttentionOperands, AttentionOptions, BlockEdges, BlockGraph, FeatureInput, Gradients, Graph,
    InputSpec, Inputs, Jump, LayerGraphs, LinearOptions, Loss, Mode, Model, ModelConfig, ModelKind, Neighborhoods,
    NormKind, Pairs, ParamId, ParamInit, Params, Pool, Propagation, SpmmOptions, Tape, Targets, Var,
};

const NODES: usize = 7;
const CLASSES: usize = 3;
const STEP: f64 = 1e-6;
const TOLERANCE: f64 = 2e-7;

/// A small directed graph with weights; node 6 is isolated.
fn graph() -> Csr {
    let rows = vec![0, 1, 1, 2, 3, 3, 3, 4, 5, 0];
    let cols = vec![1, 0, 2, 3, 0, 1, 4, 2, 3, 5];
    let weights = (0..rows.len()).map(|e| 0.5 + 0.1 * e as f32).collect();
    Coo::new(NODES, NODES, rows, cols, Some(weights)).unwrap().to_csr(Duplicates::Refuse).unwrap()
}

/// Matrix of the graph on the device. It is leaked, so that it outlives any tape.
fn sparse(norm: Norm) -> &'static <Reference as Memory>::Sparse {
    match whole(norm) {
        Graph::Whole(matrix) => matrix,
        Graph::Partitioned(_) | Graph::Block(_) => unreachable!("nothing cuts it"),
    }
}

/// As [`sparse`], but as a [`Graph`] for models.
fn whole(norm: Norm) -> &'static Graph<Reference> {
    let csr = graph();
    let scales = csr.scales(norm);
    let operand = SparseOperand { csr: &csr, scales, symmetric: false, names: None };
    Box::leak(Box::new(Graph::Whole(Reference.upload_sparse(&operand).unwrap())))
}

fn random(rows: usize, cols: usize, seed: u64) -> Matrix {
    let mut stream = Key::new(seed, 99).stream(0, 0);
    Matrix::new(rows, cols, (0..rows * cols).map(|_| stream.normal()).collect::<Vec<_>>()).unwrap()
}

fn single_targets() -> Targets<Reference> {
    Targets::Single(Reference.upload_ids(&[0, 1, 2, 0, 1, 2, 1]).unwrap())
}

fn multi_targets() -> Targets<Reference> {
    let values = (0..NODES * CLASSES).map(|i| f32::from(u8::from(i % 3 == 0 || i % 7 == 2))).collect::<Vec<_>>();
    Targets::Multi(Reference.upload(&Matrix::new(NODES, CLASSES, values).unwrap(), Dtype::F32).unwrap())
}

type Forward<'f> = &'f dyn for<'t> Fn(&mut Tape<'t, Reference>) -> Var;

/// Checks a classifier, with the loss over some nodes.
fn check(params: Params<Reference>, targets: &Targets<Reference>, forward: Forward<'_>) {
    let rows = Reference.upload_ids(&[0, 2, 3, 5, 6]).unwrap();
    check_loss(params, &|tape| {
        let logits = forward(tape);
        tape.loss(logits, targets, &rows).unwrap()
    });
}

/// Compares every element of every gradient with a central difference of the loss.
fn check_loss(mut params: Params<Reference>, pass: &dyn for<'t> Fn(&mut Tape<'t, Reference>) -> Loss<Reference>) {
    let mode = Mode::Train(Key::new(5, 1));
    let mut pool = Pool::default();
    let mut gradients = Gradients::new(&Reference, &params).unwrap();
    let mut tape = Tape::new(&Reference, &params, &mut pool, mode);
    let loss = pass(&mut tape);
    tape.backward(loss, &mut gradients).unwrap();

    let ids: Vec<_> = params.iter().map(|(id, param)| (id, param.name.clone(), param.value.data().len())).collect();
    assert!(!ids.is_empty());
    for (id, name, len) in ids {
        for element in 0..len {
            let mut loss_at = |delta: f64| {
                params.value_mut(id).data_mut()[element] += delta;
                let mut tape = Tape::new(&Reference, &params, &mut pool, mode);
                let value = pass(&mut tape).matrix().data()[0];
                drop(tape);
                params.value_mut(id).data_mut()[element] -= delta;
                value
            };
            let difference = (loss_at(STEP) - loss_at(-STEP)) / (2.0 * STEP);
            let gradient = gradients.get(id).map_or(0.0, |grad| grad.data()[element]);
            assert!(
                (difference - gradient).abs() <= TOLERANCE * difference.abs().max(1.0),
                "{name}[{element}]: difference {difference}, gradient {gradient}"
            );
        }
    }
}

/// Parameters with random values, as operands.
#[derive(Clone, Copy)]
struct Operands {
    /// Shape: nodes × 4.
    x: ParamId,
    /// Shape: 4 × classes.
    w: ParamId,
    /// Shape: 1 × classes.
    bias: ParamId,
    /// Shape: nodes × classes.
    other: ParamId,
    /// Shape: classes × classes.
    square: ParamId,
    /// Shape: nodes × 4·classes.
    lstm_inputs: ParamId,
    /// Shape: classes × 4·classes.
    lstm_weight: ParamId,
}

fn check_operation(targets: &Targets<Reference>, forward: impl for<'t> Fn(&mut Tape<'t, Reference>, Operands) -> Var) {
    let mut init = ParamInit::new(&Reference, 3, 0);
    let mut random = |name, rows, cols| init.glorot(0, name, Shape::new(rows, cols), 1).unwrap();
    let operands = Operands {
        x: random("x", NODES, 4),
        w: random("w", 4, CLASSES),
        bias: random("bias", 1, CLASSES),
        other: random("other", NODES, CLASSES),
        square: random("square", CLASSES, CLASSES),
        lstm_inputs: random("lstm_inputs", NODES, 4 * CLASSES),
        lstm_weight: random("lstm_weight", CLASSES, 4 * CLASSES),
    };
    check(init.finish(), targets, &|tape| forward(tape, operands));
}

/// Product `x·w` of the operands, with options.
fn product(tape: &mut Tape<'_, Reference>, o: Operands, options: LinearOptions) -> Var {
    let (x, w) = (tape.param(o.x), tape.param(o.w));
    tape.linear(x, w, options).unwrap()
}

#[test]
fn linear() {
    for activation in [Activation::Identity, Activation::Relu] {
        for p in [0.0, 0.4] {
            check_operation(&single_targets(), |tape, o| {
                let (dropout, bias) = (tape.next_dropout(p), Some(tape.param(o.bias)));
                product(tape, o, LinearOptions { dropout, bias, activation, ..LinearOptions::default() })
            });
        }
    }
}

#[test]
fn masked_results() {
    let (matrix, activation) = (sparse(Norm::Symmetric), Activation::Relu);
    check_operation(&single_targets(), |tape, o| {
        let (mask, bias) = (tape.next_dropout(0.4), Some(tape.param(o.bias)));
        product(tape, o, LinearOptions { mask, bias, activation, ..LinearOptions::default() })
    });
    check_operation(&single_targets(), |tape, o| {
        let (mask, bias, x) = (tape.next_dropout(0.4), Some(tape.param(o.bias)), tape.param(o.other));
        tape.spmm(matrix, x, SpmmOptions { mask, bias, activation, ..SpmmOptions::default() }).unwrap()
    });
    // The product that reads the masked result computes the gradient of the epilogue.
    check_operation(&single_targets(), |tape, o| {
        let (mask, square) = (tape.next_dropout(0.4), tape.param(o.square));
        let hidden = product(tape, o, LinearOptions { mask, activation, ..LinearOptions::default() });
        tape.linear(hidden, square, LinearOptions::default()).unwrap()
    });
}

#[test]
fn linear_added_to_linear() {
    check_operation(&single_targets(), |tape, o| {
        let add = Some(product(tape, o, LinearOptions::default()));
        let (dropout, bias) = (tape.next_dropout(0.3), Some(tape.param(o.bias)));
        product(tape, o, LinearOptions { dropout, bias, activation: Activation::Relu, mask: None, add })
    });
}

#[test]
fn spmm() {
    for norm in [Norm::None, Norm::Row, Norm::Symmetric] {
        let matrix = sparse(norm);
        for activation in [Activation::Identity, Activation::Relu] {
            check_operation(&single_targets(), |tape, o| {
                let (x, bias) = (tape.param(o.other), Some(tape.param(o.bias)));
                tape.spmm(matrix, x, SpmmOptions { bias, activation, ..SpmmOptions::default() }).unwrap()
            });
        }
    }
}

#[test]
fn spmm_added_to_linear_with_other_weights() {
    let matrix = sparse(Norm::Row);
    let weights = Reference.upload(&random(graph().nnz(), 1, 8), Dtype::F32).unwrap();
    let weights: &'static _ = Box::leak(Box::new(weights));
    check_operation(&single_targets(), |tape, o| {
        let add = Some(product(tape, o, LinearOptions::default()));
        let (x, bias, weights) = (tape.param(o.other), Some(tape.param(o.bias)), Some(tape.constant(weights)));
        tape.spmm(matrix, x, SpmmOptions { weights, bias, activation: Activation::Relu, mask: None, add }).unwrap()
    });
}

#[test]
fn segment_max() {
    let matrix = sparse(Norm::None);
    check_operation(&single_targets(), |tape, o| {
        let x = tape.param(o.other);
        let hidden = tape.segment_max(matrix, x).unwrap();
        // Two consumers, so that the gradient accumulates.
        let add = Some(product(tape, o, LinearOptions::default()));
        let (square, bias) = (tape.param(o.square), Some(tape.param(o.bias)));
        let hidden = tape.linear(hidden, square, LinearOptions { bias, add, ..LinearOptions::default() }).unwrap();
        let most = tape.segment_max(matrix, x).unwrap();
        tape.linear(most, square, LinearOptions { add: Some(hidden), ..LinearOptions::default() }).unwrap()
    });
}

#[test]
fn segment_lstm() {
    let matrix = sparse(Norm::None);
    check_operation(&single_targets(), |tape, o| {
        let (inputs, weight) = (tape.param(o.lstm_inputs), tape.param(o.lstm_weight));
        let states = tape.segment_lstm(matrix, inputs, weight).unwrap();
        // A second LSTM in another order, which adds to the same gradients.
        let more = tape.segment_lstm(matrix, inputs, weight).unwrap();
        let (square, bias) = (tape.param(o.square), Some(tape.param(o.bias)));
        let add = Some(tape.linear(states, square, LinearOptions::default()).unwrap());
        tape.linear(more, square, LinearOptions { bias, add, ..LinearOptions::default() }).unwrap()
    });
}

#[test]
fn dropout() {
    check_operation(&single_targets(), |tape, o| {
        let (x, mask) = (tape.param(o.other), tape.next_dropout(0.5));
        let masked = tape.dropout(x, mask).unwrap();
        let mask = tape.next_dropout(0.25);
        tape.dropout(masked, mask).unwrap()
    });
}

#[test]
fn sigmoid_cross_entropy() {
    check_operation(&multi_targets(), |tape, o| {
        let bias = Some(tape.param(o.bias));
        product(tape, o, LinearOptions { bias, ..LinearOptions::default() })
    });
}

/// Means over several numbers of hops, with matrices that are not symmetric.
#[test]
fn hop_mean() {
    for (norm, hops) in [(Norm::None, 0), (Norm::Symmetric, 1), (Norm::Row, 2), (Norm::Symmetric, 4)] {
        let graph = whole(norm);
        check_operation(&single_targets(), |tape, o| {
            let x = tape.param(o.other);
            tape.hop_mean(graph, x, hops).unwrap()
        });
    }
}

/// Some rows are gathered twice, one never. Other operations read the parameter as well.
#[test]
fn gather_rows() {
    let ids: &'static _ = Box::leak(Box::new(Reference.upload_ids(&[4, 0, 0, 6, 2, 2, 1]).unwrap()));
    check_operation(&single_targets(), |tape, o| {
        let rows = tape.param(o.other);
        let gathered = tape.gather_rows(rows, ids, NODES).unwrap();
        let (again, square) = (tape.param(o.other), tape.param(o.square));
        let add = Some(tape.linear(again, square, LinearOptions::default()).unwrap());
        let square = tape.param(o.square);
        tape.linear(gathered, square, LinearOptions { add, ..LinearOptions::default() }).unwrap()
    });
}

/// Loss of a link predictor. Nodes occur in several pairs and on both sides, and one pair occurs twice.
#[test]
fn links() {
    let ends = [[0, 1], [4, 2], [6, 0], [1, 4], [1, 4], [5, 6]];
    let pairs: &'static _ = Box::leak(Box::new(Pairs::upload(&Reference, &ends, 3).unwrap()));
    let mut init = ParamInit::new(&Reference, 7, 0);
    let embeddings = init.embedding(0, "embeddings", Shape::new(NODES, 3), 1.0).unwrap();
    let params = init.finish();
    let rows = params.value(embeddings).data().to_vec();
    let loss = |[u, v]: [u32; 2], is_link: bool| -> f64 {
        let score: f64 = (0..3).map(|k| rows[3 * u as usize + k] * rows[3 * v as usize + k]).sum();
        (if is_link { -score } else { score }).exp().ln_1p()
    };
    let expected = ends.iter().enumerate().map(|(at, &pair)| loss(pair, at < 3)).sum::<f64>() / 6.0;
    let pass = |tape: &mut Tape<'_, Reference>| {
        let embeddings = tape.param(embeddings);
        let scores = pairs.scores(tape, embeddings).unwrap();
        pairs.loss(tape, scores).unwrap()
    };
    let found = pass(&mut Tape::new(&Reference, &params, &mut Pool::default(), Mode::Evaluate)).matrix().data()[0];
    assert!((found - expected).abs() < 1e-12, "{found} instead of {expected}");
    check_loss(params, &pass);
}

/// Complete step of a recommender: embeddings, their mean over hops, ranking loss and penalty.
#[test]
fn lightgcn() {
    let ids: &'static _ = Box::leak(Box::new(Reference.upload_ids(&[0, 1, 0, 4, 5, 6, 6, 4, 5]).unwrap()));
    for layers in [0, 1, 3] {
        let config = ModelConfig { kind: ModelKind::LightGcn, layers, hidden: 5, ..ModelConfig::default() };
        let mut init = ParamInit::new(&Reference, 7, 0);
        let model: Box<dyn Model<Reference>> = config.build(dims(), &mut init).unwrap();
        let mut params = init.finish();
        let embedding = model.embedding().unwrap();
        // Initial embeddings are so small that the loss is almost linear.
        params.value_mut(embedding).data_mut().iter_mut().for_each(|value| *value *= 8.0);
        let inputs = Inputs::of_graph(&Reference, graph(), &model.input_spec()).unwrap();
        let inputs: &'static _ = Box::leak(Box::new(inputs));
        check_loss(params, &|tape| {
            let own = tape.param(embedding);
            let penalized = tape.gather_rows(own, ids, 9).unwrap();
            let embeddings = model.forward(tape, inputs).unwrap();
            let triples = tape.gather_rows(embeddings, ids, 9).unwrap();
            tape.ranking_loss((triples, 3), penalized, 0.5).unwrap()
        });
    }
}

/// Gradients accumulate for a value and a parameter that several operations read.
#[test]
fn shared_operands_accumulate() {
    check_operation(&single_targets(), |tape, o| {
        let hidden = product(tape, o, LinearOptions { activation: Activation::Relu, ..LinearOptions::default() });
        let mask = tape.next_dropout(0.5);
        let left = tape.dropout(hidden, mask).unwrap();
        let (square, bias) = (tape.param(o.square), Some(tape.param(o.bias)));
        let left = tape.linear(left, square, LinearOptions { bias, ..LinearOptions::default() }).unwrap();
        let (square, dropout) = (tape.param(o.square), tape.next_dropout(0.25));
        let options = LinearOptions { dropout, bias, add: Some(left), ..LinearOptions::default() };
        tape.linear(hidden, square, options).unwrap()
    });
}

/// Both kinds of attention scores, with one and several heads, with and without dropout.
#[test]
fn attention() {
    let graph = sparse(Norm::Row);
    for p in [0.0, 0.4] {
        for dynamic in [false, true] {
            for heads in [1, 3] {
                check_operation(&single_targets(), |tape, o| {
                    let values = tape.param(o.other);
                    let (vector, other) = (tape.param(o.bias), tape.param(o.square));
                    let moved = tape.linear(values, other, LinearOptions::default()).unwrap();
                    let operands = if dynamic {
                        AttentionOperands { destination: moved, source: values, vector: Some(vector), values }
                    } else {
                        let destination = tape.head_dots(moved, vector, heads).unwrap();
                        let source = tape.head_dots(values, vector, heads).unwrap();
                        AttentionOperands { destination, source, vector: None, values }
                    };
                    let options = AttentionOptions { heads, slope: 0.2, dropout: tape.next_dropout(p) };
                    tape.attention(graph, operands, options).unwrap()
                });
            }
        }
    }
}

/// Dot-product attention, composed of primitives, over a matrix with scales.
#[test]
fn composed_attention() {
    let graph = sparse(Norm::Symmetric);
    for heads in [1, 3] {
        check_operation(&single_targets(), |tape, o| {
            let (keys, square) = (tape.param(o.other), tape.param(o.square));
            let queries = tape.linear(keys, square, LinearOptions::default()).unwrap();
            let scores = tape.sddmm(graph, queries, keys, heads).unwrap();
            let shares = tape.segment_softmax(graph, scores).unwrap();
            let bias = Some(tape.param(o.bias));
            let (weights, activation) = (Some(shares), Activation::Elu);
            let options = SpmmOptions { weights, bias, activation, ..SpmmOptions::default() };
            tape.spmm(graph, keys, options).unwrap()
        });
    }
}

#[test]
fn normalization() {
    check_operation(&single_targets(), |tape, o| {
        let (x, gain, bias) = (tape.param(o.other), tape.param(o.bias), tape.param(o.bias));
        tape.normalize_rows(x, gain, bias).unwrap()
    });
    check_operation(&single_targets(), |tape, o| {
        let (x, gain, bias) = (tape.param(o.other), tape.param(o.bias), tape.param(o.bias));
        tape.normalize_columns(x, gain, bias).unwrap()
    });
}

#[test]
fn sums_and_maxima() {
    check_operation(&single_targets(), |tape, o| {
        let (other, bias) = (tape.param(o.other), Some(tape.param(o.bias)));
        let product = product(tape, o, LinearOptions::default());
        let sum = tape.combine(&[(0.5, other), (-2.0, product), (1.0, other)], bias, Activation::Elu).unwrap();
        let most = tape.maximum(sum, other).unwrap();
        // One value twice, whose gradients add up.
        let twice = tape.add(most, most).unwrap();
        tape.add(twice, sum).unwrap()
    });
}

/// Concatenation, where every column reaches the loss through a dot product.
#[test]
fn concatenation() {
    check_operation(&single_targets(), |tape, o| {
        let (other, bias) = (tape.param(o.other), tape.param(o.bias));
        let product = product(tape, o, LinearOptions::default());
        let (both, vector) = (tape.concat(&[product, other]).unwrap(), tape.concat(&[bias, bias]).unwrap());
        tape.head_dots(both, vector, CLASSES).unwrap()
    });
    check_operation(&single_targets(), |tape, o| {
        let weight = tape.param(o.w);
        let x = tape.param(o.x);
        let x = tape.first_rows(x, 3).unwrap();
        let rows = tape.concat_rows(&[x, x]).unwrap();
        let product = tape.linear(rows, weight, LinearOptions::default()).unwrap();
        tape.place_rows(product, 1, NODES).unwrap()
    });
}

/// Functions whose derivative reads the operand.
#[test]
fn functions() {
    for function in [Function::Gelu, Function::Sigmoid] {
        check_operation(&single_targets(), |tape, o| {
            let product = product(tape, o, LinearOptions::default());
            tape.apply(function, product).unwrap()
        });
    }
}

fn dims() -> Dims {
    Dims {
        n_nodes: NODES,
        n_features: FEATURES,
        edge_width: 0,
        n_classes: CLASSES,
        relations: RelationSizes::of_plain(NODES, 0),
        type_widths: Vec::new(),
        target: None,
    }
}

/// Number of columns of the features of edges.
const EDGE_WIDTH: usize = 3;

/// Number of features, large enough for sparse features to stay sparse on the device.
const FEATURES: usize = 12;
