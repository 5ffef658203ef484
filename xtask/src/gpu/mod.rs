//! `cargo xtask dist`, `gpu-test` and `gpu-sanitize`: programs for a machine with a GPU, and the record of their run.
//!
//! Machines with a GPU often have no Rust. `dist` therefore makes a folder of programs that need only the driver and
//! CUDA's libraries. It contains `girih` with its shell completions and manual pages, the benchmarks, the GPU tests,
//! this program, and hashes of their CUDA sources. There, `DIR/xtask gpu-test --prebuilt DIR` runs the tests and
//! writes the record. With Rust, `cargo xtask gpu-test` does both.

mod sanitize;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::Value;

pub use self::sanitize::{SanitizeArgs, sanitize};
use crate::command;
use crate::listing::Listing;
use crate::tidy::gpu_record;

/// Programs to copy: package, and name of the program.
const PROGRAMS: [(&str, &str); 3] = [("girih-cli", "girih"), ("xtask", "xtask"), ("girih-benches", "girih-benches")];
/// Tests that need a GPU: package, and name of the test.
const TESTS: [(&str, &str); 9] = [
    ("girih-kernels", "cuda"),
    ("girih-tests", "cuda"),
    ("girih-tests", "cuda_dense"),
    ("girih-tests", "cuda_products"),
    ("girih-tests", "cuda_recording"),
    ("girih-tests", "cuda_ranks"),
    ("girih-tests", "cuda_patches"),
    ("girih-tests", "cuda_sampling"),
    ("girih-tests", "cuda_minibatch"),
];
/// Arguments of `girih completions`, and the folder for its output.
const SCRIPTS: [(&str, &str); 6] = [
    ("bash", "completions"),
    ("zsh", "completions"),
    ("fish", "completions"),
    ("powershell", "completions"),
    ("elvish", "completions"),
    ("man", "man"),
];
/// File with the hashes of a folder's sources.
const SOURCES: &str = "sources.json";
/// File with the commit that the benchmarks were built from.
const COMMIT: &str = "commit";
/// Environment variable that makes tests fail without a GPU; otherwise they pass without running.
const REQUIRE: (&str, &str) = ("GIRIH_REQUIRE_GPU", "1");

/// Record of a test run on a GPU.
#[derive(Serialize)]
struct Record {
    device: String,
    driver: String,
    /// Seconds since 1970.
    time: u64,
    tests_passed: usize,
    /// Tests that need what this machine lacks, such as a second GPU.
    tests_skipped: usize,
    sources: BTreeMap<String, String>,
}

/// Builds the folder.
///
/// # Errors
/// When something does not build or cannot be copied.
pub fn dist(root: &Path, out: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", out.display());
    fs::create_dir_all(out).map_err(failed)?;
    for ((_, name), built) in PROGRAMS.iter().zip(built(root, &["build"], "--bin", &PROGRAMS)?) {
        fs::copy(&built, out.join(name)).map_err(failed)?;
    }
    write_scripts(out)?;
    for ((package, test), built) in TESTS.iter().zip(test_programs(root)?) {
        fs::copy(&built, out.join(program_name(package, test))).map_err(failed)?;
    }
    let sources = gpu_record::hashes(&Listing::read(root)?);
    let text = serde_json::to_string_pretty(&sources).map_err(|e| e.to_string())?;
    fs::write(out.join(SOURCES), text).map_err(failed)?;
    fs::write(out.join(COMMIT), commit(root)?).map_err(failed)?;
    println!("made {}; on a machine with a GPU: {0}/xtask gpu-test --prebuilt {0}", out.display());
    Ok(())
}

/// Writes completions for all shells, and manual pages, beside the program that generates them.
///
/// # Errors
/// When the program cannot be started or fails.
pub fn write_scripts(out: &Path) -> Result<(), String> {
    let girih = out.join("girih");
    for (script, folder) in SCRIPTS {
        let failed = |why: String| format!("{} completions {script}: {why}", girih.display());
        let status = Command::new(&girih).args(["completions", script, "--out"]).arg(out.join(folder)).status();
        let status = status.map_err(|error| failed(error.to_string()))?;
        if !status.success() {
            return Err(failed(status.to_string()));
        }
    }
    Ok(())
}

