//! [`TrainJob`]: a training session on several ranks.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use girih_comm::threads::ThreadRank;
use girih_comm::{Collective, CommError, Payload};
use girih_compute::Backend;
use girih_datasets::{DataSource, Dataset};
use girih_features::MiniBatchBackend;
use girih_sampling::ClusterSampler;

use super::data::PartitionedData;
use super::job::{ModelJob, RankJob, agree, check_devices, check_world, on_each};
use crate::TrainError;
use crate::config::{Combination, ExecutionPlan, GraphPlacement, RankOptions, TrainConfig, supported};
use crate::data::check_trainable;
use crate::engine::{
    Control, DataShape, Event, ModelSource, Observer, Outcome, SessionOptions, config_for, train_runs,
};
use crate::minibatch::MiniBatchSession;
use crate::models::BuildModel;

/// All runs of a configuration on several ranks, as [`train`](crate::train()) on one.
///
/// The first rank reports events to the observer and writes checkpoints. Any number of ranks can resume from them.
pub struct TrainJob<'a, 'o> {
    data: DataSource,
    config: &'a TrainConfig,
    ranks: &'a RankOptions,
    options: &'a SessionOptions,
    observe: &'a mut Observer<'o>,
}

impl<'a, 'o> TrainJob<'a, 'o> {
    /// Training job, which a method of [`RankJob`] runs.
    pub fn new(
        data: impl Into<DataSource>,
        config: &'a TrainConfig,
        ranks: &'a RankOptions,
        options: &'a SessionOptions,
        observe: &'a mut Observer<'o>,
    ) -> Self {
        Self { data: data.into(), config, ranks, options, observe }
    }
}

impl RankJob for TrainJob<'_, '_> {
    type Done = Outcome;

    fn ranks(&self) -> &RankOptions {
        self.ranks
    }

    fn on_devices<B: MiniBatchBackend>(
        self,
        backends: &[B],
        connect: impl Fn(&B, ThreadRank) -> Result<Box<dyn Collective<B>>, CommError> + Sync,
    ) -> Result<Outcome, TrainError> {
        let builder = &self.config.model;
        self.on_devices_with(builder, backends, connect)
    }

    fn on_rank<B: MiniBatchBackend>(self, backend: &B, world: Box<dyn Collective<B>>) -> Result<Outcome, TrainError> {
        let builder = &self.config.model;
        self.on_rank_with(builder, backend, world)
    }
}

impl ModelJob for TrainJob<'_, '_> {
    fn on_devices_with<B: MiniBatchBackend>(
        self,
        builder: &dyn BuildModel<B>,
        backends: &[B],
        connect: impl Fn(&B, ThreadRank) -> Result<Box<dyn Collective<B>>, CommError> + Sync,
    ) -> Result<Outcome, TrainError> {
        let Self { data, config, ranks, options, observe } = self;
        let config = &config_for(config, builder)?;
        check_devices(backends, ranks)?;
        let data = data.with_features_from(config.features_from)?.with_codec(config.codec, config.seed)?;
        let shared = Shared::new(&backends[0], data, (config, builder), ranks)?;
        let observe = Mutex::new(observe);
        on_each(backends, connect, ranks, |backend, world| {
            let mut observe = |event: Event<'_>| {
                let mut observe = observe.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                observe(event)
            };
            shared.train(backend, world, (config, builder), options, &mut observe)
        })
    }

    fn on_rank_with<B: MiniBatchBackend>(
        self,
        builder: &dyn BuildModel<B>,
        backend: &B,
        world: Box<dyn Collective<B>>,
    ) -> Result<Outcome, TrainError> {
        let Self { data, config, ranks, options, observe } = self;
        let config = &config_for(config, builder)?;
        check_world(backend, &*world, ranks)?;
        let mut data = data.with_features_from(config.features_from)?.with_codec(config.codec, config.seed)?;
        if config.batch.is_sampled() && ranks.layout == GraphPlacement::Replicated {
            // All ranks read the whole data set in any case, so its hash covers all of it.
            data = data.into_dataset()?.into();
        }
        agree(&*world, "data", data.fingerprint())?;
        agree(&*world, "settings", ranks.hash(&format!("{config:?}")))?;
        let shared = Shared::new(backend, data, (config, builder), ranks)?;
        shared.train(backend, world, (config, builder), options, &mut |event| observe(event))
    }
}

