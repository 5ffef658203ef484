//! [`RankJob`]: work that ranks share, on devices, threads or processes.

use girih_comm::threads::{self, ThreadRank};
use girih_comm::{Collective, CommError, Transport};
use girih_compute::{Backend, HostMatrix, Memory};
use girih_features::MiniBatchBackend;
use girih_graph_format::Matrix;

use crate::TrainError;
use crate::config::RankOptions;
use crate::models::BuildModel;

/// Consumer of logits. Each call gets the rows of the next nodes, from the first node to the last.
pub type TakeLogits<'t> = dyn FnMut(&Matrix) + Send + 't;

/// Work that ranks share: training ([`TrainJob`](super::TrainJob)), or inference with a trained model
/// ([`ApplyJob`](super::ApplyJob), [`RecommendJob`](super::RecommendJob)).
///
/// Each rank reads its own rows of a data set in a folder ([`DataSource::open`](girih_datasets::DataSource::open)).
/// The result is that of one rank, up to rounding: sums are added in another order. If a rank fails, all ranks end
/// with its error.
pub trait RankJob: Sized {
    /// Result of the work on the first rank.
    type Done: Send;

    /// Options by which the ranks share the work.
    fn ranks(&self) -> &RankOptions;

    /// Runs on ranks that are threads of this process, one on each backend. `connect` turns the rank of a thread into
    /// a collective that moves the matrices of its backend.
    ///
    /// # Errors
    /// As the work on one rank. Also when the number of backends differs from the number of ranks, when the plan does
    /// not fit the data, and when a rank fails.
    fn on_devices<B: MiniBatchBackend>(
        self,
        backends: &[B],
        connect: impl Fn(&B, ThreadRank) -> Result<Box<dyn Collective<B>>, CommError> + Sync,
    ) -> Result<Self::Done, TrainError>;

    /// Runs as one of several ranks that are processes. Each of them calls this with the same data and settings, and
    /// they compare hashes of both before the first step.
    ///
    /// # Errors
    /// As [`on_devices`](Self::on_devices). Also when ranks differ in data, settings or plan; this is found before
    /// the first step.
    fn on_rank<B: MiniBatchBackend>(self, backend: &B, world: Box<dyn Collective<B>>)
    -> Result<Self::Done, TrainError>;

    /// Runs on ranks that are threads of this process, each on a CPU backend that `backend` creates.
    ///
    /// # Errors
    /// As [`on_devices`](Self::on_devices). Also when the options name a transport between GPUs.
    fn on_threads<B: MiniBatchBackend>(self, backend: impl Fn() -> B) -> Result<Self::Done, TrainError>
    where
        B::Matrix: HostMatrix,
    {
        let backends = on_host(self.ranks(), backend)?;
        self.on_devices(&backends, |_, world| -> Result<Box<dyn Collective<B>>, CommError> { Ok(Box::new(world)) })
    }
}

/// Work that ranks share on a model from outside ([`BuildModel`]): each method of [`RankJob`], with its builder.
pub trait ModelJob: RankJob {
    /// As [`RankJob::on_devices`], for the models of a builder.
    ///
    /// # Errors
    /// As there, and when a configuration or a checkpoint names another model than the builder's.
    fn on_devices_with<B: MiniBatchBackend>(
        self,
        builder: &dyn BuildModel<B>,
        backends: &[B],
        connect: impl Fn(&B, ThreadRank) -> Result<Box<dyn Collective<B>>, CommError> + Sync,
    ) -> Result<Self::Done, TrainError>;

    /// As [`RankJob::on_rank`], for the models of a builder.
    ///
    /// # Errors
    /// As there, and when a configuration or a checkpoint names another model than the builder's.
    fn on_rank_with<B: MiniBatchBackend>(
        self,
        builder: &dyn BuildModel<B>,
        backend: &B,
        world: Box<dyn Collective<B>>,
    ) -> Result<Self::Done, TrainError>;

