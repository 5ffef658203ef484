//! Commands, one module each.

mod apply;
mod completions;
mod compress;
mod convert;
mod device;
mod doctor;
mod gpus;
mod launch;
mod layouts;
mod memory;
mod ordering;
mod partition;
mod plan;
mod planned;
mod ranks;
mod reading;
mod reorder;
mod sample;
mod sharing;
mod stats;
mod train;
mod verify;

use std::process::ExitCode;

pub use self::launch::{has_to_say, is_launched};

use girih_datasets::{Dataset, LoadOptions, load};
use girih_partition::ProcessGrid;

use crate::args::{Command, DEFAULT_DATA, DataArgs, PartitionChoice, PartitionKind};
use crate::error::CliError;
use crate::interrupt;

/// Runs a command. Returns its exit status; for a launcher, that of its processes.
pub fn run(command: Command) -> Result<ExitCode, CliError> {
    // The launcher handles signals itself, for the processes that it starts.
    if !matches!(command, Command::Launch(_)) {
        interrupt::catch()?;
    }
    let done = match command {
        Command::Launch(args) => return launch::run(&args),
        Command::Train(args) => return train::run(&args),
        Command::Evaluate(args) => apply::evaluate(&args),
        Command::Predict(args) => apply::predict(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Reorder(args) => reorder::run(&args),
        Command::Partition(args) => partition::run(&args),
        Command::Sample(args) => sample::run(&args),
        Command::Compress(args) => compress::compress(&args),
        Command::Decompress(args) => compress::decompress(&args),
        Command::Generate(args) => convert::generate(&args),
        Command::Convert(args) => convert::convert(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Doctor(args) => doctor::run(args.output),
        Command::Completions(args) => completions::run(&args),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Loads the data of `--data`; only `train` has default data.
fn load_required(data: &DataArgs, options: &LoadOptions) -> Result<Dataset, CliError> {
    Ok(load(required(data)?, options)?)
}

/// As [`load_required`], with warnings about unused or doubtful data.
fn load_with_warnings(data: &DataArgs, options: &LoadOptions) -> Result<Dataset, CliError> {
    let dataset = load_required(data, options)?;
    reading::warn_of(&dataset.notes);
    Ok(dataset)
}

/// Refuses to write data whose checksums were not verified: the copy would get new checksums.
fn refuse_unverified(data: &DataArgs) -> Result<(), CliError> {
    if !data.no_verify {
        return Ok(());
    }
    Err(CliError::Usage(
        "--no-verify has no use here: new checksums are written of what is read, which has to match its own; leave it out"
            .to_owned(),
    ))
}

/// SPEC given by `--data`.
fn required(data: &DataArgs) -> Result<&str, CliError> {
    let missing =
        || CliError::Usage(format!("no data is named: give a PATH or a generator, for instance {DEFAULT_DATA}"));
    data.data.as_deref().ok_or_else(missing)
}

/// Process grid that the flags describe.
fn process_grid(kind: &PartitionKind, ranks: u16) -> Result<ProcessGrid, CliError> {
    let PartitionChoice::Of(scheme) = kind.partition else {
        return Err(CliError::Usage("--partition auto is for girih train: give 1d, 1.5d, 2d or 3d here".to_owned()));
    };
    let grid = ProcessGrid::new(scheme, usize::from(ranks), kind.replication);
    grid.map_err(|error| CliError::Usage(error.to_string()))
}
