//! Processes and threads of a job: one process, ranks as its threads, or processes that a launcher started.

use girih_comm::tcp::{self, TcpRank};
use girih_comm::{GpuTransport, Launch, Launcher, Secret, Transport};
use girih_compute::{Cpu, Dtype};
use girih_datasets::DataSource;
use girih_kernels::{Cuda, NcclRank};
use girih_planner::{PlannerError, measure};
use girih_trainer::TrainError;
use girih_trainer::distributed::{RankJob, RankOptions};

use super::device::{Chosen, open, peak_bytes_of};
use super::gpus::gpus;
use super::{launched, ranks};
use crate::args::{DeviceArgs, OutputArgs, RankArgs};
use crate::error::CliError;
use crate::messages;

/// How this process was launched: alone, or as one of several.
pub enum LaunchContext {
    /// Started alone.
    Alone,
    /// Connects to the others over TCP.
    Tcp { launch: Launch, rendezvous: String },
    /// Connects to the others through MPI.
    Mpi(Launch),
}

impl LaunchContext {
    /// Launch context from the environment of launchers and from flags.
    ///
    /// # Errors
    /// When several processes were started without a rendezvous, or their number is not the requested number of
    /// ranks.
    pub fn of(args: &RankArgs) -> Result<Self, CliError> {
        let launch = Launch::from_env(args.rendezvous.as_deref())?;
        if launch.is_none() && args.rendezvous.is_some() {
            return Err(CliError::Usage(
                "--rendezvous is for several processes, and no launcher says which of them this is: start them with girih \
                 launch, torchrun, srun or mpirun, or set GIRIH_RANK and GIRIH_SIZE"
                    .to_owned(),
            ));
        }
        if launch.is_none() && args.secret_file.is_some() {
            return Err(CliError::Usage(
                "--secret-file is for several processes, and no launcher says which of them this is: leave it out, or start \
                 them with girih launch, torchrun, srun or mpirun"
                    .to_owned(),
            ));
        }
        // A launcher with a single process counts as none.
        let Some(launch) = launch.filter(|launch| launch.size > 1) else { return Ok(Self::Alone) };
        if let Some(ranks) = args.ranks.filter(|&ranks| usize::from(ranks) != launch.size) {
            let found = launch.size;
            return Err(CliError::Usage(format!(
                "a launcher started {found} processes, one rank each, but --ranks is {ranks}: start {ranks} processes, or leave --ranks out"
            )));
        }
        launched::end_with_the_launcher();
        let speaks_mpi = cfg!(feature = "mpi") && matches!(launch.launcher, Launcher::OpenMpi | Launcher::Hydra);
        match &launch.rendezvous {
            Some(rendezvous) => Ok(Self::Tcp { rendezvous: rendezvous.clone(), launch }),
            None if speaks_mpi => Ok(Self::Mpi(launch)),
            None => Err(CliError::Usage(format!(
                "{} processes were started together, but nothing says where they meet: give --rendezvous HOST:PORT, with the \
                 host of rank 0 and a free port there, or set GIRIH_RENDEZVOUS",
                launch.size
            ))),
        }
    }

    fn launch(&self) -> Option<&Launch> {
        match self {
            Self::Alone => None,
            Self::Tcp { launch, .. } | Self::Mpi(launch) => Some(launch),
        }
    }

    /// Refuses a command that a single process must run, with the reason `why`.
    pub fn refuse_several(&self, why: &str) -> Result<(), CliError> {
        self.launch().map_or(Ok(()), |_| Err(CliError::Usage(why.to_owned())))
    }

    /// Partition over ranks; `None` for a single rank.
    pub fn options(&self, args: &RankArgs) -> Result<Option<RankOptions>, CliError> {
        ranks::asked(args, self.launch().map(|launch| launch.size))
    }

    /// Runs `work` together with the other processes, if there are any.
    ///
    /// # Errors
    /// As `work`; when the processes cannot connect, or another one fails.
    pub fn with_the_others<T>(
        self,
        args: &RankArgs,
        work: impl FnOnce(World) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let (launch, rendezvous) = match self {
            Self::Tcp { launch, rendezvous } => (launch, rendezvous),
            Self::Alone => return work(World::Threads),
            Self::Mpi(launch) => {
                return work(World::Mpi { rank: launch.rank, local_rank: launch.local_rank.unwrap_or(launch.rank) });
            }
        };
        let Launch { rank, size, job, local_rank, .. } = launch;
        let local_rank = local_rank.unwrap_or(rank);
        let deadline = ranks::deadline(args);
        let secret = Secret::from_env(args.secret_file.as_deref())?;
        let options = tcp::Options { rank, size, rendezvous, job, secret, start_deadline: deadline, deadline };
        match tcp::run(&options, |world| work(World::Tcp { world: Box::new(world), local_rank }))? {
            Ok(done) => Ok(done),
            // A usage error is the same on all ranks, so it is reported as it is.
            Err(failure) => Err(match failure.error.filter(CliError::is_usage) {
                Some(error) => error,
                None => TrainError::rank(failure.rank, failure.message).into(),
            }),
        }
    }
}

