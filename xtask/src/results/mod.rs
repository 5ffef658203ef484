//! Writes `docs/results.md` from the records of `cargo xtask bench`.
//!
//! - [`record`]: a record, as far as the page needs it, and which records others replace.
//! - [`suites`]: rows and columns of each suite.
//! - [`page`]: the text.

mod page;
pub mod record;
mod suites;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;

pub use page::fits;

use crate::listing::Listing;

/// The page.
pub const PAGE: &str = "docs/results.md";
/// Command that writes it.
pub const COMMAND: &str = "cargo xtask results";

/// Writes the page, or only compares it with the records.
///
/// # Errors
/// When the page cannot be made or written; with `is_check`, also when it differs from the records.
pub fn run(root: &Path, is_check: bool) -> Result<(), String> {
    let listing = Listing::read(root)?;
    if is_check {
        return check(&listing).map_err(|what| format!("{PAGE}: {what}; run `{COMMAND}`"));
    }
    fs::write(root.join(PAGE), page::page(&listing)?).map_err(|e| format!("{PAGE}: {e}"))
}

/// Compares the page with the records.
///
/// # Errors
/// When the page cannot be made, or differs.
pub fn check(listing: &Listing) -> Result<(), String> {
    if listing.text(PAGE) == Some(&*page::page(listing)?) {
        Ok(())
    } else {
        Err("differs from the records in benches/record".to_owned())
    }
}
