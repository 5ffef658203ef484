//! Gradient checks in `f64`: every operation and every model against central differences.
//!
//! They run on the `Reference` backend, whose matrices hold `f64`: with a step of 10⁻⁶ the difference quotient of a
//! smooth function is right to about nine digits, and a wrong term shows at once.

use girih_compute::{Activation, Backend, Dtype, Reference, Shape, SparseOperand};
use girih_datasets::Features;
use girih_graph_format::{Coo, Csr, Duplicates, Matrix, Norm};
use girih_random::Key;
use girih_trainer::models::{self, Dims};
use girih_trainer::{
    Aggregator, Gradients, Inputs, LinearOptions, Mode, Model, ModelConfig, ModelKind, ParamId, ParamInit, Params,
    Pool, SpmmOptions, Tape, Targets, Var,
};

const NODES: usize = 7;
const CLASSES: usize = 3;
const STEP: f64 = 1e-6;
const TOLERANCE: f64 = 2e-7;

/// Edges of a small directed graph with weights; node 6 is isolated.
fn graph() -> Csr {
    let rows = vec![0, 1, 1, 2, 3, 3, 3, 4, 5, 0];
    let cols = vec![1, 0, 2, 3, 0, 1, 4, 2, 3, 5];
    let weights = (0..rows.len()).map(|e| 0.5 + 0.1 * e as f32).collect();
    Coo::new(NODES, NODES, rows, cols, Some(weights)).unwrap().to_csr(Duplicates::Refuse).unwrap()
}

/// The graph on the device; a test's operands live as long as any tape.
fn sparse(norm: Norm) -> &'static <Reference as Backend>::Sparse {
    let csr = graph();
    let scales = csr.scales(norm);
    Box::leak(Box::new(Reference.upload_sparse(&SparseOperand { csr: &csr, scales, symmetric: false }).unwrap()))
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

/// Compares every element of every gradient with a central difference of the loss.
fn check(mut params: Params<Reference>, targets: &Targets<Reference>, forward: Forward<'_>) {
    let rows = Reference.upload_ids(&[0, 2, 3, 5, 6]).unwrap();
    let mode = Mode::Train(Key::new(5, 1));
    let mut pool = Pool::default();
    let mut gradients = Gradients::new(&Reference, &params).unwrap();
    let mut tape = Tape::new(&Reference, &params, &mut pool, mode);
    let logits = forward(&mut tape);
    let loss = tape.loss(logits, targets, &rows).unwrap();
    tape.backward(loss, &mut gradients).unwrap();

    let ids: Vec<_> = params.iter().map(|(id, param)| (id, param.name.clone(), param.value.data().len())).collect();
    assert!(!ids.is_empty());
    for (id, name, len) in ids {
        for element in 0..len {
            let mut loss_at = |delta: f64| {
                params.value_mut(id).data_mut()[element] += delta;
                let mut tape = Tape::new(&Reference, &params, &mut pool, mode);
                let logits = forward(&mut tape);
                let loss = tape.loss(logits, targets, &rows).unwrap();
                let value = loss.matrix().data()[0];
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

/// Random parameters that operations are tried on.
#[derive(Clone, Copy)]
struct Operands {
    /// nodes × 4
    x: ParamId,
    /// 4 × classes
    w: ParamId,
    /// 1 × classes
    bias: ParamId,
    /// nodes × classes
    other: ParamId,
    /// classes × classes
    square: ParamId,
    /// nodes × 4·classes
    lstm_inputs: ParamId,
    /// classes × 4·classes
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

/// `x·w` of the operands, with options.
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
                product(tape, o, LinearOptions { dropout, bias, activation, add: None })
            });
        }
    }
}

#[test]
fn linear_added_to_linear() {
    check_operation(&single_targets(), |tape, o| {
        let add = Some(product(tape, o, LinearOptions::default()));
        let (dropout, bias) = (tape.next_dropout(0.3), Some(tape.param(o.bias)));
        product(tape, o, LinearOptions { dropout, bias, activation: Activation::Relu, add })
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
        tape.spmm(matrix, x, SpmmOptions { weights, bias, activation: Activation::Relu, add }).unwrap()
    });
}

#[test]
fn segment_max() {
    let matrix = sparse(Norm::None);
    check_operation(&single_targets(), |tape, o| {
        let x = tape.param(o.other);
        let hidden = tape.segment_max(matrix, x).unwrap();
        // Read twice, so that its gradient accumulates.
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
        // Again, in another order and as a part of the same gradients.
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

/// A value and a parameter that several operations read collect all their gradients.
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

/// Every model, with dense and sparse features, wider and narrower than its hidden layer, with the first aggregation
/// taken before training and during it.
#[test]
fn models() {
    for kind in [ModelKind::Gcn, ModelKind::Sgc, ModelKind::Sage, ModelKind::Mlp] {
        for hidden in [2, 6] {
            for p in [0.0, 0.3] {
                for sparse in [false, true] {
                    let config = ModelConfig { kind, layers: 3, hidden, dropout: p, ..ModelConfig::default() };
                    check_model(&config, sparse);
                }
            }
        }
    }
}

#[test]
fn aggregators_of_sage() {
    for aggregator in [Aggregator::Pool, Aggregator::Lstm] {
        for (hidden, dropout, sparse) in [(2, 0.0, true), (6, 0.3, false)] {
            let kind = ModelKind::Sage;
            check_model(&ModelConfig { kind, hidden, dropout, aggregator, ..ModelConfig::default() }, sparse);
        }
    }
}

/// As many features as leave the sparse ones sparse on the device.
const FEATURES: usize = 12;

fn features(sparse: bool) -> Features {
    let dense = random(NODES, FEATURES, 4);
    if !sparse {
        return Features::Dense(dense);
    }
    let (rows, cols) = ((0..NODES as u32).collect::<Vec<_>>(), (0..NODES as u32).map(|v| v * 5 % FEATURES as u32));
    let coo = Coo::new(NODES, FEATURES, rows, cols.collect(), Some(dense.data()[..NODES].to_vec())).unwrap();
    Features::Sparse(coo.to_csr(Duplicates::Merge).unwrap())
}

fn check_model(config: &ModelConfig, sparse: bool) {
    let dims = Dims { n_features: FEATURES, n_classes: CLASSES };
    let mut init = ParamInit::new(&Reference, 7, 0);
    let model: Box<dyn Model<Reference>> = models::build(config, dims, &mut init).unwrap();
    let mut params = init.finish();
    move_off_zero(&mut params);
    let inputs = Inputs::prepare(&Reference, graph(), features(sparse), &model.needs(), Dtype::F32).unwrap();
    let inputs: &'static _ = Box::leak(Box::new(inputs));
    check(params, &single_targets(), &|tape| model.forward(tape, inputs).unwrap());
}

/// Biases start at zero, where a node without features and neighbours would sit on the kink of the relu.
fn move_off_zero(params: &mut Params<Reference>) {
    let ids: Vec<_> = params.iter().map(|(id, _)| id).collect();
    for id in ids {
        for (i, value) in params.value_mut(id).data_mut().iter_mut().enumerate() {
            if *value == 0.0 {
                *value = 0.05 * (1.0 + i as f64);
            }
        }
    }
}
