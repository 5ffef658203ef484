//! [`RankJob`]: what ranks do together, and the ways of being ranks.

use girih_comm::threads::{self, ThreadRank};
use girih_comm::{Collective, CommError, Transport};
use girih_compute::{Backend, HostMatrix};

use super::session::RankOptions;
use crate::TrainError;

/// Work that ranks share: training ([`TrainJob`](super::TrainJob)), or a trained model applied
/// ([`ApplyJob`](super::ApplyJob), [`RecommendJob`](super::RecommendJob)).
///
/// Of a data set in a folder, each rank reads its own rows ([`DataSource::open`](girih_datasets::DataSource::open)).
/// What comes out is that of one rank, up to the rounding of sums that are added in another order. A rank that fails
/// ends all of them with its error.
pub trait RankJob: Sized {
    /// What the work comes to on the first rank.
    type Done: Send;

    /// How the ranks share it.
    fn ranks(&self) -> &RankOptions;

    /// Works on ranks that are threads of this process, one on each backend. `connect` makes of a thread's rank one
    /// that moves the matrices of its backend.
    ///
    /// # Errors
    /// As the work on one rank; when there is not a backend for each rank, or the plan does not fit the data; and when
    /// a rank fails.
    fn on_devices<B: Backend>(
        self,
        backends: &[B],
        connect: impl Fn(&B, ThreadRank) -> Result<Box<dyn Collective<B>>, CommError> + Sync,
    ) -> Result<Self::Done, TrainError>;

    /// Works as one of several ranks, each of which calls this with the same data and settings: for ranks that are
    /// processes. Before the first step they compare hashes of both.
    ///
    /// # Errors
    /// As [`on_devices`](Self::on_devices); and when ranks disagree on the data, the settings or the plan, before the
    /// first step.
    fn on_rank<B: Backend>(self, backend: &B, world: Box<dyn Collective<B>>) -> Result<Self::Done, TrainError>;

    /// Works on ranks that are threads of this process, each on a backend that `backend` makes, whose matrices lie in
    /// main memory.
    ///
    /// # Errors
    /// As [`on_devices`](Self::on_devices); when ranks shall read the memory of cards.
    fn on_threads<B: Backend>(self, backend: impl Fn() -> B) -> Result<Self::Done, TrainError>
    where
        B::Matrix: HostMatrix,
    {
        if let Some(transport) = self.ranks().transport {
            return Err(TrainError::invalid(format!(
                "--transport {transport} is for CUDA devices, and these ranks are on CPUs: leave it out, or give --gpus N"
            )));
        }
        let backends: Vec<B> = (0..self.ranks().grid.ranks()).map(|_| backend()).collect();
        self.on_devices(&backends, |_, world| -> Result<Box<dyn Collective<B>>, CommError> { Ok(Box::new(world)) })
    }
}

/// Refuses backends that are not one for each rank, or not alike.
pub(super) fn check_devices<B: Backend>(backends: &[B], ranks: &RankOptions) -> Result<(), TrainError> {
    let (found, wanted) = (backends.len(), ranks.grid.ranks());
    if found != wanted {
        return Err(TrainError::invalid(format!(
            "{found} devices are there for a plan of {wanted} ranks; give one for each"
        )));
    }
    check_alike(&backends.iter().map(Backend::name).collect::<Vec<_>>())
}

/// Refuses a world that is not of as many ranks as the plan, or not of devices that are alike.
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

/// Refuses ranks on devices of different names.
fn check_alike(names: &[impl AsRef<str>]) -> Result<(), TrainError> {
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

/// Runs `work` on threads, one for each backend; what the first one comes to.
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

/// Refuses to start when ranks have different hashes of what they work on.
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

impl RankOptions {
    /// A hash of what ranks have to agree on, of this, of `settings` and of the program's version.
    pub(super) fn hash(&self, settings: &str) -> u32 {
        let (Self { grid, exchange, cuts, stages, chunks, wire, layout, .. }, version) =
            (self, env!("CARGO_PKG_VERSION"));
        let agreed = format!("{version} {settings} {grid} {exchange} {cuts} {stages} {chunks} {wire:?} {layout:?}");
        crc32fast::hash(agreed.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_ranks_are_of_one_kind() {
        assert!(check_alike(&["cuda: NVIDIA H200"; 3]).is_ok());
        assert!(check_alike(&[] as &[&str]).is_ok());
        let message = check_alike(&["cuda: NVIDIA H200", "cuda: NVIDIA H200", "cpu"]).unwrap_err().to_string();
        for part in ["rank 2", "on cpu", "on cuda: NVIDIA H200", "CUDA_VISIBLE_DEVICES"] {
            assert!(message.contains(part), "no {part}: {message}");
        }
    }
}
