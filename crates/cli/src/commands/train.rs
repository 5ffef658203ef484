//! `girih train`.

mod division;
mod end;
mod facts;
mod finished;
mod observer;
mod outputs;
mod prepared;
mod scores;
mod settings;
mod timeline;

use std::process::ExitCode;

use girih_datasets::{Dataset, LoadOptions, load};
use girih_reorder::{Auto, OrderKind};
use girih_trainer::distributed::{GraphPlacement, RankOptions, TrainJob};
use girih_trainer::{Arrangement, Event, SessionOptions, TaskKind, TrainConfig};

use self::division::Asked;
use self::end::End;
use self::finished::Finished;
use self::observer::Observer;
use self::prepared::Prepared;
pub use self::settings::data_of;
use self::timeline::Timeline;
use super::device::{Chosen, choose, on_backend};
use super::gpus::device_of;
use super::layouts;
use super::memory::DeviceMemory;
use super::ordering::{PRODUCTS_PER_LAYER, Wanted};
use super::plan;
use super::planned::{self, RankDevices};
use super::ranks::{Carried, LaunchContext, World};
use super::reading;
use super::sharing::{check_layout, check_planned, check_trained, sharing};
use crate::args::{DataArgs, DeviceArgs, OutputArgs, TrainArgs};
use crate::error::CliError;
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
    let device_memory = match args.memory {
        Some(free) => DeviceMemory::told(free),
        None => DeviceMemory::of_ranks(&choose(device, config.precision)?, device, usize::from(n), config.precision)?
            .expect("--gpus takes cards"),
    };
    layouts::run(&sharing(&args.ranks, n)?, &device_memory, (&dataset, spec, config), args.output)
}

/// Trains all ranks as threads, or one rank of the world.
fn train(
    args: &TrainArgs,
    asked_session: (&DataArgs, &TrainConfig, &LoadOptions),
    asked: Option<Asked>,
    ranks: Option<&RankOptions>,
    world: World,
) -> Result<ExitCode, CliError> {
    let (is_primary, output) = (world.is_primary(), output_of(args, &world));
    let prepared = Prepared::new(args, asked_session, asked, ranks, &world)?;
    prepared.announce(&world, output);
    let Prepared { outputs, device, backend, timeline, ranks, data, facts, order, divided, config } = prepared;
    let (ranks, divided, config) = (ranks.as_ref(), divided.as_ref(), &config);
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
    let finished = Finished {
        facts: &facts,
        config,
        ranks,
        order: &order,
        divided,
        outcome: &outcome,
        curves: history.curves(),
        peak_device_bytes,
        score: NodeScore::of_metric(config.metric, multi_label),
        end: &end,
    };
    finished.report(args, outputs.as_ref())?;
    Ok(end.code())
}

/// Form of the results of a rank. Rank 0 alone prints for people; the others print as for programs.
fn output_of(args: &TrainArgs, world: &World) -> OutputArgs {
    OutputArgs { json: args.output.json || !world.is_primary() }
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
