//! The command line `girih`: its program calls [`run`], and its tests reach [`internals`]. Nothing else depends on this
//! library, and no interface of it is promised.
//!
//! - [`args`]: commands and flags.
//! - [`commands`]: one module a command.
//! - [`plan`]: predictions of memory and time, for commands.
//! - [`context`]: data, devices, ranks and settings that commands share.
//! - [`output`]: tables for people, JSON lines for programs.
//! - [`page`]: self-contained pages with charts.
//! - [`messages`]: errors, warnings and notes.
//! - [`internals`]: items for tests.
//!
//! Everything that computes lives in the libraries; this crate parses, reports and writes files.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod context;
mod curves;
mod dates;
mod error;
mod history;
pub mod internals;
mod interrupt;
mod messages;
mod output;
mod page;
mod paths;
mod plan;
mod plots;
mod point;
mod progress;
mod scores;
mod shell;
mod sizes;
mod table;
mod tensorboard;

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;

use girih_graph_format::file::{check_files_at_end, mapped_file_at};

use crate::args::Cli;

/// Exit status of a failed command.
const FAILURE: u8 = 1;
/// Exit status of wrong usage, as in clap.
const USAGE_ERROR: u8 = 2;

/// Runs the command line of this process. Returns its exit status.
pub fn run() -> ExitCode {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    girih_machine::fix_heap_bounds();
    let words: Vec<OsString> = std::env::args_os().collect();
    // Applies to a launched command as well, and before the command line is parsed.
    let json = words.iter().any(|word| word == "--json");
    let cli = match Cli::parse_line(&words) {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(messages::of_clap(&error, json)),
    };
    messages::start(cli.messages, json);
    #[cfg(target_os = "linux")]
    {
        girih_machine::explain_bus_errors(mapped_file_at, json);
        girih_machine::ignore_file_size_signal();
    }
    let ended = catch_unwind(AssertUnwindSafe(|| commands::run(cli.command)));
    // A failure after a file in use has changed is caused by that change.
    let outcome = match (check_files_at_end(), ended) {
        (Err(changed), _) => Err(changed.into()),
        (Ok(()), Ok(outcome)) => outcome.and_then(|code| output::check_printed().map(|()| code)),
        (Ok(()), Err(panic)) => resume_unwind(panic),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            let status = if error.is_usage() { USAGE_ERROR } else { FAILURE };
            let is_told = context::launched::has_to_say(&error);
            messages::error(error, (json, is_told), status);
            ExitCode::from(status)
        }
    }
}
