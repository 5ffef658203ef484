//! [`TrainJob`]: a training session on several ranks.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use girih_comm::threads::ThreadRank;
use girih_comm::{CardTransport, Collective, CommError, Payload};
use girih_compute::{Backend, Dtype};
use girih_datasets::{DataSource, Dataset, DatasetError};
use girih_graph_format::Buffer;
use girih_partition::{BlockPlan, Cuts, Exchange, ProcessGrid, Scheme, Stages};
use girih_sampling::ClusterSampler;

use super::data::PartitionedData;
use super::job::{RankJob, agree, check_devices, check_world, on_each};
use crate::TrainError;
use crate::batching::BatchKind;
use crate::checkpoint::DataShape;
use crate::config::{NormKind, TaskKind, TrainConfig};
use crate::sampled;
use crate::session::{Control, Event, Observer, Outcome, SessionOptions, check_trainable, train_runs};

/// What each rank holds of graph and features when it trains on mini-batches. Full batches cut both by their partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GraphPlacement {
    /// All of both.
    #[default]
    Replicated,
    /// The rows of its own nodes; what it needs of others, it asks them for (Cai et al., DSP, PPoPP 2023).
    Patches,
    /// All of the graph, and the features of its own nodes; it asks the others for theirs.
    SplitFeatures,
}

impl GraphPlacement {
    /// The name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Replicated => "replicated",
            Self::Patches => "patches",
            Self::SplitFeatures => "split-features",
        }
    }
}

/// How ranks share the work.
#[derive(Clone, Copy, Debug)]
pub struct RankOptions {
    /// Which rank holds which block.
    pub grid: ProcessGrid,
    /// How operands of products travel.
    pub exchange: Exchange,
    /// Where nodes are cut.
    pub cuts: Cuts,
    /// In which stages operands travel; as [`BlockPlan::in_stages`] has it.
    pub stages: Stages,
    /// In how many chunks of rows products are taken, at most; as [`BlockPlan::in_chunks`] has it.
    pub chunks: usize,
    /// How operands of `f32` travel: as they are, or rounded to `bf16`, in half the bytes. They are multiplied as they
    /// travel.
    pub wire: Dtype,
    /// What carries rows between ranks on cards: unless told, NCCL rows of matrices, and those of patches whatever is
    /// fastest there.
    pub transport: Option<CardTransport>,
    /// Of mini-batches, what each rank holds.
    pub layout: GraphPlacement,
    /// How long a rank waits for another before it gives up.
    pub deadline: Duration,
}

impl RankOptions {
    /// Equal cuts, a stage for each step, products and operands as they are, as the papers have it; no transport told.
    #[must_use]
    pub fn new(grid: ProcessGrid, exchange: Exchange, deadline: Duration) -> Self {
        let (cuts, stages, wire) = (Cuts::Equal, Stages::Steps, Dtype::F32);
        Self {
            grid,
            exchange,
            cuts,
            stages,
            chunks: 1,
            wire,
            transport: None,
            layout: GraphPlacement::default(),
            deadline,
        }
    }

    /// The plan for a graph of so many nodes, whose offsets are asked for where cuts depend on them.
    pub(super) fn plan(
        &self,
        n_nodes: usize,
        offsets: impl FnOnce() -> Result<Buffer<u64>, DatasetError>,
    ) -> Result<BlockPlan, TrainError> {
        let plan = match self.cuts {
            Cuts::Equal => BlockPlan::new(&self.grid, n_nodes)?,
            Cuts::Weighted => BlockPlan::of_graph(&self.grid, &offsets()?, self.cuts)?,
        };
        Ok(plan.in_stages(self.stages).in_chunks(self.chunks))
    }
}

