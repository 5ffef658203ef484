//! [`TimedLinkSession`]: state that all runs on links in time share.

use girih_compute::Backend;
use girih_datasets::{Dataset, Features};
use girih_features::MiniBatchBackend;
use girih_graph_format::Csr;

use super::links::TimedLinks;
use super::scorer::TimedScorer;
use crate::TrainError;
use crate::config::TrainConfig;
use crate::data::{NodeFeatures, check_features, check_untyped};
use crate::engine::{Checkpoint, ModelSource, RunState, Scorer};
use crate::layers::Inputs;
use crate::minibatch::batch::{FeatureSource, WholeGraph};
use crate::minibatch::link_session::Embedded;
use crate::minibatch::policy::{no_neighbors, raw};
use crate::minibatch::{Batches, MiniBatch};
use crate::models::InputSpec;

/// Edges in time on the host, and the features of nodes.
pub(crate) struct TimedLinkSession<'m, B: Backend> {
    links: TimedLinks,
    /// Features of all nodes on the device, without a graph.
    inputs: Inputs<B>,
    /// Sparse features on the host.
    sparse: Option<Csr>,
    source: ModelSource<'m, B>,
}

impl<'m, B: MiniBatchBackend> TimedLinkSession<'m, B> {
    /// Checks a data set and copies its features to the device. Features that are made from the graph know the training
    /// edges alone.
    ///
    /// # Errors
    /// When edges have no times, too few are left to train on, the settings do not fit, or the device's memory does not
    /// suffice.
    pub(crate) fn new(backend: &B, mut dataset: Dataset, source: ModelSource<'m, B>) -> Result<Self, TrainError> {
        let config = source.config;
        check_untyped(&dataset.outline(), "--task links")?;
        check_features(&dataset.outline())?;
        let spec = source.input_spec(backend)?;
        let adjacency = spec.graph.ok_or_else(|| no_neighbors(config))?;
        let links = TimedLinks::new(&mut dataset, (adjacency, spec.edges), config)?;
        let known = links.training_graph()?;
        let features = NodeFeatures::take(&mut dataset, Some(&known), config.seed)?;
        let sparse = match &features {
            NodeFeatures::Given(features) => Features::as_sparse(features).cloned(),
            NodeFeatures::Learned | NodeFeatures::None => None,
        };
        let spec = InputSpec { graph: None, ..raw(&spec) };
        let inputs = Inputs::of_features(backend, known, features, &spec, config.precision)?;
        Ok(Self { links, inputs, sparse, source })
    }

    /// Run at its start.
    pub(crate) fn run<'a>(&'a self, backend: &'a B, run: u64) -> Result<MiniBatch<'a, B>, TrainError> {
        let (state, scorer) = self.start(backend, run)?;
        let batches = Batches::of_timed(&self.links, self.source.config, run);
        Ok(MiniBatch::new(state, batches, self.whole(), Box::new(scorer), None))
    }

    fn start<'a>(&'a self, backend: &'a B, run: u64) -> Result<(RunState<'a, B>, TimedScorer<'a, B>), TrainError> {
        let config: &TrainConfig = self.source.config;
        let (model, params) = self.source.build(backend, run, None)?;
        let state = RunState::new(backend, config, &config.optimizer, params, run)?;
        Ok((state, TimedScorer { links: &self.links, whole: self.whole(), model }))
    }

    /// Features from which batches take their rows.
    fn whole(&self) -> WholeGraph<'_, B> {
        let features = self.inputs.features.as_ref();
        let features = features.map(|features| FeatureSource { features, sparse: self.sparse.as_ref(), reader: None });
        WholeGraph { features, types: Vec::new(), labels: None }
    }
}

/// Scores of a checkpoint's best parameters on the held-out edges of a data set, and the embeddings of all nodes from all of
/// its edges.
///
/// # Errors
/// When data set and checkpoint do not match, or the backend fails.
pub(crate) fn embed_in_time<B: MiniBatchBackend>(
    backend: &B,
    dataset: Dataset,
    source: ModelSource<'_, B>,
    checkpoint: &Checkpoint,
) -> Result<Embedded, TrainError> {
    let n_nodes = dataset.n_nodes();
    let session = TimedLinkSession::new(backend, dataset, source)?;
    let (mut state, scorer) = session.start(backend, checkpoint.progress.run)?;
    state.restore(checkpoint)?;
    state.restore_best()?;
    Ok(Embedded { scores: scorer.evaluate(&mut state)?, embeddings: scorer.embeddings(&mut state, n_nodes)? })
}
