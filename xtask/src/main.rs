//! `cargo xtask`: tools of the workspace.
//!
//! - [`tidy`]: checks of facts that can become outdated.
//! - [`ci`]: all steps that `.ci/run` checks.
//! - [`archive`]: girih as one file for a machine without Rust.
//! - [`deploy`]: linters of `examples/deploy`.
//! - [`kernels`]: compiles the CUDA sources with nvcc.
//! - [`fuzz`]: fuzz targets under libFuzzer, and tests under AddressSanitizer.
//! - [`gpu`]: programs for a machine with a GPU, and the record of their tests there.
//! - [`results`]: the page `docs/results.md`, made of the records of the benchmarks.
//! - [`soak`]: a long training session, with its memory and speed.
//! - [`wheel`]: the Python package as a wheel, and its tests.
//! - [`mod@bench`]: the benchmark harness of `benches/`, and tables of papers made of its records.
//!
//! Commands for users of girih are not here, but in `crates/cli`.

#![forbid(unsafe_code)]

mod archive;
mod bench;
mod ci;
mod command;
mod deploy;
mod fuzz;
mod gpu;
mod kernels;
mod listing;
mod results;
mod soak;
mod tidy;
mod wheel;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The workspace's own tools.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check what no compiler checks: documents that name crates, layering, links, sizes, leftovers.
    Tidy,
    /// Run everything that the continuous integration runs, with timings; every step runs, the first failure decides.
    Ci {
        /// Leave out `cargo test --workspace`, for callers that ran it already.
        #[arg(long)]
        skip_tests: bool,
    },
    /// Compile every CUDA source for every architecture, and show what its kernels need.
    Kernels {
        /// Fetch nvcc with pip, into target/, where there is none.
        #[arg(long)]
        install: bool,
    },
    /// Build a folder of programs for a machine with a GPU and no Rust: girih, the benchmarks, the tests that need a
    /// GPU, this program.
    Dist {
        /// The folder.
        #[arg(long, default_value = "target/dist")]
        out: PathBuf,
        /// Make one .tar.gz instead, for users: girih, its manual pages and completions, README and licences.
        #[arg(long)]
        archive: bool,
        /// A girih that is built already, for --archive.
        #[arg(long, value_name = "FILE", requires = "archive")]
        program: Option<PathBuf>,
    },
    /// Check the scripts and manifests of examples/deploy with the linters that are installed, and name missing ones.
    Deploy,
    /// Run the tests that need a GPU, and record that the CUDA sources ran as they are now.
    GpuTest {
        /// A folder that `dist` made, instead of building.
        #[arg(long)]
        prebuilt: Option<PathBuf>,
        /// Where the record goes.
        #[arg(long, default_value = "benches/record/gpu-verified.json")]
        out: PathBuf,
        /// Run the test programs side by side: quicker where GPU and host have room for all.
        #[arg(long)]
        together: bool,
    },
    /// Run each test that needs a GPU alone under compute-sanitizer, go on where the last call ended, and record it.
    GpuSanitize(gpu::SanitizeArgs),
    /// Train for a long time, and see whether memory grows, speed falls, or results differ from a short run's.
    Soak(soak::SoakArgs),
    /// Run fuzz targets under libFuzzer and AddressSanitizer, for some seconds each; needs nightly Rust and cargo-fuzz.
    Fuzz {
        /// Names of targets; all of them if none is given.
        targets: Vec<String>,
        /// Seconds for each.
        #[arg(long, default_value_t = 1200)]
        seconds: u64,
    },
    /// Run the tests of crates that read files and sockets under AddressSanitizer; needs nightly Rust.
    Sanitize,
    /// Write docs/results.md from the records of the benchmarks.
    Results {
        /// Write nothing, and fail if the page differs from the records.
        #[arg(long)]
        check: bool,
    },
    /// Build the Python package as a wheel, and test it in a fresh virtual environment.
    Wheel(wheel::WheelArgs),
    /// Build the benchmarks in release and run a suite, `cargo xtask bench spmm --small`; or print a table of a paper
    /// beside the records, `cargo xtask bench paper A4`.
    #[command(disable_help_flag = true)]
    Bench {
        /// A suite with its options, or `paper`; `--help` lists all.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    let root = workspace_root();
    let outcome = match Cli::parse().task {
        Task::Tidy => tidy::run(&root),
        Task::Ci { skip_tests } => ci::run(&root, skip_tests),
        Task::Kernels { install } => kernels::run(&root, install, kernels::Scope::Full),
        Task::Dist { out, archive: true, program } => archive::write(&root, &out, program.as_deref()).map(drop),
        Task::Dist { out, .. } => gpu::dist(&root, &out),
        Task::Deploy => deploy::check(&root),
        Task::GpuTest { prebuilt, out, together } => gpu::test(&root, prebuilt.as_deref(), &out, together),
        Task::GpuSanitize(args) => gpu::sanitize(&args),
        Task::Soak(args) => soak::soak(&args),
        Task::Fuzz { targets, seconds } => fuzz::run(&root, &targets, seconds),
        Task::Sanitize => fuzz::sanitize(&root),
        Task::Results { check } => results::run(&root, check),
        Task::Wheel(args) => wheel::run(&root, &args),
        Task::Bench { arguments } => bench::run(&root, &arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Folder of the workspace: the parent of this package's folder.
fn workspace_root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;
    use girih_documented::{Shown, shown};

    use super::*;
    use crate::listing::Listing;

    const INCOMPLETE: [ErrorKind; 2] =
        [ErrorKind::MissingRequiredArgument, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand];

    /// Error of a documented call of this program, if it has one.
    fn error_of(shown: &Shown) -> Option<String> {
        let words = std::iter::once("xtask").chain(shown.cargo("xtask")?.iter().map(String::as_str));
        match Cli::try_parse_from(words) {
            // Sentences may name this program, or a verb without what it requires.
            Err(error) if shown.block.is_none() && INCOMPLETE.contains(&error.kind()) => None,
            Err(error) if error.kind() == ErrorKind::DisplayHelp => None,
            Err(error) => Some(format!("{shown}\n{error}")),
            Ok(Cli { task: Task::Bench { arguments } }) => {
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                (!bench::parses(&arguments)).then(|| format!("{shown}: unknown arguments"))
            }
            Ok(_) => None,
        }
    }

    #[test]
    fn documented_commands_parse() {
        let all = shown();
        let wrong: Vec<String> = all.iter().filter_map(error_of).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(all.iter().filter(|shown| shown.cargo("xtask").is_some()).count() > 40, "the pages are elsewhere");
    }

    /// Target of cargo, by the flag and name that a page shows, that does not exist.
    fn missing_target(shown: &Shown, listing: &Listing) -> Option<String> {
        let words = shown.call("cargo")?.words;
        let value = |flags: &[&str]| words.windows(2).find(|two| flags.contains(&&*two[0])).map(|two| two[1].as_str());
        let package = value(&["-p", "--package"])?;
        let name = format!("\nname = \"{package}\"\n");
        let manifest = listing
            .files()
            .find(|file| file.path.ends_with("Cargo.toml") && file.text().is_some_and(|text| text.contains(&name)));
        let Some(manifest) = manifest else { return Some(format!("{shown}: no package {package}")) };
        let folder = manifest.path.trim_end_matches("Cargo.toml");
        let is_there = |kind: &str, name: &str| {
            [format!("{folder}{kind}/{name}.rs"), format!("{folder}{kind}/{name}/main.rs")]
                .iter()
                .any(|path| listing.exists(path))
        };
        let target = [("tests", value(&["--test"])), ("examples", value(&["--example"]))];
        let missing = target.into_iter().find(|(kind, name)| name.is_some_and(|name| !is_there(kind, name)));
        missing.map(|(kind, _)| format!("{shown}: no such file in {folder}{kind}"))
    }

    #[test]
    fn packages_and_targets_of_documented_calls_of_cargo_exist() {
        let listing = Listing::read(&workspace_root()).unwrap();
        let wrong: Vec<String> = shown().iter().filter_map(|shown| missing_target(shown, &listing)).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
