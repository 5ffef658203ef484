//! Rank options from flags, with checks of which flags go together.

use std::num::NonZero;
use std::time::Duration;

use girih_comm::GpuTransport;
use girih_partition::{Exchange, ProcessGrid, Scheme, Stages, counted};
use girih_trainer::TrainConfig;
use girih_trainer::distributed::RankOptions;

use super::device::Chosen;
use crate::args::{LayoutChoice, PartitionChoice, PartitionKind, RankArgs, TrainArgs};
use crate::error::CliError;

/// Maximum number of ranks as threads, in total and per core.
const THREAD_RANKS_MAX: usize = 256;
const RANKS_PER_CORE_MAX: usize = 64;

/// Default time that a rank waits for another one.
pub const DEADLINE: Duration = Duration::from_secs(300);

/// Rank options; `None` for one rank. The number of ranks is that of launched processes, or comes from flags.
///
/// # Errors
/// When flags contradict each other, or the number of processes.
pub fn asked(args: &RankArgs, processes: Option<usize>) -> Result<Option<RankOptions>, CliError> {
    let ranks = match (processes, args.ranks, args.gpus) {
        (Some(size), ..) => u16::try_from(size).map_err(|_| too_many(size))?,
        (None, Some(ranks), _) => {
            check_threads(ranks)?;
            ranks
        }
        (None, None, Some(gpus)) => gpus,
        (None, None, None) => return refuse_unused(args).map(|()| None),
    };
    if args.transport == Some(GpuTransport::Peer) && processes.is_some() {
        return Err(CliError::Usage(
            "--transport peer is for the GPUs of one process: give --gpus N instead of starting several processes, or leave it out"
                .to_owned(),
        ));
    }
    if args.partition.partition == PartitionChoice::Auto && processes.is_some() {
        return Err(CliError::Usage(
            "--partition auto is for one process: give the partition that `girih train --plan` names with --gpus N --transport nccl, or on CPUs with --ranks N"
                .to_owned(),
        ));
    }
    sharing(args, ranks).map(Some)
}

/// Options for this number of ranks, from the flags. Stages depend on the device and are set later. Choices that need
/// the data are set to 1D rows until then.
pub fn sharing(args: &RankArgs, ranks: u16) -> Result<RankOptions, CliError> {
    let PartitionKind { partition, exchange, cuts, wire, .. } = args.partition;
    if partition == PartitionChoice::Auto && tells_how(args) {
        return Err(CliError::Usage(
            "--partition auto also chooses --replication, --exchange, --stages and --chunks: leave these out, or name a partition, such as --partition 1d"
                .to_owned(),
        ));
    }
    if partition == PartitionChoice::Of(Scheme::OneD) && args.chunks > 1 {
        return Err(CliError::Usage(
            "--chunks has no effect on the partition 1d: leave it out, or take --partition 1.5d, 2d or 3d".to_owned(),
        ));
    }
    let usual = RankOptions::new(process_grid(&args.partition.or_rows(), ranks)?, exchange, deadline(args));
    let chunks = usize::from(args.chunks);
    Ok(RankOptions { cuts, chunks, wire: wire.into(), transport: args.transport, ..usual })
}

/// Stages in which rows of other ranks arrive. GPUs have the memory for all rows at once, and full-duplex links.
pub fn stages(args: &RankArgs, backend: &Chosen) -> Stages {
    let usual = match backend {
        Chosen::Cpu(_) => Stages::Steps,
        Chosen::Cuda(_) => Stages::Parts(1),
    };
    args.partition.stages.unwrap_or(usual)
}

/// Time that a rank waits for another one.
pub fn deadline(args: &RankArgs) -> Duration {
    args.rank_deadline.map_or(DEADLINE, Duration::from_secs)
}

fn too_many(ranks: usize) -> CliError {
    CliError::Usage(format!("{ranks} ranks are too many; take at most {}", u16::MAX))
}

/// Refuses rank flags when there is one rank.
fn refuse_unused(args: &RankArgs) -> Result<(), CliError> {
    if args.partition == PartitionKind::USUAL
        && (args.chunks, args.ranks_per_gpu) == (1, 1)
        && args.transport.is_none()
        && args.rank_deadline.is_none()
    {
        return Ok(());
    }
    Err(CliError::Usage(
        "--partition, --replication, --exchange, --cuts, --stages, --chunks, --wire, --transport, --ranks-per-gpu and --rank-deadline have no effect on one rank: give --ranks N or --gpus N, or start several processes with girih launch"
            .to_owned(),
    ))
}

/// Whether flags fix a setting that `--partition auto` chooses.
fn tells_how(args: &RankArgs) -> bool {
    let PartitionKind { replication, exchange, stages, .. } = args.partition;
    (replication, exchange, stages, args.chunks) != (1, Exchange::Auto, None, 1)
}

/// Refuses flags without effect on a plan, which covers every partition, or one device.
pub fn check_planned(args: &TrainArgs) -> Result<(), CliError> {
    let (args, layout) = (&args.ranks, args.layout);
    if args.ranks.is_none() && args.gpus.is_none() {
        return refuse_unused(args);
    }
    let is_left = matches!(args.partition.partition, PartitionChoice::Auto | PartitionChoice::Of(Scheme::OneD));
    if is_left && !tells_how(args) && (layout, args.rank_deadline) == (None, None) {
        return Ok(());
    }
    Err(CliError::Usage(
        "--plan tries every partition, exchange, number of stages and chunks, and for mini-batches every layout: leave --partition, --replication, --exchange, --stages, --chunks, --layout and --rank-deadline out"
            .to_owned(),
    ))
}

/// Refuses flags without effect on mini-batches of ranks that each hold all data.
pub fn check_replicas(args: &TrainArgs, config: &TrainConfig) -> Result<(), CliError> {
    let RankArgs { partition: kind, chunks, transport, .. } = args.ranks;
    let are_replicas = config.batch.is_sampled() && args.layout.is_none_or(|layout| layout == LayoutChoice::Replicated);
    if !are_replicas || kind.partition == PartitionChoice::Auto {
        return Ok(());
    }
    let refused = if (kind, chunks) != (PartitionKind::USUAL, 1) {
        "--partition, --replication, --exchange, --cuts, --stages, --chunks and --wire have no effect on mini-batches of ranks that hold the whole graph: leave them out, or give --layout patches or split-features"
    } else if transport.is_some() {
        "--transport has no effect on mini-batches of ranks that hold the whole graph: leave it out, or give --layout patches"
    } else {
        return Ok(());
    };
    Err(CliError::Usage(refused.to_owned()))
}

/// Refuses too many ranks as threads, and notes when they exceed the cores. In 1D each rank takes a step and counts
/// for every rank, so time and memory grow with the cube of their number.
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
        tracing::warn!("{ranks} ranks on {}: fewer would be faster", counted(cores, "core"));
    }
    Ok(())
}

/// Process grid that the flags describe.
pub fn process_grid(kind: &PartitionKind, ranks: u16) -> Result<ProcessGrid, CliError> {
    let PartitionChoice::Of(scheme) = kind.partition else {
        return Err(CliError::Usage("--partition auto is for girih train: give 1d, 1.5d, 2d or 3d here".to_owned()));
    };
    let grid = ProcessGrid::new(scheme, usize::from(ranks), kind.replication);
    grid.map_err(|error| CliError::Usage(error.to_string()))
}
