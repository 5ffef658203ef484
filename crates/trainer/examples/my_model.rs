//! A custom model outside the crate: dot-product attention, composed of the tape's operations.
//!
//! ```text
//! cargo run --release -p girih-trainer --example my_model -- [SPEC]
//! ```

use girih_compute::{Activation, Backend, ComputeError, Cpu};
use girih_datasets::{LoadOptions, load};
use girih_graph_format::Norm;
use girih_trainer::{
    Adjacency, BuildModel, Control, Dims, Event, InputSpec, Inputs, Linear, LinearOptions, Model, ModelConfig,
    ParamInit, Rows, SessionOptions, SpmmOptions, Tape, TrainConfig, Var, train_model,
};

/// Attention with weights `softmax(⟨K·x_j, Q·x_i⟩)` over the neighbors `j` of node `i`, and a linear layer on the
/// sum.
struct DotAttention {
    keys: Linear,
    queries: Linear,
    last: Linear,
}

impl DotAttention {
    const WIDTH: usize = 16;

    fn new<B: Backend>(dims: &Dims, init: &mut ParamInit<'_, B>) -> Result<Self, ComputeError> {
        Ok(Self {
            keys: Linear::named(init, 0, "keys", (dims.n_features, Self::WIDTH))?,
            queries: Linear::named(init, 0, "queries", (dims.n_features, Self::WIDTH))?,
            last: Linear::new(init, 1, Self::WIDTH, dims.n_classes)?,
        })
    }
}

impl<B: Backend> Model<B> for DotAttention {
    fn input_spec(&self) -> InputSpec {
        InputSpec::of_raw_features(Some(Adjacency::new(true, Norm::None)))
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

/// Builder of a [`DotAttention`].
struct BuildDotAttention;

impl<B: Backend> BuildModel<B> for BuildDotAttention {
    fn config(&self) -> ModelConfig {
        ModelConfig { layers: 1, ..ModelConfig::from_outside("dot-attention", ()) }
    }

    fn build(&self, dims: Dims, init: &mut ParamInit<'_, B>) -> Result<Box<dyn Model<B>>, ComputeError> {
        Ok(Box::new(DotAttention::new(&dims, init)?))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let spec = std::env::args().nth(1).unwrap_or_else(|| "synth:planted,nodes=5000,degree=10".to_owned());
    let (config, options) = (TrainConfig { epochs: 100, ..TrainConfig::default() }, SessionOptions::default());
    let dataset = load(&spec, &LoadOptions::default())?;
    train_model(&Cpu::new(), dataset, &BuildDotAttention, &config, &options, &mut |event| {
        if let Event::Epoch { report, .. } = event
            && report.epoch.is_multiple_of(20)
        {
            let accuracy = report.scores.and_then(|scores| scores.test_accuracy).unwrap_or(0.0);
            println!("epoch {:>3}  loss {:.4}  test {:.1} %", report.epoch, report.train_loss, 100.0 * accuracy);
        }
        Control::Continue
    })?;
    Ok(())
}