/// Runs the tests, from source or from a folder that [`dist`] made, and writes the record. Programs run one after the
/// other, or all `together`.
///
/// # Errors
/// When a test fails or none ran, or the record cannot be written.
pub fn test(root: &Path, prebuilt: Option<&Path>, out: &Path, together: bool) -> Result<(), String> {
    let (programs, sources) = match prebuilt {
        Some(folder) => {
            let programs: Vec<PathBuf> = TESTS.iter().map(|(p, t)| folder.join(program_name(p, t))).collect();
            (programs, sources_of(folder)?)
        }
        None => (test_programs(root)?, gpu_record::hashes(&Listing::read(root)?)),
    };
    if let Some(missing) = programs.iter().find(|program| !program.exists()) {
        return Err(format!("{} is not there; make all programs anew with `cargo xtask dist`", missing.display()));
    }
    let outcomes: Result<Vec<Outcome>, String> = match together {
        true => std::thread::scope(|scope| {
            let running: Vec<_> = programs.iter().map(|program| scope.spawn(|| run(program))).collect();
            running.into_iter().map(|thread| thread.join().expect("a program is run without a panic")).collect()
        }),
        false => programs.iter().map(|program| run(program)).collect(),
    };
    let outcomes = outcomes?;
    let tests_passed = outcomes.iter().map(|outcome| outcome.n_passed).sum();
    let tests_skipped = outcomes.iter().map(|outcome| outcome.n_skipped).sum();
    let gpu = gpu()?;
    let (device, driver) = gpu.split_once(", ").unwrap_or((&gpu, "unknown"));
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (device, driver) = (device.to_owned(), driver.to_owned());
    let record = Record { device, driver, time, tests_passed, tests_skipped, sources };
    let text = serde_json::to_string_pretty(&record).map_err(|e| e.to_string())? + "\n";
    fs::write(out, text).map_err(|e| format!("{}: {e}", out.display()))?;
    println!("{tests_passed} tests passed and {tests_skipped} were skipped on {gpu}; recorded in {}", out.display());
    Ok(())
}

