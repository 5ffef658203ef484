//! [`Prepared`]: training session with its device open and its data read.

use girih_comm::GpuTransport;
use girih_datasets::{DataSource, Dataset, LoadOptions, load};
use girih_reorder::OrderKind;
use girih_trainer::distributed::RankOptions;
use girih_trainer::{ExecutionPlan, TrainConfig};

use super::arrangement::{Execution, output_of};
use super::division::{Asked, Divided};
use super::facts::Facts;
use super::order::{ordered, wanted_order};
use super::outputs::OutputFolder;
use super::timeline::Timeline;
use crate::args::{DataArgs, DeviceArgs, OutputArgs, PartitionChoice, TrainArgs};
use crate::context::device::{Chosen, choose};
use crate::context::gpus::{device_memory_of_ranks, device_of};
use crate::context::ranks::stages;
use crate::context::world::{World, transport};
use crate::error::CliError;
use crate::messages;
use crate::page::ranks::RankLoads;
use crate::plan::memory::{ON_ONE, Session, check_host};
use crate::plan::ranks::RankDevices;
use crate::plan::{self, layouts};

/// Training session with its device open, its data read and its ranks arranged. Nothing is trained yet.
pub struct Prepared {
    /// Folder for results, which is not created yet.
    pub outputs: Option<OutputFolder>,
    /// Device of this process, as chosen.
    pub device: DeviceArgs,
    /// Backend of the device.
    pub backend: Chosen,
    /// Recording of GPU activity.
    pub timeline: Option<Timeline>,
    /// Options of the ranks; `None` without ranks.
    pub ranks: Option<RankOptions>,
    /// Division of the adjacency over the ranks, for the report; `None` without a folder for it, and where ranks do not
    /// divide the adjacency.
    pub loads: Option<RankLoads>,
    /// Engine that runs the session.
    pub engine: ExecutionPlan,
    /// Data in its node order. A rank may have read its own rows only.
    pub data: DataSource,
    /// Description of the session.
    pub facts: Facts,
    /// Name of the node order.
    pub order: String,
    /// Cache plan, if it was asked for.
    pub divided: Option<Divided>,
    /// Configuration with the cache shares of that plan.
    pub config: TrainConfig,
}

impl Prepared {
    /// Opens the device, reads and orders the data, arranges ranks, and divides or checks memory.
    ///
    /// # Errors
    /// When device, data or folder cannot be used, or memory does not suffice.
    pub fn new(
        args: &TrainArgs,
        (asked_data, config, options): (&DataArgs, &TrainConfig, &LoadOptions),
        asked: Option<Asked>,
        Execution { engine, ranks }: Execution<'_>,
        world: &World,
    ) -> Result<Self, CliError> {
        let (spec, output) = (asked_data.spec(), output_of(args, world));
        let outputs = args
            .out
            .as_deref()
            .map(|path| OutputFolder::new(path, (asked_data, config), (args.resume, args.tensorboard), output))
            .transpose()?;
        let device = device_of(&args.device, &args.ranks, world.local_rank())?;
        let backend = choose(&device, config.precision)?;
        let to_divide = asked
            .map(|asked| Ok::<_, CliError>((asked, asked.device_memory_here(&backend, &device, config)?)))
            .transpose()?;
        let ranks = ranks.map(|ranks| RankOptions { stages: stages(&args.ranks, &backend), ..*ranks });
        let mut ranks = ranks
            .map(|ranks| with_transport(args, (ranks, engine), (&backend, &device), config, world.local_rank()))
            .transpose()?;
        let timeline = Timeline::begin(args.timeline.as_deref(), &backend, world.rank())?;
        let row_blocks = ranks.filter(|_| engine != ExecutionPlan::Replicas).map_or(1, |ranks| ranks.grid.side());
        let wanted = wanted_order(args, row_blocks, config);
        let mut data = match &ranks {
            // Each rank reads its own rows, if no reordering and no plan needs all of them.
            Some(_) if wanted.is_none() && !is_planned(args) && engine != ExecutionPlan::Replicas => {
                DataSource::open(spec, options)?
            }
            _ => load(spec, options)?.into(),
        };
        let facts = Facts::of(&data, spec, config, backend.name());
        let mut order = OrderKind::None.to_string();
        if let Some(wanted) = wanted {
            let (dataset, name) = ordered(data.into_dataset()?, &wanted, config, output)?;
            (data, order) = (dataset.into(), name);
        }
        let mut divided = None;
        // Rows that each rank reads for itself are not planned.
        if let DataSource::Loaded(dataset) = &data {
            ranks = ranks.map(|ranks| arranged(args, ranks, &device, (dataset, config), output)).transpose()?;
            match &to_divide {
                Some((asked, device_memory)) => divided = Some(asked.on_devices(device_memory, dataset, config)?),
                None => {
                    check_memory((&backend, &device), (ranks.as_ref(), engine), (dataset, config), world.local_rank())?;
                }
            }
        }
        let config = divided.as_ref().map_or_else(|| config.clone(), |divided| divided.config(config));
        let outputs = outputs.map(|folder| folder.with(asked_data, &config)).transpose()?;
        let loads = match &ranks {
            Some(ranks) if outputs.is_some() && world.is_primary() => loads(&data, ranks, engine)?,
            _ => None,
        };
        Ok(Self { outputs, loads, device, backend, timeline, ranks, engine, data, facts, order, divided, config })
    }

