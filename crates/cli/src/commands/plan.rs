//! `girih train --plan`: what a training session would take.

use girih_compute::{Dtype, Rates};
use girih_datasets::{LoadOptions, load};
use girih_machine::{Ceilings, Machine, readable_bytes};
use girih_trainer::{DataSizes, Plan, TrainConfig};

use super::doctor;
use crate::args::OutputArgs;
use crate::error::CliError;
use crate::output::Results;

/// Share of the cache's bandwidth that gathered rows reach (measured: `benches/record`).
pub(super) const GATHER_SHARE: f64 = 0.7;
/// Share of the arithmetic ceiling that dense products reach.
const DENSE_SHARE: f64 = 0.8;

/// Prints the plan of a session; trains nothing.
pub fn run(spec: &str, options: &LoadOptions, config: &TrainConfig, output: OutputArgs) -> Result<(), CliError> {
    let dataset = load(spec, options)?;
    let sizes = DataSizes::of(&dataset);
    drop(dataset);
    let machine = Machine::here();
    let plan = Plan::new(config, &sizes, rates(&doctor::measure(&machine, "", output)?, config.precision))?;
    let ms = |seconds: f64| format!("{:.2} ms", 1e3 * seconds);
    let mut results = Results::default();
    results
        .add("model", config.model.kind.name(), "Model", config.model.kind.name())
        .add("data", spec, "Data", spec)
        .add("input_bytes", plan.input_bytes, "Graph and features", readable_bytes(plan.input_bytes))
        .add("parameter_bytes", plan.parameter_bytes, "Parameters and state", readable_bytes(plan.parameter_bytes))
        .add("predicted_peak_bytes", plan.peak_bytes, "Peak of matrices", readable_bytes(plan.peak_bytes))
        .add(
            "available_bytes",
            machine.memory_bytes,
            "Main memory",
            machine.memory_bytes.map_or(String::new(), readable_bytes),
        )
        .add("aggregates_once", plan.aggregates_once, "First aggregation", once(plan.aggregates_once))
        .add("predicted_prepare_ms", 1e3 * plan.prepare_seconds, "Before the first epoch", ms(plan.prepare_seconds))
        .add("predicted_epoch_ms", 1e3 * plan.epoch_seconds, "Epoch", ms(plan.epoch_seconds))
        .add("predicted_evaluate_ms", 1e3 * plan.evaluate_seconds, "Evaluation", ms(plan.evaluate_seconds))
        .add("predicted_seconds", plan.total_seconds, "All epochs and runs", format!("{:.1} s", plan.total_seconds));
    results.print(output.json);
    match machine.memory_bytes {
        Some(memory) if plan.peak_bytes > memory => Err(CliError::Other(format!(
            "the plan needs {}, but the machine has {}; try --precision bf16, a smaller --hidden, or a larger machine",
            readable_bytes(plan.peak_bytes),
            readable_bytes(memory)
        ))),
        _ => Ok(()),
    }
}

fn once(aggregates_once: bool) -> &'static str {
    if aggregates_once { "computed once" } else { "in every epoch" }
}

/// What kernels reach of what the machine does.
fn rates(ceilings: &Ceilings, gathered: Dtype) -> Rates {
    // The meter counts rows as they are stored; rows rounded on their way into a panel pass twice as fast.
    let rows_per_stored = (Dtype::F32.n_bytes() / gathered.n_bytes()) as f64;
    Rates {
        stream_bytes: 1e9 * ceilings.dram_read_gb_s_all,
        gather_bytes: 1e9 * GATHER_SHARE * ceilings.l3_read_gb_s_all * rows_per_stored,
        flops: 1e9 * DENSE_SHARE * ceilings.fma_gflop_s_all,
    }
}
