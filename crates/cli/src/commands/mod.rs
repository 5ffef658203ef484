//! Commands, one module each.

mod compare;
mod completions;
mod compress;
mod convert;
pub mod doctor;
mod embed;
mod evaluate;
mod launch;
mod partition;
mod predict;
mod reorder;
mod sample;
mod serve;
mod stats;
pub mod train;
mod verify;
mod weights;

use std::process::ExitCode;

use crate::args::Command;
use crate::context::device;
use crate::error::CliError;
use crate::interrupt;

/// Runs a command. Returns its exit status; for a launcher, that of its processes.
pub fn run(command: Command) -> Result<ExitCode, CliError> {
    // The launcher handles signals itself, for the processes that it starts.
    if !matches!(command, Command::Launch(_)) {
        interrupt::catch()?;
        device::start_threads(command.threads())?;
    }
    let done = match command {
        Command::Launch(args) => return launch::run(&args),
        Command::Train(args) => return train::run(&args),
        Command::Evaluate(args) => evaluate::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Embed(args) => embed::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Export(args) => weights::export(&args),
        Command::Import(args) => weights::import(&args),
        Command::Compare(args) => compare::run(&args),
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
