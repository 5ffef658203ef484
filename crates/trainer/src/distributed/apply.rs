//! [`ApplyJob`] and [`RecommendJob`]: inference with a trained model on several ranks.

use std::sync::{Mutex, PoisonError};

use girih_comm::threads::ThreadRank;
use girih_comm::{Collective, CommError};
use girih_compute::Backend;
use girih_datasets::DataSource;
use girih_features::MiniBatchBackend;
use girih_graph_format::Matrix;

use super::data::PartitionedData;
use super::job::{ModelJob, RankJob, TakeLogits, agree, check_devices, check_world, on_each};
use crate::TrainError;
use crate::config::{Combination, RankOptions, supported};
use crate::engine::{Checkpoint, Progress, Scores, TestReport, with_labels_for};
use crate::models::BuildModel;
use crate::tasks::recommend::Recommendations;

/// Inference on all nodes with the best parameters of a checkpoint, as [`apply`](crate::apply), on several ranks.
pub struct ApplyJob<'a, 't> {
    data: DataSource,
    checkpoint: &'a Checkpoint,
    ranks: &'a RankOptions,
    take: Option<&'a mut TakeLogits<'t>>,
}

impl<'a, 't> ApplyJob<'a, 't> {
    /// Job that computes scores only.
    pub fn new(data: impl Into<DataSource>, checkpoint: &'a Checkpoint, ranks: &'a RankOptions) -> Self {
        Self { data: data.into(), checkpoint, ranks, take: None }
    }

    /// Also passes the logits of all nodes to `take`, some rows at a time. The first rank calls it.
    #[must_use]
    pub fn handing_logits(self, take: &'a mut TakeLogits<'t>) -> Self {
        Self { take: Some(take), ..self }
    }
}

impl RankJob for ApplyJob<'_, '_> {
    type Done = (Scores, TestReport);

    fn ranks(&self) -> &RankOptions {
        self.ranks
    }

    fn on_devices<B: MiniBatchBackend>(
        self,
        backends: &[B],
        connect: impl Fn(&B, ThreadRank) -> Result<Box<dyn Collective<B>>, CommError> + Sync,
    ) -> Result<Self::Done, TrainError> {
        let builder = &self.checkpoint.progress.config.model;
        self.on_devices_with(builder, backends, connect)
    }

    fn on_rank<B: MiniBatchBackend>(
        self,
        backend: &B,
        world: Box<dyn Collective<B>>,
    ) -> Result<Self::Done, TrainError> {
        let builder = &self.checkpoint.progress.config.model;
        self.on_rank_with(builder, backend, world)
    }
}

impl ModelJob for ApplyJob<'_, '_> {
    fn on_devices_with<B: MiniBatchBackend>(
        self,
        builder: &dyn BuildModel<B>,
        backends: &[B],
        connect: impl Fn(&B, ThreadRank) -> Result<Box<dyn Collective<B>>, CommError> + Sync,
    ) -> Result<Self::Done, TrainError> {
        check_devices(backends, self.ranks)?;
        let shared = cut(&backends[0], self.data, (self.checkpoint, builder), self.ranks)?;
        let (is_wanted, take) = (self.take.is_some(), Mutex::new(self.take));
        on_each(backends, connect, self.ranks, |backend, world| {
            let ranks = shared.ranks(world)?;
            // The first rank alone calls it. The others only have to know that logits are wanted.
            let mut shared_take = |rows: &Matrix| {
                let mut take = take.lock().unwrap_or_else(PoisonError::into_inner);
                take.as_mut().into_iter().for_each(|take| take(rows));
            };
            let take: Option<&mut TakeLogits<'_>> = if is_wanted { Some(&mut shared_take) } else { None };
            shared.apply(backend, &ranks, (self.checkpoint, builder), take)
        })
    }

    fn on_rank_with<B: MiniBatchBackend>(
        self,
        builder: &dyn BuildModel<B>,
        backend: &B,
        world: Box<dyn Collective<B>>,
    ) -> Result<Self::Done, TrainError> {
        let Self { data, checkpoint, ranks, take } = self;
        let what = if take.is_some() { "logits" } else { "scores" };
        let shared = cut_alike(backend, &*world, data, (checkpoint, builder, what), ranks)?;
        let ranks = shared.ranks(world)?;
        shared.apply(backend, &ranks, (checkpoint, builder), take)
    }
}

