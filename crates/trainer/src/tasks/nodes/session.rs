//! State that all full-batch runs of node classification share.

use girih_compute::Backend;
use girih_datasets::{Dataset, Labels, Split};

use super::classifier::Task;
use super::full_batch::FullBatch;
use crate::TrainError;
use crate::data::Trainable;
use crate::engine::ModelSource;
use crate::layers::Inputs;
use crate::tape::Targets;

/// State shared by all runs: inputs and targets on the device, labels and splits on the host.
pub(crate) struct FullBatchSession<'m, B: Backend> {
    /// Graph and features on the device.
    inputs: Inputs<B>,
    /// Labels on the device.
    targets: Targets<B>,
    /// Labels on the host.
    labels: Labels,
    /// Splits, one of which each run takes.
    splits: Vec<Split>,
    /// Source of the networks.
    source: ModelSource<'m, B>,
}

impl<'m, B: Backend> FullBatchSession<'m, B> {
    /// Checks a data set and copies it to the device.
    pub(crate) fn new(backend: &B, dataset: Dataset, source: ModelSource<'m, B>) -> Result<Self, TrainError> {
        let config = source.config;
        let input_spec = source.input_spec(backend)?;
        let Trainable { dataset, features, labels } = Trainable::check(dataset, config, &input_spec)?;
        let targets = Targets::upload(backend, &labels)?;
        let graphs = (dataset.graph, dataset.typed.as_deref());
        let inputs = Inputs::of_data(backend, graphs, features, &input_spec, config.precision)?;
        Ok(Self { inputs, targets, labels, splits: dataset.splits, source })
    }

    /// Creates a run.
    pub(crate) fn run<'a>(&'a self, backend: &'a B, run: u64) -> Result<FullBatch<'a, B>, TrainError> {
        let nodes = LabelledNodes { labels: &self.labels, targets: &self.targets, splits: &self.splits };
        start_run(backend, &self.inputs, &nodes, &self.source, run)
    }
}

/// Labels and splits of the local nodes, for all runs.
pub(crate) struct LabelledNodes<'a, B: Backend> {
    /// Labels on the host.
    pub(crate) labels: &'a Labels,
    /// Labels on the device.
    pub(crate) targets: &'a Targets<B>,
    /// Splits, one of which each run takes.
    pub(crate) splits: &'a [Split],
}

/// Creates a run on existing inputs.
pub(crate) fn start_run<'a, B: Backend>(
    backend: &'a B,
    inputs: &'a Inputs<B>,
    nodes: &LabelledNodes<'a, B>,
    source: &ModelSource<'a, B>,
    run: u64,
) -> Result<FullBatch<'a, B>, TrainError> {
    let &LabelledNodes { labels, targets, splits } = nodes;
    let split = &splits[run as usize % splits.len()];
    let task = Task::on_ranks(backend, labels, targets, split, inputs.ranks.as_deref())?;
    let (model, params) = source.build(backend, run, inputs.ranks.as_deref())?;
    FullBatch::new(backend, inputs, task, source.config, model, params, run)
}
