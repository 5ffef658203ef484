//! [`PartitionedData`]: the data set of a job on ranks, of which each rank reads its own rows.

use std::sync::Arc;

use girih_comm::{Collective, CommError, GpuTransport};
use girih_compute::{Backend, Dtype};
use girih_datasets::{DataSource, Interactions, Labels, NodeRows, Outline, RowsDigest, Split};
use girih_features::MiniBatchBackend;
use girih_partition::{BlockPlan, Exchange};

use super::job::TakeLogits;
use crate::TrainError;
use crate::config::{GraphPlacement, RankOptions, TrainConfig};
use crate::data::{NodeFeatures, PartitionedAdjacency, check_trainable};
use crate::engine::{
    Checkpoint, Control, DataShape, Event, ModelSource, Outcome, Progress, Scores, SessionOptions, TestReport,
    apply_best, train_runs,
};
use crate::layers::{FeatureInput, Inputs};
use crate::minibatch::{PatchData, PatchOptions};
use crate::models::{BuildModel, InputSpec};
use crate::tape::ranks::{HANDED, Ranks};
use crate::tape::{ParamId, Targets};
use crate::tasks::nodes::{FullBatch, LabelledNodes, start_run};
use crate::tasks::recommend::{self, Recommendations};

/// Data set of a job on ranks, of which each rank reads its own rows. Ranks that are threads share it.
pub struct PartitionedData {
    plan: Arc<BlockPlan>,
    source: Arc<DataSource>,
    outline: Outline,
    /// Identity of data in memory. For a folder it is `None`, and the ranks find it out together.
    shape: Option<DataShape>,
    exchange: Exchange,
    wire: Dtype,
    transport: Option<GpuTransport>,
    layout: GraphPlacement,
    input_spec: InputSpec,
}

impl PartitionedData {
    /// Data for a model. Nothing is read yet from a folder.
    ///
    /// # Errors
    /// When the model cannot be trained on such data, or the plan does not fit them.
    pub fn new<B: Backend>(
        backend: &B,
        source: impl Into<DataSource>,
        builder: &dyn BuildModel<B>,
        config: &TrainConfig,
        ranks: &RankOptions,
    ) -> Result<Self, TrainError> {
        if config.batch.is_sampled() && builder.sampler().is_some() {
            return Err(TrainError::invalid(format!(
                "{} brings a sampler of its own, which needs the whole graph on each rank: give ranks all data \
                 (GraphPlacement::Replicated), or a builder without a sampler",
                config.model.name()
            )));
        }
        let source = source.into().with_features_from(config.features_from)?;
        let outline = source.outline();
        if config.model.kind.is_recommender() {
            recommend::check_interactions(&outline, config)?;
        } else {
            check_trainable(&outline, config, false)?;
        }
        let plan = Arc::new(ranks.plan(outline.n_nodes, || source.offsets())?);
        let input_spec = ModelSource::new(builder, config, &outline)?.input_spec(backend)?;
        let shape = match &source {
            DataSource::Loaded(dataset) => Some(DataShape::of(dataset)),
            DataSource::Stored(_) => None,
        };
        Ok(Self {
            plan,
            source: Arc::new(with_made_features(source, config)?),
            outline,
            shape,
            exchange: ranks.exchange,
            wire: ranks.wire,
            transport: ranks.transport,
            layout: ranks.layout,
            input_spec,
        })
    }

    /// This rank of a world, with the groups of the plan.
    pub fn ranks<B: Backend>(&self, world: Box<dyn Collective<B>>) -> Result<Arc<Ranks<B>>, CommError> {
        Ok(Arc::new(Ranks::new(Arc::clone(&self.plan), world)?))
    }

