//! Compares CUDA sources with the record of their last run on a GPU.
//!
//! Continuous integration has no GPU. The run on a GPU therefore stores the SHA-256 of the code of every source in
//! [`RECORD`] (`{"sources": {"crates/kernels/cuda/spmm.cu": "9f86…"}}`, among others). This check finds sources whose code has
//! changed since. Lines that contain only a comment are not code, so comments can be edited without a GPU. Without
//! CUDA sources there is nothing to check.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::finding::Finding;
use crate::listing::{File, Listing};

/// Record that the test run on a GPU writes.
const RECORD: &str = "benches/record/gpu-verified.json";
const REMEDY: &str = "run the tests on a GPU again and commit the new record";

#[derive(Deserialize)]
struct Record {
    sources: BTreeMap<String, String>,
}

/// Checks that the current code of every CUDA source and wrapper has run on a GPU.
pub fn check(listing: &Listing) -> Vec<Finding> {
    let sources: Vec<&File> = listing.files().filter(is_verified_source).collect();
    if !sources.iter().any(|file| file.extension() == "cu") {
        return Vec::new();
    }
    match listing.text(RECORD).map(serde_json::from_str::<Record>) {
        None => vec![Finding::new(RECORD, 1, "there are CUDA sources but no record of a run on a GPU", REMEDY)],
        Some(Err(e)) => vec![Finding::new(RECORD, e.line(), format!("not a record: {e}"), REMEDY)],
        Some(Ok(record)) => compare(&sources, &record),
    }
}

/// Hashes of all CUDA sources and wrappers, by path.
pub fn hashes(listing: &Listing) -> BTreeMap<String, String> {
    listing.files().filter(is_verified_source).map(|file| (file.path.clone(), hash_of_code(&file.bytes))).collect()
}

fn compare(sources: &[&File], record: &Record) -> Vec<Finding> {
    let changed = |file: &&&File| record.sources.get(&file.path) != Some(&hash_of_code(&file.bytes));
    let unverified = sources
        .iter()
        .filter(changed)
        .map(|file| Finding::new(&file.path, 1, "has not run on a GPU since it changed", REMEDY));
    let gone = record.sources.keys().filter(|path| !sources.iter().any(|file| file.path == **path));
    let recorded = gone.map(|path| Finding::new(RECORD, 1, format!("{path} is recorded but does not exist"), REMEDY));
    unverified.chain(recorded).collect()
}

/// Whether a file is a kernel, a kernel header, or part of the crate that launches kernels.
fn is_verified_source(file: &&File) -> bool {
    let is_kernel = file.path.starts_with("crates/kernels/cuda/") && matches!(file.extension(), "cu" | "cuh");
    let is_wrapper = file.path.starts_with("crates/kernels/src/") && file.extension() == "rs";
    is_kernel || is_wrapper
}

/// Hash of all lines that do not consist of a comment.
fn hash_of_code(bytes: &[u8]) -> String {
    let is_code = |line: &&[u8]| !line.trim_ascii_start().starts_with(b"//");
    sha256(&bytes.split_inclusive(|&byte| byte == b'\n').filter(is_code).collect::<Vec<_>>().concat())
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: (&str, &str) = ("crates/kernels/cuda/spmm.cu", "abc");
    const WRAPPER: (&str, &str) = ("crates/kernels/src/spmm.rs", "//! x");

    fn record(sources: &[(&str, &str)]) -> String {
        let entries: Vec<String> =
            sources.iter().map(|(path, text)| format!("\"{path}\": \"{}\"", hash_of_code(text.as_bytes()))).collect();
        format!("{{\"device\": \"any\", \"sources\": {{{}}}}}", entries.join(", "))
    }

    #[test]
    fn the_hash_is_sha_256() {
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn comments_may_change_and_code_may_not() {
        let code = hash_of_code(b"// old\nint x = 1; // one\n");
        assert_eq!(hash_of_code(b"// new\n    /// more\nint x = 1; // one\n"), code);
        assert_ne!(hash_of_code(b"// old\nint x = 2; // one\n"), code);
    }

    #[test]
    fn nothing_is_asked_without_cuda_sources() {
        assert!(check(&Listing::of(&[WRAPPER])).is_empty());
    }

    #[test]
    fn verified_sources_pass() {
        let text = record(&[KERNEL, WRAPPER]);
        assert!(check(&Listing::of(&[KERNEL, WRAPPER, (RECORD, &text)])).is_empty());
    }

    #[test]
    fn changed_new_and_removed_sources_are_found() {
        let text = record(&[("crates/kernels/cuda/spmm.cu", "old"), ("crates/kernels/cuda/gone.cuh", "x")]);
        let found: Vec<String> =
            check(&Listing::of(&[KERNEL, WRAPPER, (RECORD, &text)])).iter().map(Finding::to_string).collect();
        assert_eq!(found.len(), 3);
        assert!(
            found[0].starts_with(KERNEL.0) && found[1].starts_with(WRAPPER.0) && found[2].contains("gone.cuh"),
            "{found:?}"
        );
    }

    #[test]
    fn a_missing_or_broken_record_is_found() {
        assert_eq!(check(&Listing::of(&[KERNEL])).len(), 1);
        assert_eq!(check(&Listing::of(&[KERNEL, (RECORD, "{")])).len(), 1);
    }
}
