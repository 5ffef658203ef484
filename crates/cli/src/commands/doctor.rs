//! `girih doctor`: what this machine offers and what is missing.

use girih_compute::{Backend, Cpu};
use girih_kernels::{Card, Driver, FoundLibrary, KernelError, Survey};
use girih_machine::{Ceilings, Machine, readable_bytes};
use serde_json::json;

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
    add_cuda(&mut results, &Survey::here());
    let advice = advice(&machine, &ceilings);
    results.add("advice", advice.clone(), "Advice", if advice.is_empty() { "none" } else { "" });
    results.print(output.json);
    if !output.json {
        advice.iter().for_each(|line| println!("- {line}"));
    }
    Ok(())
}

/// What there is of CUDA, and for each piece that is missing what to do.
fn add_cuda(results: &mut Results, survey: &Survey) {
    let text = |found: &Result<String, KernelError>| match found {
        Ok(found) => found.clone(),
        Err(missing) => missing.to_string(),
    };
    let usable = |card: &Result<Card, KernelError>| card.as_ref().is_ok_and(|card| card.refused.is_none());
    let ready = survey.driver.is_ok()
        && survey.libraries.iter().all(|library| library.found.is_ok() || !library.is_needed)
        && survey.cards.first().is_some_and(usable);
    let driver = survey.driver.as_ref().map_or_else(KernelError::to_string, describe_driver);
    results.add(
        "cuda",
        ready,
        "CUDA",
        if ready { "ready: --device cuda" } else { "not ready, so the processor computes" },
    );
    results.add("cuda_driver", driver.clone(), "  driver", driver);
    let libraries = survey.libraries.iter();
    let found = |library: &FoundLibrary| json!({"ok": library.found.is_ok(), "text": text(&library.found)});
    let values: serde_json::Map<_, _> = libraries.clone().map(|l| (l.file.to_owned(), found(l))).collect();
    let line = |library: &FoundLibrary| match &library.found {
        Ok(found) => format!("{} ({}): {found}", library.file, library.purpose),
        Err(missing) => missing.to_string(),
    };
    let lines: Vec<String> = libraries.map(line).collect();
    results.add("cuda_libraries", values, "  libraries", lines.join("\n"));
    let lines: Vec<String> = survey.cards.iter().map(describe_card).collect();
    let cards: Vec<_> =
        survey.cards.iter().zip(&lines).map(|(c, text)| json!({"ok": usable(c), "text": text})).collect();
    results.add("cuda_cards", cards, "  cards", if lines.is_empty() { "none".to_owned() } else { lines.join("\n") });
}

/// The driver in a line.
fn describe_driver(driver: &Driver) -> String {
    match &driver.path {
        Some(path) => format!("{driver}, {}", path.display()),
        None => driver.to_string(),
    }
}

/// A card in a line.
fn describe_card(card: &Result<Card, KernelError>) -> String {
    let Card { ordinal, name, capability: (major, minor), memory: (free, all), refused } = match card {
        Ok(card) => card,
        Err(error) => return error.to_string(),
    };
    let memory = [*free, *all].map(|bytes| readable_bytes(bytes as u64));
    let found =
        format!("cuda:{ordinal}, {name}, compute capability {major}.{minor}, {} free of {}", memory[0], memory[1]);
    refused.as_ref().map_or(found.clone(), |refused| format!("{found}: {refused}"))
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
