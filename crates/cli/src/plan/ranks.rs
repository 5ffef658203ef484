//! Predicts memory and time of every partition: the table of `girih train --plan`, and the choice of `--partition
//! auto`.

use girih_comm::GpuTransport;
use girih_compute::Dtype;
use girih_datasets::Dataset;
use girih_kernels::{Cuda, KernelError};
use girih_machine::{Machine, readable_bytes};
use girih_partition::{Cuts, Exchange, LinkRates, Stages, counted};
use girih_planner::{Estimate, HardwareProfile, Planner, Table, grids, measure};
use girih_trainer::distributed::{Links, Network, RankOptions, RankPlanner, SymbolicGraph};
use girih_trainer::{DataSizes, PlanDevice, TrainConfig};
use serde_json::json;

use super::ceilings::{load_or_measure, rates};
use super::memory::remedies;
use crate::args::{Device, DeviceArgs, OutputArgs};
use crate::context::device::open;
use crate::error::CliError;
use crate::messages;
use crate::output::{Results, under_spinner};

/// Share of the memory bandwidth that an exchange through memory reaches: bytes are written and read again.
const COPIED_SHARE: f64 = 0.5;
/// Spinner text while the table is computed.
const PLANNING: &str = "planning every partition and exchange";
/// Seconds in which threads synchronise.
const MEETING_SECONDS: f64 = 20e-6;

/// Devices with which ranks compute and exchange.
pub struct RankDevices {
    /// Transport between the devices, if it was given or measured.
    transport: Option<GpuTransport>,
    /// Name in results.
    name: String,
    /// Whether ranks run on GPUs.
    are_gpus: bool,
    /// One device for all ranks, or one for each.
    devices: Vec<PlanDevice>,
    network: Network,
    /// Free bytes for each rank, if known.
    free_bytes: Option<u64>,
}

impl RankDevices {
    /// Devices that `ranks` would use for `dataset`, once for each possible transport. GPUs that are present are
    /// measured; with `memory`, GPUs with that many bytes are assumed. Ranks on the CPU get equal shares of it.
    pub fn of(
        args: &DeviceArgs,
        ranks: &RankOptions,
        (dataset, config): (&Dataset, &TrainConfig),
        memory: Option<u64>,
        output: OutputArgs,
    ) -> Result<Vec<Self>, CliError> {
        match (args.device, memory) {
            (Device::Cpu, memory) => Ok(vec![Self::on_cpu(ranks.grid.ranks(), config, memory, output)?]),
            (_, Some(memory)) => Ok(vec![Self::on_gpus(&HardwareProfile::h200(), ranks.transport, Some(memory))]),
            (_, None) => {
                let what = "measuring the GPUs, their links and products of this graph";
                under_spinner(what, output, || Self::on_gpus_here(args, ranks, dataset, config))
            }
        }
    }

    fn on_cpu(n: usize, config: &TrainConfig, memory: Option<u64>, output: OutputArgs) -> Result<Self, CliError> {
        let here = Machine::here();
        let memory = memory.or(here.memory_bytes);
        let all = rates(&load_or_measure(&here, output)?, config.precision);
        let share = |rate: f64| rate / n as f64;
        let link = LinkRates { latency: MEETING_SECONDS, bytes_per_second: share(COPIED_SHARE * all.stream_bytes) };
        Ok(Self {
            transport: None,
            name: "the CPU here, in equal shares".to_owned(),
            are_gpus: false,
            devices: vec![PlanDevice::Cpu(girih_compute::Rates {
                stream_bytes: share(all.stream_bytes),
                gather_bytes: share(all.gather_bytes),
                flops: share(all.flops),
            })],
            network: Network::one_host(Links::alike(link), false),
            free_bytes: memory.map(|memory| memory / n as u64),
        })
    }

    fn on_gpus(figures: &HardwareProfile, transport: Option<GpuTransport>, free_bytes: Option<u64>) -> Self {
        Self {
            transport,
            name: figures.name.clone(),
            are_gpus: true,
            devices: vec![PlanDevice::Gpu(Some(figures.gpu))],
            network: figures.hosts(),
            free_bytes,
        }
    }