/// All runs of a configuration: what [`train`](crate::train) does, by several ranks.
///
/// The first rank tells the observer what happens and writes checkpoints, which any number of ranks can resume.
pub struct TrainJob<'a, 'o> {
    data: DataSource,
    config: &'a TrainConfig,
    ranks: &'a RankOptions,
    options: &'a SessionOptions,
    observe: &'a mut Observer<'o>,
}

impl<'a, 'o> TrainJob<'a, 'o> {
    /// Training that is still to be carried out.
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

    fn on_devices<B: Backend>(
        self,
        backends: &[B],
        connect: impl Fn(&B, ThreadRank) -> Result<Box<dyn Collective<B>>, CommError> + Sync,
    ) -> Result<Outcome, TrainError> {
        let Self { data, config, ranks, options, observe } = self;
        config.validate()?;
        check_devices(backends, ranks)?;
        let data = data.with_features_from(config.features_from)?.with_codec(config.codec, config.seed)?;
        let shared = Shared::new(&backends[0], data, config, ranks)?;
        let observe = Mutex::new(observe);
        on_each(backends, connect, ranks, |backend, world| {
            let mut observe = |event: Event<'_>| {
                let mut observe = observe.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                observe(event)
            };
            shared.train(backend, world, config, options, &mut observe)
        })
    }

    fn on_rank<B: Backend>(self, backend: &B, world: Box<dyn Collective<B>>) -> Result<Outcome, TrainError> {
        let Self { data, config, ranks, options, observe } = self;
        config.validate()?;
        check_world(backend, &*world, ranks)?;
        let mut data = data.with_features_from(config.features_from)?.with_codec(config.codec, config.seed)?;
        if config.batch.is_sampled() && ranks.layout == GraphPlacement::Replicated {
            // Read whole in any case, and so hashed whole.
            data = data.into_dataset()?.into();
        }
        agree(&*world, "data", data.fingerprint())?;
        agree(&*world, "settings", ranks.hash(&format!("{config:?}")))?;
        let shared = Shared::new(backend, data, config, ranks)?;
        shared.train(backend, world, config, options, &mut |event| observe(event))
    }
}

/// What the ranks of a process read.
enum Shared {
    /// Each its part of the graph.
    Cut(Box<PartitionedData>),
    /// Each its part of graph and features, or of features alone, and the seeds of mini-batches that lie in it.
    Patches(Box<PartitionedData>),
    /// All of it, for its share of the seeds of mini-batches, or of their subgraphs; and the clusters of cluster
    /// batches.
    Whole(Box<Dataset>, Option<Arc<ClusterSampler>>),
}

impl Shared {
    fn new<B: Backend>(
        backend: &B,
        data: DataSource,
        config: &TrainConfig,
        ranks: &RankOptions,
    ) -> Result<Self, TrainError> {
        check_task(config)?;
        if config.batch.is_sampled() {
            check_batches(config, ranks)?;
            if ranks.layout != GraphPlacement::Replicated {
                sampled::check_patches(config, ranks.layout)?;
                return Ok(Self::Patches(Box::new(PartitionedData::new(backend, data, config, ranks)?)));
            }
            let dataset = data.into_dataset()?;
            check_trainable(&dataset.outline(), config)?;
            let clusters = config.batch.cluster_sampler(&dataset.graph)?;
            return Ok(Self::Whole(Box::new(dataset), clusters));
        }
        if ranks.layout != GraphPlacement::Replicated {
            return Err(TrainError::invalid(
                "--layout is for mini-batches; full-batch training divides the graph by --partition: leave it out, or give \
                 --batch neighbor",
            ));
        }
        Ok(Self::Cut(Box::new(PartitionedData::new(backend, data, config, ranks)?)))
    }

