//! [`CutData`]: what ranks read of a data set, each its own rows.

use std::sync::Arc;

use girih_compute::{Backend, Dtype};
use girih_datasets::{DataSource, Interactions, NodeRows, Outline, RowsDigest};
use girih_partition::{BlockPlan, Exchange};

use super::adjacency::CutAdjacency;
use super::ranks::Ranks;
use super::session::RankOptions;
use crate::TrainError;
use crate::checkpoint::DataShape;
use crate::config::TrainConfig;
use crate::inputs::{Inputs, Needs};
use crate::models::Dims;
use crate::recommend;
use crate::sampled::Held;
use crate::session::{Control, Event, Outcome, SessionOptions, build_model, check_trainable, start_run, train_runs};
use crate::targets::Targets;

/// What ranks read of a data set, each its own rows. Those that are threads share it.
pub(super) struct CutData {
    pub(super) plan: Arc<BlockPlan>,
    source: Arc<DataSource>,
    outline: Outline,
    /// Known of data that are in memory; of others, ranks find it out together.
    shape: Option<DataShape>,
    exchange: Exchange,
    wire: Dtype,
    needs: Needs,
}

impl CutData {
    /// What ranks will read for a model; of a folder, nothing is read yet.
    ///
    /// # Errors
    /// When the model cannot be trained on such data, or the plan does not fit them.
    pub(super) fn new<B: Backend>(
        backend: &B,
        source: impl Into<DataSource>,
        config: &TrainConfig,
        ranks: &RankOptions,
    ) -> Result<Self, TrainError> {
        let source = source.into();
        let outline = source.outline();
        if config.model.kind.is_recommender() {
            recommend::check_interactions(&outline, config)?;
        } else {
            check_trainable(&outline, config)?;
        }
        let plan = Arc::new(ranks.plan(outline.n_nodes, || source.offsets())?);
        let needs = build_model(backend, config, Dims::of_outline(&outline), 0, None)?.0.needs();
        let shape = match &source {
            DataSource::Loaded(dataset) => Some(DataShape::of(dataset)),
            DataSource::Stored(_) => None,
        };
        Ok(Self { plan, source: Arc::new(source), outline, shape, exchange: ranks.exchange, wire: ranks.wire, needs })
    }

    /// Trains all runs on the rank's own rows.
    pub(super) fn train_all_runs<B: Backend>(
        &self,
        backend: &B,
        ranks: &Arc<Ranks<B>>,
        config: &TrainConfig,
        options: &SessionOptions,
        observe: &mut dyn FnMut(Event<'_>) -> Control,
    ) -> Result<Outcome, TrainError> {
        let shape = self.shape(ranks)?;
        let adjacency = self.adjacency(ranks)?;
        let (ranks, model) = (Arc::clone(ranks), (config, Dims::of_outline(&self.outline)));
        if let Some(interactions) = self.interactions() {
            let inputs = Inputs::of_graph_on_rank(ranks, adjacency);
            let start = |run| recommend::start_run(backend, &inputs, interactions, model, run);
            return train_runs(config, &shape, options, observe, |run| Ok(Box::new(start(run)?)));
        }
        let NodeRows { features, first_value, labels, splits } = self.source.rows(ranks.own())?;
        let features = (features.expect("checked"), first_value);
        let inputs = Inputs::of_rank(backend, ranks, adjacency, features, &self.needs, config.precision)?;
        let labels = labels.expect("checked");
        let targets = Targets::upload(backend, &labels)?;
        let start = |run| start_run(backend, &inputs, (&labels, &targets, &splits[..]), model, run);
        train_runs(config, &shape, options, observe, |run| Ok(Box::new(start(run)?)))
    }

    /// Trains all runs on mini-batches, of which the rank makes its share from its own rows and what others tell it of theirs.
    pub(super) fn train_on_patches<B: Backend>(
        &self,
        backend: &B,
        ranks: &Arc<Ranks<B>>,
        config: &TrainConfig,
        options: &SessionOptions,
        observe: &mut dyn FnMut(Event<'_>) -> Control,
    ) -> Result<Outcome, TrainError> {
        let shape = self.shape(ranks)?;
        let cut = self.adjacency(ranks)?;
        let rows = self.source.graph_rows(ranks.own())?;
        let held = Held::new(backend, ranks, (rows, cut), self.source.rows(ranks.own())?, &self.needs, config)?;
        let patches = held.patches(ranks)?;
        let dims = Dims::of_outline(&self.outline);
        let start = |run| held.run(backend, &patches, (config, dims), run);
        train_runs(config, &shape, options, observe, |run| Ok(Box::new(start(run)?)))
    }

    /// The identity of the data: of a folder, from what all ranks read of it, which is compared with its checksums.
    fn shape<B: Backend>(&self, ranks: &Ranks<B>) -> Result<DataShape, TrainError> {
        let stored = match (&self.shape, &*self.source) {
            (Some(shape), _) => return Ok(shape.clone()),
            (None, DataSource::Stored(stored)) => stored,
            (None, DataSource::Loaded(_)) => unreachable!("known of data in memory"),
        };
        let all = ranks.peers.all_gather_bytes(&stored.digest(ranks.own())?.to_bytes())?;
        let digests: Vec<RowsDigest> = all.iter().map(|message| RowsDigest::from_bytes(message)).collect();
        Ok(DataShape::of_outline(&self.outline, stored.fingerprints(&digests)?))
    }

    fn adjacency<B: Backend>(&self, ranks: &Ranks<B>) -> Result<Option<Arc<CutAdjacency>>, TrainError> {
        let Some(adjacency) = self.needs.graph else { return Ok(None) };
        CutAdjacency::new(Arc::clone(&self.source), adjacency, ranks, (self.exchange, self.wire))
            .map(|cut| Some(Arc::new(cut)))
    }

    /// Of data for a recommender, which every rank has whole.
    fn interactions(&self) -> Option<&Interactions> {
        match &*self.source {
            DataSource::Loaded(dataset) => dataset.interactions.as_ref(),
            DataSource::Stored(_) => None,
        }
    }
}
