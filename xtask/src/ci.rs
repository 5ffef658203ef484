//! Steps of the continuous integration, which report their time.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::bench::counts;
use crate::command::{Metadata, Package};
use crate::wheel::{self, WheelArgs};
use crate::{command, kernels, tidy};

/// Action of a step: the arguments of one cargo call with its environment, or a check of this program.
enum Action {
    Cargo { arguments: Vec<String>, environment: &'static [(&'static str, &'static str)] },
    Tidy,
    Kernels,
    Counts,
    Wheel(WheelArgs),
}

struct Step {
    name: String,
    action: Action,
}

impl Step {
    fn cargo(name: impl Into<String>, arguments: &str) -> Self {
        let arguments = arguments.split_whitespace().map(str::to_owned).collect();
        Self { name: name.into(), action: Action::Cargo { arguments, environment: &[] } }
    }

    fn docs() -> Self {
        let arguments = ["doc", "--workspace", "--no-deps", "--document-private-items"].map(str::to_owned).to_vec();
        let environment = &[("RUSTDOCFLAGS", "-D warnings")];
        Self { name: "docs".to_owned(), action: Action::Cargo { arguments, environment } }
    }

    fn tidy() -> Self {
        Self { name: "tidy".to_owned(), action: Action::Tidy }
    }

    fn run(&self, root: &Path) -> Result<(), String> {
        match &self.action {
            Action::Tidy => tidy::run(root),
            Action::Kernels => kernels::run(root, true, kernels::Scope::Turns),
            Action::Wheel(args) => wheel::run(root, args),
            Action::Counts => counts::run(root, counts::Action::Compare),
            Action::Cargo { arguments, environment } => {
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                command::cargo(root, &arguments, environment)
            }
        }
    }
}

/// Runs every step, even after a failure, and prints the time of each.
///
/// # Errors
/// When a step failed; the message names all failed steps.
pub fn run(root: &Path, skip_tests: bool) -> Result<(), String> {
    let mut results: Vec<(String, Duration, Result<(), String>)> = Vec::new();
    for step in steps(root, skip_tests)? {
        println!("\n── {} ──", step.name);
        let start = Instant::now();
        let result = step.run(root);
        if let Err(message) = &result {
            println!("{message}");
        }
        results.push((step.name, start.elapsed(), result));
    }
    println!();
    for (name, time, result) in &results {
        let verdict = if result.is_ok() { "ok" } else { "FAILED" };
        println!("{verdict:>6}  {:>7.1} s  {name}", time.as_secs_f64());
    }
    let failed: Vec<String> =
        results.into_iter().filter(|(.., result)| result.is_err()).map(|(name, ..)| name).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("ci: failed: {}", failed.join(", "))) }
}

fn steps(root: &Path, skip_tests: bool) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    if !skip_tests {
        steps.push(Step::cargo("tests", "test --workspace"));
    }
    steps.push(Step::tidy());
    steps.push(Step::cargo("format", "fmt --all --check"));
    steps.push(Step::cargo("clippy", "clippy --workspace --all-targets -- -D warnings"));
    steps.push(Step::docs());
    steps.push(Step::cargo("deployment", "run --quiet --package xtask -- deploy"));
    steps.push(Step { name: "kernels".to_owned(), action: Action::Kernels });
    if counts::is_available() {
        // The programs are there since the tests.
        steps.push(Step { name: "instruction counts".to_owned(), action: Action::Counts });
    } else {
        println!("instructions are not counted: there is no valgrind here (Debian: valgrind)");
    }
    if wheel::is_available() {
        let (out, python) = ("target/wheels".into(), "python3".into());
        let args = WheelArgs { out, quick: true, portable: false, test: true, python };
        steps.push(Step { name: "wheel".to_owned(), action: Action::Wheel(args) });
    } else {
        println!("the wheel is not built: there is no Python with virtual environments here (Debian: python3-venv)");
    }
    let metadata = command::metadata(root)?;
    steps.extend(feature_steps(&metadata));
    steps.extend(example_steps(root, &metadata.target_directory, skip_tests)?);
    // Packages have all that they need, and no path outside of them.
    steps.push(Step::cargo("packages", "package --workspace --no-verify --allow-dirty --quiet"));
    if command::version("cargo-deny").is_some() {
        steps.push(Step::cargo("dependencies", "deny --all-features check bans licenses sources"));
    } else {
        println!("dependencies are not checked: there is no cargo-deny here (cargo install --locked cargo-deny)");
    }
    if mpi_is_there() {
        // Features of the whole workspace, so that few dependencies are built again.
        let arguments = "test --workspace --features girih-cli/mpi --test cli mpi::";
        steps.push(Step::cargo("tests under mpirun", arguments));
    }
    Ok(steps)
}

