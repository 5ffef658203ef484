//! Equality with PyTorch Geometric on Cora: logits, loss and every gradient, from the same weights.
//!
//! `golden/*.safetensors` contains results that `benches/peers/golden_pyg.py` computed in `f64`: each [`STRIDE`]th
//! element of every result, and the sums of its columns. Weights follow a formula that both programs use.

use girih_compute::prelude::*;
use girih_compute::{Cpu, Dtype, Shape};
use girih_datasets::{Dataset, FeatureNorm, LoadOptions, load};
use girih_graph_format::Matrix;
use girih_random::Key;
use girih_tests::real;
use girih_trainer::models::BuildModel;
use girih_trainer::{
    Dims, Gradients, Inputs, Mode, Model, ModelConfig, ModelKind, ParamInit, Params, Pool, Tape, Targets,
};
use safetensors::SafeTensors;

/// Step between compared elements.
const STRIDE: usize = 37;
/// Maximum difference, in units of the largest magnitude.
const TOLERANCE: f64 = 1e-5;

#[test]
fn gcn() {
    check(include_bytes!("../golden/gcn.safetensors"), ModelKind::Gcn);
}

#[test]
fn sage() {
    check(include_bytes!("../golden/sage.safetensors"), ModelKind::Sage);
}

#[test]
fn sgc() {
    check(include_bytes!("../golden/sgc.safetensors"), ModelKind::Sgc);
}

#[test]
fn gat() {
    let sizes = ModelConfig { hidden: 8, heads: 8, ..ModelConfig::default() };
    let config = ModelConfig { kind: ModelKind::Gat, dropout: 0.0, ..sizes };
    check_config(include_bytes!("../golden/gat.safetensors"), &config);
}

/// The first columns of LightGCN's embeddings are compared in place of logits.
#[test]
fn lightgcn() {
    let config =
        ModelConfig { kind: ModelKind::LightGcn, layers: 3, hidden: 16, dropout: 0.0, ..ModelConfig::default() };
    check_config(include_bytes!("../golden/lightgcn.safetensors"), &config);
}

/// Compares the model of `kind` with its golden file.
fn check(file: &[u8], kind: ModelKind) {
    check_config(file, &ModelConfig { kind, dropout: 0.0, ..ModelConfig::default() });
}

fn check_config(file: &[u8], config: &ModelConfig) {
    let Some(dataset) = cora() else { return };
    let dims = Dims::of(&dataset);
    let cpu = Cpu::new();
    let mut init = ParamInit::new(&cpu, 0, 0);
    let model = config.build(dims, &mut init).unwrap();
    check_model(file, &*model, init.finish(), dataset);
}

/// Compares logits, loss on the training nodes, and the gradients of all parameters.
fn check_model(file: &[u8], model: &dyn Model<Cpu>, mut params: Params<Cpu>, dataset: Dataset) {
    let (cpu, golden) = (Cpu::new(), Golden(SafeTensors::deserialize(file).unwrap()));
    set_by_formula(&cpu, &mut params);
    let train = cpu.upload_ids(&dataset.splits[0].train).unwrap();
    let targets = Targets::upload(&cpu, &dataset.labels.unwrap()).unwrap();
    let features = dataset.features.unwrap();
    let inputs = Inputs::prepare(&cpu, dataset.graph, features, &model.input_spec(), Dtype::F32).unwrap();

    let (mut pool, mut gradients) = (Pool::default(), Gradients::new(&cpu, &params).unwrap());
    let mut tape = Tape::new(&cpu, &params, &mut pool, Mode::Train(Key::new(0, 0)));
    let logits = model.forward(&mut tape, &inputs).unwrap();
    golden.compare("logits", &cpu.download(tape.value(logits)).unwrap(), 0.0);
    let loss = tape.loss(logits, &targets, &train).unwrap();
    let (found, expected) = (loss.value(&cpu).unwrap(), golden.values("loss")[0]);
    assert!((found - expected).abs() <= TOLERANCE as f32 * expected, "loss {found}, PyG {expected}");
    tape.backward(loss, &mut gradients).unwrap();
    let downloaded = params.iter().map(|(id, param)| {
        let gradient = gradients.get(id).unwrap_or_else(|| panic!("{} has no gradient", param.name));
        (format!("grad.{}", param.name), cpu.download(gradient).unwrap())
    });
    let downloaded: Vec<(String, Matrix)> = downloaded.collect();
    // A gradient may be zero except for rounding: attention does not change with a term that all neighbors share.
    let floor = 1e-3 * downloaded.iter().map(|(_, gradient)| magnitude(gradient)).fold(0.0, f64::max);
    for (name, gradient) in &downloaded {
        golden.compare(name, gradient, floor);
    }
    // A sample and sums for the logits and every gradient, and the loss.
    assert_eq!(golden.0.len(), 2 * (params.len() + 1) + 1, "PyG's model has other parameters");
}

