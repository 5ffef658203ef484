//! [`train_on_threads`] and [`train_as_rank`]: a training session on several ranks.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use girih_comm::{Collective, threads};
use girih_compute::{Backend, HostMatrix};
use girih_datasets::{Dataset, Features, Labels};
use girih_graph_format::Matrix;
use girih_partition::{BlockPlan, Exchange, ProcessGrid};

use super::blocks::CutAdjacency;
use super::ranks::Ranks;
use crate::TrainError;
use crate::checkpoint::DataShape;
use crate::config::TrainConfig;
use crate::inputs::{Inputs, Needs};
use crate::models::Dims;
use crate::session::{
    Control, Event, Observer, Outcome, SessionOptions, Trainable, build_model, start_run, train_runs,
};
use crate::targets::Targets;

/// How ranks share the work.
#[derive(Clone, Copy, Debug)]
pub struct RankOptions {
    /// Which rank holds which block.
    pub grid: ProcessGrid,
    /// How operands of products travel.
    pub exchange: Exchange,
    /// How long a rank waits for another before it gives up.
    pub deadline: Duration,
}

/// Trains all runs of `config` on ranks that are threads of this process, each on a backend that `backend` makes.
///
/// The result is that of one rank, up to the rounding of sums that are added in another order. The first rank tells
/// `observe` what happens and writes checkpoints, which any number of ranks can resume.
///
/// # Errors
/// As [`train`](crate::train); when the plan does not fit the data; and when a rank fails, which ends all of them with
/// the error of that rank.
pub fn train_on_threads<B: Backend>(
    backend: impl Fn() -> B + Sync,
    dataset: Dataset,
    config: &TrainConfig,
    ranks: &RankOptions,
    options: &SessionOptions,
    observe: &mut Observer<'_>,
) -> Result<Outcome, TrainError>
where
    B::Matrix: HostMatrix,
{
    config.validate()?;
    let shared = Shared::new(&backend(), dataset, config, ranks)?;
    let observe = Mutex::new(observe);
    let outcomes = threads::run(ranks.grid.ranks(), ranks.deadline, |world| {
        let mut observe = |event: Event<'_>| {
            let mut observe = observe.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            observe(event)
        };
        shared.train(&backend(), Box::new(world), config, options, &mut observe)
    });
    match outcomes {
        Ok(mut outcomes) => Ok(outcomes.swap_remove(0)),
        Err(failure) => Err(TrainError::rank(failure.rank, failure.message)),
    }
}

/// Trains as one of several ranks, each of which calls this with the same data and settings: for ranks that are processes.
/// As [`train_on_threads`] otherwise.
///
/// # Errors
/// As [`train_on_threads`]; and when ranks disagree on the data, the settings or the plan, before the first step.
pub fn train_as_rank<B: Backend>(
    backend: &B,
    world: Box<dyn Collective<B>>,
    dataset: Dataset,
    config: &TrainConfig,
    ranks: &RankOptions,
    options: &SessionOptions,
    observe: &mut Observer<'_>,
) -> Result<Outcome, TrainError> {
    config.validate()?;
    if world.size() != ranks.grid.ranks() {
        let (found, wanted) = (world.size(), ranks.grid.ranks());
        return Err(TrainError::invalid(format!("{found} ranks are there for a plan of {wanted}; start as many")));
    }
    agree(&*world, "data", dataset.fingerprint())?;
    let plan = format!("{config:?} {} {}", ranks.grid, ranks.exchange);
    agree(&*world, "settings", crc32fast::hash(plan.as_bytes()))?;
    let shared = Shared::new(backend, dataset, config, ranks)?;
    shared.train(backend, world, config, options, &mut |event| observe(event))
}

/// Refuses to start when ranks have different hashes of what they work on.
fn agree<B: Backend>(world: &dyn Collective<B>, what: &str, hash: u32) -> Result<(), TrainError> {
    let all = world.all_gather_bytes(&hash.to_le_bytes())?;
    match all.iter().position(|theirs| *theirs != all[0]) {
        None => Ok(()),
        Some(rank) => Err(TrainError::rank(
            rank,
            format!("its {what} differ from those of rank 0; give all ranks the same files and flags"),
        )),
    }
}

