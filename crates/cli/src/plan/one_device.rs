//! `girih train --plan`: predicts memory and time of a training session.

use girih_compute::Dtype;
use girih_datasets::generate::large_outline;
use girih_datasets::{LoadOptions, load};
use girih_machine::{Machine, readable_bytes};
use girih_trainer::{DataSizes, Plan, TrainConfig};

use super::ceilings::{load_or_measure, rates};
use super::memory::{ON_ONE, Session, remedies};
use super::tables;
use crate::args::{Device, DeviceArgs, OutputArgs};
use crate::context::device::choose;
use crate::context::device_memory::DeviceMemory;
use crate::context::reading;
use crate::error::CliError;
use crate::output::Results;

/// Device that a session is planned for.
enum Target {
    /// CPU with this many bytes of main memory, if known.
    Cpu(Option<u64>),
    Cuda(DeviceMemory),
}

impl Target {
    /// Device that training would use, or one with `memory` bytes that need not be present.
    fn of(args: &DeviceArgs, memory: Option<u64>, precision: Dtype) -> Result<Self, CliError> {
        if let Some(free) = memory.filter(|_| args.device != Device::Cpu) {
            return Ok(Self::Cuda(DeviceMemory::told(free)));
        }
        let cpu = || Self::Cpu(memory.or(Machine::here().memory_bytes));
        Ok(choose(args, precision)?.device_memory()?.map_or_else(cpu, Self::Cuda))
    }
}

/// Prints the plan of a session; trains nothing.
pub fn run(
    spec: &str,
    options: &LoadOptions,
    config: &TrainConfig,
    (device, memory): (&DeviceArgs, Option<u64>),
    output: OutputArgs,
) -> Result<(), CliError> {
    let target = Target::of(device, memory, config.precision)?;
    // Rows of caches are those of the data.
    let outline = if config.tiers.is_default() { large_outline(spec, options)? } else { None };
    let session = match outline {
        Some(outline) => Session { sizes: DataSizes::of_generated(&outline, config.codec), rows: None, reserved: 0 },
        None => {
            let dataset = load(spec, options)?;
            reading::warn_of(&dataset.notes);
            Session::of(&dataset, config)
        }
    };
    let mut results = begun(spec, config);
    tables::add(&mut results, &session.sizes, config, matches!(target, Target::Cuda(_)));
    match target {
        Target::Cpu(memory) => on_cpu(memory, config, &session.sizes, results, output),
        Target::Cuda(device_memory) => on_cuda(&device_memory, config, &session, results, output),
    }
}

/// First rows of a plan: model and data.
pub fn begun(spec: &str, config: &TrainConfig) -> Results {
    let mut results = Results::default();
    results.add("model", config.model.kind.name(), "Model", config.model.kind.name()).add("data", spec, "Data", spec);
    results
}

/// Memory and time on the CPU of this machine.
fn on_cpu(
    memory: Option<u64>,
    config: &TrainConfig,
    sizes: &DataSizes,
    mut results: Results,
    output: OutputArgs,
) -> Result<(), CliError> {
    let rates = rates(&load_or_measure(&Machine::here(), output)?, config.precision);
    let plan = Plan::new(config, sizes, rates)?;
    let ms = |seconds: f64| format!("{:.2} ms", 1e3 * seconds);
    add_bytes(&mut results, &plan);
    results
        .add("available_bytes", memory, "Main memory", memory.map_or(String::new(), readable_bytes))
        .add("predicted_prepare_ms", 1e3 * plan.prepare_seconds, "Before the first epoch", ms(plan.prepare_seconds))
        .add("predicted_epoch_ms", 1e3 * plan.epoch_seconds, "Epoch", ms(plan.epoch_seconds))
        .add("predicted_evaluate_ms", 1e3 * plan.evaluate_seconds, "Evaluation", ms(plan.evaluate_seconds))
        .add("predicted_seconds", plan.total_seconds, "All epochs and runs", format!("{:.1} s", plan.total_seconds));
    let fits = memory.is_none_or(|memory| plan.peak_bytes <= memory);
    results.add("fits", fits, "Fits", if fits { "yes" } else { "no" });
    results.print(output.json);
    let Some(memory) = memory.filter(|_| !fits) else { return Ok(()) };
    let fits = |config: &TrainConfig| Plan::new(config, sizes, rates).is_ok_and(|plan| plan.peak_bytes <= memory);
    Err(CliError::Other(format!(
        "training needs {} of main memory, and the machine has {}; {}",
        readable_bytes(plan.peak_bytes),
        readable_bytes(memory),
        remedies(config, fits, "take a machine with more memory")
    )))
}

/// Prints the GPU memory that a session needs.
pub fn on_cuda(
    device_memory: &DeviceMemory,
    config: &TrainConfig,
    session: &Session,
    mut results: Results,
    output: OutputArgs,
) -> Result<(), CliError> {
    let plan = session.plan(config)?;
    let needed = session.needed(&plan);
    results.add("device", device_memory.device.clone(), "Device", device_memory.device.clone());
    add_bytes(&mut results, &plan);
    results
        .add("needed_bytes", needed, "Needed, with workspace", readable_bytes(needed))
        .add("available_bytes", device_memory.free, "Free on the device", readable_bytes(device_memory.free))
        .add("fits", needed <= device_memory.free, "Fits", if needed <= device_memory.free { "yes" } else { "no" });
    results.print(output.json);
    session.check(device_memory, &plan, config, ON_ONE)
}

fn add_bytes(results: &mut Results, plan: &Plan) {
    let once = if plan.aggregates_once { "computed once" } else { "in every epoch" };
    results
        .add("aggregates_once", plan.aggregates_once, "First aggregation", once)
        .add("input_bytes", plan.input_bytes, "Graph and features", readable_bytes(plan.input_bytes))
        .add("parameter_bytes", plan.parameter_bytes, "Parameters and state", readable_bytes(plan.parameter_bytes))
        .add("predicted_peak_bytes", plan.peak_bytes, "Peak of matrices", readable_bytes(plan.peak_bytes));
}
