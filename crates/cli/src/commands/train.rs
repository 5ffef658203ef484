//! `girih train`.

mod facts;
mod observer;
mod outputs;
mod settings;

use std::num::NonZero;
use std::time::Duration;

use girih_comm::threads::ThreadRank;
use girih_comm::{Collective, CommError, launched_rank, launched_ranks};
use girih_compute::{Cpu, Dtype};
use girih_datasets::{Dataset, LoadOptions, load};
use girih_kernels::{Cuda, NcclRank};
use girih_partition::counted;
use girih_reorder::{Auto, OrderKind};
#[cfg(feature = "mpi")]
use girih_trainer::distributed::train_as_rank;
use girih_trainer::distributed::{RankOptions, train_on_devices, train_on_threads};
use girih_trainer::{DataSizes, Event, Outcome, Plan, SessionOptions, TrainConfig, TrainError};

use self::facts::Facts;
use self::observer::Observer;
use self::outputs::OutputFolder;
use super::device::{Chosen, choose, on_backend, open};
use super::ordering::{PRODUCTS_PER_LAYER, Wanted};
use super::{plan, process_grid};
use crate::args::{Device, DeviceArgs, OutputArgs, RankArgs, TrainArgs};
use crate::error::CliError;
use crate::output::Results;

/// Ranks that are threads: at most so many, and at most so many for each core.
const THREAD_RANKS_MAX: usize = 256;
const RANKS_PER_CORE_MAX: usize = 64;

/// Trains, reports, and writes the output folder.
pub fn run(args: &TrainArgs) -> Result<(), CliError> {
    check_launched(args.ranks.ranks.or(args.ranks.gpus))?;
    if args.reorder == OrderKind::None && args.reorder_blocks.is_some() {
        return Err(CliError::Usage("--reorder-blocks needs an order to apply; give --reorder ORDER too".to_owned()));
    }
    let (spec, config) = settings::resolve(args)?;
    config.validate()?;
    let options = LoadOptions { codec: config.codec, ..args.data.options(config.seed, config.runs as usize) };
    if args.plan {
        let device = device_of(&args.device, &args.ranks, &config)?;
        return plan::run(&spec, &options, &config, (&device, args.memory), args.output);
    }
    let ranks = rank_options(&args.ranks)?;
    let outputs = args.out.as_deref().map(|path| OutputFolder::new(path, &spec, &config, args.resume)).transpose()?;
    let device = device_of(&args.device, &args.ranks, &config)?;
    let backend = choose(&device, config.precision)?;
    let mut dataset = load(&spec, &options)?;
    if ranks.is_none() {
        check_memory(&backend, &config, &dataset)?;
    }
    let facts = Facts::of(&dataset, &spec, &config, backend.name());
    let mut order = OrderKind::None.to_string();
    if let Some(wanted) = wanted_order(args, ranks.as_ref(), &config) {
        (dataset, order) = ordered(dataset, &wanted, &config, args.output)?;
    }
    let speaks = is_first_process();
    if speaks && !args.output.json {
        eprintln!("{}", facts.headline());
    }
    let session = SessionOptions {
        checkpoints: args.out.clone(),
        checkpoint_every: args.checkpoint_every,
        resume: args.resume,
        writes: true,
    };
    let mut observer = Observer::new(&config, args.output.json, outputs.clone())?;
    let mut observe = |event: Event<'_>| observer.observe(&event);
    let outcome = match (&ranks, backend) {
        (None, backend) => {
            on_backend!(&backend, backend => girih_trainer::train(backend, dataset, &config, &session, &mut observe))
        }
        (Some(ranks), Chosen::Cpu(cpu)) => train_on_ranks(&cpu, dataset, &config, ranks, &session, &mut observe),
        (Some(ranks), Chosen::Cuda(first)) => {
            let cards = cards(*first, &device, ranks.grid.ranks(), config.precision)?;
            let connect = |cuda: &Cuda, world: ThreadRank| -> Result<Box<dyn Collective<Cuda>>, CommError> {
                Ok(Box::new(NcclRank::connect(cuda, world.into_transport(), ranks.deadline)?))
            };
            train_on_devices((&cards, connect), dataset, &config, ranks, &session, &mut observe)
        }
    };
    let history = observer.finish()?;
    let outcome = outcome?;
    if !speaks {
        return Ok(());
    }
    let mut results = facts.results(&config, &outcome);
    add_arrangement(&mut results, ranks.as_ref(), &order);
    if let Some(outputs) = &outputs {
        outputs.finish(&facts.title(), &results, history.points())?;
    }
    if !args.output.json && outcome.stopped {
        let step = if config.batch.is_sampled() { "batch" } else { "epoch" };
        eprintln!("stopped after the {step}{}", if outputs.is_some() { "; continue with --resume" } else { "" });
    }
    results.print(args.output.json);
    if !args.output.json {
        print_next_steps(args, outputs.as_ref());
    }
    Ok(())
}

