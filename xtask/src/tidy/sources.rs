//! Rules that apply to each file separately.

use super::finding::Finding;
use crate::listing::{File, Listing};

/// Maximum size of a file in the source tree.
const BYTES_MAX: usize = 512 << 10;

/// Marks of unfinished code. They are assembled from parts, so that this file may contain them.
const LEFTOVERS: [&str; 4] =
    [concat!("to", "do!("), concat!("unimpl", "emented!("), concat!("db", "g!("), concat!("#[ig", "nore")];

/// Folders that exist on one machine only.
const MACHINE_FOLDERS: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/op", "t/"), TEMPORARY_FOLDER];
/// Folder that tests may name: no test writes there by name.
const TEMPORARY_FOLDER: &str = concat!("/tm", "p/");

/// Hosts of package registries. Many machines use mirrors, so no file may require a registry.
const REGISTRY_HOSTS: [&str; 5] = [
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("npmjs", ".org"),
    concat!("proxy.golang", ".org"),
];

/// Folder of reference results that other programs computed: small files, with the script that made them.
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

/// Checks that every Rust file opens with its purpose.
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

/// Checks that no Rust file contains unfinished or disabled code.
pub fn leftovers(listing: &Listing) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, number, line) in listing.with_extension("rs").flat_map(lines) {
        for word in LEFTOVERS.iter().filter(|word| line.contains(**word)) {
            findings.push(Finding::new(&file.path, number, format!("found `{word}`"), "finish it or take it out"));
        }
    }
    findings
}

/// Checks that no file names a folder of one machine.
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

/// Checks that no file but lock files names a package registry.
pub fn registry_hosts(listing: &Listing) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_lock = |file: &&File| file.path.rsplit('/').next() == Some("Cargo.lock");
    for (file, number, line) in listing.files().filter(|file| !is_lock(file)).flat_map(lines) {
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

/// Checks that no file is larger than [`BYTES_MAX`].
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

/// Checks that no data, model or build product is in the tree. Reference results for tests are in [`GOLDEN_FOLDER`].
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

/// Lines of a text file with their numbers, from 1; none for other files.
fn lines(file: &File) -> impl Iterator<Item = (&File, usize, &str)> {
    file.text().unwrap_or_default().lines().enumerate().map(move |(at, line)| (file, at + 1, line))
}

/// Whether `line` contains `folder` at the start of a path, not inside a longer path or a web address.
fn names_folder(line: &str, folder: &str) -> bool {
    let starts_path = |before: char| !(before.is_alphanumeric() || "._-/~$}>*".contains(before));
    line.match_indices(folder).any(|(at, _)| line[..at].chars().next_back().is_none_or(starts_path))
}

/// Whether a line belongs to tests, by the path of its file or after the file's `#[cfg(test)]`.
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
    fn registry_hosts_are_found_except_in_lock_files() {
        let text = REGISTRY_HOSTS.join("\n");
        let files = [("Cargo.lock", &*text), ("examples/own/Cargo.lock", &text), ("deny.toml", &text)];
        let found = registry_hosts(&Listing::of(&files));
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
