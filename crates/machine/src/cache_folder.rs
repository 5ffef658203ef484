//! [`cache_folder()`]: folder for results that girih keeps between runs.

use std::path::PathBuf;

/// Folder for cached data of a `kind`: below `GIRIH_CACHE`, else below the user's cache folder; `None` if there is
/// neither.
#[must_use]
pub fn cache_folder(kind: &str) -> Option<PathBuf> {
    let below = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let users = || below("XDG_CACHE_HOME").or_else(|| Some(below("HOME")?.join(".cache")));
    below("GIRIH_CACHE").or_else(|| Some(users()?.join("girih"))).map(|folder| folder.join(kind))
}