/// All ranks of a job, as this process reaches them.
pub enum World {
    /// All ranks are threads of this process; also for a single rank.
    Threads,
    /// The other ranks are processes connected by sockets.
    Tcp { world: Box<TcpRank>, local_rank: usize },
    /// The other ranks are processes of MPI.
    Mpi { rank: usize, local_rank: usize },
}

impl World {
    /// Whether this process reports results: rank 0.
    pub fn is_primary(&self) -> bool {
        self.rank() == 0
    }

    /// Rank of this process; 0 if ranks are threads.
    pub fn rank(&self) -> usize {
        match self {
            Self::Threads => 0,
            Self::Tcp { world, .. } => world.transport().rank(),
            Self::Mpi { rank, .. } => *rank,
        }
    }

    /// Rank of this process on its host; `None` if ranks are threads.
    pub fn local_rank(&self) -> Option<usize> {
        match self {
            Self::Threads => None,
            Self::Tcp { local_rank, .. } | Self::Mpi { local_rank, .. } => Some(*local_rank),
        }
    }

    /// Notes that every process reads all data, if each could read only its own rows.
    pub fn tell_what_is_read(&self, data: &DataSource, output: OutputArgs) {
        if self.local_rank().is_some() && !data.is_stored() {
            messages::note(
                output,
                "each process reads all of the data; of a folder that `girih convert` or `girih reorder` wrote, without \
                 --reorder and with the codec of its features, each reads its own rows",
            );
        }
    }

    /// Runs a job on all ranks: on GPUs if the first device is one, otherwise on the CPU. `precision` is as in
    /// [`choose`](super::device::choose).
    pub fn carry_out<J: RankJob>(
        self,
        first: Chosen,
        device: &DeviceArgs,
        precision: Dtype,
        job: J,
    ) -> Result<Carried<J::Done>, CliError> {
        match first {
            Chosen::Cpu(cpu) => Ok(Carried { done: self.on_cpus(&cpu, precision, job)?, peak_device_bytes: 0 }),
            Chosen::Cuda(first) => {
                let n_gpus = if self.local_rank().is_some() { 1 } else { job.ranks().grid.ranks() };
                let gpus = gpus(*first, device, n_gpus, precision)?;
                // The peak counts from here, without earlier measurements.
                let reset = gpus.iter().try_for_each(|gpu| gpu.device().reset_peak());
                reset.map_err(|error| CliError::Other(error.to_string()))?;
                let done = self.on_gpus(&gpus, job)?;
                Ok(Carried { done, peak_device_bytes: peak_bytes_of(&gpus)? })
            }
        }
    }

    /// Runs a job on GPUs: those of all ranks if ranks are threads, otherwise the one of this process.
    fn on_gpus<J: RankJob>(self, gpus: &[Cuda], job: J) -> Result<J::Done, TrainError> {
        let (deadline, transport) = (job.ranks().deadline, job.ranks().transport.unwrap_or_default());
        match self {
            Self::Threads => job.on_devices(gpus, |cuda, world| NcclRank::connect(cuda, world, deadline, transport)),
            Self::Tcp { world, .. } => job.on_rank(&gpus[0], NcclRank::connect(&gpus[0], *world, deadline, transport)?),
            #[cfg(feature = "mpi")]
            Self::Mpi { .. } => Ok(girih_mpi::run(deadline, |world| {
                job.on_rank(&gpus[0], NcclRank::connect(&gpus[0], world, deadline, transport)?)
            })?),
            #[cfg(not(feature = "mpi"))]
            Self::Mpi { .. } => Err(without_mpi()),
        }
    }

    fn on_cpus<J: RankJob>(self, cpu: &Cpu, precision: Dtype, job: J) -> Result<J::Done, TrainError> {
        match self {
            Self::Threads => job.on_threads(|| Cpu::new().gathering(precision)),
            Self::Tcp { world, .. } => job.on_rank(cpu, world),
            #[cfg(feature = "mpi")]
            Self::Mpi { .. } => Ok(girih_mpi::run(job.ranks().deadline, |world| job.on_rank(cpu, Box::new(world)))?),
            #[cfg(not(feature = "mpi"))]
            Self::Mpi { .. } => Err(without_mpi()),
        }
    }
}

/// Outcome of a job on ranks.
pub struct Carried<T> {
    pub done: T,
    /// Peak bytes allocated on any one GPU of this process; zero on CPUs.
    pub peak_device_bytes: u64,
}

#[cfg(not(feature = "mpi"))]
fn without_mpi() -> TrainError {
    TrainError::invalid("this program was built without MPI: build it with --features mpi")
}

/// Transport between the GPUs of this process for full-batch training: the given one, or the faster one by
/// measurement. `first` is one of the GPUs.
pub fn transport(
    ranks: &RankOptions,
    first: &Cuda,
    device: &DeviceArgs,
    precision: Dtype,
) -> Result<GpuTransport, CliError> {
    if let Some(transport) = ranks.transport {
        return Ok(transport);
    }
    let n = ranks.grid.ranks();
    let open = |ordinal| open(ordinal, device, precision).map_err(|error| PlannerError::Measure(error.to_string()));
    let all = || (0..n).map(open).collect();
    measure::transport((first, n), all).map_err(|error| CliError::Other(error.to_string()))
}
