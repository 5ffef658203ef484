//! Ceilings of this machine: measured once, and the rates that kernels reach.

use girih_compute::{Dtype, Rates};
use girih_machine::{Ceilings, Machine};

use crate::args::OutputArgs;
use crate::error::CliError;
use crate::output::under_spinner;

/// Share of the cache bandwidth that gathers reach (measured: `benches/record`).
pub const GATHER_SHARE: f64 = 0.7;
/// Share of the arithmetic ceiling that dense products reach.
const DENSE_SHARE: f64 = 0.8;

/// Ceilings of this machine, from the cache or measured now; `girih doctor` always measures them.
pub fn load_or_measure(machine: &Machine, output: OutputArgs) -> Result<Ceilings, CliError> {
    girih_planner::load_or_measure(&key(machine), || measure(machine, output))
}

/// Measures the ceilings of this machine, which takes seconds.
pub fn measure(machine: &Machine, output: OutputArgs) -> Result<Ceilings, CliError> {
    let what = "measuring memory bandwidth and arithmetic of this machine, some seconds";
    let measured = under_spinner(what, output, || Ceilings::measure(machine));
    measured.map_err(|e| CliError::Other(format!("cannot start threads to measure with: {e}")))
}

/// Key of a machine's ceilings among the cached measurements.
pub fn key(machine: &Machine) -> String {
    format!("{}, {} threads, girih {}", machine.describe(), rayon::current_num_threads(), env!("CARGO_PKG_VERSION"))
}

/// Rates that kernels reach on a machine with these ceilings.
pub fn rates(ceilings: &Ceilings, gathered: Dtype) -> Rates {
    // A dry run counts rows as they are stored. Rows that are rounded on their way into a panel pass twice as fast.
    let rows_per_stored = (Dtype::F32.n_bytes() / gathered.n_bytes()) as f64;
    Rates {
        stream_bytes: 1e9 * ceilings.dram_read_gb_s_all,
        gather_bytes: 1e9 * GATHER_SHARE * ceilings.l3_read_gb_s_all * rows_per_stored,
        flops: 1e9 * DENSE_SHARE * ceilings.fma_gflop_s_all,
    }
}
