//! Properties of training that hold for any data, number of threads and interruption, and laws of its parts: metrics,
//! draws, cache plans, products over ranks.
//!
//! Gradients have their own checks in `gradients/`. Accuracy on real graphs is tested on the whole system.

mod agreement;
mod applied;
mod batches;
mod cache_plan;
mod compressed;
mod custom_model;
mod distributed;
mod features_from;
mod interrupted;
mod layer_types;
mod learning;
mod limits;
mod links;
mod metrics;
mod new_nodes;
mod normalization;
mod outside;
mod own_sampler;
mod plan;
mod pool;
mod recommend;
mod scores;
mod sessions;
mod settings;
mod supported;
mod triples;
mod typed_batches;
mod weights;

use std::path::Path;

use girih_compute::Cpu;
use girih_datasets::{Dataset, Features, Labels, LoadOptions, Split, load};
use girih_graph_format::Csr;
use girih_trainer::models::{BuildModel, Model};
use girih_trainer::{
    Control, DataShape, Dims, Event, FullBatch, InputSpec, Inputs, ModelConfig, ModelKind, Outcome, ParamInit, Run,
    SessionOptions, Targets, Task, TrainConfig, TrainError,
};

/// A planted graph whose communities a graph model can tell apart, but an MLP hardly can.
fn planted(settings: &str) -> Dataset {
    load(&format!("synth:planted,degree=10,features=48,classes=4,{settings}"), &LoadOptions::default()).unwrap()
}

fn config(kind: ModelKind, epochs: u64) -> TrainConfig {
    TrainConfig { model: ModelConfig { kind, ..ModelConfig::default() }, epochs, ..TrainConfig::default() }
}

/// The configuration without dropout and with few heads, because heads slow tests down.
fn small(config: TrainConfig) -> TrainConfig {
    let heads = if config.model.kind.has_heads() { 2 } else { config.model.heads };
    TrainConfig { model: ModelConfig { dropout: 0.0, heads, ..config.model }, ..config }
}

/// The configuration with another input dropout. Zero makes the first aggregation a constant.
fn with_input_dropout(config: TrainConfig, p: f64) -> TrainConfig {
    TrainConfig { model: ModelConfig { input_dropout: Some(p), ..config.model }, ..config }
}

/// The data with its sparse features stored densely.
fn densified(dataset: &Dataset) -> Dataset {
    let Some(Features::Sparse(csr)) = &dataset.features else { panic!("the features are sparse") };
    let dense = girih_graph_format::Matrix::from_sparse(csr);
    Dataset { features: Some(Features::Dense(dense)), ..dataset.clone() }
}

/// The data with bags of words as features: a row has one word in twelve, depending on the class.
fn with_bags_of_words(dataset: &Dataset) -> Dataset {
    let Some(Labels::Single { classes, .. }) = &dataset.labels else { panic!("one class per node") };
    let indptr: Vec<u64> = (0..=dataset.n_nodes() as u64).map(|v| 4 * v).collect();
    let words = |(v, &class): (usize, &u32)| (0..4).map(move |i| 12 * i + (3 * class + v as u32 % 5) % 12);
    let indices: Vec<u32> = classes.iter().enumerate().flat_map(words).collect();
    let csr = Csr::new(dataset.n_nodes(), 48, indptr, indices, None).unwrap();
    Dataset { features: Some(Features::Sparse(csr)), ..dataset.clone() }
}

fn train(dataset: Dataset, config: &TrainConfig) -> Result<Outcome, TrainError> {
    girih_trainer::train(&Cpu::new(), dataset, config, &SessionOptions::default(), &mut |_| Control::Continue)
}

/// Trains with a checkpoint in `folder`. Stops after epoch `stop_after` of the last run, if given.
fn train_into(folder: &Path, dataset: Dataset, config: &TrainConfig, stop_after: Option<u64>) -> Outcome {
    let options = SessionOptions { checkpoints: Some(folder.to_owned()), resume: true, ..SessionOptions::default() };
    let mut observe = |event: Event<'_>| match event {
        Event::Epoch { run, report } if run + 1 == config.runs && Some(report.epoch) == stop_after => Control::Stop,
        _ => Control::Continue,
    };
    girih_trainer::train(&Cpu::new(), dataset, config, &options, &mut observe).unwrap()
}

/// Values that a run borrows, for tests that inspect a run.
struct Stage {
    cpu: Cpu,
    inputs: Inputs<Cpu>,
    targets: Targets<Cpu>,
    labels: Labels,
    split: Split,
    dims: Dims,
    data: DataShape,
}

impl Stage {
    /// Prepares the inputs of `config`'s model.
    fn new(dataset: Dataset, config: &TrainConfig) -> Self {
        let (model, _) = build(&Cpu::new(), config, dims(&dataset));
        Self::with_needs(dataset, config, &model.input_spec())
    }

    fn with_needs(dataset: Dataset, config: &TrainConfig, input_spec: &InputSpec) -> Self {
        let cpu = Cpu::new();
        let dataset = if input_spec.relations.is_some() { dataset.with_types().unwrap() } else { dataset };
        let (dims, data) = (dims(&dataset), DataShape::of(&dataset));
        let labels = dataset.labels.unwrap();
        let targets = Targets::upload(&cpu, &labels).unwrap();
        let mut inputs =
            Inputs::prepare(&cpu, dataset.graph, dataset.features.unwrap(), input_spec, config.precision).unwrap();
        if let Some(typed) = dataset.typed {
            inputs = inputs.with_relations(&cpu, &typed, input_spec, config.precision).unwrap();
        }
        Self { cpu, inputs, targets, labels, split: dataset.splits[0].clone(), dims, data }
    }

    fn task(&self) -> Task<'_, Cpu> {
        Task::new(&self.cpu, &self.labels, &self.targets, &self.split).unwrap()
    }

    /// Initial run of `config`.
    fn run<'a>(&'a self, config: &'a TrainConfig) -> FullBatch<'a, Cpu> {
        let (model, params) = build(&self.cpu, config, self.dims.clone());
        FullBatch::new(&self.cpu, &self.inputs, self.task(), config, model, params, 0).unwrap()
    }
}

fn dims(dataset: &Dataset) -> Dims {
    Dims::of(dataset)
}

fn build(cpu: &Cpu, config: &TrainConfig, dims: Dims) -> (Box<dyn Model<Cpu>>, girih_trainer::Params<Cpu>) {
    let mut init = ParamInit::new(cpu, config.seed, 0);
    let model = config.model.build(dims, &mut init).unwrap();
    (model, init.finish())
}

fn train_epochs(run: &mut FullBatch<'_, Cpu>, n: usize) -> Vec<f32> {
    (0..n).map(|_| run.epoch().unwrap().train_loss).collect()
}
