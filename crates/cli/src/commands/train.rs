//! `girih train`.

mod division;
mod end;
mod facts;
mod observer;
mod outputs;
mod scores;
mod settings;
mod timeline;

use std::process::ExitCode;

use girih_comm::CardTransport;
use girih_datasets::{DataSource, Dataset, LoadOptions, load};
use girih_reorder::{Auto, OrderKind};
use girih_trainer::distributed::{GraphPlacement, RankOptions, TrainJob};
use girih_trainer::{Arrangement, Event, SessionOptions, TaskKind, TrainConfig};

use self::division::Asked;
use self::end::End;
use self::facts::Facts;
use self::observer::Observer;
use self::outputs::OutputFolder;
pub use self::settings::data_of;
use self::timeline::Timeline;
use super::cards::device_of;
use super::device::{Chosen, choose, on_backend};
use super::layouts;
use super::memory::{ON_ONE, Room, Session, check_host};
use super::ordering::{PRODUCTS_PER_LAYER, Wanted};
use super::plan;
use super::planned::{self, RankDevices};
use super::ranks::{Carried, LaunchContext, World, transport};
use super::reading;
use super::sharing::{check_layout, check_planned, check_trained, sharing, stages};
use crate::args::{DataArgs, DeviceArgs, OutputArgs, PartitionChoice, TrainArgs};
use crate::error::CliError;
use crate::output::Results;
use crate::scores::NodeScore;
use crate::{interrupt, messages};

/// Trains, reports, and writes the output folder.
pub fn run(args: &TrainArgs) -> Result<ExitCode, CliError> {
    let place = LaunchContext::of(&args.ranks)?;
    if args.reorder == OrderKind::None && args.reorder_blocks.is_some() {
        return Err(CliError::Usage(
            "--reorder-blocks has no effect without an order: give --reorder ORDER, too".to_owned(),
        ));
    }
    let (data, config) = settings::resolve(args)?;
    if config.task == TaskKind::Links && args.reorder != OrderKind::None {
        return Err(CliError::Usage(
            "--reorder cannot be combined with --task links: the split of the links depends on node ids, and girih evaluate \
             would test other links; write the order once with `girih reorder --out DIR`, and train on DIR"
                .to_owned(),
        ));
    }
    let spec = data.spec();
    let asked = Asked::of(args, &place, &config)?;
    if asked.is_none() {
        config.validate()?;
    }
    let options = LoadOptions {
        codec: config.codec,
        features_from: config.features_from,
        ..data.options(config.seed, config.runs as usize)
    };
    if args.plan {
        place.refuse_several("--plan trains nothing: call it alone, without a launcher")?;
        check_planned(args)?;
        if args.timeline.is_some() {
            return Err(CliError::Usage(
                "--timeline records training, and --plan trains nothing: leave one of them out".to_owned(),
            ));
        }
        let device = device_of(&args.device, &args.ranks, None)?;
        if let Some(asked) = asked {
            return asked.plan(args, (spec, &options, &config), &device).map(|()| ExitCode::SUCCESS);
        }
        let planned = match args.ranks.ranks.or(args.ranks.gpus) {
            None => plan::run(spec, &options, &config, (&device, args.memory), args.output),
            Some(n) if config.batch.is_sampled() => plan_layouts(args, n, (spec, &options, &config), &device),
            Some(n) => plan_ranks(args, n, (spec, &options, &config), &device),
        };
        return planned.map(|()| ExitCode::SUCCESS);
    }
    let layout = args.layout.map(Into::into).unwrap_or_default();
    let ranks = place.options(&args.ranks)?.map(|ranks| RankOptions { layout, ..ranks });
    check_layout(args.layout, ranks.as_ref())?;
    ranks.map_or(Ok(()), |_| check_trained(args, &config))?;
    place.with_the_others(&args.ranks, |world| train(args, (&data, &config, &options), asked, ranks.as_ref(), world))
}

/// Data in the node order that training on `n` ranks would use.
fn in_order(
    args: &TrainArgs,
    n: u16,
    (spec, options, config): (&str, &LoadOptions, &TrainConfig),
) -> Result<Dataset, CliError> {
    let dataset = load(spec, options)?;
    reading::warn_of(&dataset.notes);
    match wanted_order(args, usize::from(n), config) {
        Some(wanted) => Ok(ordered(dataset, &wanted, config, args.output)?.0),
        None => Ok(dataset),
    }
}

