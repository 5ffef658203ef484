//! Shared helpers of the whole-system tests.

pub mod batches;
pub mod gpus;

use std::path::{Path, PathBuf};

use girih_compute::Cpu;
use girih_compute::testing::PIECE;
use girih_datasets::{LoadOptions, load};
use girih_kernels::{Cuda, Device};
use girih_trainer::{Control, Event, Observer, Outcome, SessionOptions, TrainConfig, TrainError};

/// Path of a real data set: below `GIRIH_DATA`, or below `shared/data` in an ancestor of this package. If it is
/// missing, reports that the test is skipped.
#[must_use]
pub fn real(name: &str) -> Option<PathBuf> {
    let from_environment = std::env::var_os("GIRIH_DATA").map(PathBuf::from);
    let ancestors = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|dir| dir.join("shared/data"));
    let found = from_environment.into_iter().chain(ancestors).map(|root| root.join(name)).find(|path| path.exists());
    if found.is_none() {
        println!("skipped: no {name} in shared/data or GIRIH_DATA");
    }
    found
}

/// First CUDA device. Without one, reports that the test is skipped.
///
/// # Panics
/// When there is none and `GIRIH_REQUIRE_GPU` is set: `cargo xtask gpu-test` sets it.
#[must_use]
pub fn cuda() -> Option<Cuda> {
    match Device::open(0) {
        Ok(device) => Some(Cuda::new(device)),
        Err(error) if std::env::var_os("GIRIH_REQUIRE_GPU").is_some() => panic!("{error}"),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

/// Whether [`PIECE`] selects cases, for a tool under which training takes a hundred times as long.
#[must_use]
pub fn in_pieces() -> bool {
    std::env::var_os(PIECE).is_some()
}

/// Trains all runs of `config` on the real data set `name`, on the CPU; `None` if the data are missing.
///
/// # Panics
/// When the data cannot be loaded or training fails.
#[must_use]
pub fn train_on_real(name: &str, config: &TrainConfig) -> Option<Outcome> {
    train_on_real_as(name, config, LoadOptions::default())
}

/// As [`train_on_real`], for data that is loaded with other options. Seed and number of splits are those of `config`.
///
/// # Panics
/// When the data cannot be loaded or training fails.
#[must_use]
pub fn train_on_real_as(name: &str, config: &TrainConfig, options: LoadOptions) -> Option<Outcome> {
    let path = real(name)?;
    let options = LoadOptions { seed: config.seed, n_splits: config.runs as usize, ..options };
    let dataset = load(path.to_str().expect("a path of Unicode"), &options).expect("a readable data set");
    let session = SessionOptions::default();
    let outcome = girih_trainer::train(&Cpu::new(), dataset, config, &session, &mut |_| Control::Continue);
    Some(outcome.expect("training succeeds"))
}

/// Training losses of all epochs. `train` runs the training with the given observer.
///
/// # Errors
/// When training fails.
pub fn losses_of(train: impl FnOnce(&mut Observer<'_>) -> Result<Outcome, TrainError>) -> Result<Vec<f32>, TrainError> {
    let mut losses = Vec::new();
    train(&mut |event: Event<'_>| {
        if let Event::Epoch { report, .. } = event {
            losses.push(report.train_loss);
        }
        Control::Continue
    })?;
    Ok(losses)
}

/// Mean test accuracy over the runs, each at its best validation epoch.
///
/// # Panics
/// When no run was scored on test nodes.
#[must_use]
pub fn mean_test_accuracy(outcome: &Outcome) -> f64 {
    outcome.over_runs(|run| run.best.test_accuracy).expect("test nodes were scored").mean
}

/// Program of the README of `girih-kernels`, which is tested here: each change of that crate needs a run on a GPU.
#[cfg(doctest)]
#[doc = include_str!("../../crates/kernels/README.md")]
pub struct KernelsReadme;
