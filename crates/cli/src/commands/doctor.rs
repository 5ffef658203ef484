//! `girih doctor`: what this machine offers and what is missing.

use girih_compute::{Backend, Cpu};
use girih_machine::{Ceilings, Machine, readable_bytes};

use crate::args::OutputArgs;
use crate::error::CliError;
use crate::output::{Results, under_spinner};

/// A machine below this reads main memory slower than training likes.
const SLOW_DRAM_GB_S: f64 = 10.0;

/// Measures the machine for a few seconds and says what to expect of it.
pub fn run(output: OutputArgs) -> Result<(), CliError> {
    let machine = Machine::here();
    let ceilings = measure(&machine, "", output)?;
    let backend = Cpu::new();
    let mut results = Results::default();
    results
        .add("version", env!("CARGO_PKG_VERSION"), "girih", env!("CARGO_PKG_VERSION"))
        .add("machine", serde_json::to_value(&machine).unwrap_or_default(), "Machine", machine.describe())
        .add("instruction_set", backend.instruction_set(), "Instruction set", backend.instruction_set())
        .add("ceilings", serde_json::to_value(&ceilings).unwrap_or_default(), "Ceilings", ceilings.describe())
        .add("devices", vec![backend.name()], "Devices", backend.name());
    let cuda = girih_kernels::Device::open(0);
    results.add(
        "cuda",
        cuda.is_ok(),
        "CUDA",
        cuda.map_or_else(|missing| missing.to_string(), |device| describe(&device)),
    );
    let advice = advice(&machine, &ceilings);
    results.add("advice", advice.clone(), "Advice", if advice.is_empty() { "none" } else { "" });
    results.print(output.json);
    if !output.json {
        advice.iter().for_each(|line| println!("- {line}"));
    }
    Ok(())
}

/// A card in a line.
fn describe(device: &girih_kernels::Device) -> String {
    let (major, minor) = device.capability();
    let memory = device.memory().map_or("?".to_owned(), |(_, all)| readable_bytes(all as u64));
    format!("{}, compute capability {major}.{minor}, {memory}", device.name())
}

/// The ceilings of this machine, which take seconds to measure; `remedy` says how to do without.
pub fn measure(machine: &Machine, remedy: &str, output: OutputArgs) -> Result<Ceilings, CliError> {
    let what = "measuring what this machine reads and computes in a second";
    let what = if remedy.is_empty() { what.to_owned() } else { format!("{what}; {remedy}") };
    let measured = under_spinner(what, output, || Ceilings::measure(machine));
    measured.map_err(|e| CliError::Other(format!("cannot start threads to measure with: {e}")))
}

fn advice(machine: &Machine, ceilings: &Ceilings) -> Vec<String> {
    let mut advice = Vec::new();
    if cfg!(debug_assertions) {
        advice.push("this is a debug build; build with --release for full speed".to_owned());
    }
    if ceilings.dram_read_gb_s_all < SLOW_DRAM_GB_S {
        advice.push(format!(
            "main memory reads at {:.1} GB/s; other programs or a small virtual machine may be the reason",
            ceilings.dram_read_gb_s_all
        ));
    }
    if ceilings.threads < machine.cores {
        advice.push(format!("{} of {} cores are used; RAYON_NUM_THREADS limits them", ceilings.threads, machine.cores));
    }
    advice
}
