//! Measurements on disk: each is measured once and read from then on.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use girih_graph_format::FormatError;
use girih_graph_format::file::write_file;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Returns the measurement with the name `of` from disk. If there is none, calls `measure` and writes its result to
/// disk; a failed write is ignored.
///
/// # Errors
/// Errors of `measure`.
pub fn load_or_measure<T: Serialize + DeserializeOwned, E>(
    of: &str,
    measure: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    kept_in(path_of(of).as_deref(), measure)
}

/// Replaces the measurement with the name `of` on disk; a failed write is ignored.
pub fn keep(of: &str, measured: &impl Serialize) {
    if let Some(path) = path_of(of) {
        write_if_possible(&path, measured);
    }
}

fn path_of(of: &str) -> Option<PathBuf> {
    girih_machine::cache_folder("figures").map(|folder| folder.join(file_name(of)))
}

fn kept_in<T: Serialize + DeserializeOwned, E>(
    path: Option<&Path>,
    measure: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let read = |path: &Path| serde_json::from_str(&fs::read_to_string(path).ok()?).ok();
    if let Some(found) = path.and_then(read) {
        return Ok(found);
    }
    let measured = measure()?;
    if let Some(path) = path {
        write_if_possible(path, &measured);
    }
    Ok(measured)
}

fn write_if_possible(path: &Path, measured: &impl Serialize) {
    if let Err(error) = write(path, measured) {
        tracing::debug!("measurements are not kept in {}: {error}", path.display());
    }
}

fn write(path: &Path, figures: &impl Serialize) -> Result<(), FormatError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let text = serde_json::to_string_pretty(figures).map_err(io::Error::from)?;
    // Written atomically, since other processes may read at this time.
    write_file(path, |out| Ok(out.write_all(text.as_bytes())?))
}

/// File name of a measurement: its letters and digits, and a short hash so that different names stay different.
fn file_name(of: &str) -> PathBuf {
    let plain: String = of.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let hash = of.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    PathBuf::from(format!("{plain}-{hash:016x}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PlannerError;

    #[test]
    fn kept_values_are_not_measured_again_but_damaged_ones_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below").join("a.json");
        let measured = |value: f64| move || Ok::<_, PlannerError>(value);
        assert_eq!(kept_in(Some(&path), measured(1.0)).unwrap(), 1.0);
        assert_eq!(kept_in(Some(&path), measured(2.0)).unwrap(), 1.0);
        fs::write(&path, "1.").unwrap();
        assert_eq!(kept_in(Some(&path), measured(3.0)).unwrap(), 3.0);
        assert_eq!(kept_in(None, measured(4.0)).unwrap(), 4.0);
        let refused = || -> Result<f64, PlannerError> { Err(PlannerError::Measure("no".to_owned())) };
        assert!(kept_in(None, refused).is_err());
    }

    #[test]
    fn names_of_files_differ_as_what_they_stand_for() {
        assert_ne!(file_name("a b"), file_name("a-b"));
        assert!(file_name("NVIDIA H200, 4").to_string_lossy().starts_with("NVIDIA-H200--4-"));
    }
}
