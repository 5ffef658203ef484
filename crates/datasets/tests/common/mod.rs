//! Where tests find real files.

use std::path::{Path, PathBuf};

/// The path of a real data set: below `GIRIH_DATA`, or below `shared/data` beside an ancestor of this package. Says
/// that the test is skipped when it is not there.
pub fn real(name: &str) -> Option<PathBuf> {
    let from_environment = std::env::var_os("GIRIH_DATA").map(PathBuf::from);
    let ancestors = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|dir| dir.join("shared/data"));
    let found = from_environment.into_iter().chain(ancestors).map(|root| root.join(name)).find(|path| path.exists());
    if found.is_none() {
        println!("skipped: no {name} in shared/data or GIRIH_DATA");
    }
    found
}