    /// Trains all runs on the rank's own rows.
    pub fn train_all_runs<B: Backend>(
        &self,
        backend: &B,
        ranks: &Arc<Ranks<B>>,
        (config, builder): (&TrainConfig, &dyn BuildModel<B>),
        options: &SessionOptions,
        observe: &mut dyn FnMut(Event<'_>) -> Control,
    ) -> Result<Outcome, TrainError> {
        let shape = self.shape(ranks)?;
        let model = ModelSource::new(builder, config, &self.outline)?;
        if let Some(interactions) = self.interactions() {
            let inputs = self.graph(ranks)?;
            let start = |run| recommend::start_run(backend, &inputs, interactions, &model, run);
            return train_runs(config, &shape, options, observe, |run| Ok(Box::new(start(run)?)));
        }
        let own = self.own_rows(backend, ranks, config)?;
        train_runs(config, &shape, options, observe, |run| Ok(Box::new(own.start_run(backend, &model, run)?)))
    }

    /// Applies the best parameters of a checkpoint to the rank's own rows. On the first rank, `take` gets the logits
    /// of all nodes.
    pub(super) fn apply<B: Backend>(
        &self,
        backend: &B,
        ranks: &Arc<Ranks<B>>,
        (checkpoint, builder): (&Checkpoint, &dyn BuildModel<B>),
        take: Option<&mut TakeLogits<'_>>,
    ) -> Result<(Scores, TestReport), TrainError> {
        let Progress { config, run, .. } = &checkpoint.progress;
        checkpoint.progress.check_data(&self.outline).map_err(|what| checkpoint.refused(what))?;
        // Checks the rows that were read against the checksums of their folder.
        self.shape(ranks)?;
        let own = self.own_rows(backend, ranks, config)?;
        let mut trained = own.start_run(backend, &ModelSource::new(builder, config, &self.outline)?, *run)?;
        let (scores, report) = apply_best(&mut trained, checkpoint)?;
        if let Some(take) = take {
            let logits = trained.logits()?;
            ranks.hand_rows(&logits, HANDED, take)?;
        }
        Ok((scores, report.expect("a classifier has classes")))
    }

    /// Applies the best parameters of a recommender's checkpoint.
    pub(super) fn recommend<B: Backend>(
        &self,
        backend: &B,
        ranks: &Arc<Ranks<B>>,
        checkpoint: &Checkpoint,
    ) -> Result<Recommendations, TrainError> {
        let Progress { config, data, run, .. } = &checkpoint.progress;
        data.check_nodes(&self.outline).map_err(|what| checkpoint.refused(what))?;
        self.shape(ranks)?;
        let interactions = self.interactions().expect("checked");
        let inputs = self.graph(ranks)?;
        let model = ModelSource::new(&config.model, config, &self.outline)?;
        Recommendations::of(recommend::start_run(backend, &inputs, interactions, &model, *run)?, checkpoint)
    }

    /// Inputs of this rank for a model without features.
    fn graph<B: Backend>(&self, ranks: &Arc<Ranks<B>>) -> Result<Inputs<B>, TrainError> {
        Ok(Inputs::of_graph_on_rank(Arc::clone(ranks), self.adjacency(ranks)?))
    }

    /// Inputs and targets of this rank for a model with features.
    fn own_rows<B: Backend>(
        &self,
        backend: &B,
        ranks: &Arc<Ranks<B>>,
        config: &TrainConfig,
    ) -> Result<OwnRows<B>, TrainError> {
        let adjacency = self.adjacency(ranks)?;
        let NodeRows { features, first_value, labels, splits } = self.source.rows(ranks.own())?;
        let (ranks, input_spec, precision) = (Arc::clone(ranks), &self.input_spec, config.precision);
        let inputs = if config.learns_features() {
            let learned = FeatureInput::Learned(ParamId::FEATURES);
            Inputs::of_rank_with(backend, ranks, adjacency, learned, input_spec, precision)?
        } else {
            let features = (features.expect("checked"), first_value);
            Inputs::of_rank(backend, ranks, adjacency, features, input_spec, precision)?
        };
        let labels = labels.expect("checked");
        Ok(OwnRows { inputs, targets: Targets::upload(backend, &labels)?, labels, splits })
    }

    /// Trains all runs on mini-batches. The rank samples its share from its own rows and from messages of other
    /// ranks.
    pub(super) fn train_on_patches<B: MiniBatchBackend>(
        &self,
        backend: &B,
        ranks: &Arc<Ranks<B>>,
        (config, builder): (&TrainConfig, &dyn BuildModel<B>),
        options: &SessionOptions,
        observe: &mut dyn FnMut(Event<'_>) -> Control,
    ) -> Result<Outcome, TrainError> {
        let shape = self.shape(ranks)?;
        let cut = self.adjacency(ranks)?;
        let rows = match self.layout {
            GraphPlacement::SplitFeatures => 0..self.outline.n_nodes,
            GraphPlacement::Patches | GraphPlacement::Replicated => ranks.own(),
        };
        let (rows, own) = (self.source.graph_rows(rows)?, self.source.rows(ranks.own())?);
        let patch_options = PatchOptions { config, wire: self.wire, layout: self.layout };
        let held = PatchData::new(backend, ranks, (rows, cut), own, &self.input_spec, patch_options)?;
        let transports = self.transport.as_ref().map_or(&GpuTransport::ALL[..], std::slice::from_ref);
        let patches = held.patches(backend, transports, config.seed)?;
        let model = ModelSource::new(builder, config, &self.outline)?;
        let start = |run| held.run(backend, &patches, &model, run);
        let outcome = train_runs(config, &shape, options, observe, |run| Ok(Box::new(start(run)?)))?;
        Ok(Outcome { tiers: held.tiers().to_vec(), ..outcome })
    }

    /// Identity of the data. Of a folder it is computed from the rows of all ranks, and compared with its checksums.
    fn shape<B: Backend>(&self, ranks: &Ranks<B>) -> Result<DataShape, TrainError> {
        let stored = match (&self.shape, &*self.source) {
            (Some(shape), _) => return Ok(shape.clone()),
            (None, DataSource::Stored(stored)) => stored,
            (None, DataSource::Loaded(_)) => unreachable!("known of data in memory"),
        };
        let all = ranks.peers.all_gather_bytes(&stored.digest(ranks.own())?.to_bytes())?;
        let read = |(peer, message): (usize, &Vec<u8>)| {
            let unreadable = || ranks.payload(peer, message, "checksums of rows").malformed("no whole numbers");
            RowsDigest::from_bytes(message).ok_or_else(unreadable)
        };
        let digests: Vec<RowsDigest> = all.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        Ok(DataShape::of_outline(&self.outline, stored.fingerprints(&digests)?))
    }

    fn adjacency<B: Backend>(&self, ranks: &Ranks<B>) -> Result<Option<Arc<PartitionedAdjacency>>, TrainError> {
        let Some(adjacency) = self.input_spec.graph else { return Ok(None) };
        PartitionedAdjacency::new(Arc::clone(&self.source), adjacency, ranks, (self.exchange, self.wire))
            .map(|cut| Some(Arc::new(cut)))
    }

    /// Interactions of a recommender, which every rank has whole.
    fn interactions(&self) -> Option<&Interactions> {
        match &*self.source {
            DataSource::Loaded(dataset) => dataset.interactions.as_ref(),
            DataSource::Stored(_) => None,
        }
    }
}

/// Data with the features that are computed from the graph, which all ranks then read.
fn with_made_features(source: DataSource, config: &TrainConfig) -> Result<DataSource, TrainError> {
    let DataSource::Loaded(mut dataset) = source else { return Ok(source) };
    if config.features_from.is_none() || config.learns_features() {
        return Ok(DataSource::Loaded(dataset));
    }
    if let NodeFeatures::Given(features) = NodeFeatures::take(&mut dataset, None, config.seed)? {
        dataset.features = Some(features);
    }
    Ok(DataSource::Loaded(dataset))
}

/// A rank's own rows: inputs and targets on the device, labels and splits on the host.
struct OwnRows<B: Backend> {
    inputs: Inputs<B>,
    targets: Targets<B>,
    labels: Labels,
    splits: Vec<Split>,
}

impl<B: Backend> OwnRows<B> {
    fn start_run<'a>(
        &'a self,
        backend: &'a B,
        model: &ModelSource<'a, B>,
        run: u64,
    ) -> Result<FullBatch<'a, B>, TrainError> {
        let nodes = LabelledNodes { labels: &self.labels, targets: &self.targets, splits: &self.splits };
        start_run(backend, &self.inputs, &nodes, model, run)
    }
}