/// What the ranks of a process read, each its part of it.
struct Shared {
    plan: Arc<BlockPlan>,
    adjacency: Option<Arc<CutAdjacency>>,
    features: Features,
    labels: Labels,
    dataset: Dataset,
    data: DataShape,
    dims: Dims,
    needs: Needs,
}

impl Shared {
    fn new<B: Backend>(
        backend: &B,
        dataset: Dataset,
        config: &TrainConfig,
        ranks: &RankOptions,
    ) -> Result<Self, TrainError> {
        if config.model.kind.is_recommender() {
            let name = config.model.kind.name();
            return Err(TrainError::invalid(format!("{name} trains on one rank; leave --ranks out")));
        }
        let (data, dims) = (DataShape::of(&dataset), Dims::of(&dataset));
        let Trainable { dataset, features, labels } = Trainable::check(dataset, config)?;
        let plan = Arc::new(BlockPlan::new(&ranks.grid, dataset.n_nodes())?);
        let needs = build_model(backend, config, dims, 0)?.0.needs();
        let adjacency = needs
            .graph
            .map(|adjacency| Arc::new(CutAdjacency::new(&dataset.graph, adjacency, Arc::clone(&plan), ranks.exchange)));
        Ok(Self { plan, adjacency, features, labels, dataset, data, dims, needs })
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
        let is_first = world.rank() == 0;
        let ranks = Arc::new(Ranks::new(Arc::clone(&self.plan), world)?);
        let own = ranks.own();
        let features = rows_of_features(&self.features, own.clone());
        let targets = Targets::upload(backend, &rows_of_labels(&self.labels, own))?;
        let (adjacency, precision) = (self.adjacency.clone(), config.precision);
        let inputs = Inputs::of_rank(backend, Arc::clone(&ranks), adjacency, features, &self.needs, precision)?;
        let options = SessionOptions { writes: options.writes && is_first, ..options.clone() };
        // All ranks go on or stop together, as the first one is told.
        let mut failure = None;
        let mut agree = |event: Event<'_>| {
            let mine = if is_first { observe(event) } else { Control::Continue };
            match ranks.world().all_gather_bytes(&[u8::from(mine == Control::Stop)]) {
                Ok(all) if all[0] == [0] => Control::Continue,
                Ok(_) => Control::Stop,
                Err(error) => {
                    failure.get_or_insert(error);
                    Control::Stop
                }
            }
        };
        let task = (&self.labels, &targets, &self.dataset.splits[..]);
        let outcome = train_runs(config, &self.data, &options, &mut agree, |run| {
            Ok(Box::new(start_run(backend, &inputs, task, (config, self.dims), run)?))
        })?;
        match failure {
            None => Ok(outcome),
            Some(error) => Err(error.into()),
        }
    }
}

/// The features of some nodes, and how many stored values the nodes before them have.
fn rows_of_features(features: &Features, own: Range<usize>) -> (Features, usize) {
    match features {
        Features::Dense(matrix) => (Features::Dense(rows_of(matrix, own)), 0),
        Features::Sparse(csr) => {
            let rows = csr.block(own.clone(), 0..csr.n_cols()).expect("nodes of the data set");
            (Features::Sparse(rows), csr.indptr()[own.start] as usize)
        }
    }
}

fn rows_of_labels(labels: &Labels, own: Range<usize>) -> Labels {
    match labels {
        Labels::Single { n_classes, classes } => {
            Labels::Single { n_classes: *n_classes, classes: classes[own].to_vec() }
        }
        Labels::Multi { n_classes, targets } => Labels::Multi { n_classes: *n_classes, targets: rows_of(targets, own) },
    }
}

fn rows_of(matrix: &Matrix, own: Range<usize>) -> Matrix {
    let cols = matrix.n_cols();
    let values = matrix.data()[own.start * cols..own.end * cols].to_vec();
    Matrix::new(own.len(), cols, values).expect("whole rows")
}
