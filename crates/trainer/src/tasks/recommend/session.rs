//! State that all runs of a recommender share, and inference with a trained model.

use girih_compute::Backend;
use girih_datasets::{Dataset, Interactions, Outline};
use girih_graph_format::{Matrix, NodeId};

use super::train::Recommender;
use crate::TrainError;
use crate::config::TrainConfig;
use crate::engine::{Checkpoint, DataShape, ModelSource, Scores, TOP_K, apply_best, restore_best};
use crate::layers::Inputs;

/// Graph on the device, and interactions on the host.
pub(crate) struct RecommenderSession<'m, B: Backend> {
    inputs: Inputs<B>,
    interactions: Interactions,
    source: ModelSource<'m, B>,
}

impl<'m, B: Backend> RecommenderSession<'m, B> {
    pub(crate) fn new(backend: &B, dataset: Dataset, source: ModelSource<'m, B>) -> Result<Self, TrainError> {
        let input_spec = source.input_spec(backend)?;
        let (dataset, interactions) = interactions_of(dataset, source.config)?;
        Ok(Self { inputs: Inputs::of_graph(backend, dataset.graph, &input_spec)?, interactions, source })
    }

    pub(crate) fn run<'a>(&'a self, backend: &'a B, run: u64) -> Result<Recommender<'a, B>, TrainError> {
        start_run(backend, &self.inputs, &self.interactions, &self.source, run)
    }
}

/// Takes the interactions out of the data.
///
/// # Errors
/// When there are none.
pub(crate) fn interactions_of(
    mut dataset: Dataset,
    config: &TrainConfig,
) -> Result<(Dataset, Interactions), TrainError> {
    check_interactions(&dataset.outline(), config)?;
    let interactions = dataset.interactions.take().expect("checked");
    Ok((dataset, interactions))
}

/// Refuses data without users and items.
pub(crate) fn check_interactions(outline: &Outline, config: &TrainConfig) -> Result<(), TrainError> {
    if outline.n_users.is_some() && outline.n_edges == 0 {
        return Err(TrainError::invalid(format!("{} has no interaction to train on", outline.name)));
    }
    if outline.n_users.is_some() {
        return Ok(());
    }
    Err(TrainError::invalid(format!(
        "{} has no interactions of users and items, which the model {} learns from; choose another model",
        outline.name,
        config.model.name()
    )))
}

/// Run of a model on these inputs, at its start.
pub(crate) fn start_run<'a, B: Backend>(
    backend: &'a B,
    inputs: &'a Inputs<B>,
    interactions: &'a Interactions,
    source: &ModelSource<'a, B>,
    run: u64,
) -> Result<Recommender<'a, B>, TrainError> {
    let (model, params) = source.build(backend, run, inputs.ranks.as_deref())?;
    Recommender::new(backend, inputs, interactions, source.config, model, params, run)
}

/// Recommendations of a trained model.
#[derive(Clone, Debug, PartialEq)]
pub struct Recommendations {
    /// Scores of the ranking on the test items.
    pub scores: Scores,
    /// Items of every user, best first, without its training items. Each user has [`TOP_K`] entries, padded with
    /// [`NO_COLUMN`](girih_compute::NO_COLUMN) if there are fewer items.
    pub items: Vec<NodeId>,
    /// Number of users.
    pub n_users: usize,
}

/// Ranks items for every user with the best parameters of a checkpoint.
///
/// # Errors
/// When data set and checkpoint do not match, or the backend fails.
pub fn recommend<B: Backend>(
    backend: &B,
    dataset: Dataset,
    checkpoint: &Checkpoint,
) -> Result<Recommendations, TrainError> {
    let session = session_of(backend, dataset, checkpoint)?;
    Recommendations::of(session.run(backend, checkpoint.progress.run)?, checkpoint)
}

/// Embeddings of users, then of items, with the best parameters of a checkpoint.
///
/// # Errors
/// As [`recommend`].
pub(crate) fn embeddings<B: Backend>(
    backend: &B,
    dataset: Dataset,
    checkpoint: &Checkpoint,
) -> Result<Matrix, TrainError> {
    let session = session_of(backend, dataset, checkpoint)?;
    let mut run = session.run(backend, checkpoint.progress.run)?;
    restore_best(&mut run, checkpoint)?;
    run.embeddings()
}

/// Session of a checkpoint on a data set.
fn session_of<'m, B: Backend>(
    backend: &B,
    dataset: Dataset,
    checkpoint: &'m Checkpoint,
) -> Result<RecommenderSession<'m, B>, TrainError> {
    let config = &checkpoint.progress.config;
    checkpoint.check_built_by::<B>(&config.model)?;
    checkpoint.progress.data.check_nodes(&dataset.outline()).map_err(|what| checkpoint.refused(what))?;
    let found = DataShape::of(&dataset);
    checkpoint.note_other_contents(&found);
    let source = ModelSource::new(&config.model, config, &dataset.outline())?;
    RecommenderSession::new(backend, dataset, source)
}

impl Recommendations {
    /// Recommendations of a run with the best parameters of a checkpoint.
    pub(crate) fn of<B: Backend>(mut run: Recommender<'_, B>, checkpoint: &Checkpoint) -> Result<Self, TrainError> {
        let (scores, _) = apply_best(&mut run, checkpoint)?;
        let items = run.top_items()?;
        Ok(Self { scores, n_users: items.len() / TOP_K, items })
    }
}
