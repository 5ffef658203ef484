//! Rules for every file by itself.

use super::Finding;
use crate::listing::{File, Listing};

/// The largest file that belongs into a source tree.
const BYTES_MAX: usize = 512 << 10;

/// What was meant to be finished before it was committed. Assembled, so that this file may name them.
const LEFTOVERS: [&str; 4] =
    [concat!("to", "do!("), concat!("unimpl", "emented!("), concat!("db", "g!("), concat!("#[ig", "nore")];

/// Folders that exist on one machine only.
const MACHINE_FOLDERS: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/op", "t/"), TEMPORARY_FOLDER];
/// Tests may name this one: nothing is ever written there by name.
const TEMPORARY_FOLDER: &str = concat!("/tm", "p/");

/// Hosts of package registries: mirrors stand in for them on many machines, so nothing may insist on one.
const REGISTRY_HOSTS: [&str; 5] = [
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("npmjs", ".org"),
    concat!("proxy.golang", ".org"),
];

/// What other programs computed, for tests to compare with: small files with the script that made them.
const GOLDEN_FOLDER: &str = "tests/golden/";
/// Extensions of data, models and build products.
const DATA_EXTENSIONS: [&str; 18] = [
    "npy",
    "npz",
    "zip",
    "gz",
    "tar",
    "mtx",
    "graph",
    "safetensors",
    "pt",
    "pth",
    "pkl",
    "parquet",
    "h5",
    "bin",
    "so",
    "o",
    "ptx",
    "cubin",
];

/// Every Rust file opens with what it is for.
pub fn module_docs(listing: &Listing) -> Vec<Finding> {
    let undocumented = |file: &&File| !file.text().is_some_and(|text| text.starts_with("//!"));
    listing
        .with_extension("rs")
        .filter(undocumented)
        .map(|file| {
            Finding::new(
                &file.path,
                1,
                "the file does not start with `//!`",
                "say in a sentence what the module is for",
            )
        })
        .collect()
}

/// No Rust file holds unfinished or switched-off code.
pub fn leftovers(listing: &Listing) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, number, line) in listing.with_extension("rs").flat_map(lines) {
        for word in LEFTOVERS.iter().filter(|word| line.contains(**word)) {
            findings.push(Finding::new(&file.path, number, format!("found `{word}`"), "finish it or take it out"));
        }
    }
    findings
}

/// No file names a folder of somebody's machine.
pub fn machine_paths(listing: &Listing) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in listing.files() {
        for (_, number, line) in lines(file) {
            let tested = || is_test(file, number);
            let named = MACHINE_FOLDERS
                .iter()
                .find(|folder| names_folder(line, folder) && (**folder != TEMPORARY_FOLDER || !tested()));
            if let Some(folder) = named {
                let what = format!("names the folder `{folder}`, which other machines lack");
                findings.push(Finding::new(&file.path, number, what, "use a relative path or an environment variable"));
            }
        }
    }
    findings
}

/// No file but the lock file names a package registry.
pub fn registry_hosts(listing: &Listing) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, number, line) in listing.files().filter(|file| file.path != "Cargo.lock").flat_map(lines) {
        if let Some(host) = REGISTRY_HOSTS.iter().find(|host| line.contains(**host)) {
            let what = format!("names the package registry `{host}`");
            findings.push(Finding::new(
                &file.path,
                number,
                what,
                "leave the choice of registry to the machine's settings",
            ));
        }
    }
    findings
}

/// No file is larger than [`BYTES_MAX`].
pub fn sizes(listing: &Listing) -> Vec<Finding> {
    let large = |file: &&File| file.bytes.len() > BYTES_MAX;
    listing
        .files()
        .filter(large)
        .map(|file| {
            let what = format!("{} bytes, more than the limit of {BYTES_MAX}", file.bytes.len());
            Finding::new(&file.path, 1, what, "keep it out of the tree and say where to get it")
        })
        .collect()
}