/// Prints memory and time of every partition for `n` ranks.
fn plan_ranks(
    args: &TrainArgs,
    n: u16,
    (spec, options, config): (&str, &LoadOptions, &TrainConfig),
    device: &DeviceArgs,
) -> Result<(), CliError> {
    let dataset = in_order(args, n, (spec, options, config))?;
    let ranks = sharing(&args.ranks, n)?;
    let devices = RankDevices::of(device, &ranks, (&dataset, config), args.memory, args.output)?;
    planned::run(&ranks, &devices, (&dataset, spec, config), args.output)
}

/// Prints the memory of mini-batch training on each of `n` GPUs.
fn plan_layouts(
    args: &TrainArgs,
    n: u16,
    (spec, options, config): (&str, &LoadOptions, &TrainConfig),
    device: &DeviceArgs,
) -> Result<(), CliError> {
    if args.ranks.gpus.is_none() {
        return Err(CliError::Usage(
            "--plan for mini-batches on ranks is for GPUs: give --gpus N instead of --ranks, with --memory 80GB for GPUs that are not here, or leave --plan out"
                .to_owned(),
        ));
    }
    let dataset = in_order(args, n, (spec, options, config))?;
    let room = match args.memory {
        Some(free) => Room::told(free),
        None => Room::of_ranks(&choose(device, config.precision)?, device, usize::from(n), config.precision)?
            .expect("--gpus takes cards"),
    };
    layouts::run(&sharing(&args.ranks, n)?, &room, (&dataset, spec, config), args.output)
}

/// Trains all ranks as threads, or one rank of the world.
fn train(
    args: &TrainArgs,
    (asked_data, config, options): (&DataArgs, &TrainConfig, &LoadOptions),
    asked: Option<Asked>,
    ranks: Option<&RankOptions>,
    world: World,
) -> Result<ExitCode, CliError> {
    let spec = asked_data.spec();
    let is_primary = world.is_primary();
    // Rank 0 alone prints for people; the others print as for programs.
    let output = OutputArgs { json: args.output.json || !is_primary };
    let outputs = args
        .out
        .as_deref()
        .map(|path| OutputFolder::new(path, (asked_data, config), args.resume, output))
        .transpose()?;
    let device = device_of(&args.device, &args.ranks, world.local_rank())?;
    let backend = choose(&device, config.precision)?;
    let to_divide =
        asked.map(|asked| Ok::<_, CliError>((asked, asked.room_here(&backend, &device, config)?))).transpose()?;
    let mut ranks = ranks.map(|ranks| RankOptions { stages: stages(&args.ranks, &backend), ..*ranks });
    let is_planned = args.ranks.partition.partition == PartitionChoice::Auto;
    if let (Some(ranks), Chosen::Cuda(first)) = (&mut ranks, &backend)
        && !config.batch.is_sampled()
    {
        // Launched processes use NCCL. With threads, the plan chooses the transport itself.
        match world.local_rank() {
            Some(_) if is_planned => ranks.transport = Some(CardTransport::Nccl),
            None if !is_planned => ranks.transport = Some(transport(ranks, first, &device, config.precision)?),
            _ => {}
        }
    }
    let timeline = Timeline::begin(args.timeline.as_deref(), &backend, world.rank())?;
    let row_blocks = ranks.filter(|ranks| !holds_all(ranks, config)).map_or(1, |ranks| ranks.grid.side());
    let wanted = wanted_order(args, row_blocks, config);
    let mut data = match &ranks {
        // Each rank reads its own rows, if no reordering and no plan needs all of them.
        Some(ranks) if wanted.is_none() && !is_planned && !holds_all(ranks, config) => DataSource::open(spec, options)?,
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
            Some((asked, room)) => divided = Some(asked.on_devices(room, dataset, config)?),
            None => check_memory((&backend, &device), ranks.as_ref(), (dataset, config), world.local_rank())?,
        }
    }
    let (ranks, divided) = (ranks.as_ref(), divided.as_ref());
    let config = &divided.map_or_else(|| config.clone(), |divided| divided.config(config));
    let outputs = outputs.map(|folder| folder.with(asked_data, config)).transpose()?;
    messages::note(output, facts.headline());
    facts.lines().into_iter().for_each(|line| messages::note(output, line));
    if is_primary {
        facts.warn();
    }
    divided.iter().flat_map(|divided| divided.lines()).for_each(|line| messages::note(output, line));
    if ranks.is_some_and(|ranks| !holds_all(ranks, config)) {
        world.tell_what_is_read(&data, output);
    }
    let session = SessionOptions {
        checkpoints: args.out.clone(),
        checkpoint_every: args.checkpoint_every,
        resume: args.resume,
        stop: Some(interrupt::watch()),
        arrangement: Some(arrangement(&backend, ranks, config)),
        ..SessionOptions::default()
    };
    let multi_label = data.outline().multi_label;
    let mut observer = Observer::new((config, multi_label), output, outputs.clone());
    let mut observe = |event: Event<'_>| {
        let marked = timeline.as_ref().map_or(Ok(()), |timeline| timeline.mark(&event));
        observer.observe(&event, marked)
    };
    let carried = match ranks {
        None => {
            let dataset = data.into_dataset()?;
            on_backend!(&backend, backend => girih_trainer::train(backend, dataset, config, &session, &mut observe))
                .map_err(CliError::from)
                .and_then(|done| Ok(Carried { done, peak_device_bytes: backend.peak_bytes()? }))
        }
        Some(ranks) => {
            let job = TrainJob::new(data, config, ranks, &session, &mut observe);
            world.carry_out(backend, &device, config.precision, job)
        }
    };
    let has_begun = observer.has_begun();
    let outputs = outputs.filter(|_| has_begun);
    let history = observer.finish()?;
    let Carried { done: outcome, peak_device_bytes } = carried?;
    timeline.map_or(Ok(()), Timeline::finish)?;
    let end = End::of(args, &outcome, has_begun);
    if !is_primary {
        return Ok(end.code());
    }
    let mut results = facts.results(config, &outcome, history.curves(), peak_device_bytes);
    add_arrangement(&mut results, ranks, config, &order);
    results.add_hidden("epochs_trained", outcome.times.len()).add_hidden("continue", end.command());
    if let Some(divided) = divided {
        results.add_hidden("division", divided.to_json());
    }
    if let Some(outputs) = &outputs {
        let score = NodeScore::of_metric(config.metric, multi_label);
        outputs.finish(&facts.title(), &results, (history.curves(), score))?;
    }
    results.print(args.output.json);
    if let Some(line) = end.line(args, config, &outcome.runs) {
        messages::note(args.output, line);
    } else {
        print_next_steps(args, outputs.as_ref());
    }
    Ok(end.code())
}

