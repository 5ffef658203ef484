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
mod output;
mod report;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::args::Cli;

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_logging();
    match commands::run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{:?}", miette::Report::new(error));
            ExitCode::FAILURE
        }
    }
}

/// Logs go to standard error; `GIRIH_LOG=debug` shows more of them.
fn start_logging() {
    let filter = EnvFilter::try_from_env("GIRIH_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    let terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(terminal)
        .without_time()
        .init();
}
