//! Instruction counts of the CPU kernels: unlike times, they are the same on a noisy machine.
//!
//! The programs are those of `benches/examples/counts.rs`, in the profile of tests. They run on one thread under
//! valgrind's callgrind, whose processor has AVX2 and no AVX-512. A record is for one compiler and architecture.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::command;
use crate::results::record::{COUNTS, FOLDER};

/// More instructions than recorded that are no failure, in percent.
const TOLERANCE_PERCENT: f64 = 3.0;
/// Function of the programs inside of which instructions count.
const COUNTED: &str = "--toggle-collect=*counted_work*";
/// Time for one program, which takes about a second.
const DEADLINE: Duration = Duration::from_secs(120);

/// Instructions of each program.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Counts {
    instructions: BTreeMap<String, u64>,
}

/// Action on the counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Write them as the record of this compiler.
    Record,
    /// Compare them with that record.
    Compare,
}

/// Whether counting is possible here.
pub fn is_available() -> bool {
    command::version("valgrind").is_some()
}

/// Counts instructions, and compares or records them.
///
/// # Errors
/// When valgrind is missing, a program fails, or a count exceeds the recorded one beyond the tolerance.
pub fn run(root: &Path, action: Action) -> Result<(), String> {
    if !is_available() {
        return Err("there is no valgrind here (Debian: valgrind)".to_owned());
    }
    let name = record_name(&command::version("rustc").ok_or("there is no rustc here")?)?;
    let path = root.join(&name);
    if action == Action::Compare && !path.exists() {
        println!("not compared: there is no {name}, which `cargo xtask bench counts` writes");
        return Ok(());
    }
    let counts = measure(root)?;
    if action == Action::Record {
        let text = serde_json::to_string_pretty(&counts).map_err(|e| e.to_string())? + "\n";
        fs::write(&path, text).map_err(|e| format!("{name}: {e}"))?;
        println!("{name} written");
        return Ok(());
    }
    let text = fs::read_to_string(&path).map_err(|e| format!("{name}: {e}"))?;
    let recorded: Counts = serde_json::from_str(&text).map_err(|e| format!("{name}: not a record of counts: {e}"))?;
    compare(&counts, &recorded)
}

/// Path of the record for a compiler, by its line `rustc 1.95.0 (…)`.
fn record_name(rustc: &str) -> Result<String, String> {
    let version = rustc.split_whitespace().nth(1).ok_or_else(|| format!("rustc has no version: {rustc}"))?;
    Ok(format!("{FOLDER}{COUNTS}{}-{version}.json", std::env::consts::ARCH))
}

/// Counts of all programs, which are built first: with the features of the whole workspace, as its tests build them.
fn measure(root: &Path) -> Result<Counts, String> {
    command::cargo(root, &["build", "--quiet", "--workspace", "--example", "counts"], &[])?;
    let program = Path::new(&command::metadata(root)?.target_directory).join("debug/examples/counts");
    let names = output(Command::new(&program), "counts")?.0;
    let mut instructions = BTreeMap::new();
    for name in names.lines() {
        let count = count(&program, name)?;
        println!("{name:<24} {count:>12}");
        instructions.insert(name.to_owned(), count);
    }
    Ok(Counts { instructions })
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

/// Standard output and standard error of a successful command, which is ended at the deadline.
fn output(mut command: Command, name: &str) -> Result<(String, String), String> {
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|e| format!("{name}: {e}"))?;
    let start = Instant::now();
    let readers = [
        reader(child.stdout.take().expect("standard output is piped")),
        reader(child.stderr.take().expect("standard error is piped")),
    ];
    let status = loop {
        match child.try_wait().map_err(|e| format!("{name}: {e}"))? {
            Some(status) => break status,
            None if start.elapsed() > DEADLINE => {
                // It may have ended meanwhile.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{name}: no end after {} s", DEADLINE.as_secs()));
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    let [stdout, stderr] = readers.map(|reader| reader.join().unwrap_or_default());
    if status.success() { Ok((stdout, stderr)) } else { Err(format!("{name}: {status}\n{stderr}")) }
}

/// Thread that reads a pipe to its end.
fn reader(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What arrived before an error is told.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Compares counts with recorded ones.
fn compare(found: &Counts, recorded: &Counts) -> Result<(), String> {
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
            println!("{name}: {:.1} % fewer than recorded; `cargo xtask bench counts` records them", -percent);
        }
    }
    let new = found.instructions.keys().filter(|name| !recorded.instructions.contains_key(*name));
    failures.extend(new.map(|name| format!("{name}: not recorded")));
    if failures.is_empty() {
        return Ok(());
    }
    Err(format!("counts:\n  {}\nif that is meant: `cargo xtask bench counts`", failures.join("\n  ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(instructions: &[(&str, u64)]) -> Counts {
        Counts { instructions: instructions.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect() }
    }

    #[test]
    fn counts_are_found_in_the_words_of_callgrind() {
        assert_eq!(collected("==7== Events    : Ir\n==7== Collected : 1234567\n==7==\n"), Some(1_234_567));
        assert_eq!(collected("==7== nothing\n"), None);
    }

    #[test]
    fn a_compiler_has_a_record() {
        let name = record_name("rustc 1.95.0 (59807616e 2026-04-14)\n").unwrap();
        assert_eq!(name, format!("benches/record/counts-{}-1.95.0.json", std::env::consts::ARCH));
        assert!(record_name("").is_err());
    }

    #[test]
    fn more_instructions_fail_and_fewer_do_not() {
        let recorded = counts(&[("a", 1000), ("b", 1000), ("gone", 5)]);
        let message = compare(&counts(&[("a", 1031), ("b", 900), ("new", 1)]), &recorded).unwrap_err();
        assert!(message.contains("a: 1031 instructions, 1000 recorded: 3.1 % more"), "{message}");
        assert!(message.contains("gone: recorded") && message.contains("new: not recorded"), "{message}");
        assert!(!message.contains("b: "), "{message}");
        assert_eq!(compare(&counts(&[("a", 1030), ("b", 1000), ("gone", 5)]), &recorded), Ok(()));
    }
}
