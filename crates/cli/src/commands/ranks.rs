//! Who works together: one process, ranks that are its threads, or processes that a launcher started.

use std::num::NonZero;
use std::time::Duration;

use girih_comm::tcp::{self, TcpRank};
use girih_comm::{CardTransport, Launch, Launcher, Transport};
use girih_compute::{Cpu, Dtype};
use girih_datasets::DataSource;
use girih_kernels::{Cuda, NcclRank};
use girih_partition::{Exchange, Scheme, Stages, counted};
use girih_planner::{PlannerError, measure};
use girih_trainer::distributed::{RankJob, RankOptions};
use girih_trainer::{TrainConfig, TrainError};

use super::cards::cards;
use super::device::{Chosen, open, peak_bytes_of};
use super::{launch, process_grid};
use crate::args::{DeviceArgs, LayoutChoice, PartitionChoice, PartitionKind, RankArgs, TrainArgs};
use crate::error::CliError;

/// Ranks that are threads: at most so many, and at most so many for each core.
const THREAD_RANKS_MAX: usize = 256;
const RANKS_PER_CORE_MAX: usize = 64;

/// How long a rank is waited for unless the user says otherwise.
pub const DEADLINE: Duration = Duration::from_secs(300);

/// This process's place among those that were started with it.
pub enum Place {
    /// It was started alone.
    Alone,
    /// It meets the others over TCP.
    Tcp { launch: Launch, rendezvous: String },
    /// It meets the others through MPI.
    Mpi(Launch),
}

impl Place {
    /// What launchers and flags say.
    ///
    /// # Errors
    /// When several processes were started, but not how they find each other, or not as many as ranks are asked for.
    pub fn of(args: &RankArgs) -> Result<Self, CliError> {
        let launch = Launch::from_env(args.rendezvous.as_deref())?;
        if launch.is_none() && args.rendezvous.is_some() {
            return Err(CliError::Usage(
                "--rendezvous is for several processes, and no launcher says which of them this is: start them with girih \
                 launch, torchrun, srun or mpirun, or set GIRIH_RANK and GIRIH_SIZE"
                    .to_owned(),
            ));
        }
        // Whoever was started by a launcher, but without others, is alone.
        let Some(launch) = launch.filter(|launch| launch.size > 1) else { return Ok(Self::Alone) };
        if let Some(ranks) = args.ranks.filter(|&ranks| usize::from(ranks) != launch.size) {
            let found = launch.size;
            return Err(CliError::Usage(format!(
                "{found} ranks are there for a plan of {ranks}; start as many processes, or leave --ranks out"
            )));
        }
        launch::end_with_the_launcher();
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

    /// Refuses what one process does alone.
    pub fn refuse_several(&self, why: &str) -> Result<(), CliError> {
        self.launch().map_or(Ok(()), |_| Err(CliError::Usage(why.to_owned())))
    }

    /// How ranks share the work, if there are several.
    pub fn options(&self, args: &RankArgs) -> Result<Option<RankOptions>, CliError> {
        let ranks = match (self.launch(), args.ranks, args.gpus) {
            (Some(launch), ..) => u16::try_from(launch.size).map_err(|_| too_many(launch.size))?,
            (None, Some(ranks), _) => {
                check_threads(ranks)?;
                ranks
            }
            (None, None, Some(gpus)) => gpus,
            (None, None, None) => return refuse_unused(args).map(|()| None),
        };
        if args.transport == Some(CardTransport::Peer) && self.launch().is_some() {
            return Err(CliError::Usage(
                "--transport peer is for devices of one process, which read each other's memory: give --gpus N instead of starting \
                 several processes, or leave it out"
                    .to_owned(),
            ));
        }
        if args.partition.partition == PartitionChoice::Auto && self.launch().is_some() {
            return Err(CliError::Usage(
                "processes that a launcher started would each choose for themselves: give the partition that \
                 `girih train --gpus N --transport nccl --plan` names instead of auto"
                    .to_owned(),
            ));
        }
        sharing(args, ranks).map(Some)
    }

    /// Runs `work` together with the other processes, if there are any.
    ///
    /// # Errors
    /// As `work`; when the processes do not find each other, and when another one fails.
    pub fn with_the_others<T>(
        self,
        args: &RankArgs,
        work: impl FnOnce(Company) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let (launch, rendezvous) = match self {
            Self::Tcp { launch, rendezvous } => (launch, rendezvous),
            Self::Alone => return work(Company::Threads),
            Self::Mpi(launch) => {
                return work(Company::Mpi { rank: launch.rank, local_rank: launch.local_rank.unwrap_or(launch.rank) });
            }
        };
        let Launch { rank, size, job, local_rank, .. } = launch;
        let local_rank = local_rank.unwrap_or(rank);
        let deadline = deadline(args);
        let options = tcp::Options { rank, size, rendezvous, job, start_deadline: deadline, deadline };
        match tcp::run(&options, |world| work(Company::Tcp { world: Box::new(world), local_rank }))? {
            Ok(done) => Ok(done),
            // What is wrong with the command line is the same on all ranks; it stays what it is.
            Err(failure) => Err(match failure.error.filter(CliError::is_usage) {
                Some(error) => error,
                None => TrainError::rank(failure.rank, failure.message).into(),
            }),
        }
    }
}

/// Those who work together, as one of them sees it.
pub enum Company {
    /// All ranks are threads of this process, if there are several.
    Threads,
    /// The other ranks are at the ends of sockets.
    Tcp { world: Box<TcpRank>, local_rank: usize },
    /// The other ranks are MPI's.
    Mpi { rank: usize, local_rank: usize },
}

impl Company {
    /// Whether this process reports: of several, the first.
    pub fn speaks(&self) -> bool {
        self.rank() == 0
    }

