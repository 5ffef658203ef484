//! `girih verify`: compares files with their checksums, stored in them or in their folder.

use std::path::{Path, PathBuf};
use std::time::Instant;

use girih_compress::CompressedFeatures;
use girih_graph_format::file::{Folder, MANIFEST, Verify};
use girih_machine::readable_bytes;
use girih_trainer::Checkpoint;

use crate::args::VerifyArgs;
use crate::context::trained::checkpoints_in;
use crate::error::CliError;
use crate::output::{Results, under_spinner};

/// Files with checksums.
enum Found {
    /// Folder with a manifest.
    Folder(PathBuf),
    /// Store of compressed features.
    Store(PathBuf),
    /// Checkpoint of a training session.
    Checkpoint(PathBuf),
}

/// Compares everything at the path that has a checksum.
pub fn run(args: &VerifyArgs) -> Result<(), CliError> {
    let found = find(&args.path)?;
    let start = Instant::now();
    let sizes = under_spinner("comparing checksums", args.output, || {
        found.iter().map(Found::verify).collect::<Result<Vec<u64>, CliError>>()
    })?;
    let (n_bytes, seconds) = (sizes.iter().sum::<u64>(), start.elapsed().as_secs_f64());
    let kinds: Vec<String> = found.iter().map(Found::describe).collect();
    let rate = n_bytes as f64 / seconds.max(f64::MIN_POSITIVE);
    let mut results = Results::default();
    results
        .add("path", args.path.display().to_string(), "Path", args.path.display().to_string())
        .add("verified", kinds.clone(), "Checksums match", kinds.join(", "))
        .add("bytes", n_bytes, "Bytes", readable_bytes(n_bytes))
        .add("seconds", seconds, "Seconds", format!("{seconds:.2}"))
        .add_hidden("bytes_per_second", rate);
    results.print(args.output.json);
    Ok(())
}

/// Finds files with checksums at a path.
///
/// # Errors
/// When there are none.
fn find(path: &Path) -> Result<Vec<Found>, CliError> {
    let extension = |path: &Path| path.extension().map(|e| e.to_ascii_lowercase()).unwrap_or_default();
    let mut found = Vec::new();
    if path.is_dir() {
        if path.join(MANIFEST).is_file() {
            found.push(Found::Folder(path.to_owned()));
        }
        found.extend(stores_in(path)?.into_iter().map(Found::Store));
        found.extend(checkpoints_in(path)?.into_iter().map(Found::Checkpoint));
    } else if extension(path) == "safetensors" {
        found.push(Found::Checkpoint(path.to_owned()));
    } else {
        std::fs::metadata(path).map_err(|error| CliError::io(path, error))?;
        if extension(path) == "codes" {
            found.push(Found::Store(path.to_owned()));
        }
    }
    if found.is_empty() {
        return Err(CliError::Other(format!(
            "{}: nothing here has checksums; girih folders, stores of codes and checkpoints have, and `girih convert \
             PATH --out DIR` makes a girih folder",
            path.display()
        )));
    }
    Ok(found)
}

/// Stores of codes in a folder: of all nodes, or of a node type each.
fn stores_in(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let failed = |error| CliError::io(folder, error);
    let mut stores = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_file() && path.extension().is_some_and(|ending| ending == "codes") {
            stores.push(path);
        }
    }
    stores.sort();
    Ok(stores)
}

impl Found {
    /// Verifies the checksums. Returns the number of bytes read.
    fn verify(&self) -> Result<u64, CliError> {
        let size = |path: &Path| std::fs::metadata(path).map(|file| file.len()).map_err(|e| CliError::io(path, e));
        match self {
            Self::Folder(path) => Ok(Folder::open(path, Verify::Full)?.n_bytes()),
            Self::Store(path) => {
                CompressedFeatures::open(path, Verify::Full)?;
                size(path)
            }
            Self::Checkpoint(path) => {
                Checkpoint::load(path)?;
                size(path)
            }
        }
    }

    fn describe(&self) -> String {
        let name = |path: &Path| path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        match self {
            Self::Folder(_) => format!("arrays of {MANIFEST}"),
            Self::Store(path) | Self::Checkpoint(path) => name(path),
        }
    }
}