/// Recommendations for all users with the best parameters of a checkpoint, as [`recommend`](crate::recommend()), on
/// several ranks.
pub struct RecommendJob<'a> {
    data: DataSource,
    checkpoint: &'a Checkpoint,
    ranks: &'a RankOptions,
}

impl<'a> RecommendJob<'a> {
    /// Job that ranks items for all users.
    pub fn new(data: impl Into<DataSource>, checkpoint: &'a Checkpoint, ranks: &'a RankOptions) -> Self {
        Self { data: data.into(), checkpoint, ranks }
    }
}

impl RankJob for RecommendJob<'_> {
    type Done = Recommendations;

    fn ranks(&self) -> &RankOptions {
        self.ranks
    }

    fn on_devices<B: MiniBatchBackend>(
        self,
        backends: &[B],
        connect: impl Fn(&B, ThreadRank) -> Result<Box<dyn Collective<B>>, CommError> + Sync,
    ) -> Result<Self::Done, TrainError> {
        check_devices(backends, self.ranks)?;
        let shared =
            cut(&backends[0], self.data, (self.checkpoint, &self.checkpoint.progress.config.model), self.ranks)?;
        on_each(backends, connect, self.ranks, |backend, world| {
            let ranks = shared.ranks(world)?;
            shared.recommend(backend, &ranks, self.checkpoint)
        })
    }

    fn on_rank<B: MiniBatchBackend>(
        self,
        backend: &B,
        world: Box<dyn Collective<B>>,
    ) -> Result<Self::Done, TrainError> {
        let shared = cut_alike(
            backend,
            &*world,
            self.data,
            (self.checkpoint, &self.checkpoint.progress.config.model, "items"),
            self.ranks,
        )?;
        let ranks = shared.ranks(world)?;
        shared.recommend(backend, &ranks, self.checkpoint)
    }
}

/// Data for the model of a checkpoint.
fn cut<B: Backend>(
    backend: &B,
    data: DataSource,
    (checkpoint, builder): (&Checkpoint, &dyn BuildModel<B>),
    ranks: &RankOptions,
) -> Result<PartitionedData, TrainError> {
    checkpoint.check_built_by(builder)?;
    let config = &checkpoint.progress.config;
    supported(&Combination::of(config).applied().on_ranks(ranks))?;
    let data = data.with_features_from(config.features_from)?.with_codec(config.codec, config.seed)?;
    let data = labelled(data, checkpoint)?;
    PartitionedData::new(backend, data, builder, config, ranks)
}

/// Data with labels for the model of a checkpoint; the nodes need not have any. A folder that has all labels stays a
/// folder, so that each rank reads its own rows.
fn labelled(data: DataSource, checkpoint: &Checkpoint) -> Result<DataSource, TrainError> {
    let Progress { config, data: trained, .. } = &checkpoint.progress;
    let outline = data.outline();
    if !config.model.kind.is_recommender() {
        trained.check_widths(&outline).map_err(|what| checkpoint.refused(what))?;
    }
    let has_all = outline.n_classes >= trained.n_classes && !outline.splits.is_empty();
    if config.model.kind.is_recommender() || (has_all && matches!(data, DataSource::Stored(_))) {
        return Ok(data);
    }
    Ok(with_labels_for(trained, data.into_dataset()?).into())
}

/// As `cut`, but first checks that ranks that are processes agree on data, parameters, settings and `what`.
fn cut_alike<B: Backend>(
    backend: &B,
    world: &dyn Collective<B>,
    data: DataSource,
    (checkpoint, builder, what): (&Checkpoint, &dyn BuildModel<B>, &str),
    ranks: &RankOptions,
) -> Result<PartitionedData, TrainError> {
    check_world(backend, world, ranks)?;
    agree(world, "data", data.fingerprint())?;
    agree(world, "parameters", checkpoint.fingerprint())?;
    agree(world, "settings", ranks.hash(&format!("{:?} {what}", checkpoint.progress.config)))?;
    cut(backend, data, (checkpoint, builder), ranks)
}