    /// The number of this process.
    pub fn rank(&self) -> usize {
        match self {
            Self::Threads => 0,
            Self::Tcp { world, .. } => world.transport().rank(),
            Self::Mpi { rank, .. } => *rank,
        }
    }

    /// The number of this process on its host, where ranks are processes.
    pub fn local_rank(&self) -> Option<usize> {
        match self {
            Self::Threads => None,
            Self::Tcp { local_rank, .. } | Self::Mpi { local_rank, .. } => Some(*local_rank),
        }
    }

    /// Tells people that every process reads all of the data, where it could read a part.
    pub fn tell_what_is_read(&self, data: &DataSource) {
        if self.local_rank().is_some() && !data.is_stored() {
            eprintln!(
                "each process reads all of the data; of a folder in its order, as `girih convert` and `girih reorder` write it, and with the \
                 codec that its features have, its own part"
            );
        }
    }

    /// Carries out a job on all ranks, which compute with `precision` as [`choose`](super::device::choose) has it: on
    /// processors or, where the first device is one, on cards.
    pub fn carry_out<J: RankJob>(
        self,
        first: Chosen,
        device: &DeviceArgs,
        precision: Dtype,
        job: J,
    ) -> Result<Carried<J::Done>, CliError> {
        match first {
            Chosen::Cpu(cpu) => Ok(Carried { done: self.on_processors(&cpu, precision, job)?, peak_device_bytes: 0 }),
            Chosen::Cuda(first) => {
                let n_cards = if self.local_rank().is_some() { 1 } else { job.ranks().grid.ranks() };
                let cards = cards(*first, device, n_cards, precision)?;
                // What was measured before is no part of it.
                let reset = cards.iter().try_for_each(|card| card.device().reset_peak());
                reset.map_err(|error| CliError::Other(error.to_string()))?;
                let done = self.on_cards(&cards, job)?;
                Ok(Carried { done, peak_device_bytes: peak_bytes_of(&cards)? })
            }
        }
    }

    /// The cards are those of all ranks that are threads, or that of this process.
    fn on_cards<J: RankJob>(self, cards: &[Cuda], job: J) -> Result<J::Done, TrainError> {
        let (deadline, transport) = (job.ranks().deadline, job.ranks().transport.unwrap_or_default());
        match self {
            Self::Threads => job.on_devices(cards, |cuda, world| NcclRank::connect(cuda, world, deadline, transport)),
            Self::Tcp { world, .. } => {
                job.on_rank(&cards[0], NcclRank::connect(&cards[0], *world, deadline, transport)?)
            }
            #[cfg(feature = "mpi")]
            Self::Mpi { .. } => Ok(girih_comm::mpi::run(deadline, |world| {
                job.on_rank(&cards[0], NcclRank::connect(&cards[0], world, deadline, transport)?)
            })?),
            #[cfg(not(feature = "mpi"))]
            Self::Mpi { .. } => Err(without_mpi()),
        }
    }