/// Data that the ranks of a process read.
enum Shared {
    /// Full-batch training: each rank reads its own rows of graph and features.
    Cut(Box<PartitionedData>),
    /// Mini-batches on patches: each rank holds its own rows of graph and features, or of features alone. It takes
    /// the seeds among its own nodes.
    Patches(Box<PartitionedData>),
    /// Mini-batches on replicated data: each rank takes a share of the seeds, or of the subgraphs. Cluster batches
    /// also need the clusters.
    Whole(Box<Dataset>, Option<Arc<ClusterSampler>>),
}

impl Shared {
    fn new<B: Backend>(
        backend: &B,
        data: DataSource,
        (config, builder): (&TrainConfig, &dyn BuildModel<B>),
        ranks: &RankOptions,
    ) -> Result<Self, TrainError> {
        let has_codes = data.outline().codes.is_some();
        let combination = Combination::of(config).on_ranks(ranks).on_device(backend.has_own_memory());
        match supported(&combination.with_codes(has_codes))? {
            ExecutionPlan::Partitioned => {
                Ok(Self::Cut(Box::new(PartitionedData::new(backend, data, builder, config, ranks)?)))
            }
            ExecutionPlan::Patches => {
                Ok(Self::Patches(Box::new(PartitionedData::new(backend, data, builder, config, ranks)?)))
            }
            ExecutionPlan::Replicas => {
                let dataset = data.into_dataset()?;
                check_trainable(&dataset.outline(), config, false)?;
                let clusters = config.batch.cluster_sampler(&dataset.graph)?;
                Ok(Self::Whole(Box::new(dataset), clusters))
            }
            plan => unreachable!("{plan:?} is for one rank without others"),
        }
    }