/// The device to train on, the first of several. Ranks are on processors unless CUDA devices are asked for, and mini-batches are
/// sampled and trained there, too.
fn device_of(args: &DeviceArgs, ranks: &RankArgs, config: &TrainConfig) -> Result<DeviceArgs, CliError> {
    let on = |device| Ok(DeviceArgs { device, ..*args });
    let usage = |message: String| Err(CliError::Usage(message));
    let is_sampled = config.batch.is_sampled();
    match args.device {
        Device::Cuda(_) if is_sampled => usage(format!(
            "{} batches are trained on the processor; give --device cpu, or leave --batch out",
            config.batch.kind.name()
        )),
        _ if ranks.gpus.is_some() && is_sampled => {
            usage(format!("{} batches are trained on the processor; give --ranks instead of --gpus", config.batch.kind.name()))
        }
        Device::Cpu if ranks.gpus.is_some() => {
            usage("--gpus asks for CUDA devices, and --device for the processor; leave one of them out".to_owned())
        }
        Device::Cuda(1..) if ranks.gpus.is_some() || ranks.ranks.is_some() => usage(
            "ranks are on the CUDA devices from the first one on; give --device cuda, and choose devices by CUDA_VISIBLE_DEVICES"
                .to_owned(),
        ),
        Device::Auto if ranks.gpus.is_some() => on(Device::Cuda(0)),
        Device::Auto if ranks.ranks.is_some() || is_sampled => on(Device::Cpu),
        _ => Ok(*args),
    }
}

/// The first device and those that follow it, as many as there are ranks.
fn cards(first: Cuda, device: &DeviceArgs, n_ranks: usize, precision: Dtype) -> Result<Vec<Cuda>, CliError> {
    let mut cards = vec![first];
    for ordinal in 1..n_ranks {
        let card = open(ordinal, device, precision);
        cards.push(card.map_err(|error| CliError::Other(format!("{n_ranks} ranks want a device each, but {error}")))?);
    }
    Ok(cards)
}

/// Refuses what does not fit into a device's memory, before anything is moved there.
fn check_memory(backend: &Chosen, config: &TrainConfig, dataset: &Dataset) -> Result<(), CliError> {
    let Some(room) = backend.room()? else { return Ok(()) };
    let sizes = DataSizes::of(dataset);
    // What cannot be planned cannot be trained either, and training says why.
    Plan::on_cuda(config, &sizes).map_or(Ok(()), |plan| room.check(&plan, config, &sizes))
}

/// How the work was shared and nodes were numbered; people are told where it is not as usual.
fn add_arrangement(results: &mut Results, ranks: Option<&RankOptions>, order: &str) {
    match ranks {
        None => results.add_hidden("ranks", 1),
        Some(RankOptions { grid, exchange, .. }) => results
            .add("ranks", grid.ranks(), "Ranks", format!("{grid}, exchange {exchange}"))
            .add_hidden("partition", grid.scheme().to_string())
            .add_hidden("replication", grid.replication())
            .add_hidden("exchange", exchange.to_string()),
    };
    match order {
        "none" => results.add_hidden("reorder", order),
        _ => results.add("reorder", order, "Order of nodes", order),
    };
}

/// Whether this process reports: of several that a launcher started, the first.
fn is_first_process() -> bool {
    launched_rank().is_none_or(|rank| rank == 0)
}

/// Whether a launcher started this program, and it was built to work with the others.
fn ranks_are_processes() -> bool {
    cfg!(feature = "mpi") && launched_ranks().is_some()
}

/// Refuses processes that a launcher started together but that would each train by itself, and write the same files.
fn check_launched(ranks: Option<u16>) -> Result<(), CliError> {
    let remedy = match ranks {
        _ if !cfg!(feature = "mpi") => "but this program was built without MPI: build it with --features mpi",
        None => "but no --ranks are asked for: give as many",
        Some(_) => return Ok(()),
    };
    match launched_ranks() {
        Some(processes @ 2..) => Err(CliError::Usage(format!(
            "{processes} processes were started together, {remedy}, or start one alone, whose --ranks are threads"
        ))),
        _ => Ok(()),
    }
}