/// No data, model or build product is part of the tree; results that tests compare with lie in [`GOLDEN_FOLDER`].
pub fn data(listing: &Listing) -> Vec<Finding> {
    let is_golden = |file: &File| file.path.starts_with(GOLDEN_FOLDER);
    let is_data = |file: &&File| DATA_EXTENSIONS.contains(&file.extension()) && !is_golden(file);
    listing
        .files()
        .filter(is_data)
        .map(|file| {
            let what = format!("a .{} file is data or a build product", file.extension());
            Finding::new(&file.path, 1, what, "generate it where it is needed, or ignore it")
        })
        .collect()
}

/// The lines of a text file with their numbers from 1; none for other files.
fn lines(file: &File) -> impl Iterator<Item = (&File, usize, &str)> {
    file.text().unwrap_or_default().lines().enumerate().map(move |(at, line)| (file, at + 1, line))
}

/// Whether `line` has `folder` at the start of a path, not inside a longer one or a web address.
fn names_folder(line: &str, folder: &str) -> bool {
    let starts_path = |before: char| !(before.is_alphanumeric() || "._-/~$}>*".contains(before));
    line.match_indices(folder).any(|(at, _)| line[..at].chars().next_back().is_none_or(starts_path))
}

/// Whether a line belongs to tests: by its file's place, or below the file's `#[cfg(test)]`.
fn is_test(file: &File, number: usize) -> bool {
    let parts: Vec<&str> = file.path.split('/').collect();
    let by_place = parts.iter().any(|part| *part == "tests" || *part == "tests.rs");
    by_place || lines(file).any(|(_, n, line)| n < number && line.trim() == "#[cfg(test)]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_without_docs_is_found() {
        let listing = Listing::of(&[("a.rs", "//! A.\n"), ("b.rs", "fn b() {}\n"), ("c.md", "")]);
        let found = module_docs(&listing);
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().starts_with("b.rs:1: "));
    }

    #[test]
    fn every_leftover_is_found_with_its_line() {
        let text = format!("//! A.\n{}\n", LEFTOVERS.join("\n"));
        let found = leftovers(&Listing::of(&[("a.rs", &text), ("a.md", &text)]));
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [2, 3, 4, 5]);
    }

    #[test]
    fn machine_paths_are_found_but_web_addresses_and_longer_paths_are_not() {
        let [first, ..] = MACHINE_FOLDERS;
        let text = format!("see `{first}x`\nhttps://example.com{first}x\n..{first}x\n");
        let found = machine_paths(&Listing::of(&[("a.md", &text)]));
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn only_tests_name_the_temporary_folder() {
        let line = format!("let path = \"{TEMPORARY_FOLDER}x\";\n");
        let unit = format!("{line}#[cfg(test)]\n{line}");
        let found = machine_paths(&Listing::of(&[("src/a.rs", &unit), ("tests/b.rs", &line), ("src/tests.rs", &line)]));
        assert_eq!(found.iter().map(|f| (f.path.as_str(), f.line)).collect::<Vec<_>>(), [("src/a.rs", 1)]);
    }

    #[test]
    fn registry_hosts_are_found_except_in_the_lock_file() {
        let text = REGISTRY_HOSTS.join("\n");
        let found = registry_hosts(&Listing::of(&[("Cargo.lock", &text), ("deny.toml", &text)]));
        assert_eq!(found.len(), REGISTRY_HOSTS.len());
        assert!(found.iter().all(|f| f.path == "deny.toml"));
    }

    #[test]
    fn large_files_and_data_are_found() {
        let large = "x".repeat(BYTES_MAX + 1);
        let listing = Listing::of(&[
            ("a.txt", &large[..BYTES_MAX]),
            ("b.txt", &large),
            ("x.npy", ""),
            ("tests/golden/y.npy", ""),
        ]);
        assert_eq!(sizes(&listing).len(), 1);
        assert_eq!(data(&listing).iter().map(|f| f.path.as_str()).collect::<Vec<_>>(), ["x.npy"]);
    }
}
