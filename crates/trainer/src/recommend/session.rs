//! What all runs of a recommender share, and a trained one applied.

use girih_compute::Backend;
use girih_datasets::{Dataset, Interactions, Outline};
use girih_graph_format::NodeId;

use super::metrics::TOP_K;
use super::train::Recommender;
use crate::TrainError;
use crate::checkpoint::{Checkpoint, DataShape};
use crate::config::TrainConfig;
use crate::inputs::Inputs;
use crate::models::Dims;
use crate::report::Scores;
use crate::session::{apply_best, build_model};

/// The graph on the device, and the interactions on the host.
pub(crate) struct Prepared<B: Backend> {
    inputs: Inputs<B>,
    interactions: Interactions,
    dims: Dims,
}

impl<B: Backend> Prepared<B> {
    pub(crate) fn new(backend: &B, dataset: Dataset, config: &TrainConfig) -> Result<Self, TrainError> {
        let dims = Dims::of(&dataset);
        let input_spec = build_model(backend, config, dims, 0, None)?.0.input_spec();
        let (dataset, interactions) = interactions_of(dataset, config)?;
        Ok(Self { inputs: Inputs::of_graph(backend, dataset.graph, &input_spec)?, interactions, dims })
    }

    pub(crate) fn run<'a>(
        &'a self,
        backend: &'a B,
        config: &'a TrainConfig,
        run: u64,
    ) -> Result<Recommender<'a, B>, TrainError> {
        start_run(backend, &self.inputs, &self.interactions, (config, self.dims), run)
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
        config.model.kind.name()
    )))
}

/// The model of a run on inputs that are at hand.
pub(crate) fn start_run<'a, B: Backend>(
    backend: &'a B,
    inputs: &'a Inputs<B>,
    interactions: &'a Interactions,
    (config, dims): (&'a TrainConfig, Dims),
    run: u64,
) -> Result<Recommender<'a, B>, TrainError> {
    let (model, params) = build_model(backend, config, dims, run, inputs.ranks.as_deref())?;
    Recommender::new(backend, inputs, interactions, config, model, params, run)
}

/// What a trained model recommends.
#[derive(Clone, Debug, PartialEq)]
pub struct Recommendations {
    /// How well that agrees with the test items.
    pub scores: Scores,
    /// Items of every user, best first, without those of its training: [`TOP_K`] a user, filled up with
    /// [`NO_COLUMN`](girih_compute::NO_COLUMN) where there are fewer.
    pub items: Vec<NodeId>,
    /// Number of users.
    pub n_users: usize,
}

/// The items that the best parameters of a checkpoint rank first for every user.
///
/// # Errors
/// When data set and checkpoint do not fit each other, or the backend fails.
pub fn recommend<B: Backend>(
    backend: &B,
    dataset: Dataset,
    checkpoint: &Checkpoint,
) -> Result<Recommendations, TrainError> {
    let config = &checkpoint.progress.config;
    checkpoint.progress.data.check_nodes(&dataset.outline()).map_err(|what| checkpoint.refused(what))?;
    let found = DataShape::of(&dataset);
    checkpoint.note_other_contents(&found);
    let session = Prepared::new(backend, dataset, config)?;
    Recommendations::of(session.run(backend, config, checkpoint.progress.run)?, checkpoint)
}

impl Recommendations {
    /// Those of a run with the best parameters of a checkpoint.
    pub(crate) fn of<B: Backend>(mut run: Recommender<'_, B>, checkpoint: &Checkpoint) -> Result<Self, TrainError> {
        let (scores, _) = apply_best(&mut run, checkpoint)?;
        let items = run.top_items()?;
        Ok(Self { scores, n_users: items.len() / TOP_K, items })
    }
}
