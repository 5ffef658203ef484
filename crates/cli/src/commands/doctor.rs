//! `girih doctor`: abilities of this machine, and missing parts.

use girih_compute::Cpu;
use girih_compute::prelude::*;
use girih_kernels::{Driver, FoundLibrary, Gpu, KernelError, Survey};
use girih_machine::{Ceilings, Machine, readable_bytes};
use girih_planner::keep;
use serde_json::json;

use crate::args::OutputArgs;
use crate::error::CliError;
use crate::output::Results;
use crate::plan::ceilings::{key, measure};

/// DRAM read bandwidth in GB/s below which training suffers.
const SLOW_DRAM_GB_S: f64 = 10.0;

/// Width of the report in columns of a terminal.
pub const WIDTH: usize = 80;
/// Width of its labels in columns.
pub const LABEL_WIDTH: usize = 18;

/// Measures the machine for a few seconds and reports its expected performance.
pub fn run(output: OutputArgs) -> Result<(), CliError> {
    let machine = Machine::here();
    let ceilings = measure(&machine, output)?;
    keep(&key(&machine), &ceilings);
    let backend = Cpu::new();
    let mut results = Results::default();
    results
        .add("version", env!("CARGO_PKG_VERSION"), "girih", env!("CARGO_PKG_VERSION"))
        .add("machine", serde_json::to_value(&machine).unwrap_or_default(), "Machine", wrapped(&machine.describe()))
        .add("instruction_set", backend.instruction_set(), "Instruction set", backend.instruction_set())
        .add("ceilings", serde_json::to_value(&ceilings).unwrap_or_default(), "Ceilings", wrapped(&ceilings.describe()))
        .add("devices", vec![backend.name()], "Devices", backend.name());
    add_cuda(&mut results, &Survey::here());
    let advice = advice(&machine, &ceilings);
    let lines: Vec<String> = advice.iter().map(|line| wrapped(line)).collect();
    let shown = if lines.is_empty() { "none".to_owned() } else { lines.join("\n") };
    results.add("advice", advice, "Advice", shown);
    results.print(output.json);
    Ok(())
}

/// Text wrapped to fit beside the labels. A longer word, such as a path, stays whole.
pub fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always one");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH - LABEL_WIDTH {
            lines.push(word.to_owned());
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines.join("\n")
}

/// Adds the state of CUDA, with a remedy for each missing part.
fn add_cuda(results: &mut Results, survey: &Survey) {
    let text = |found: &Result<String, KernelError>| match found {
        Ok(found) => found.clone(),
        Err(missing) => missing.to_string(),
    };
    let usable = |gpu: &Result<Gpu, KernelError>| gpu.as_ref().is_ok_and(|gpu| gpu.refused.is_none());
    let ready = survey.driver.is_ok()
        && survey.libraries.iter().all(|library| library.found.is_ok() || !library.is_needed)
        && survey.gpus.first().is_some_and(usable);
    let driver = survey.driver.as_ref().map_or_else(KernelError::to_string, describe_driver);
    results.add("cuda", ready, "CUDA", if ready { "ready: --device cuda" } else { "not ready: the CPU computes" });
    let shown = wrapped(&driver);
    results.add("cuda_driver", driver, "  driver", shown);
    let libraries = survey.libraries.iter();
    let found = |library: &FoundLibrary| json!({"ok": library.found.is_ok(), "text": text(&library.found)});
    let values: serde_json::Map<_, _> = libraries.clone().map(|l| (l.file.to_owned(), found(l))).collect();
    let line = |library: &FoundLibrary| match &library.found {
        Ok(found) => format!("{} ({}): {found}", library.file, library.purpose),
        Err(missing) => missing.to_string(),
    };
    let lines: Vec<String> = libraries.map(|library| wrapped(&line(library))).collect();
    results.add("cuda_libraries", values, "  libraries", lines.join("\n"));
    let lines: Vec<String> = survey.gpus.iter().map(describe_gpu).collect();
    let gpus: Vec<_> = survey.gpus.iter().zip(&lines).map(|(c, text)| json!({"ok": usable(c), "text": text})).collect();
    let lines: Vec<String> = lines.iter().map(|line| wrapped(line)).collect();
    results.add("cuda_gpus", gpus, "  GPUs", if lines.is_empty() { "none".to_owned() } else { lines.join("\n") });
}

/// Description of the driver, one line.
fn describe_driver(driver: &Driver) -> String {
    match &driver.path {
        Some(path) => format!("{driver}, {}", path.display()),
        None => driver.to_string(),
    }
}

/// Description of a GPU, one line.
fn describe_gpu(gpu: &Result<Gpu, KernelError>) -> String {
    let Gpu { ordinal, name, capability: (major, minor), memory: (free, all), refused } = match gpu {
        Ok(gpu) => gpu,
        Err(error) => return error.to_string(),
    };
    let memory = [*free, *all].map(|bytes| readable_bytes(bytes as u64));
    let found =
        format!("cuda:{ordinal}, {name}, compute capability {major}.{minor}, {} free of {}", memory[0], memory[1]);
    refused.as_ref().map_or(found.clone(), |refused| format!("{found}: {refused}"))
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