/// Trains on ranks: the processes that a launcher started, if one did and this program was built for them, else threads.
fn train_on_ranks(
    backend: &Cpu,
    dataset: Dataset,
    config: &TrainConfig,
    ranks: &RankOptions,
    session: &SessionOptions,
    observe: &mut girih_trainer::Observer<'_>,
) -> Result<Outcome, TrainError> {
    #[cfg(feature = "mpi")]
    if ranks_are_processes() {
        let as_rank = |world| train_as_rank(backend, Box::new(world), dataset, config, ranks, session, observe);
        return Ok(girih_comm::mpi::run(ranks.deadline, as_rank)?);
    }
    #[cfg(not(feature = "mpi"))]
    let _ = backend;
    train_on_threads(|| Cpu::new().gathering(config.precision), dataset, config, ranks, session, observe)
}

/// The order in which nodes are numbered for training, if the arguments ask for one: inside as many ranges of ids as the
/// partition has row blocks, unless they say otherwise.
fn wanted_order(args: &TrainArgs, ranks: Option<&RankOptions>, config: &TrainConfig) -> Option<Wanted> {
    if args.reorder == OrderKind::None {
        return None;
    }
    let blocks = args.reorder_blocks.map_or_else(|| ranks.map_or(1, |ranks| ranks.grid.side()), |b| b as usize);
    let auto = Auto {
        row_bytes: config.model.hidden * size_of::<f32>(),
        n_products: (config.epochs as usize * config.runs as usize * products_per_epoch(config)) as f64,
        ..Auto::here(blocks)
    };
    Some(Wanted { kind: args.reorder, blocks, seed: config.seed, auto })
}

/// Products with the adjacency in an epoch.
fn products_per_epoch(config: &TrainConfig) -> usize {
    PRODUCTS_PER_LAYER * config.model.layers
}

/// Numbers the nodes of `dataset` as wanted; the data, and what the order is called.
fn ordered(
    dataset: Dataset,
    wanted: &Wanted,
    config: &TrainConfig,
    output: OutputArgs,
) -> Result<(Dataset, String), CliError> {
    let found = wanted.find(&dataset.graph, output)?;
    if !output.json {
        eprintln!("ordered by {} in {:.2} s", found.name, found.seconds);
        if let Some(choice) = &found.choice {
            eprintln!("{}", choice.describe(products_per_epoch(config)));
        }
    }
    Ok((dataset.permuted(&found.order)?, found.name))
}

/// Refuses more ranks than make sense as threads of one process, and says when they are more than cores. In 1D each takes
/// a step for every rank, with a count for every rank: time and memory grow with the cube of their number.
fn check_threads(ranks: u16) -> Result<(), CliError> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let (ranks, most) = (usize::from(ranks), THREAD_RANKS_MAX.min(cores * RANKS_PER_CORE_MAX));
    if ranks > most {
        return Err(CliError::Usage(format!(
            "{ranks} ranks are too many for threads of one process on {}; take at most {most}, or processes under mpirun; \
             `girih partition` says what any number would take",
            counted(cores, "core")
        )));
    }
    if ranks > cores {
        tracing::warn!("{ranks} ranks share {}: fewer would be faster", counted(cores, "core"));
    }
    Ok(())
}

/// How ranks share the work, if there are several.
fn rank_options(args: &RankArgs) -> Result<Option<RankOptions>, CliError> {
    let Some(ranks) = args.ranks.or(args.gpus) else { return Ok(None) };
    if !ranks_are_processes() && args.gpus.is_none() {
        check_threads(ranks)?;
    }
    let (grid, exchange) = (process_grid(&args.partition, ranks)?, args.partition.exchange);
    Ok(Some(RankOptions { grid, exchange, deadline: Duration::from_secs(args.rank_deadline) }))
}

fn print_next_steps(args: &TrainArgs, outputs: Option<&OutputFolder>) {
    if let Some(outputs) = outputs {
        eprintln!("\nwritten to {}: report.html, config.toml, metrics.jsonl, checkpoints", outputs.path().display());
    } else if args.data.data.is_none() && args.config.is_none() {
        eprintln!(
            "\nnext: --model sage or mlp to compare, --data PATH for your own graph, --runs 5 for a deviation,\n      \
             --out DIR to keep checkpoints and curves; `girih train --help` lists everything"
        );
    }
}
