//! Different ways to compute a model agree: choices for speed do not change results.

use girih_compute::prelude::*;
use girih_compute::{Activation, Cpu, Dtype, Shape, SparseOperand};
use girih_graph_format::{Csr, Matrix, Norm};
use girih_random::Key;
use girih_trainer::{Graph, GraphConv, Masks, Mode, ModelKind, ParamInit, Params, Pool, Rows, Tape, TrainConfig};

use crate::{Stage, config, densified, planted, train_epochs, with_bags_of_words, with_input_dropout};

/// Largest difference of two matrices of one shape, relative to the largest value.
fn difference(a: &Matrix, b: &Matrix) -> f32 {
    assert_eq!((a.n_rows(), a.n_cols()), (b.n_rows(), b.n_cols()));
    let largest = a.data().iter().fold(1.0f32, |m, v| m.max(v.abs()));
    a.data().iter().zip(b.data()).map(|(x, y)| (x - y).abs() / largest).fold(0.0, f32::max)
}

/// Configuration without any dropout, so that both ways of a comparison train on equal numbers.
fn without_dropout(kind: ModelKind) -> TrainConfig {
    let mut config = with_input_dropout(config(kind, 100), 0.0);
    config.model.dropout = 0.0;
    config
}

/// Logits of the initial model and after some epochs.
fn logits(stage: &Stage, config: &TrainConfig) -> [Matrix; 2] {
    let mut run = stage.run(config);
    let fresh = run.logits().unwrap();
    train_epochs(&mut run, 5);
    [fresh, run.logits().unwrap()]
}

fn assert_agree(a: &[Matrix; 2], b: &[Matrix; 2], what: &str) {
    let (fresh, trained) = (difference(&a[0], &b[0]), difference(&a[1], &b[1]));
    assert!(fresh < 1e-5, "{what}: fresh logits differ by {fresh}");
    assert!(trained < 1e-4, "{what}: trained logits differ by {trained}");
}

#[test]
fn aggregating_once_equals_aggregating_in_every_epoch() {
    let dataset = planted("nodes=700");
    for kind in [ModelKind::Gcn, ModelKind::Sage] {
        let config = without_dropout(kind);
        let once = Stage::new(dataset.clone(), &config);
        assert!(once.inputs.propagated.is_some());
        let mut every_epoch = config.clone();
        every_epoch.model.aggregate_once = false;
        let always = Stage::new(dataset.clone(), &every_epoch);
        assert!(always.inputs.propagated.is_none());
        assert_agree(&logits(&once, &config), &logits(&always, &every_epoch), kind.name());
    }
}

#[test]
fn dense_and_sparse_features_give_the_same_logits() {
    let sparse = with_bags_of_words(&planted("nodes=700"));
    for kind in ModelKind::classifiers() {
        let config = without_dropout(kind);
        let stages = [sparse.clone(), densified(&sparse)].map(|dataset| Stage::new(dataset, &config));
        assert_agree(&logits(&stages[0], &config), &logits(&stages[1], &config), kind.name());
    }
}

/// Computes `(Â·X)·W + b` in `f64`, from the definition.
fn by_definition(graph: &Csr, x: &Matrix, params: &Params<Cpu>) -> Matrix {
    let values: Vec<Matrix> = params.download(&Cpu::new()).unwrap();
    let [weight, bias] = &values[..] else { panic!("a weight and a bias") };
    let degree = |v: usize| graph.degree(v) as f64;
    let mut out = Vec::new();
    for v in 0..graph.n_rows() {
        for column in 0..weight.n_cols() {
            let mut sum = f64::from(bias.data()[column]);
            for &u in graph.row(v) {
                let dot: f64 =
                    (0..x.n_cols()).map(|k| f64::from(x.row(u as usize)[k]) * f64::from(weight.row(k)[column])).sum();
                sum += dot / (degree(v) * degree(u as usize)).sqrt();
            }
            out.push(sum as f32);
        }
    }
    Matrix::new(graph.n_rows(), weight.n_cols(), out).unwrap()
}

/// Widening layers aggregate first, narrowing layers last; both equal Kipf and Welling's formula.
#[test]
fn both_orders_of_a_graph_convolution_are_its_definition() {
    let cpu = Cpu::new();
    let graph = planted("nodes=150").graph.with_self_loops();
    let n = graph.n_rows();
    for (inputs, outputs) in [(5, 19), (19, 5), (8, 8), (1, 3), (3, 1)] {
        let mut stream = Key::new(3, 1).stream(inputs as u64, 0);
        let x = Matrix::new(n, inputs, (0..n * inputs).map(|_| stream.normal()).collect::<Vec<_>>()).unwrap();
        let mut init = ParamInit::new(&cpu, 1, 0);
        let layer = GraphConv::new(&mut init, 0, inputs, outputs).unwrap();
        let params = init.finish();
        let operand =
            SparseOperand { csr: &graph, scales: graph.scales(Norm::Symmetric), symmetric: true, names: None };
        let sparse = cpu.upload_sparse(&operand).unwrap();
        let device = cpu.upload(&x, Dtype::F32).unwrap();
        let adjacency = Graph::Whole(sparse);

        let mut pool = Pool::default();
        let mut tape = Tape::new(&cpu, &params, &mut pool, Mode::Evaluate);
        let rows = Rows::Dense(tape.constant(&device));
        let out = layer.forward(&mut tape, &adjacency, &rows, Masks::default(), Activation::Identity).unwrap();
        assert_eq!(tape.shape(out), Shape::new(n, outputs));
        let found = cpu.download(tape.value(out)).unwrap();
        let error = difference(&by_definition(&graph, &x, &params), &found);
        assert!(error < 1e-5, "{inputs} → {outputs}: {error}");
    }
}