    fn on_gpus_here(
        args: &DeviceArgs,
        ranks: &RankOptions,
        dataset: &Dataset,
        config: &TrainConfig,
    ) -> Result<Vec<Self>, CliError> {
        let failed = |error: KernelError| {
            CliError::Other(format!(
                "{error}; to plan for GPUs that are not here, give their memory, like --memory 80GB"
            ))
        };
        let all = || -> Result<Vec<Cuda>, CliError> {
            let first = open(0, args, config.precision).map_err(failed)?;
            let others = (1..ranks.grid.ranks()).map_while(|ordinal| open(ordinal, args, config.precision).ok());
            Ok(std::iter::once(first).chain(others).collect())
        };
        let gpus = all()?;
        let free = |gpu: &Cuda| gpu.device().memory().map(|(free, _)| free);
        let free = gpus.iter().map(free).collect::<Result<Vec<_>, _>>().map_err(failed)?.into_iter().min().unwrap_or(0);
        let measured = |error: girih_planner::PlannerError| CliError::Other(error.to_string());
        let has_bf16 = [config.precision, ranks.wire].contains(&Dtype::Bf16);
        let by_rows = (ranks.grid.ranks(), ranks.cuts);
        let rates = measure::session(&gpus[0], (dataset, config), has_bf16, by_rows).map_err(measured)?;
        let transports = match ranks.transport {
            Some(told) => vec![told],
            None => measure::transports(gpus.len()).map_err(measured)?,
        };
        drop(gpus);
        // A device joins ranks only once, so each transport is measured with newly opened devices.
        let by = |transport: GpuTransport| -> Result<Self, CliError> {
            let figures = measure::figures(&all()?, transport).map_err(measured)?;
            let devices = figures.devices_of(&rates);
            Ok(Self { devices, ..Self::on_gpus(&figures, Some(transport), Some(free as u64)) })
        };
        transports.into_iter().map(by).collect()
    }
}

/// Prints memory and time of each partition for this number of ranks; trains nothing.
pub fn run(
    ranks: &RankOptions,
    devices: &[RankDevices],
    (dataset, spec, config): (&Dataset, &str, &TrainConfig),
    output: OutputArgs,
) -> Result<(), CliError> {
    let n = ranks.grid.ranks();
    let plan = || planned(ranks, devices, dataset, config);
    let Planned { ref ranks, devices, sizes, table } = under_spinner(PLANNING, output, plan)?;
    let mut results = Results::default();
    results
        .add("model", config.model.kind.name(), "Model", config.model.kind.name())
        .add("data", spec, "Data", spec)
        .add("ranks", n, "Ranks", n.to_string())
        .add("figures", devices.name.clone(), "Figures", devices.name.clone())
        .add(
            "available_bytes",
            devices.free_bytes,
            "Memory of each",
            devices.free_bytes.map_or(String::new(), readable_bytes),
        )
        .add("plans", json!(table.estimates), "", shown(&table));
    let choice = table.choice();
    results.add(
        "choice",
        json!(choice),
        "Choice",
        choice.map_or("none fits".to_owned(), |plan| flags(&plan.options(ranks), devices)),
    );
    results.print(output.json);
    choice.map(drop).ok_or_else(|| nothing_fits(ranks, devices, dataset, (config, &sizes), &table))
}

/// Replaces the partition of `ranks` by the fastest one that fits.
pub fn choose(
    ranks: &RankOptions,
    devices: &[RankDevices],
    dataset: &Dataset,
    config: &TrainConfig,
    output: OutputArgs,
) -> Result<RankOptions, CliError> {
    let plan = || planned(ranks, devices, dataset, config);
    let Planned { ref ranks, devices, sizes, table } = under_spinner(PLANNING, output, plan)?;
    let Some(choice) = table.choice() else {
        return Err(nothing_fits(ranks, devices, dataset, (config, &sizes), &table));
    };
    messages::note(
        output,
        format!(
            "partition {}, exchange {}, stages {}, {}: {:.2} ms an epoch planned",
            choice.grid,
            choice.exchange,
            choice.stages,
            counted(choice.chunks, "chunk"),
            choice.epoch_ms
        ),
    );
    Ok(choice.options(ranks))
}