/// Hashes of the sources that the programs of a folder were built from.
fn sources_of(folder: &Path) -> Result<BTreeMap<String, String>, String> {
    let path = folder.join(SOURCES);
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Commit of the sources, with the suffix `-dirty` if files differ.
fn commit(root: &Path) -> Result<String, String> {
    let arguments = ["describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"];
    let output = Command::new("git").args(arguments).current_dir(root).output().map_err(|e| format!("git: {e}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn program_name(package: &str, test: &str) -> String {
    format!("test-{package}-{test}")
}

/// Builds the tests. Returns the paths of their programs, in the order of [`TESTS`].
fn test_programs(root: &Path) -> Result<Vec<PathBuf>, String> {
    built(root, &["test", "--no-run"], "--test", &TESTS)
}

/// Builds targets, given as package and name, in release. Returns the paths of their programs in the same order. A
/// single call compiles shared dependencies once, not once per selection of features.
fn built(root: &Path, command: &[&str], kind: &str, targets: &[(&str, &str)]) -> Result<Vec<PathBuf>, String> {
    let mut arguments = command.to_vec();
    for (package, name) in targets {
        arguments.extend(["--package", package, kind, name]);
    }
    arguments.extend(["--release", "--message-format=json"]);
    let messages = command::cargo_output(root, &arguments)?;
    let messages: Vec<Value> =
        String::from_utf8_lossy(&messages).lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let program = |&(package, name): &(&str, &str)| -> Result<PathBuf, String> {
        let found = messages.iter().find_map(|message| executable_of(message, package, name));
        found.ok_or_else(|| format!("cargo built no {name} of {package}"))
    };
    targets.iter().map(program).collect()
}

/// Program `name` of a package, built in release.
///
/// # Errors
/// When it does not build.
pub fn release_build(root: &Path, package: &str, name: &str) -> Result<PathBuf, String> {
    Ok(built(root, &["build"], "--bin", &[(package, name)])?.remove(0))
}

/// Program in a message of cargo, if it belongs to this target.
fn executable_of(message: &Value, package: &str, name: &str) -> Option<PathBuf> {
    let is_it = message["target"]["name"] == name && package_name(message["package_id"].as_str()?) == package;
    is_it.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
}

/// Package of an id: `girih-cli` for `path+file:///girih/crates/cli#girih-cli@0.1.0`, and `xtask` for
/// `path+file:///girih/xtask#0.1.0`. Cargo omits a name that equals the folder's.
fn package_name(id: &str) -> &str {
    let (place, rest) = id.rsplit_once('#').unwrap_or((id, ""));
    let folder = place.rsplit('/').next().unwrap_or(place);
    rest.split_once('@').map_or(folder, |(name, _)| name)
}

/// Numbers of tests of a program that ran and passed, and that were skipped.
#[derive(Debug, PartialEq)]
struct Outcome {
    n_passed: usize,
    n_skipped: usize,
}

/// Runs a test program on the GPU.
fn run(program: &Path) -> Result<Outcome, String> {
    let output = Command::new(program)
        .args(["--test-threads", "1", "--nocapture"])
        .env(REQUIRE.0, REQUIRE.1)
        .output()
        .map_err(|e| format!("{}: {e}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    let outcome = outcome_in(&text).filter(|_| output.status.success());
    outcome.ok_or_else(|| format!("{}: failed", program.display()))
}

/// Outcome in the output of a program that runs its tests one by one. `None` if a test failed, or none passed. A test
/// that is skipped passes, and prints `skipped: ` with the reason.
fn outcome_in(text: &str) -> Option<Outcome> {
    let result = text.lines().find_map(|line| line.strip_prefix("test result: ok. "))?;
    let n_ok: usize = result.split(' ').next()?.parse().ok()?;
    let n_skipped = text.split("\ntest ").filter(|test| test.contains("skipped: ")).count();
    (n_ok > 0).then(|| Outcome { n_passed: n_ok.saturating_sub(n_skipped), n_skipped })
}

/// Name and driver version of the first GPU.
fn gpu() -> Result<String, String> {
    gpus().map(|mut gpus| gpus.swap_remove(0))
}

/// Names and driver of this machine's GPUs; at least one.
fn gpus() -> Result<Vec<String>, String> {
    let output = Command::new("nvidia-smi")
        .args(["--query-gpu=name,driver_version", "--format=csv,noheader"])
        .output()
        .map_err(|e| format!("nvidia-smi: {e}; is there a GPU?"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let gpus: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
    if gpus.is_empty() { Err("nvidia-smi lists no GPU".to_owned()) } else { Ok(gpus) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_apart_by_package() {
        let message = |package: &str| {
            let text = format!(
                r#"{{"package_id": "path+file:///girih/{package}@0.1.0", "target": {{"name": "cuda"}}, "executable": "/p"}}"#
            );
            serde_json::from_str::<Value>(&text).unwrap()
        };
        let of_tests = message("tests#girih-tests");
        assert_eq!(executable_of(&of_tests, "girih-tests", "cuda"), Some(PathBuf::from("/p")));
        assert_eq!(executable_of(&of_tests, "girih-tests", "cuda_products"), None);
        assert_eq!(executable_of(&message("crates/kernels#girih-kernels"), "girih-tests", "cuda"), None);
        assert_eq!(package_name("path+file:///girih/xtask#0.1.0"), "xtask");
    }

    #[test]
    fn results_of_tests_are_read() {
        let text = "running 3 tests\ntest a ... ok\ntest b ... skipped: one GPU\nskipped: one GPU\nok\ntest c ... ok\n\n\
                    test result: ok. 3 passed; 0 failed; 0 ignored";
        assert_eq!(outcome_in(text), Some(Outcome { n_passed: 2, n_skipped: 1 }));
        assert_eq!(outcome_in("test result: FAILED. 6 passed; 1 failed"), None);
        assert_eq!(outcome_in("test result: ok. 0 passed; 0 failed"), None);
    }
}
