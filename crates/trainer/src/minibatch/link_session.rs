//! State that all runs of link prediction share, and inference with a trained model.

use girih_compute::Backend;
use girih_datasets::{Dataset, EdgeSplit};
use girih_features::MiniBatchBackend;
use girih_graph_format::{Csr, Matrix};

use super::batches::Batches;
use super::data::{DataUse, MiniBatchData};
use super::timed::embed_in_time;
use super::train::MiniBatch;
use crate::TrainError;
use crate::config::{LinkConfig, TrainConfig};
use crate::data::{NodeFeatures, check_features, check_untyped};
use crate::engine::{Checkpoint, DataShape, ModelSource, Run, RunState, Scores, apply_best};
use crate::layers::Inputs;
use crate::models::BuildModel;
use crate::tasks::links::{
    HeldOut, Link, LinkEpochs, LinkPart, LinkPredictor, LinkScorer, LinkSplit, NonLinks, PairList, held_out,
    scored_pairs, training_links,
};

/// Graph of the training links on the device, and all links on the host.
pub(crate) struct LinkSession<'m, B: Backend> {
    graph: MessageGraph<B>,
    train: Vec<Link>,
    non_links: NonLinks,
    held_out: HeldOut<B>,
    source: ModelSource<'m, B>,
}

/// Graph that messages are passed over.
enum MessageGraph<B: Backend> {
    /// Whole graph, in every step.
    Full(Inputs<B>),
    /// Graph that is sampled for steps.
    Sampled(Box<MiniBatchData<B>>),
}

impl<B: Backend> MessageGraph<B> {
    fn whole(&self) -> &Inputs<B> {
        match self {
            Self::Full(inputs) => inputs,
            Self::Sampled(batch_data) => &batch_data.inputs,
        }
    }
}

impl<'m, B: MiniBatchBackend> LinkSession<'m, B> {
    pub(crate) fn new(backend: &B, mut dataset: Dataset, source: ModelSource<'m, B>) -> Result<Self, TrainError> {
        let config = source.config;
        check_untyped(&dataset.outline(), "--task links")?;
        check_features(&dataset.outline())?;
        let (train, messages, non_links, pairs) = match dataset.edge_split.take() {
            Some(split) => shipped(&dataset, &split, config)?,
            None => drawn(&dataset, config)?,
        };
        let features = NodeFeatures::take(&mut dataset, Some(&messages), config.seed)?;
        drop(dataset);
        let held_out = HeldOut::new(backend, &pairs[0], &pairs[1])?;
        let input_spec = source.input_spec(backend)?;
        let graph = if config.batch.is_sampled() {
            let data_use = DataUse { seeds: &[], n_devices: 1, by_layers: false, host_samples: true };
            let whole = MiniBatchData::new(backend, messages, features, &input_spec, config, data_use)?;
            MessageGraph::Sampled(Box::new(whole))
        } else {
            MessageGraph::Full(Inputs::of_features(backend, messages, features, &input_spec, config.precision)?)
        };
        Ok(Self { graph, train, non_links, held_out, source })
    }

    /// Run at its start.
    pub(crate) fn run<'a>(&'a self, backend: &'a B, run: u64) -> Result<Box<dyn Run<'a, B> + 'a>, TrainError> {
        let config = self.source.config;
        let MessageGraph::Sampled(batch_data) = &self.graph else {
            return Ok(Box::new(self.predictor(backend, run)?));
        };
        let (state, scorer) = self.start(backend, run)?;
        let epochs = LinkEpochs::new(&self.train, &self.non_links, config, run);
        let batches = Batches::of_links(
            &batch_data.neighborhoods,
            batch_data.adjacency,
            epochs,
            config,
            (run, batch_data.in_place),
        )?;
        Ok(Box::new(MiniBatch::new(state, batches, batch_data.whole(None), Box::new(scorer), None)))
    }

    /// Run on the whole graph.
    fn predictor<'a>(&'a self, backend: &'a B, run: u64) -> Result<LinkPredictor<'a, B>, TrainError> {
        let (state, scorer) = self.start(backend, run)?;
        Ok(LinkPredictor::new(state, scorer, LinkEpochs::new(&self.train, &self.non_links, self.source.config, run)))
    }

    fn start<'a>(&'a self, backend: &'a B, run: u64) -> Result<(RunState<'a, B>, LinkScorer<'a, B>), TrainError> {
        let config = self.source.config;
        let (model, params) = self.source.build(backend, run, None)?;
        let state = RunState::new(backend, config, &config.optimizer, params, run)?;
        Ok((state, LinkScorer { inputs: self.graph.whole(), held_out: &self.held_out, model }))
    }
}