/// Whether MPI programs can be built and run; tests start ranks with flags of Open MPI.
fn mpi_is_there() -> bool {
    command::version("mpicc").is_some()
        && command::version("mpirun").is_some_and(|version| version.contains("Open MPI"))
}

/// Steps for each package with features: one check without features, and one with each feature alone. A workspace
/// build enables all of them, and hides code that compiles only together with another feature. What users compile is
/// checked: libraries and programs, not tests, whose own dependencies take longer to check than the packages.
fn feature_steps(metadata: &Metadata) -> Vec<Step> {
    let mut steps = Vec::new();
    for Package { name, features } in &metadata.packages {
        // What chooses artifacts changes no code.
        let optional: Vec<&String> =
            features.keys().filter(|name| !["default", "as-tests"].contains(&&***name)).collect();
        if optional.is_empty() {
            continue;
        }
        let check = format!("check --package {name} --no-default-features");
        steps.push(Step::cargo(format!("{name} without features"), &check));
        for feature in optional {
            if feature == "mpi" && !mpi_is_there() {
                println!(
                    "{name} with mpi is not checked: there is no mpicc, or no mpirun of Open MPI, here (Debian: \
                     libopenmpi-dev, openmpi-bin, libclang-dev)"
                );
                continue;
            }
            steps.push(Step::cargo(format!("{name} with {feature}"), &format!("{check} --features {feature}")));
        }
    }
    steps
}

/// A step for each package of `examples/`: its tests, or a check of them. The packages are workspaces of their own, as
/// code outside of this repository is, but share the target folder.
///
/// # Errors
/// When the folder cannot be read.
fn example_steps(root: &Path, target: &str, skip_tests: bool) -> Result<Vec<Step>, String> {
    let folder = root.join("examples");
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    let step = |name: String| {
        let manifest = format!("examples/{name}/Cargo.toml");
        let verb: &[&str] = if skip_tests { &["check", "--all-targets"] } else { &["test"] };
        let others = ["--locked", "--manifest-path", &manifest, "--target-dir", target];
        let arguments = verb.iter().chain(&others).map(|&argument| argument.to_owned()).collect();
        Step { name: format!("examples: {name}"), action: Action::Cargo { arguments, environment: &[] } }
    };
    Ok(names.into_iter().map(step).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_checked_alone_and_not_at_all() {
        let text = r#"{"packages": [
            {"name": "plain", "features": {}},
            {"name": "rich", "features": {"default": ["a"], "a": [], "b": ["dep:b"]}}
        ], "target_directory": "/target"}"#;
        let metadata: Metadata = serde_json::from_str(text).unwrap();
        let names: Vec<String> = feature_steps(&metadata).into_iter().map(|step| step.name).collect();
        assert_eq!(names, ["rich without features", "rich with a", "rich with b"]);
    }

    #[test]
    fn each_example_has_a_step() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for (skip_tests, verb) in [(false, "test"), (true, "check")] {
            let steps = example_steps(root, "/target", skip_tests).unwrap();
            let names: Vec<&str> = steps.iter().map(|step| &*step.name).collect();
            assert_eq!(names, ["examples: own-model", "examples: own-order", "examples: own-sampler"]);
            for step in steps {
                let Action::Cargo { arguments, .. } = step.action else { panic!("a call of cargo") };
                assert_eq!(arguments[0], verb);
                assert!(arguments.contains(&"--locked".to_owned()), "{arguments:?}");
                assert!(arguments.ends_with(&["--target-dir".to_owned(), "/target".to_owned()]), "{arguments:?}");
            }
        }
    }
}
