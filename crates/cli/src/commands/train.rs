//! `girih train`.

mod arrangement;
mod division;
mod end;
mod facts;
mod finished;
pub mod observer;
mod order;
mod outputs;
mod prepared;
mod scores;
pub mod timeline;

use std::process::ExitCode;

use girih_datasets::{Dataset, LoadOptions, load};
use girih_reorder::OrderKind;
use girih_trainer::distributed::{RankOptions, TrainJob};
use girih_trainer::{Event, ExecutionPlan, SessionOptions, TrainConfig};

use self::arrangement::{Execution, arrangement, output_of};
use self::division::Asked;
use self::end::End;
use self::finished::Finished;
use self::observer::Observer;
use self::order::{ordered, wanted_order};
use self::prepared::Prepared;
use self::timeline::Timeline;
use crate::args::{DataArgs, DeviceArgs, TrainArgs};
use crate::context::combination::{execution, of_training, placed};
use crate::context::data::load_options;
use crate::context::device::{choose, on_backend};
use crate::context::device_memory::DeviceMemory;
use crate::context::gpus::{device_memory_of_ranks, device_of};
use crate::context::ranks::{check_planned, check_replicas, sharing};
use crate::context::world::{Carried, LaunchContext, World};
use crate::context::{reading, settings};
use crate::error::CliError;
use crate::interrupt;
use crate::plan::ranks::RankDevices;
use crate::plan::{self, layouts, one_device};
use crate::scores::NodeScore;

/// Trains, reports, and writes the output folder.
pub fn run(args: &TrainArgs) -> Result<ExitCode, CliError> {
    let place = LaunchContext::of(&args.ranks)?;
    if args.reorder == OrderKind::None && args.reorder_blocks.is_some() {
        return Err(CliError::Usage(
            "--reorder-blocks has no effect without an order: give --reorder ORDER, too".to_owned(),
        ));
    }
    let (data, config) = settings::resolve(args)?;
    let on_one = of_training(args, &config, None);
    let one = execution(&on_one)?;
    let spec = data.spec();
    let asked = Asked::of(args, &place, &config)?;
    if asked.is_none() {
        config.validate()?;
    }
    let options = load_options(&data, &config);
    if args.plan {
        place.refuse_several("--plan trains nothing: call it alone, without a launcher")?;
        check_planned(args)?;
        if args.ranks.ranks.or(args.ranks.gpus).is_none() {
            execution(&placed(args, on_one))?;
        }
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
            None => one_device::run(spec, &options, &config, (&device, args.memory), args.output),
            Some(n) if one == ExecutionPlan::MiniBatch => plan_layouts(args, n, (spec, &options, &config), &device),
            Some(n) => plan_ranks(args, n, (spec, &options, &config), &device),
        };
        return planned.map(|()| ExitCode::SUCCESS);
    }
    let layout = args.layout.map(Into::into).unwrap_or_default();
    let ranks = place.options(&args.ranks)?.map(|ranks| RankOptions { layout, ..ranks });
    ranks.map_or(Ok(()), |_| check_replicas(args, &config))?;
    let engine = execution(&placed(args, of_training(args, &config, ranks.as_ref())))?;
    place.with_the_others(&args.ranks, |world| {
        train(args, (&data, &config, &options), asked, Execution { engine, ranks: ranks.as_ref() }, world)
    })
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
    plan::ranks::run(&ranks, &devices, (&dataset, spec, config), args.output)
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
        None => device_memory_of_ranks(&choose(device, config.precision)?, device, usize::from(n), config.precision)?
            .expect("--gpus takes GPUs"),
    };
    layouts::run(&sharing(&args.ranks, n)?, &device_memory, (&dataset, spec, config), args.output)
}

/// Trains all ranks as threads, or one rank of the world.
fn train(
    args: &TrainArgs,
    asked_session: (&DataArgs, &TrainConfig, &LoadOptions),
    asked: Option<Asked>,
    execution: Execution<'_>,
    world: World,
) -> Result<ExitCode, CliError> {
    let (is_primary, output) = (world.is_primary(), output_of(args, &world));
    let prepared = Prepared::new(args, asked_session, asked, execution, &world)?;
    prepared.announce(&world, output);
    let Prepared { outputs, loads, device, backend, timeline, ranks, engine, data, facts, order, divided, config } =
        prepared;
    let (ranks, divided, config) = (ranks.as_ref(), divided.as_ref(), &config);
    let session = SessionOptions {
        checkpoints: args.out.clone(),
        checkpoint_every: args.checkpoint_every,
        resume: args.resume,
        stop: Some(interrupt::watch()),
        arrangement: Some(arrangement(&backend, ranks, engine)),
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
        loads: loads.as_ref(),
        engine,
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