/// Refuses a session that exceeds `free` bytes of GPU memory, before any data are copied there.
pub fn check(ranks: &RankOptions, free: u64, dataset: &Dataset, config: &TrainConfig) -> Result<(), CliError> {
    let sizes = DataSizes::of(dataset);
    let figures = HardwareProfile::h200();
    let devices = RankDevices {
        devices: vec![PlanDevice::Gpu(None)],
        ..RankDevices::on_gpus(&figures, ranks.transport, Some(free))
    };
    // A session that cannot be planned is not refused for its size.
    let Ok(graph) = SymbolicGraph::of(&dataset.graph, config, &sizes) else { return Ok(()) };
    let Ok(estimate) = planner(&devices, config, &sizes, &graph).estimate(ranks) else {
        return Ok(());
    };
    if estimate.fits {
        return Ok(());
    }
    let remedies = smaller(&devices, (config, &sizes), &graph, ranks);
    let needed = estimate.needed_bytes;
    Err(CliError::Other(format!(
        "training needs {} ({needed} bytes) on each GPU by the partition {}, exchange {}, but {} ({free} bytes) are free; {remedies}, or see other partitions with --plan",
        readable_bytes(needed),
        ranks.grid,
        ranks.exchange,
        readable_bytes(free),
    )))
}

/// Estimates of all partitions, with the fastest transport.
struct Planned<'d> {
    /// Requested options, with that transport.
    ranks: RankOptions,
    devices: &'d RankDevices,
    sizes: DataSizes,
    table: Table,
}

fn planned<'d>(
    ranks: &RankOptions,
    devices: &'d [RankDevices],
    dataset: &Dataset,
    config: &TrainConfig,
) -> Result<Planned<'d>, CliError> {
    let sizes = DataSizes::of(dataset);
    let graph = SymbolicGraph::of(&dataset.graph, config, &sizes)?;
    let planners: Vec<Planner<'_>> = devices.iter().map(|devices| planner(devices, config, &sizes, &graph)).collect();
    let tables = Planner::tables(&planners, ranks).map_err(|error| CliError::Other(error.to_string()))?;
    let epoch_ms = |(devices, table): &(&RankDevices, Table)| {
        table.choice().map_or(f64::INFINITY, |choice| measure::with_safety_margin(devices.transport, choice.epoch_ms))
    };
    let quickest = devices.iter().zip(tables).min_by(|a, b| epoch_ms(a).total_cmp(&epoch_ms(b)));
    let (devices, table) = quickest.expect("ranks have devices");
    let ranks = RankOptions { transport: devices.transport, ..*ranks };
    Ok(Planned { ranks, devices, sizes, table })
}

fn planner<'a>(
    on: &'a RankDevices,
    config: &'a TrainConfig,
    data: &'a DataSizes,
    graph: &'a SymbolicGraph,
) -> Planner<'a> {
    let ranks = RankPlanner { config, data, graph, devices: &on.devices, network: on.network };
    Planner { ranks, free_bytes: on.free_bytes }
}

/// Table of partitions, one line each.
fn shown(table: &Table) -> String {
    let row = |cells: [&str; 11]| {
        let [partition, exchange, stages, chunks, memory, epoch, bound, products, exchanges, sent, fits] = cells;
        format!(
            "{partition:<32} {exchange:<8} {stages:>6} {chunks:>6} {memory:>10} {epoch:>11} {bound:>11} {products:>11} {exchanges:>11} {sent:>10}  {fits}"
        )
    };
    let ms = |ms: f64| format!("{ms:.2} ms");
    let of = |plan: &Estimate| {
        row([
            &plan.grid.to_string(),
            &plan.exchange.to_string(),
            &plan.stages.to_string(),
            &plan.chunks.to_string(),
            &readable_bytes(plan.needed_bytes),
            &ms(plan.epoch_ms),
            &ms(plan.bound_ms),
            &ms(plan.product_ms),
            &ms(plan.exchange_ms),
            &readable_bytes(plan.sent_bytes),
            if plan.fits { "fits" } else { "too large" },
        ])
    };
    let head = row([
        "partition",
        "exchange",
        "stages",
        "chunks",
        "memory",
        "epoch",
        "bound",
        "products",
        "exchanges",
        "sent",
        "",
    ]);
    std::iter::once(head).chain(table.estimates.iter().map(of)).collect::<Vec<_>>().join("\n")
}

