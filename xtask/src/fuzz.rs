//! Long form of the fuzz targets, and the tests under AddressSanitizer. Both need nightly Rust. The short form is a
//! test of `tests/fuzz-targets`, which stable Rust runs.

use std::path::Path;
use std::process::Command;

use crate::command;

/// Crates whose tests run under AddressSanitizer: they read files or sockets, or contain unsafe code.
const SANITIZED: [&str; 5] = ["graph-format", "datasets", "compress", "sampling", "comm"];
/// Leaks of libraries that LeakSanitizer leaves out.
const LEAKS: &str = "xtask/leaks.txt";
/// Explicit target platform: build scripts and macros are then built without the sanitizer.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Runs libFuzzer for some seconds on each target; on all if `targets` is empty.
///
/// # Errors
/// When nightly Rust or cargo-fuzz is missing, or a target breaks a law.
pub fn run(root: &Path, targets: &[String], seconds: u64) -> Result<(), String> {
    let home = root.join("fuzz");
    command::cargo(root, &["run", "--quiet", "-p", "girih-fuzz-targets", "--example", "seeds", "--", "fuzz"], &[])?;
    let all = names(&home)?;
    let chosen = if targets.is_empty() { &all[..] } else { targets };
    let mut failed = Vec::new();
    for name in chosen {
        println!("\n── {name} ──");
        let (corpus, time) = (format!("corpus/{name}"), format!("-max_total_time={seconds}"));
        let words = format!("-dict=dictionaries/{name}.dict");
        let options = ["-timeout=30", "-rss_limit_mb=4096", "-max_len=65536", "-print_final_stats=1"];
        let arguments = [&["fuzz", "run", name, &corpus, "--", &time, &words][..], &options].concat();
        if nightly(&home, &arguments, &[("RAYON_NUM_THREADS", "1")]).is_err() {
            failed.push(name.as_str());
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("fuzz: {} (inputs in fuzz/artifacts)", failed.join(", "))) }
}

/// Names of all targets.
fn names(home: &Path) -> Result<Vec<String>, String> {
    let folder = home.join("fuzz_targets");
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let stem = |entry: std::fs::DirEntry| entry.path().file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let mut names: Vec<String> = entries.flatten().filter_map(stem).collect();
    names.sort();
    Ok(names)
}

/// Runs the tests of crates that read files and sockets under AddressSanitizer.
///
/// # Errors
/// When nightly Rust is missing, or a test fails.
pub fn sanitize(root: &Path) -> Result<(), String> {
    let packages = SANITIZED.map(|name| format!("--package=girih-{name}"));
    let mut arguments =
        vec!["test", "--target", PLATFORM, "--target-dir", "target/sanitizer", "--tests", "--no-fail-fast"];
    arguments.extend(packages.iter().map(String::as_str));
    // Tests provoke failing allocations, which return null instead of ending the process.
    let leaks = format!("suppressions={}", root.join(LEAKS).display());
    let environment = [
        ("RUSTFLAGS", "-Zsanitizer=address"),
        ("ASAN_OPTIONS", "allocator_may_return_null=1"),
        ("LSAN_OPTIONS", &leaks),
    ];
    nightly(root, &arguments, &environment)
}

/// Runs cargo of nightly Rust.
fn nightly(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Result<(), String> {
    let remedy = "rustup toolchain install nightly; cargo install cargo-fuzz";
    let mut rustup = Command::new("rustup");
    rustup.args(["run", "nightly", "cargo"]).args(arguments).envs(environment.iter().copied()).current_dir(folder);
    // These variables belong to the toolchain that runs this program.
    for name in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN"] {
        rustup.env_remove(name);
    }
    command::finish(rustup, &format!("nightly cargo {}", arguments.join(" ")), remedy)
}