    /// Trains on one rank.
    fn train<B: MiniBatchBackend>(
        &self,
        backend: &B,
        world: Box<dyn Collective<B>>,
        (config, builder): (&TrainConfig, &dyn BuildModel<B>),
        options: &SessionOptions,
        observe: &mut dyn FnMut(Event<'_>) -> Control,
    ) -> Result<Outcome, TrainError> {
        let (is_first, asked) = (world.rank() == 0, options);
        let observe = &mut |event: Event<'_>| asked.control(if is_first { observe(event) } else { Control::Continue });
        // No stop flag: ranks agree on stopping by messages.
        let options = SessionOptions { writes: asked.writes && is_first, stop: None, ..asked.clone() };
        match self {
            Self::Cut(data) => {
                let ranks = data.ranks(world)?;
                together(ranks.world(), observe, |agree| {
                    data.train_all_runs(backend, &ranks, (config, builder), &options, agree)
                })
            }
            Self::Patches(data) => {
                let ranks = data.ranks(world)?;
                together(ranks.world(), observe, |agree| {
                    data.train_on_patches(backend, &ranks, (config, builder), &options, agree)
                })
            }
            Self::Whole(dataset, clusters) => {
                let data = DataShape::of(dataset);
                let source = ModelSource::new(builder, config, &dataset.outline())?;
                let session =
                    MiniBatchSession::new(backend, (**dataset).clone(), source, (world.size(), clusters.clone()))?;
                let start = |run| session.run(backend, run, Some(&*world));
                let outcome = together(&*world, observe, |agree| {
                    train_runs(config, &data, &options, agree, |run| Ok(Box::new(start(run)?)))
                })?;
                Ok(Outcome { tiers: session.tiers().to_vec(), ..outcome })
            }
        }
    }
}

/// Runs `train` with an observer that keeps the ranks in step. All start at the same checkpoint, and all stop when
/// one is told to.
fn together<B: Backend>(
    world: &dyn Collective<B>,
    observe: &mut dyn FnMut(Event<'_>) -> Control,
    train: impl FnOnce(&mut dyn FnMut(Event<'_>) -> Control) -> Result<Outcome, TrainError>,
) -> Result<Outcome, TrainError> {
    let (mut agreement, mut failure) = (Agreement::default(), None);
    let mut agree = |event: Event<'_>| {
        let asked_of = Asked::of(&event);
        let mine = observe(event);
        agreement.control(world, asked_of, mine).unwrap_or_else(|error| {
            failure.get_or_insert(error);
            Control::Stop
        })
    };
    let outcome = train(&mut agree)?;
    match failure {
        None => Ok(outcome),
        Some(error) => Err(error),
    }
}

/// Approximate time between two questions whether to stop, while ranks train on mini-batches. A question takes as
/// long as the step of a small batch.
const ASKED_EVERY: Duration = Duration::from_millis(50);

/// Question that ranks answer together.
#[derive(Clone, Copy)]
pub enum Asked {
    /// After a batch: whether to stop. Asked only every few batches.
    Batch,
    /// After other events: whether to stop. When a checkpoint is read, also whether all ranks read the same one (its
    /// hash).
    Other(Option<u32>),
}

impl Asked {
    fn of(event: &Event<'_>) -> Self {
        match event {
            Event::Batch { .. } => Self::Batch,
            Event::RunStarted { checkpoint, .. } => Self::Other(*checkpoint),
            Event::Prepared | Event::Epoch { .. } | Event::RunFinished(_) => Self::Other(None),
        }
    }
}

/// Agreement of ranks on stopping. All ask after the same batches, and the first rank sets the distance between
/// questions.
pub struct Agreement {
    /// Batches from one question to the next, and how many of them are left.
    apart: u32,
    n_left: u32,
    /// Time of the last question.
    since: Instant,
    /// Whether this rank was asked to stop, and has not yet told the others.
    stops: bool,
}

impl Default for Agreement {
    fn default() -> Self {
        Self { apart: 1, n_left: 1, since: Instant::now(), stops: false }
    }
}

impl Agreement {
    /// Returns the next step of all ranks, given that of this one; all ranks call it together.
    ///
    /// # Errors
    /// When a rank fails, or starts from another checkpoint.
    pub fn control<B: Backend>(
        &mut self,
        world: &dyn Collective<B>,
        asked: Asked,
        mine: Control,
    ) -> Result<Control, TrainError> {
        self.stops |= mine == Control::Stop;
        let (start, apart) = match asked {
            Asked::Batch if self.n_left > 1 => {
                self.n_left -= 1;
                return Ok(Control::Continue);
            }
            Asked::Batch => (None, next_apart(self.apart, self.since.elapsed())),
            Asked::Other(start) => (start, 1),
        };
        let words = [u32::from(self.stops), u32::from(start.is_some()), start.unwrap_or(0), apart];
        let all = world.all_gather_bytes(bytemuck::cast_slice(&words))?;
        let read = |(rank, words): (usize, &Vec<u8>)| {
            let words = Payload::new(words, rank, "what to do next").exactly::<u32>(4)?;
            Ok([words[0], words[1], words[2], words[3]])
        };
        let all: Vec<[u32; 4]> = all.iter().enumerate().map(read).collect::<Result<_, CommError>>()?;
        let apart = all[0][3].max(1);
        *self = Self { apart, n_left: apart, ..Self::default() };
        any_says_stop(&all)
    }
}

/// Number of batches until the next question whether to stop, if the last `apart` batches took `elapsed`. It at most
/// doubles, since the times of batches vary.
#[must_use]
pub fn next_apart(apart: u32, elapsed: Duration) -> u32 {
    let n_batches = f64::from(apart) * ASKED_EVERY.as_secs_f64() / elapsed.as_secs_f64();
    (n_batches as u32).clamp(1, apart.saturating_mul(2))
}

/// Returns whether any rank asks to stop, and checks that all start from the same checkpoint. Processes on several
/// hosts may see different folders.
fn any_says_stop(all: &[[u32; 4]]) -> Result<Control, TrainError> {
    match all.iter().position(|theirs| theirs[1..3] != all[0][1..3]) {
        None if all.iter().all(|theirs| theirs[0] == 0) => Ok(Control::Continue),
        None => Ok(Control::Stop),
        Some(rank) => Err(TrainError::rank(
            rank,
            "it goes on from another checkpoint than rank 0; give all ranks --resume and the same folder of checkpoints, or copies of it",
        )),
    }
}
