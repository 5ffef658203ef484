//! [`cache_folder()`]: where girih keeps what it need not find out again.

use std::path::PathBuf;

/// Where things of a `kind` are kept: below `GIRIH_CACHE`, else below the user's folder of caches, if there is one.
#[must_use]
pub fn cache_folder(kind: &str) -> Option<PathBuf> {
    let below = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let users = || below("XDG_CACHE_HOME").or_else(|| Some(below("HOME")?.join(".cache")));
    below("GIRIH_CACHE").or_else(|| Some(users()?.join("girih"))).map(|folder| folder.join(kind))
}
