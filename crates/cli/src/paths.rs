//! Checks of output paths before the work: matching file names and writable folders.

use std::path::{Path, PathBuf};

use crate::error::CliError;

/// Refuses a path that cannot be written, before long work; leaves no file behind.
///
/// # Errors
/// When the path is below a file, in a folder that is not writable, or has no file name, like `.`.
pub fn check(path: &Path) -> Result<(), CliError> {
    if path.file_name().is_none() {
        let message = "is a folder: give the name of a file, or of a new folder, in it";
        return Err(CliError::Other(format!("{}: {message}", path.display())));
    }
    let refuse = |folder: &Path, why: &str| {
        let message = format!("{}: cannot be written: {} {why}", path.display(), folder.display());
        Err(CliError::Other(format!("{message}; choose another path")))
    };
    let mut folders = path.ancestors().skip(1).map(here);
    let folder = folders.find(|folder| folder.exists()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return refuse(folder, "is a file");
    }
    match tempfile::tempfile_in(folder) {
        Ok(_) => Ok(()),
        Err(error) => refuse(folder, &format!("takes no files ({})", error.kind())),
    }
}

/// Creates the parent folders of a path.
///
/// # Errors
/// When one cannot be created.
pub fn make_parents(path: &Path) -> Result<(), CliError> {
    let parent = path.parent().map_or(Path::new("."), here);
    std::fs::create_dir_all(parent).map_err(|error| CliError::io(path, error))
}

/// The empty path stands for the current folder.
fn here(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

/// Accepts the name of a vector picture.
///
/// # Errors
/// When it has another extension.
pub fn svg(path: PathBuf) -> Result<PathBuf, String> {
    expect(&["svg"], path)
}

/// Accepts the name of a pixel picture.
///
/// # Errors
/// When it has another extension.
pub fn png(path: PathBuf) -> Result<PathBuf, String> {
    expect(&["png"], path)
}

/// Accepts the name of a page.
///
/// # Errors
/// When it has another extension.
pub fn html(path: PathBuf) -> Result<PathBuf, String> {
    expect(&["html"], path)
}

/// Accepts the name of an array.
///
/// # Errors
/// When it has another extension.
pub fn npy(path: PathBuf) -> Result<PathBuf, String> {
    expect(&["npy"], path)
}

/// Accepts the name of an array or of a table.
///
/// # Errors
/// When it has another extension.
pub fn npy_or_table(path: PathBuf) -> Result<PathBuf, String> {
    expect(&["npy", "csv", "tsv"], path)
}

/// Accepts the name of a timeline.
///
/// # Errors
/// When it has another extension.
pub fn json(path: PathBuf) -> Result<PathBuf, String> {
    expect(&["json"], path)
}

fn expect(extensions: &[&str], path: PathBuf) -> Result<PathBuf, String> {
    let has = |extension: &&str| path.extension().is_some_and(|found| found.eq_ignore_ascii_case(extension));
    if extensions.iter().any(has) {
        return Ok(path);
    }
    let (last, others) = extensions.split_last().expect("at least one extension");
    let others: Vec<String> = others.iter().map(|extension| format!(".{extension}")).collect();
    let or = if others.is_empty() { String::new() } else { format!("{} or ", others.join(", ")) };
    Err(format!("the name of this file has to end in {or}.{last}"))
}