    /// Describes the session for people, and warns about unused or doubtful data.
    pub fn announce(&self, world: &World, output: OutputArgs) {
        messages::note(output, self.facts.headline());
        self.facts.lines().into_iter().for_each(|line| messages::note(output, line));
        if world.is_primary() {
            self.facts.warn();
        }
        self.divided.iter().flat_map(Divided::lines).for_each(|line| messages::note(output, line));
        if matches!(self.engine, ExecutionPlan::Partitioned | ExecutionPlan::Patches) {
            world.tell_what_is_read(&self.data, output);
        }
    }
}

/// Maximum number of edges that are read for the report alone. Data in memory may have any number.
const READ_MAX: usize = 20_000_000;

/// Division of the adjacency over ranks; `None` if each rank has all of it, or reading it would take long.
fn loads(data: &DataSource, ranks: &RankOptions, engine: ExecutionPlan) -> Result<Option<RankLoads>, CliError> {
    if !matches!(engine, ExecutionPlan::Partitioned | ExecutionPlan::Patches) {
        return Ok(None);
    }
    match data {
        DataSource::Loaded(dataset) => RankLoads::new(&dataset.graph, ranks).map(Some),
        DataSource::Stored(_) if data.outline().n_edges > READ_MAX => Ok(None),
        DataSource::Stored(_) => RankLoads::new(&data.graph_rows(0..data.outline().n_nodes)?, ranks).map(Some),
    }
}

/// Whether a plan chooses the partition.
fn is_planned(args: &TrainArgs) -> bool {
    args.ranks.partition.partition == PartitionChoice::Auto
}

/// Rank options with the transport between GPUs for full-batch training. If a plan chooses the partition for threads,
/// it chooses the transport, too.
fn with_transport(
    args: &TrainArgs,
    (ranks, engine): (RankOptions, ExecutionPlan),
    (backend, device): (&Chosen, &DeviceArgs),
    config: &TrainConfig,
    local_rank: Option<usize>,
) -> Result<RankOptions, CliError> {
    let Chosen::Cuda(first) = backend else { return Ok(ranks) };
    if engine != ExecutionPlan::Partitioned {
        return Ok(ranks);
    }
    // Launched processes use NCCL. With threads, the plan chooses the transport itself.
    let transport = match local_rank {
        Some(_) if is_planned(args) => Some(GpuTransport::Nccl),
        None if !is_planned(args) => Some(transport(&ranks, first, device, config.precision)?),
        _ => return Ok(ranks),
    };
    Ok(RankOptions { transport, ..ranks })
}

/// Rank options: from the arguments, or the fastest ones by the plan.
fn arranged(
    args: &TrainArgs,
    ranks: RankOptions,
    device: &DeviceArgs,
    (dataset, config): (&Dataset, &TrainConfig),
    output: OutputArgs,
) -> Result<RankOptions, CliError> {
    match args.ranks.partition.partition {
        PartitionChoice::Of(_) => Ok(ranks),
        PartitionChoice::Auto => {
            let devices = RankDevices::of(device, &ranks, (dataset, config), None, output)?;
            plan::ranks::choose(&ranks, &devices, dataset, config, output)
        }
    }
}

/// Refuses a session that exceeds the memory of a device, before any data are copied there. Each launched process
/// checks its own device.
fn check_memory(
    (backend, device): (&Chosen, &DeviceArgs),
    (ranks, engine): (Option<&RankOptions>, ExecutionPlan),
    (dataset, config): (&Dataset, &TrainConfig),
    local_rank: Option<usize>,
) -> Result<(), CliError> {
    let n_ranks = ranks.map_or(1, |ranks| ranks.grid.ranks());
    let n_devices = if local_rank.is_some() { 1 } else { n_ranks };
    let Some(device_memory) = device_memory_of_ranks(backend, device, n_devices, config.precision)? else {
        return check_host(dataset, config);
    };
    match (engine, ranks) {
        (ExecutionPlan::Patches, Some(ranks)) => {
            return layouts::check_patches(ranks, device_memory.free, dataset, config);
        }
        (ExecutionPlan::Partitioned, Some(ranks)) => {
            return plan::ranks::check(ranks, device_memory.free, dataset, config);
        }
        _ => {}
    }
    let last = if n_ranks == 1 { ON_ONE } else { layouts::ON_EACH };
    let session = Session::of_replica(dataset, config, (n_ranks, n_devices));
    let config = config.of_one_rank(n_ranks);
    // A session that cannot be planned cannot be trained either; training reports why.
    session.plan(&config).map_or(Ok(()), |plan| session.check(&device_memory, &plan, &config, last))
}