    /// What one rank does.
    fn train<B: Backend>(
        &self,
        backend: &B,
        world: Box<dyn Collective<B>>,
        config: &TrainConfig,
        options: &SessionOptions,
        observe: &mut dyn FnMut(Event<'_>) -> Control,
    ) -> Result<Outcome, TrainError> {
        let (is_first, asked) = (world.rank() == 0, options);
        let observe = &mut |event: Event<'_>| asked.control(if is_first { observe(event) } else { Control::Continue });
        // Ranks ask each other.
        let options = SessionOptions { writes: asked.writes && is_first, stop: None, ..asked.clone() };
        match self {
            Self::Cut(data) => {
                let ranks = data.ranks(world)?;
                together(ranks.world(), observe, |agree| data.train_all_runs(backend, &ranks, config, &options, agree))
            }
            Self::Patches(data) => {
                let ranks = data.ranks(world)?;
                together(ranks.world(), observe, |agree| {
                    data.train_on_patches(backend, &ranks, config, &options, agree)
                })
            }
            Self::Whole(dataset, clusters) => {
                let data = DataShape::of(dataset);
                let session =
                    sampled::Prepared::new(backend, (**dataset).clone(), config, (world.size(), clusters.clone()))?;
                let start = |run| session.run(backend, config, run, Some(&*world));
                let outcome = together(&*world, observe, |agree| {
                    train_runs(config, &data, &options, agree, |run| Ok(Box::new(start(run)?)))
                })?;
                Ok(Outcome { tiers: session.tiers().to_vec(), ..outcome })
            }
        }
    }
}

/// Refuses tasks that ranks do not share.
pub(super) fn check_task(config: &TrainConfig) -> Result<(), TrainError> {
    if config.task == TaskKind::Links {
        return Err(TrainError::invalid(
            "--task links trains on one rank: leave --ranks and --gpus out, or give --task nodes",
        ));
    }
    Ok(())
}

/// Refuses mini-batches that ranks cannot share.
fn check_batches(config: &TrainConfig, ranks: &RankOptions) -> Result<(), TrainError> {
    let (grid, n_ranks) = (&ranks.grid, ranks.grid.ranks());
    match config.batch.kind {
        BatchKind::Cluster | BatchKind::Saint | BatchKind::Layer if ranks.layout != GraphPlacement::Replicated => {
            return Err(TrainError::invalid(format!(
                "--batch {} needs the whole graph and all features on each rank: give --batch neighbor, or --layout replicated",
                config.batch.kind.name()
            )));
        }
        BatchKind::Cluster | BatchKind::Saint if config.batch.subgraphs_per_step < n_ranks => {
            return Err(TrainError::invalid(format!(
                "a step has {} subgraph(s) for {n_ranks} ranks, and each rank needs one: give --subgraphs-per-step {n_ranks} \
                 (steps become fewer and larger)",
                config.batch.subgraphs_per_step
            )));
        }
        _ => {}
    }
    if config.model.norm == NormKind::Batch {
        return Err(TrainError::invalid(
            "batch normalisation needs the statistics of a whole mini-batch, and each rank sees its own seeds only: give \
             --norm layer, or train on one rank",
        ));
    }
    if grid.scheme() != Scheme::OneD {
        return Err(TrainError::invalid(format!(
            "--partition {} is for full-batch training: leave it out for mini-batches, whose ranks --layout arranges",
            grid.scheme()
        )));
    }
    Ok(())
}

/// Runs `train` with an observer that makes all ranks go on, or stop together when one is told to, and start at the same
/// checkpoint.
fn together<B: Backend>(
    world: &dyn Collective<B>,
    observe: &mut dyn FnMut(Event<'_>) -> Control,
    train: impl FnOnce(&mut dyn FnMut(Event<'_>) -> Control) -> Result<Outcome, TrainError>,
) -> Result<Outcome, TrainError> {
    let (mut agreement, mut failure) = (Agreement::new(), None);
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

/// How long ranks go through mini-batches at about before they ask each other again whether to stop: to ask takes as
/// long as a step of a small one.
const ASKED_EVERY: Duration = Duration::from_millis(50);

/// What ranks ask each other.
#[derive(Clone, Copy)]
enum Asked {
    /// At a batch, whether to stop: not at each.
    Batch,
    /// At all else, and whether all have the same checkpoint, if this is where one is read.
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

/// What ranks have agreed upon: all of them ask at the same batches, of which the first one says how far they are apart.
struct Agreement {
    /// Batches from one question to the next, and how many of them are left.
    apart: u32,
    n_left: u32,
    /// When they asked last.
    since: Instant,
    /// Whether this rank was told to stop, and has not said so.
    stops: bool,
}

impl Agreement {
    fn new() -> Self {
        Self { apart: 1, n_left: 1, since: Instant::now(), stops: false }
    }

    /// What all do next, of which one is told to do something.
    fn control<B: Backend>(
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
            Asked::Batch => (None, self.next_apart()),
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
        *self = Self { apart, n_left: apart, ..Self::new() };
        any_says_stop(&all)
    }

    /// How many batches it may be to the next question, by how long those since the last one took: at most twice as
    /// many, since none takes as long as another.
    fn next_apart(&self) -> u32 {
        let n_batches = f64::from(self.apart) * ASKED_EVERY.as_secs_f64() / self.since.elapsed().as_secs_f64();
        (n_batches as u32).clamp(1, self.apart.saturating_mul(2))
    }
}

/// What ranks say, where all start from the same checkpoint: processes on several hosts may see others.
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

#[cfg(test)]
mod tests {
    use girih_comm::threads;
    use girih_compute::Cpu;

    use super::*;

    /// Has three ranks go through so many batches, of which one is told to stop at one, and says how many each did.
    fn batches_done(n_batches: usize, told: (usize, usize)) -> Vec<usize> {
        let one = |world: Box<dyn Collective<Cpu>>| -> Result<usize, TrainError> {
            let mut agreement = Agreement::new();
            let mut control = |asked, mine| agreement.control(&*world, asked, mine);
            assert_eq!(control(Asked::Other(Some(7)), Control::Continue)?, Control::Continue);
            for batch in 0..n_batches {
                let mine = if told == (world.rank(), batch) { Control::Stop } else { Control::Continue };
                if control(Asked::Batch, mine)? == Control::Stop {
                    return Ok(batch + 1);
                }
            }
            // At the end of an epoch they ask in any case.
            let goes_on = control(Asked::Other(None), Control::Continue)? == Control::Continue;
            Ok(n_batches + usize::from(goes_on))
        };
        threads::run(3, Duration::from_secs(30), |world| one(Box::new(world))).unwrap()
    }

    #[test]
    fn ranks_stop_at_the_same_batch_whoever_is_told_to() {
        for told in [(0, 0), (1, 0), (2, 1), (1, 5), (0, 19)] {
            let done = batches_done(20, told);
            assert!(done.iter().all(|&n| n == done[0] && n > told.1 && n <= 20), "{told:?}: {done:?}");
        }
        // What is told at the first batches is heard soon.
        assert!(batches_done(20, (1, 1))[0] <= 3);
        assert_eq!(batches_done(20, (3, 0)), [21; 3], "nobody is told to");
    }

    #[test]
    fn questions_come_further_apart_as_long_as_batches_are_short() {
        let mut agreement = Agreement::new();
        assert_eq!(agreement.next_apart(), 2);
        agreement.apart = 1000;
        agreement.since = Instant::now().checked_sub(ASKED_EVERY * 10).unwrap();
        assert_eq!(agreement.next_apart(), 99);
    }

    #[test]
    fn a_rank_with_another_checkpoint_is_named() {
        let all = [[0, 1, 7, 1], [0, 1, 7, 1], [0, 0, 0, 1]];
        assert!(any_says_stop(&all).unwrap_err().to_string().contains("rank 2"));
        assert_eq!(any_says_stop(&[[0, 1, 7, 1], [1, 1, 7, 9]]).unwrap(), Control::Stop);
    }
}