    fn on_processors<J: RankJob>(self, cpu: &Cpu, precision: Dtype, job: J) -> Result<J::Done, TrainError> {
        match self {
            Self::Threads => job.on_threads(|| Cpu::new().gathering(precision)),
            Self::Tcp { world, .. } => job.on_rank(cpu, world),
            #[cfg(feature = "mpi")]
            Self::Mpi { .. } => {
                Ok(girih_comm::mpi::run(job.ranks().deadline, |world| job.on_rank(cpu, Box::new(world)))?)
            }
            #[cfg(not(feature = "mpi"))]
            Self::Mpi { .. } => Err(without_mpi()),
        }
    }
}

/// What ranks came to.
pub struct Carried<T> {
    pub done: T,
    /// The most bytes that were allocated at once on one of the cards of this process; zero on processors.
    pub peak_device_bytes: u64,
}

#[cfg(not(feature = "mpi"))]
fn without_mpi() -> TrainError {
    TrainError::invalid("this program was built without MPI: build it with --features mpi")
}

/// How so many ranks share the work, as the flags say, but for the stages, which depend on the device. What is chosen
/// when the data is there is chosen for as many ranks; until then rows stand for it.
pub fn sharing(args: &RankArgs, ranks: u16) -> Result<RankOptions, CliError> {
    let PartitionKind { partition, exchange, cuts, wire, .. } = args.partition;
    if partition == PartitionChoice::Auto && tells_how(args) {
        return Err(CliError::Usage(
            "--partition auto chooses replication, exchange, stages and chunks, too: leave --replication, --exchange, --stages and \
             --chunks out, or name a partition"
                .to_owned(),
        ));
    }
    if partition == PartitionChoice::Of(Scheme::OneD) && args.chunks > 1 {
        return Err(CliError::Usage(
            "--chunks is for partitions whose products sums or slices follow: leave it out, or take --partition 1.5d, 2d or 3d"
                .to_owned(),
        ));
    }
    let usual = RankOptions::new(process_grid(&args.partition.or_rows(), ranks)?, exchange, deadline(args));
    let chunks = usize::from(args.chunks);
    Ok(RankOptions { cuts, chunks, wire: wire.into(), transport: args.transport, ..usual })
}

/// What carries rows between the devices of this process, of which `first` is one, for ranks that are to train with full
/// batches: what they are told, or what measurements say.
pub fn transport(
    ranks: &RankOptions,
    first: &Cuda,
    device: &DeviceArgs,
    precision: Dtype,
) -> Result<CardTransport, CliError> {
    if let Some(transport) = ranks.transport {
        return Ok(transport);
    }
    let n = ranks.grid.ranks();
    let open = |ordinal| open(ordinal, device, precision).map_err(|error| PlannerError::Measure(error.to_string()));
    let all = || (0..n).map(open).collect();
    measure::transport((first, n), all).map_err(|error| CliError::Other(error.to_string()))
}

/// In which stages rows of other ranks come. Cards have the memory for all of them at once, and links that go both
/// ways.
pub fn stages(args: &RankArgs, backend: &Chosen) -> Stages {
    let usual = match backend {
        Chosen::Cpu(_) => Stages::Steps,
        Chosen::Cuda(_) => Stages::Parts(1),
    };
    args.partition.stages.unwrap_or(usual)
}

fn deadline(args: &RankArgs) -> Duration {
    args.rank_deadline.map_or(DEADLINE, Duration::from_secs)
}

fn too_many(ranks: usize) -> CliError {
    CliError::Usage(format!("{ranks} ranks are too many; take at most {}", u16::MAX))
}

/// Refuses flags of ranks where there are none.
fn refuse_unused(args: &RankArgs) -> Result<(), CliError> {
    if args.partition == PartitionKind::USUAL
        && (args.chunks, args.ranks_per_gpu) == (1, 1)
        && args.transport.is_none()
        && args.rank_deadline.is_none()
    {
        return Ok(());
    }
    Err(CliError::Usage(
        "--partition, --replication, --exchange, --cuts, --stages, --chunks, --wire, --transport, --ranks-per-gpu and \
         --rank-deadline say how ranks work together; give --ranks N or --gpus N, or start \
         several processes with girih launch"
            .to_owned(),
    ))
}

/// Whether there are flags for what is chosen together with a partition.
fn tells_how(args: &RankArgs) -> bool {
    let PartitionKind { replication, exchange, stages, .. } = args.partition;
    (replication, exchange, stages, args.chunks) != (1, Exchange::Auto, None, 1)
}

/// Refuses flags that say nothing of a plan, which is made for every way to share the work, or for one device.
pub fn check_planned(args: &TrainArgs) -> Result<(), CliError> {
    let (args, layout) = (&args.ranks, args.layout);
    if args.ranks.is_none() && args.gpus.is_none() {
        return refuse_unused(args).and_then(|()| check_layout(layout, None));
    }
    let is_left = matches!(args.partition.partition, PartitionChoice::Auto | PartitionChoice::Of(Scheme::OneD));
    if is_left && !tells_how(args) && (layout, args.rank_deadline) == (None, None) {
        return Ok(());
    }
    Err(CliError::Usage(
        "--plan tries every partition, exchange, and number of stages and chunks of full batches, every layout of mini-batches, and no rank \
         waits: leave --partition, --replication, --exchange, --stages, --chunks, --layout and --rank-deadline out"
            .to_owned(),
    ))
}

/// Refuses flags that say nothing of how ranks train so: full batches cut the graph, and for mini-batches each rank
/// holds all of it unless it holds a patch.
pub fn check_trained(args: &TrainArgs, config: &TrainConfig) -> Result<(), CliError> {
    let TrainArgs { ranks: RankArgs { partition: kind, chunks, transport, .. }, layout, .. } = args;
    let is_sampled = config.batch.is_sampled();
    let refused = if kind.partition == PartitionChoice::Auto && (is_sampled || config.model.kind.is_recommender()) {
        "--partition auto goes by plans, and these are of networks that read the full graph and its features: name a \
         partition, or for mini-batches leave it out"
    } else if layout.is_some() && !is_sampled {
        "--layout says what ranks hold for mini-batches, and full batches cut the graph by --partition: leave it \
         out, or give --batch neighbor"
    } else if is_sampled
        && layout.is_none_or(|layout| layout == LayoutChoice::Replicated)
        && (*kind, *chunks) != (PartitionKind::USUAL, 1)
    {
        "--partition, --replication, --exchange, --cuts, --stages, --chunks and --wire say how a graph is cut and what is \
         sent of it, and for mini-batches ranks hold it whole: leave them out, or cut it by --layout patches or split-features"
    } else if is_sampled && layout.is_none_or(|layout| layout == LayoutChoice::Replicated) && transport.is_some() {
        "--transport says what carries rows between devices, and for mini-batches that each draws for itself none travel: \
         leave it out, or cut the graph by --layout patches"
    } else {
        return Ok(());
    };
    Err(CliError::Usage(refused.to_owned()))
}

/// Refuses a layout where one rank holds all.
pub fn check_layout(layout: Option<LayoutChoice>, ranks: Option<&RankOptions>) -> Result<(), CliError> {
    if layout.is_none() || ranks.is_some() {
        return Ok(());
    }
    Err(CliError::Usage(
        "--layout says what each of several ranks holds; give --ranks N or --gpus N, or start several processes with girih launch"
            .to_owned(),
    ))
}

/// Refuses more ranks than make sense as threads of one process, and says when they are more than cores. In 1D each
/// takes a step for every rank, with a count for every rank: time and memory grow with the cube of their number.
fn check_threads(ranks: u16) -> Result<(), CliError> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let (ranks, most) = (usize::from(ranks), THREAD_RANKS_MAX.min(cores * RANKS_PER_CORE_MAX));
    if ranks > most {
        return Err(CliError::Usage(format!(
            "{ranks} ranks are too many for threads of one process on {}; take at most {most}, or processes of girih launch; \
             `girih partition` says what any number would take",
            counted(cores, "core")
        )));
    }
    if ranks > cores {
        tracing::warn!("{ranks} ranks share {}: fewer would be faster", counted(cores, "core"));
    }
    Ok(())
}