fn cora() -> Option<Dataset> {
    let options = LoadOptions { feature_norm: Some(FeatureNorm::None), ..LoadOptions::default() };
    Some(load(real("cora")?.to_str().unwrap(), &options).unwrap())
}

/// Sets element `i` of parameter `p` to `sin(0.01·(i + 1)² + p) / √rows`, so that no two rows are equal.
fn set_by_formula(cpu: &Cpu, params: &mut Params<Cpu>) {
    let value_of = |number: usize, Shape { rows, cols }: Shape| {
        let squares = (1..=rows * cols).map(|i| (i * i) as f64);
        let values = squares.map(|square| ((0.01 * square + number as f64).sin() / (rows as f64).sqrt()) as f32);
        Matrix::new(rows, cols, values.collect::<Vec<_>>()).unwrap()
    };
    let shapes = params.iter().map(|(_, param)| cpu.shape(&param.value)).enumerate();
    let values: Vec<Matrix> = shapes.map(|(number, shape)| value_of(number, shape)).collect();
    params.write(cpu, &values).unwrap();
}

/// Results that PyG computed.
struct Golden<'a>(SafeTensors<'a>);

impl Golden<'_> {
    fn values(&self, name: &str) -> Vec<f32> {
        let tensor = self.0.tensor(name).unwrap_or_else(|_| panic!("PyG's model has no {name}"));
        tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    /// Compares the sampled elements of `found` and the sums of its columns; `floor` is a lower bound of magnitudes.
    fn compare(&self, name: &str, found: &Matrix, floor: f64) {
        let magnitude = magnitude(found).max(floor);
        let elements: Vec<f64> = found.data().iter().step_by(STRIDE).map(|&value| f64::from(value)).collect();
        assert_close(&format!("{name}.sample"), &elements, &self.values(&format!("{name}.sample")), magnitude);
        let mut sums = vec![0.0; found.n_cols()];
        for (at, &value) in found.data().iter().enumerate() {
            sums[at % found.n_cols()] += f64::from(value);
        }
        // Errors of a sum accumulate, and its terms may cancel.
        let magnitude = magnitude * (found.n_rows() as f64).sqrt();
        assert_close(&format!("{name}.sums"), &sums, &self.values(&format!("{name}.sums")), magnitude);
    }
}

fn magnitude(matrix: &Matrix) -> f64 {
    matrix.data().iter().fold(0.0, |most, &value| most.max(f64::from(value).abs()))
}

fn assert_close(name: &str, found: &[f64], expected: &[f32], magnitude: f64) {
    assert_eq!(found.len(), expected.len(), "{name}: the shapes differ");
    assert!(magnitude > 0.0, "{name}: nothing is compared");
    for (at, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - f64::from(expected)).abs() / magnitude;
        assert!(error <= TOLERANCE, "{name}[{at}]: {found}, PyG {expected}, off by {error:e} of the largest");
    }
}
