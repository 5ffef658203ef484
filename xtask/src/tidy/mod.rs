//! Checks of facts that can become outdated.
//!
//! Each check is a pure function from a [`Listing`] to [`Finding`]s:
//! - [`sources`]: module docs, leftovers, paths of one machine, registry hosts, sizes, data.
//! - [`manifests`]: inherited fields and lints, and allowed dependencies.
//! - [`architecture`]: the code map of `docs/ARCHITECTURE.md`, compared with the existing crates.
//! - [`links`]: relative links of Markdown files.
//! - [`lengths`]: lengths of files and functions, numbers of parameters.
//! - [`words`]: names and openings of doc comments, compared with `docs/glossary.md`.
//! - [`gpu_record`]: CUDA sources, compared with the record of their last run on a GPU.

mod architecture;
pub mod gpu_record;
mod lengths;
mod links;
mod manifests;
mod sources;
mod words;

use std::fmt;
use std::path::Path;

use crate::listing::Listing;

/// Outdated fact, with its place and a remedy.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    path: String,
    line: usize,
    what: String,
    remedy: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, what, remedy } = self;
        write!(f, "{path}:{line}: {what}; {remedy}")
    }
}

/// Checks the tree below `root` and prints the findings.
///
/// # Errors
/// When there is a finding, or the tree cannot be read.
pub fn run(root: &Path) -> Result<(), String> {
    let listing = Listing::read(root)?;
    let findings = check(&listing);
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("tidy: {} files, nothing found", listing.files().count());
            Ok(())
        }
        n => Err(format!("tidy: {n} findings")),
    }
}

fn check(listing: &Listing) -> Vec<Finding> {
    let checks: [fn(&Listing) -> Vec<Finding>; 14] = [
        sources::module_docs,
        sources::leftovers,
        sources::machine_paths,
        sources::registry_hosts,
        sources::sizes,
        sources::data,
        manifests::check,
        architecture::check,
        links::check,
        words::names,
        words::openings,
        lengths::files,
        lengths::functions,
        gpu_record::check,
    ];
    let mut findings: Vec<Finding> = checks.iter().flat_map(|check| check(listing)).collect();
    findings.sort();
    findings
}

/// Number, from 1, of the first line that contains `needle`; 1 if no line does.
fn line_of(text: &str, needle: &str) -> usize {
    text.lines().position(|line| line.contains(needle)).map_or(1, |at| at + 1)
}