/// Arrangement of device and ranks, on which the bits of a run depend.
fn arrangement(backend: &Chosen, ranks: Option<&RankOptions>, config: &TrainConfig) -> Arrangement {
    let one = Arrangement::of_one(matches!(backend, Chosen::Cuda(_)));
    let Some(ranks @ RankOptions { grid, cuts, stages, chunks, wire, .. }) = ranks else { return one };
    let division = if holds_all(ranks, config) {
        "each with all of the graph".to_owned()
    } else {
        let wire = wire.name();
        format!(
            "{grid}, cuts {cuts}, stages {stages}, chunks {chunks}, wire {wire}{}{}",
            carrier(ranks),
            layout_of(ranks.layout, config)
        )
    };
    Arrangement { ranks: grid.ranks(), division, ..one }
}

/// Whether each rank holds all data.
fn holds_all(ranks: &RankOptions, config: &TrainConfig) -> bool {
    config.batch.is_sampled() && ranks.layout == GraphPlacement::Replicated
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
            planned::choose(&ranks, &devices, dataset, config, output)
        }
    }
}

/// Refuses a session that exceeds the memory of a device, before any data are copied there. Each launched process
/// checks its own device.
fn check_memory(
    (backend, device): (&Chosen, &DeviceArgs),
    ranks: Option<&RankOptions>,
    (dataset, config): (&Dataset, &TrainConfig),
    local_rank: Option<usize>,
) -> Result<(), CliError> {
    let n_ranks = ranks.map_or(1, |ranks| ranks.grid.ranks());
    let n_devices = if local_rank.is_some() { 1 } else { n_ranks };
    let Some(room) = Room::of_ranks(backend, device, n_devices, config.precision)? else {
        return check_host(dataset, config);
    };
    if let Some(ranks) = ranks.filter(|ranks| !holds_all(ranks, config)) {
        let check = if config.batch.is_sampled() { layouts::check_patches } else { planned::check };
        return check(ranks, room.free, dataset, config);
    }
    let last = if n_ranks == 1 { ON_ONE } else { layouts::ON_EACH };
    let session = Session::of_replica(dataset, config, (n_ranks, n_devices));
    let config = config.of_one_rank(n_ranks);
    // A session that cannot be planned cannot be trained either; training reports why.
    session.plan(&config).map_or(Ok(()), |plan| room.check(&session, &plan, &config, last))
}