    /// As [`RankJob::on_threads`], for the models of a builder.
    ///
    /// # Errors
    /// As there, and when a configuration or a checkpoint names another model than the builder's.
    fn on_threads_with<B: MiniBatchBackend>(
        self,
        builder: &dyn BuildModel<B>,
        backend: impl Fn() -> B,
    ) -> Result<Self::Done, TrainError>
    where
        B::Matrix: HostMatrix,
    {
        let backends = on_host(self.ranks(), backend)?;
        let connect = |_: &B, world| -> Result<Box<dyn Collective<B>>, CommError> { Ok(Box::new(world)) };
        self.on_devices_with(builder, &backends, connect)
    }
}

/// A CPU backend for each rank.
///
/// # Errors
/// When the options name a transport between GPUs.
fn on_host<B>(ranks: &RankOptions, backend: impl Fn() -> B) -> Result<Vec<B>, TrainError> {
    if let Some(transport) = ranks.transport {
        return Err(TrainError::invalid(format!(
            "--transport {transport} is for CUDA devices, and these ranks are on CPUs: leave it out, or give --gpus N"
        )));
    }
    Ok((0..ranks.grid.ranks()).map(|_| backend()).collect())
}

/// Checks that there is one backend for each rank, and that all are of one kind.
pub(super) fn check_devices<B: Backend>(backends: &[B], ranks: &RankOptions) -> Result<(), TrainError> {
    let (found, wanted) = (backends.len(), ranks.grid.ranks());
    if found != wanted {
        return Err(TrainError::invalid(format!(
            "{found} devices are there for a plan of {wanted} ranks; give one for each"
        )));
    }
    check_alike(&backends.iter().map(Memory::name).collect::<Vec<_>>())
}

/// Checks that the world has as many ranks as the plan, and that all devices are of one kind.
pub(super) fn check_world<B: Backend>(
    backend: &B,
    world: &dyn Collective<B>,
    ranks: &RankOptions,
) -> Result<(), TrainError> {
    let (found, wanted) = (world.size(), ranks.grid.ranks());
    if found != wanted {
        return Err(TrainError::invalid(format!("{found} ranks are there for a plan of {wanted}; start as many")));
    }
    let names = world.all_gather_bytes(backend.name().as_bytes())?;
    check_alike(&names.iter().map(|name| String::from_utf8_lossy(name)).collect::<Vec<_>>())
}

/// Checks that all ranks are on devices with the same name.
pub fn check_alike(names: &[impl AsRef<str>]) -> Result<(), TrainError> {
    let name = |rank: usize| names[rank].as_ref();
    match (0..names.len()).find(|&rank| name(rank) != name(0)) {
        None => Ok(()),
        Some(rank) => Err(TrainError::rank(
            rank,
            format!(
                "it computes on {}, rank 0 on {}; ranks have equal shares, and the slowest would hold up all: take devices of one \
                 kind, which CUDA_VISIBLE_DEVICES can choose",
                name(rank),
                name(0)
            ),
        )),
    }
}

/// Runs `work` on threads, one for each backend, and returns the result of the first.
///
/// # Errors
/// When a rank fails.
pub(super) fn on_each<B: Backend, T: Send>(
    backends: &[B],
    connect: impl Fn(&B, ThreadRank) -> Result<Box<dyn Collective<B>>, CommError> + Sync,
    ranks: &RankOptions,
    work: impl Fn(&B, Box<dyn Collective<B>>) -> Result<T, TrainError> + Sync,
) -> Result<T, TrainError> {
    let outcomes = threads::run(backends.len(), ranks.deadline, |world| {
        let backend = &backends[world.transport().rank()];
        work(backend, connect(backend, world)?)
    });
    match outcomes {
        Ok(mut outcomes) => Ok(outcomes.swap_remove(0)),
        Err(failure) => Err(TrainError::rank(failure.rank, failure.message)),
    }
}

/// Checks that all ranks have the same hash of their `what`.
pub(super) fn agree<B: Backend>(world: &dyn Collective<B>, what: &str, hash: u32) -> Result<(), TrainError> {
    let all = world.all_gather_bytes(&hash.to_le_bytes())?;
    match all.iter().position(|theirs| *theirs != all[0]) {
        None => Ok(()),
        Some(rank) => Err(TrainError::rank(
            rank,
            format!("its {what} differ from those of rank 0; give all ranks the same files, flags and program"),
        )),
    }
}