/// Flags that select this partition.
fn flags(ranks: &RankOptions, devices: &RankDevices) -> String {
    let RankOptions { grid, exchange, cuts, stages, chunks, wire, transport, .. } = ranks;
    let many = if devices.are_gpus { "--gpus" } else { "--ranks" };
    let mut flags = format!("{many} {} --partition {}", grid.ranks(), grid.scheme());
    if grid.replication() > 1 {
        flags += &format!(" --replication {}", grid.replication());
    }
    flags += &format!(" --exchange {exchange} --stages {stages}");
    if *chunks > 1 {
        flags += &format!(" --chunks {chunks}");
    }
    if *cuts != Cuts::default() {
        flags += &format!(" --cuts {cuts}");
    }
    if *wire != Dtype::F32 {
        flags += &format!(" --wire {}", wire.name());
    }
    if let Some(transport) = transport {
        flags += &format!(" --transport {transport}");
    }
    flags
}

fn nothing_fits(
    ranks: &RankOptions,
    devices: &RankDevices,
    dataset: &Dataset,
    (config, sizes): (&TrainConfig, &DataSizes),
    table: &Table,
) -> CliError {
    let (n, least) = (ranks.grid.ranks(), table.smallest());
    let graph = match SymbolicGraph::of(&dataset.graph, config, sizes) {
        Ok(graph) => graph,
        Err(error) => return error.into(),
    };
    let (free, needed) = (devices.free_bytes.unwrap_or(0), least.needed_bytes);
    CliError::Other(format!(
        "no partition for {n} ranks fits: the least is {} ({needed} bytes) for each, by {} with exchange {}, stages {}, but {} ({free} bytes) are \
         free; {}{}",
        readable_bytes(needed),
        least.grid,
        least.exchange,
        least.stages,
        readable_bytes(free),
        smaller(devices, (config, sizes), &graph, &least.options(ranks)),
        more_ranks(ranks, devices, (config, sizes)).map_or(String::new(), |ranks| format!(", or about {ranks} ranks")),
    ))
}

/// Settings that fit with the same partition.
fn smaller(
    devices: &RankDevices,
    (config, sizes): (&TrainConfig, &DataSizes),
    graph: &SymbolicGraph,
    ranks: &RankOptions,
) -> String {
    let fits =
        |config: &TrainConfig| planner(devices, config, sizes, graph).estimate(ranks).is_ok_and(|plan| plan.fits);
    remedies(config, fits, "take more ranks, or more memory for each")
}

/// Smallest number of ranks (doubled from the given one, at most 1024) on which the session fits. Assumes 1D, steps,
/// and evenly spread edges.
fn more_ranks(
    ranks: &RankOptions,
    devices: &RankDevices,
    (config, sizes): (&TrainConfig, &DataSizes),
) -> Option<usize> {
    const MOST: usize = 1024;
    let graph = SymbolicGraph::even(config, sizes).ok()?;
    let planner = planner(devices, config, sizes, &graph);
    let fits = |n: &usize| {
        let options =
            RankOptions { grid: grids(*n)[0], exchange: Exchange::Dense, stages: Stages::Steps, chunks: 1, ..*ranks };
        planner.estimate(&options).is_ok_and(|plan| plan.fits)
    };
    let doubled = std::iter::successors(Some(2 * ranks.grid.ranks()), |n| Some(2 * n));
    doubled.take_while(|&n| n <= MOST).find(fits)
}
