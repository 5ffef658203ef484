//! Measurements that decide how sums are ordered, on disk beside compiled kernels. The first process that measures
//! decides for all later runs.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use girih_machine::cache_folder;

use crate::compile::{Source, digest};

/// Measurement `of` something with kernels of these sources: the one on disk if it is `valid`, else the result of
/// `measure`. `None` if there is no folder to keep it in, or nothing is measured.
pub(crate) fn kept(
    of: &str,
    sources: &[Source],
    valid: impl Fn(&str) -> bool,
    measure: impl FnOnce() -> Option<String>,
) -> Option<String> {
    let path = cache_folder("measurements")?.join(digest(of, sources) + ".txt");
    let result = read(&path, &valid).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => publish(&path, measure).and_then(|()| read(&path, &valid)),
        _ => Err(error),
    });
    result.map_err(|error| tracing::debug!("no measurements in {}: {error}", path.display())).ok()
}

/// Reads a file. An invalid one is removed and counts as missing.
fn read(path: &Path, valid: impl Fn(&str) -> bool) -> io::Result<String> {
    let text = fs::read_to_string(path)?;
    if valid(&text) {
        return Ok(text);
    }
    fs::remove_file(path)?;
    Err(io::ErrorKind::NotFound.into())
}

/// Measures and writes the result. If another process has written one meanwhile, that one counts.
fn publish(path: &Path, measure: impl FnOnce() -> Option<String>) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let unfinished = path.with_extension(format!("{}-{number}", std::process::id()));
    // Checked before the measurement, which would be useless if nothing can be written.
    fs::write(&unfinished, "")?;
    let published = measure().map_or(Err(io::ErrorKind::NotFound.into()), |text| {
        fs::write(&unfinished, text)?;
        // Files appear whole, and never replace others.
        match fs::hard_link(&unfinished, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    });
    fs::remove_file(&unfinished)?;
    published
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_measurement_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below").join("a.txt");
        publish(&path, || {
            // Another process is faster.
            publish(&path, || Some("first".to_owned())).unwrap();
            Some("second".to_owned())
        })
        .unwrap();
        assert_eq!(read(&path, |_| true).unwrap(), "first");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing unfinished is left");
        assert!(publish(&folder.path().join("b.txt"), || None).is_err());
        assert!(!folder.path().join("b.txt").exists());
    }

    #[test]
    fn what_is_damaged_is_measured_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        fs::write(&path, "12").unwrap();
        assert_eq!(read(&path, |_| false).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!path.exists());
    }

    #[test]
    fn nothing_is_measured_where_nothing_can_be_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(publish(&file.join("a.txt"), || panic!("measured in vain")).is_err());
    }
}
