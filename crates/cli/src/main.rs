//! The command line `girih`.
//!
//! - [`args`]: what a user can write.
//! - [`commands`]: one module a command.
//! - [`output`]: tables for people, JSON lines for programs.
//!
//! Everything that computes lives in the libraries; this crate parses, reports and writes files.

mod args;
mod commands;
mod error;
mod history;
mod interrupt;
mod notes;
mod output;
mod paths;
mod plots;
mod report;
mod scores;
mod sizes;

use std::process::ExitCode;

use clap::Parser;
use miette::MietteHandlerOpts;
use tracing_subscriber::EnvFilter;

use crate::args::Cli;

/// Exit status of a command line that cannot be meant, as clap has it.
const USAGE_ERROR: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Paths in messages stay whole, so that they can be copied.
    let handler = |_: &_| Box::new(MietteHandlerOpts::new().wrap_lines(false).break_words(false).build()) as Box<_>;
    miette::set_hook(Box::new(handler)).expect("the first hook");
    start_logging();
    match commands::run(cli.command).and_then(|code| output::check_printed().map(|()| code)) {
        Ok(code) => code,
        Err(error) => {
            let code = if error.is_usage() { ExitCode::from(USAGE_ERROR) } else { ExitCode::FAILURE };
            if commands::has_to_say(&error) {
                eprintln!("{:?}", miette::Report::new(error));
            }
            code
        }
    }
}

/// Logs go to standard error; `GIRIH_LOG=debug` shows more of them.
fn start_logging() {
    let filter = EnvFilter::try_from_env("GIRIH_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time()
        .init();
}
