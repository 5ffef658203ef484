//! State that all runs on triples share, and inference with trained rows.

use std::sync::Arc;

use girih_compute::Backend;
use girih_datasets::{Dataset, Triples};
use girih_graph_format::Matrix;

use super::decoder::Decoder;
use super::queries::{Known, Query};
use super::rank::Network;
use super::train::TripleTrainer;
use crate::TrainError;
use crate::data::{NodeFeatures, as_read};
use crate::engine::{Checkpoint, DataShape, ModelSource, Scores, apply_best, restore_best};
use crate::layers::Inputs;
use crate::tape::{Diagonal, ParamInit};

/// Triples on the host, and what the model reads on the device.
pub(crate) struct TripleSession<'m, B: Backend> {
    inputs: Inputs<B>,
    /// Pattern with a row for each entity.
    diagonal: Diagonal<B>,
    data: TripleData,
    source: ModelSource<'m, B>,
}

/// Triples of a data set, as training and ranking read them.
pub(super) struct TripleData {
    pub(super) triples: Arc<Triples>,
    pub(super) known: Known,
    pub(super) n_entities: usize,
    /// Queries of the validation triples, and of the test triples.
    pub(super) held_out: [Vec<Query>; 2],
    pub(super) n_unseen: usize,
}

impl TripleData {
    fn new(dataset: &Dataset) -> Result<Self, TrainError> {
        let name = &dataset.name;
        let Some(triples) = dataset.triples.clone() else {
            return Err(TrainError::invalid(format!(
                "{name} has no triples, which --task triples learns from; give a folder of train.txt, valid.txt and \
                 test.txt, or another --task"
            )));
        };
        let n_entities = dataset.n_nodes();
        if triples.train.is_empty() || n_entities < 2 {
            return Err(TrainError::invalid(format!(
                "{name} has {} training triples and {n_entities} entities; expected at least one triple and two entities",
                triples.train.len()
            )));
        }
        let held_out = [&triples.val, &triples.test].map(|part| Query::all(part, triples.n_relations()));
        let (known, n_unseen) = (Known::of(&triples), triples.n_unseen(n_entities));
        Ok(Self { triples, known, n_entities, held_out, n_unseen })
    }
}

impl<'m, B: Backend> TripleSession<'m, B> {
    pub(crate) fn new(backend: &B, mut dataset: Dataset, source: ModelSource<'m, B>) -> Result<Self, TrainError> {
        let (data, input_spec) = (TripleData::new(&dataset)?, source.input_spec(backend)?);
        let diagonal = Diagonal::upload(backend, data.n_entities)?;
        let (features, precision) =
            (NodeFeatures::take_any(&mut dataset, source.config.seed)?, source.config.precision);
        let (graph, typed) = (dataset.graph, dataset.typed.as_deref());
        let inputs = Inputs::of_data(backend, (graph, typed), features, &input_spec, precision)?;
        Ok(Self { inputs, diagonal, data, source })
    }

    /// Run at its start.
    pub(crate) fn run<'a>(&'a self, backend: &'a B, run: u64) -> Result<TripleTrainer<'a, B>, TrainError> {
        let config = self.source.config;
        let mut init = ParamInit::new(backend, config.seed, run);
        let model = self.source.build_with(&mut init)?;
        let decoder = Decoder::new(&config.triples, self.data.triples.n_relations(), &mut init)?;
        let network = Network { model, inputs: &self.inputs, decoder, diagonal: &self.diagonal };
        TripleTrainer::new(backend, (network, init.finish()), &self.data, config, run)
    }
}

/// Scores of a checkpoint's best rows on the validation and test triples of a data set.
///
/// # Errors
/// When the data is not that of the training, or the backend fails.
pub fn score_triples<B: Backend>(backend: &B, dataset: Dataset, checkpoint: &Checkpoint) -> Result<Scores, TrainError> {
    let session = session_of(backend, dataset, checkpoint)?;
    Ok(apply_best(&mut session.run(backend, checkpoint.progress.run)?, checkpoint)?.0)
}

/// Rows of all entities with the best parameters of a checkpoint.
///
/// # Errors
/// As [`score_triples`].
pub(crate) fn embeddings<B: Backend>(
    backend: &B,
    dataset: Dataset,
    checkpoint: &Checkpoint,
) -> Result<Matrix, TrainError> {
    let session = session_of(backend, dataset, checkpoint)?;
    let mut run = session.run(backend, checkpoint.progress.run)?;
    restore_best(&mut run, checkpoint)?;
    run.entities()
}

/// Session of a checkpoint on a data set, which must be that of the training: rows belong to its entities.
fn session_of<'m, B: Backend>(
    backend: &B,
    dataset: Dataset,
    checkpoint: &'m Checkpoint,
) -> Result<TripleSession<'m, B>, TrainError> {
    let config = &checkpoint.progress.config;
    checkpoint.check_built_by::<B>(&config.model)?;
    let dataset = as_read(dataset, config)?;
    let (trained, found) = (&checkpoint.progress.data, DataShape::of(&dataset));
    if trained.fingerprints != found.fingerprints {
        return Err(checkpoint.refused(format!(
            "the model has a row for each entity and relation of {trained}, in the order of its files; it cannot be applied \
             to {found}, whose contents differ: give the data that it was trained on"
        )));
    }
    let source = ModelSource::new(&config.model, config, &dataset.outline())?;
    TripleSession::new(backend, dataset, source)
}
