//! `cargo xtask bench`: the harness of `benches/`, and what is made of its records.
//!
//! - [`papers`]: tables and figures of the four papers, beside girih's records.
//! - [`counts`]: instruction counts of the CPU kernels.
//! - [`page`]: the page `docs/bench.html`.
//! - Anything else is a suite: the harness is built in release and gets all arguments.

pub mod counts;
pub mod page;
mod papers;

use std::path::Path;
use std::time::Instant;

use crate::command;
use crate::listing::Listing;

const USAGE: &str = "\
Of records, without building the harness:
  cargo xtask bench paper [ID]    lists tables of the four papers, or prints one beside girih's records
  cargo xtask bench page [--check]  writes docs/bench.html from records, or compares it with them
Of instructions, under valgrind:
  cargo xtask bench counts [--baseline]  records counts of CPU kernels, or compares them with the record
";

/// Request of the arguments.
enum Request<'a> {
    /// A table of a paper, or the list of them.
    Papers(Option<&'a str>),
    /// The page, to write or to compare.
    Page { is_check: bool },
    /// Instruction counts.
    Counts(counts::Action),
    /// A suite with its options, for the harness.
    Suite,
}

impl<'a> Request<'a> {
    fn of(arguments: &[&'a str]) -> Result<Self, String> {
        match arguments {
            ["paper"] => Ok(Self::Papers(None)),
            ["paper", id] if !id.starts_with('-') => Ok(Self::Papers(Some(id))),
            ["page"] => Ok(Self::Page { is_check: false }),
            ["page", "--check"] => Ok(Self::Page { is_check: true }),
            ["counts"] => Ok(Self::Counts(counts::Action::Record)),
            ["counts", "--baseline"] => Ok(Self::Counts(counts::Action::Compare)),
            ["paper" | "page" | "counts", ..] => Err(format!("unknown arguments\n{USAGE}")),
            _ => Ok(Self::Suite),
        }
    }
}

/// Whether the arguments are right; those of suites, which the harness parses, always are.
#[cfg(test)]
pub fn parses(arguments: &[&str]) -> bool {
    Request::of(arguments).is_ok()
}

/// Runs what the first argument names.
///
/// # Errors
/// When an argument is unknown, or the command fails.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match Request::of(&arguments)? {
        Request::Papers(id) => papers::run(&Listing::read(root)?, id),
        Request::Page { is_check } => page::run(root, is_check),
        Request::Counts(action) => counts::run(root, action),
        Request::Suite => {
            if arguments.iter().any(|argument| ["-h", "--help"].contains(argument)) {
                println!("{USAGE}");
            }
            harness(root, &arguments)
        }
    }
}

/// Builds the harness in release, and runs it with `arguments`. The time of the build is told apart.
fn harness(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let of_harness = ["--release", "--quiet", "--package", "girih-benches"];
    let start = Instant::now();
    command::cargo(root, &[&["build"], &of_harness[..]].concat(), &[])?;
    eprintln!("the harness is there after {:.0} s, which no other time contains", start.elapsed().as_secs_f64());
    command::cargo(root, &[&["run"], &of_harness[..], &["--"], arguments].concat(), &[])
}
