//! Laws of parts of the program that no run shows in full. They call [`girih_cli::internals`].

mod args;
mod context;
mod foreign;
mod help;
mod output;
mod plan;
mod plots;
mod session;
mod words;

use girih_cli::internals::args::{Cli, Command};

/// Command of a line whose words have no spaces.
fn parsed(line: &str) -> Result<Command, clap::Error> {
    Cli::parse_line(line.split_whitespace()).map(|cli| cli.command)
}
