//! A custom model outside the crate: dot-product attention, composed of the tape's operations.
//!
//! ```text
//! cargo run --release -p girih-trainer --example my_model -- [SPEC]
//! ```

use girih_compute::{Activation, Backend, ComputeError, Cpu, Dtype};
use girih_datasets::{LoadOptions, load};
use girih_graph_format::Norm;
use girih_trainer::{
    Adjacency, Dims, FullBatch, InputSpec, Inputs, Linear, LinearOptions, Model, ParamInit, Propagation, Rows, Run,
    SpmmOptions, Tape, Targets, Task, TrainConfig, Var,
};

/// Attention with weights `softmax(⟨K·x_j, Q·x_i⟩)` over the neighbours `j` of node `i`, and a linear layer on the
/// sum.
struct DotAttention {
    keys: Linear,
    queries: Linear,
    last: Linear,
}

impl DotAttention {
    const WIDTH: usize = 16;

    fn new<B: Backend>(dims: Dims, init: &mut ParamInit<'_, B>) -> Result<Self, ComputeError> {
        Ok(Self {
            keys: Linear::named(init, 0, "keys", (dims.n_features, Self::WIDTH))?,
            queries: Linear::named(init, 0, "queries", (dims.n_features, Self::WIDTH))?,
            last: Linear::new(init, 1, Self::WIDTH, dims.n_classes)?,
        })
    }
}

impl<B: Backend> Model<B> for DotAttention {
    fn input_spec(&self) -> InputSpec {
        let graph = Some(Adjacency::new(true, Norm::None));
        InputSpec { graph, hops: 0, raw_features: true, propagation: Propagation::Never }
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, B>, inputs: &'a Inputs<B>) -> Result<Var, ComputeError> {
        let (graph, features) = (inputs.graph(0), Rows::raw_input(tape, inputs)?);
        let keys = self.keys.forward(tape, &features, LinearOptions::default())?;
        let queries = self.queries.forward(tape, &features, LinearOptions::default())?;
        // On one device, the whole graph and all keys; on several ranks, this rank's part of them.
        let (pattern, keys) = tape.neighbors(graph, keys)?;
        let scores = tape.sddmm(pattern, queries, keys, 1)?;
        let weights = Some(tape.segment_softmax(pattern, scores)?);
        let options = SpmmOptions { weights, activation: Activation::Relu, ..SpmmOptions::default() };
        let hidden = Rows::Dense(tape.spmm(pattern, keys, options)?);
        self.last.forward(tape, &hidden, LinearOptions::default())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let spec = std::env::args().nth(1).unwrap_or_else(|| "synth:planted,nodes=5000,degree=10".to_owned());
    let (cpu, config) = (Cpu::new(), TrainConfig { epochs: 100, ..TrainConfig::default() });
    let dataset = load(&spec, &LoadOptions::default())?;
    let mut init = ParamInit::new(&cpu, config.seed, 0);
    let model = DotAttention::new(Dims::of(&dataset), &mut init)?;

    let input_spec = Model::<Cpu>::input_spec(&model);
    let labels = dataset.labels.ok_or("this example wants labels")?;
    let split = dataset.splits.into_iter().next().ok_or("this example wants a split")?;
    let features = dataset.features.ok_or("this example wants features")?;
    let inputs = Inputs::prepare(&cpu, dataset.graph, features, &input_spec, Dtype::F32)?;
    let targets = Targets::upload(&cpu, &labels)?;
    let task = Task::new(&cpu, &labels, &targets, &split)?;
    let mut run = FullBatch::new(&cpu, &inputs, task, &config, Box::new(model), init.finish(), 0)?;
    while !run.state().is_finished() {
        let report = run.epoch()?;
        if report.epoch % 20 == 0 {
            let accuracy = report.scores.and_then(|scores| scores.test_accuracy).unwrap_or(0.0);
            println!("epoch {:>3}  loss {:.4}  test {:.1} %", report.epoch, report.train_loss, 100.0 * accuracy);
        }
    }
    Ok(())
}