/// Adds the partition over ranks and the node order; people see them if they are not the defaults.
fn add_arrangement(results: &mut Results, ranks: Option<&RankOptions>, config: &TrainConfig, order: &str) {
    match ranks {
        None => results.add_hidden("ranks", 1),
        Some(ranks @ RankOptions { grid, .. }) if holds_all(ranks, config) => {
            results.add("ranks", grid.ranks(), "Ranks", format!("{}, each with all of the graph", grid.ranks()))
        }
        Some(ranks @ RankOptions { grid, exchange, cuts, stages, chunks, wire, layout, .. }) => results
            .add(
                "ranks",
                grid.ranks(),
                "Ranks",
                format!("{grid}, exchange {exchange}{}{}", carrier(ranks), layout_of(*layout, config)),
            )
            .add_hidden("partition", grid.scheme().to_string())
            .add_hidden("replication", grid.replication())
            .add_hidden("exchange", exchange.to_string())
            .add_hidden("cuts", cuts.to_string())
            .add_hidden("stages", stages.to_string())
            .add_hidden("chunks", *chunks)
            .add_hidden("wire", wire.name()),
    };
    if let Some(ranks) = ranks.filter(|_| config.batch.is_sampled()) {
        results.add_hidden("layout", ranks.layout.name());
    }
    if let Some(transport) = ranks.and_then(|ranks| ranks.transport) {
        results.add_hidden("transport", transport.to_string());
    }
    match order {
        "none" => results.add_hidden("reorder", order),
        _ => results.add("reorder", order, "Order of nodes", order),
    };
}

/// Transport between ranks in words, if it was given or measured; empty on CPUs.
fn carrier(ranks: &RankOptions) -> String {
    ranks.transport.map_or(String::new(), |transport| format!(" by {transport}"))
}

/// Placement of graph and features for mini-batches in words; empty for full batches.
fn layout_of(layout: GraphPlacement, config: &TrainConfig) -> String {
    if config.batch.is_sampled() { format!(", layout {}", layout.name()) } else { String::new() }
}

/// Node order for training, if the arguments request one. Nodes stay in as many id ranges as the partition has row
/// blocks, unless the arguments say otherwise. If the partition is still open, that is the number of ranks: row
/// blocks of all partitions consist of these ranges.
fn wanted_order(args: &TrainArgs, row_blocks: usize, config: &TrainConfig) -> Option<Wanted> {
    if args.reorder == OrderKind::None {
        return None;
    }
    let blocks = args.reorder_blocks.map_or(row_blocks, |b| b as usize);
    let auto = Auto {
        row_bytes: config.model.hidden * size_of::<f32>(),
        n_products: (config.epochs as usize * config.runs as usize * products_per_epoch(config)) as f64,
        ..Auto::here(blocks)
    };
    Some(Wanted { kind: args.reorder, blocks, seed: config.seed, auto })
}

/// Number of products with the adjacency in an epoch.
fn products_per_epoch(config: &TrainConfig) -> usize {
    PRODUCTS_PER_LAYER * config.model.layers
}

/// Renumbers the nodes of `dataset` as wanted. Returns the data and the name of the order.
fn ordered(
    dataset: Dataset,
    wanted: &Wanted,
    config: &TrainConfig,
    output: OutputArgs,
) -> Result<(Dataset, String), CliError> {
    let found = wanted.find(&dataset.graph, output)?;
    messages::note(output, format!("ordered by {} in {:.2} s", found.name, found.seconds));
    if let Some(choice) = &found.choice {
        messages::note(output, choice.describe(products_per_epoch(config)));
    }
    Ok((dataset.permuted(&found.order)?, found.name))
}

fn print_next_steps(args: &TrainArgs, outputs: Option<&OutputFolder>) {
    let line = if let Some(outputs) = outputs {
        format!("\nwritten to {}: report.html, config.toml, metrics.jsonl, checkpoints", outputs.path().display())
    } else if args.data.data.is_none() && args.config.is_none() {
        "\nnext: girih train PATH for your own graph, --model sage or mlp to compare, --runs 5 for a deviation,\n      \
         --out DIR to keep checkpoints and curves; `girih train --help` lists everything"
            .to_owned()
    } else {
        return;
    };
    messages::note(args.output, line);
}
