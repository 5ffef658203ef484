//! Girih's own format: a folder of `.npy` arrays and one manifest with their sizes and checksums.
//!
//! ```text
//! graph/girih.toml      format, version, [arrays.NAME] bytes and crc32, one section per kind of content
//! graph/indptr.npy      int64, n_rows + 1
//! graph/indices.npy     int32, nnz
//! graph/values.npy      float32, nnz; absent when every entry is one
//! ```
//! Any tool that reads `.npy` can read it; girih maps it, so that opening takes no memory. Other crates add arrays
//! and sections of their own: a dataset is a graph's folder with added features, labels and splits.

mod read;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::FormatError;

pub use read::{Folder, GraphSizes, Verify};
pub use write::{ArrayWriter, FolderWriter};

/// Name of the manifest: a folder that holds one is girih's.
pub const MANIFEST: &str = "girih.toml";
/// Version of the format that this code reads and writes.
pub const FOLDER_VERSION: u32 = 1;
const _: () = assert!(FOLDER_VERSION == 1, "docs/formats.md describes version 1");

const FORMAT: &str = "girih-folder";
const GRAPH_SECTION: &str = "graph";
const INDPTR: &str = "indptr";
const INDICES: &str = "indices";
const VALUES: &str = "values";

/// One array in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// Size of the `.npy` file.
    bytes: u64,
    /// CRC-32 (IEEE) of the whole file.
    crc32: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    format: String,
    version: u32,
    arrays: BTreeMap<String, Entry>,
    /// Sections, one table per kind of content, which give the arrays their meaning.
    #[serde(flatten)]
    sections: toml::Table,
}

/// Section of a graph in the manifest.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GraphSection {
    n_rows: usize,
    n_cols: usize,
    nnz: usize,
    weighted: bool,
}

fn parse_manifest(text: &str) -> Result<Manifest, FormatError> {
    let damaged = |e: toml::de::Error| FormatError::corrupt(format!("unreadable manifest: {}", e.message()));
    let table: toml::Table = text.parse().map_err(damaged)?;
    if table.get("format").and_then(toml::Value::as_str) != Some(FORMAT) {
        return Err(FormatError::corrupt(format!("not a manifest: the key `format` is not {FORMAT:?}")));
    }
    // The version is checked first: another version may have other keys.
    match table.get("version").and_then(toml::Value::as_integer) {
        Some(version) if version == i64::from(FOLDER_VERSION) => {}
        Some(version) => {
            return Err(FormatError::invalid(format!(
                "the folder has version {version}, this program reads version {FOLDER_VERSION}; convert the data again \
                 or use the program that wrote it"
            )));
        }
        None => return Err(FormatError::corrupt("the manifest has no `version`")),
    }
    let manifest: Manifest = table.try_into().map_err(damaged)?;
    match manifest.arrays.keys().find(|name| !is_name(name)) {
        Some(name) => Err(FormatError::corrupt(format!("{name:?} cannot name an array"))),
        None => Ok(manifest),
    }
}

/// Whether a name is a valid file name on every system and stays inside the folder.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
}

/// Path of the array `name`.
fn array_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.npy"))
}
