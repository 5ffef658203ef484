//! Checks of facts that can become outdated.
//!
//! Each check is a pure function from a [`Listing`] to [`Finding`]s:
//! - [`sources`]: module docs, leftovers, paths of one machine, registry hosts, sizes, data.
//! - [`manifests`]: inherited fields and lints, and allowed dependencies.
//! - [`architecture`]: the code map of `docs/ARCHITECTURE.md`, compared with the existing crates.
//! - [`links`]: relative links of Markdown files.
//! - [`lengths`]: lengths of files and functions, numbers of parameters.
//! - [`words`]: names and openings of doc comments, compared with `docs/glossary.md`.
//! - [`circles`]: import circles of files, and layers of modules, inside a crate.
//! - [`gpu_record`]: CUDA sources, compared with the record of their last run on a GPU.
//! - [`results`]: the pages of results, compared with the records of the benchmarks.

mod architecture;
mod circles;
mod finding;
pub mod gpu_record;
mod imports;
mod lengths;
mod links;
mod manifests;
mod results;
mod sources;
mod words;

use std::path::Path;

use self::finding::Finding;
use crate::listing::Listing;

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
    let checks: [fn(&Listing) -> Vec<Finding>; 18] = [
        sources::module_docs,
        sources::leftovers,
        sources::machine_paths,
        sources::registry_hosts,
        sources::sizes,
        sources::data,
        manifests::check,
        architecture::check,
        links::check,
        words::words,
        words::names,
        words::openings,
        lengths::files,
        lengths::functions,
        circles::circles,
        circles::layers,
        gpu_record::check,
        results::check,
    ];
    let mut findings: Vec<Finding> = checks.iter().flat_map(|check| check(listing)).collect();
    findings.sort();
    findings
}
