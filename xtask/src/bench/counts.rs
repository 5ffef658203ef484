//! Instruction counts of the CPU kernels: unlike times, they are the same on a noisy machine.
//!
//! The programs are those of `benches/examples/counts.rs`, in the profile of tests. They run under valgrind's callgrind,
//! whose processor has AVX2 and no AVX-512. Counts are kept in [`RECORD`], with the compiler that made them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::command;

/// Counts to compare with.
const RECORD: &str = "benches/record/counts.json";
/// More instructions than recorded that are no failure, in percent.
const TOLERANCE_PERCENT: f64 = 3.0;
/// Function of the programs inside of which instructions count.
const COUNTED: &str = "--toggle-collect=*counted_work*";

/// Counts with all that they depend on.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Counts {
    /// Version of the compiler.
    rustc: String,
    /// Architecture of the programs.
    arch: String,
    /// Instructions of each program.
    instructions: BTreeMap<String, u64>,
}

/// Action on the counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Compare them with the record.
    Compare,
    /// Compare them, if valgrind is there.
    CompareIfAvailable,
    /// Record them.
    Record,
}

/// Counts instructions, and compares or records them.
///
/// # Errors
/// When valgrind is missing, a program fails, or a count exceeds the recorded one beyond the tolerance.
pub fn run(root: &Path, action: Action) -> Result<(), String> {
    if command::version("valgrind").is_none() {
        let message = "there is no valgrind here (Debian: valgrind)";
        if action == Action::CompareIfAvailable {
            println!("instructions are not counted: {message}");
            return Ok(());
        }
        return Err(message.to_owned());
    }
    let counts = measure(root)?;
    let path = root.join(RECORD);
    if action == Action::Record {
        let text = serde_json::to_string_pretty(&counts).map_err(|e| e.to_string())? + "\n";
        fs::write(&path, text).map_err(|e| format!("{RECORD}: {e}"))?;
        println!("{RECORD} written");
        return Ok(());
    }
    let text = fs::read_to_string(&path).map_err(|e| format!("{RECORD}: {e}; `cargo xtask bench counts --record`"))?;
    let recorded: Counts = serde_json::from_str(&text).map_err(|e| format!("{RECORD}: not a record of counts: {e}"))?;
    compare(&counts, &recorded)
}

/// Counts of all programs, which are built first: with the features of the whole workspace, as its tests build them.
fn measure(root: &Path) -> Result<Counts, String> {
    command::cargo(root, &["build", "--quiet", "--workspace", "--example", "counts"], &[])?;
    let program = program(root)?;
    let names = output(Command::new(&program), "counts")?.0;
    let mut instructions = BTreeMap::new();
    for name in names.lines() {
        let count = count(&program, name)?;
        println!("{name:<20} {count:>12}");
        instructions.insert(name.to_owned(), count);
    }
    let rustc = command::version("rustc").unwrap_or_default().trim().to_owned();
    Ok(Counts { rustc, arch: std::env::consts::ARCH.to_owned(), instructions })
}

/// Path of the built programs.
fn program(root: &Path) -> Result<PathBuf, String> {
    #[derive(Deserialize)]
    struct Metadata {
        target_directory: PathBuf,
    }
    let metadata = command::cargo_output(root, &["metadata", "--no-deps", "--format-version", "1"])?;
    let metadata: Metadata = serde_json::from_slice(&metadata).map_err(|e| format!("cargo metadata: {e}"))?;
    Ok(metadata.target_directory.join("debug/examples/counts"))
}

/// Instructions of one program inside of the counted function.
fn count(program: &Path, name: &str) -> Result<u64, String> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", COUNTED]).arg(program).arg(name);
    let (_, messages) = output(valgrind, &format!("valgrind, {name}"))?;
    let count = collected(&messages).filter(|count| *count > 0);
    count.ok_or_else(|| format!("{name}: callgrind counted nothing; its last words:\n{messages}"))
}

/// Number of instructions in the messages of callgrind, as in `==1== Collected : 1234`.
fn collected(messages: &str) -> Option<u64> {
    let line = messages.lines().find(|line| line.contains("Collected"))?;
    line.split_once(':')?.1.split_whitespace().next()?.parse().ok()
}

/// Standard output and standard error of a successful command.
fn output(mut command: Command, name: &str) -> Result<(String, String), String> {
    let output = command.output().map_err(|e| format!("{name}: {e}"))?;
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    if output.status.success() { Ok((stdout, stderr)) } else { Err(format!("{name}: {}\n{stderr}", output.status)) }
}

/// Compares counts with those of the same compiler.
fn compare(found: &Counts, recorded: &Counts) -> Result<(), String> {
    if (&found.rustc, &found.arch) != (&recorded.rustc, &recorded.arch) {
        println!(
            "not compared: the record is of {} on {}, these counts of {} on {}",
            recorded.rustc, recorded.arch, found.rustc, found.arch
        );
        return Ok(());
    }
    let mut failures = Vec::new();
    for (name, &before) in &recorded.instructions {
        let Some(&now) = found.instructions.get(name) else {
            failures.push(format!("{name}: recorded, but there is no such program"));
            continue;
        };
        let percent = 100.0 * (now as f64 - before as f64) / before as f64;
        if percent > TOLERANCE_PERCENT {
            failures.push(format!("{name}: {now} instructions, {before} recorded: {percent:.1} % more"));
        } else if percent < -TOLERANCE_PERCENT {
            println!("{name}: {:.1} % fewer than recorded; keep it with `cargo xtask bench counts --record`", -percent);
        }
    }
    let new = found.instructions.keys().filter(|name| !recorded.instructions.contains_key(*name));
    failures.extend(new.map(|name| format!("{name}: not recorded")));
    if failures.is_empty() {
        return Ok(());
    }
    Err(format!("counts: {}\nif that is meant: `cargo xtask bench counts --record`", failures.join("\n  ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(rustc: &str, instructions: &[(&str, u64)]) -> Counts {
        let instructions = instructions.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        Counts { rustc: rustc.to_owned(), arch: "x86_64".to_owned(), instructions }
    }

    #[test]
    fn counts_are_found_in_the_words_of_callgrind() {
        assert_eq!(collected("==7== Events    : Ir\n==7== Collected : 1234567\n==7==\n"), Some(1_234_567));
        assert_eq!(collected("==7== nothing\n"), None);
    }

    #[test]
    fn more_instructions_fail_and_fewer_do_not() {
        let recorded = counts("1.95", &[("a", 1000), ("b", 1000), ("gone", 5)]);
        let message = compare(&counts("1.95", &[("a", 1031), ("b", 900), ("new", 1)]), &recorded).unwrap_err();
        assert!(message.contains("a: 1031 instructions, 1000 recorded: 3.1 % more"), "{message}");
        assert!(message.contains("gone: recorded") && message.contains("new: not recorded"), "{message}");
        assert!(!message.contains("b: "), "{message}");
        assert_eq!(compare(&counts("1.95", &[("a", 1030), ("b", 1000), ("gone", 5)]), &recorded), Ok(()));
        assert_eq!(compare(&counts("1.96", &[]), &recorded), Ok(()), "another compiler counts otherwise");
    }
}