/// Training links, the graph that messages are passed over, the pairs that train against the links, and the pairs that
/// validate and test.
type Parts = (Vec<Link>, Csr, NonLinks, [PairList; 2]);

/// Parts of a random split.
fn drawn(dataset: &Dataset, config: &TrainConfig) -> Result<Parts, TrainError> {
    let split = LinkSplit::new(&config.links, config.seed);
    let links = split.deal(&dataset.graph);
    if links.train.is_empty() {
        return Err(TrainError::invalid(format!(
            "{} has {} links, and none is left to train on: give smaller --val-links and --test-links, or data with more edges",
            dataset.name,
            links.n_all()
        )));
    }
    let messages = split.messages(&dataset.graph);
    let non_links = NonLinks::new(dataset.graph.clone(), links.n_all())?;
    let part = |links: &[Link], part| held_out(links, &non_links, config.seed, part);
    let pairs = [part(&links.val, LinkPart::Val), part(&links.test, LinkPart::Test)];
    Ok((links.train, messages, non_links, pairs))
}

/// Parts of the data's own split. Its graph has the training edges alone, and training knows no others.
fn shipped(dataset: &Dataset, split: &EdgeSplit, config: &TrainConfig) -> Result<Parts, TrainError> {
    let (name, usual) = (&dataset.name, LinkConfig::default());
    if (config.links.val, config.links.test) != (usual.val, usual.test) {
        return Err(TrainError::invalid(format!(
            "{name} has a split of edges of its own, so that no links are drawn: leave --val-links and --test-links out"
        )));
    }
    let train = training_links(split);
    if train.is_empty() {
        return Err(TrainError::invalid(format!("{name} has no training edge between two different nodes")));
    }
    let non_links = NonLinks::new(dataset.graph.clone(), train.len())?;
    Ok((train, dataset.graph.clone(), non_links, [scored_pairs(&split.val), scored_pairs(&split.test)]))
}

/// Result of a trained model on a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedded {
    /// Scores of the embeddings on held-out links and non-links.
    pub scores: Scores,
    /// Embedding of each node, one per row.
    pub embeddings: Matrix,
}

/// Embeddings of the nodes of a data set, with the best parameters of a checkpoint. Messages are passed over the
/// training links, as the data's own split has them, or the checkpoint's seed and fractions divide them.
///
/// # Errors
/// When data set and checkpoint do not match, or the backend fails.
pub fn embed<B: MiniBatchBackend>(
    backend: &B,
    dataset: Dataset,
    checkpoint: &Checkpoint,
) -> Result<Embedded, TrainError> {
    embed_model(backend, dataset, &checkpoint.progress.config.model, checkpoint)
}

/// As [`embed`], for a model from outside.
///
/// # Errors
/// As [`embed`], and when the checkpoint is of another model than the builder's.
pub fn embed_model<B: MiniBatchBackend>(
    backend: &B,
    dataset: Dataset,
    builder: &dyn BuildModel<B>,
    checkpoint: &Checkpoint,
) -> Result<Embedded, TrainError> {
    checkpoint.check_built_by(builder)?;
    let config = &checkpoint.progress.config;
    let dataset = dataset.with_features_from(config.features_from)?.with_codec(config.codec, config.seed)?;
    let (progress, outline) = (&checkpoint.progress, dataset.outline());
    let fits = progress.check_known_nodes(&outline).and_then(|()| progress.data.check_features(&outline));
    fits.map_err(|what| checkpoint.refused(what))?;
    let found = DataShape::of(&dataset);
    checkpoint.note_other_contents(&found);
    let source = ModelSource::new(builder, config, &dataset.outline())?;
    if config.time.is_set() {
        return embed_in_time(backend, dataset, source, checkpoint);
    }
    let session = LinkSession::new(backend, dataset, source)?;
    let mut trainer = session.predictor(backend, checkpoint.progress.run)?;
    let (scores, _) = apply_best(&mut trainer, checkpoint)?;
    Ok(Embedded { scores, embeddings: trainer.embeddings()? })
}
