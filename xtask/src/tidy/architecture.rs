//! Compares the code map of `docs/ARCHITECTURE.md` with the existing crates.
//!
//! A crate is on the map if a line (heading, list item or table row) starts with `crates/NAME`. The order of the map
//! is the order of the layers, lowest first; [`super::manifests`] checks dependencies against it.

use std::collections::BTreeSet;

use super::finding::{Finding, line_of};
use crate::listing::Listing;

/// Page with the map.
pub const PAGE: &str = "docs/ARCHITECTURE.md";

/// Checks that every crate is on the map, and that everything on the map exists.
pub fn check(listing: &Listing) -> Vec<Finding> {
    let Some(page) = listing.text(PAGE) else {
        return vec![Finding::new(PAGE, 1, "the page does not exist", "write it: the crates, lowest layer first")];
    };
    let (mapped, existing) = (code_map(page), crates(listing));
    let unmapped = existing.iter().filter(|name| !mapped.contains(name)).map(|name| {
        Finding::new(
            PAGE,
            1,
            format!("crates/{name} is not on the code map"),
            "add a line that opens with it, in its layer",
        )
    });
    let gone = mapped.iter().filter(|name| !existing.contains(*name)).map(|name| {
        let line = line_of(page, &format!("crates/{name}"));
        Finding::new(PAGE, line, format!("crates/{name} does not exist"), "take it off the code map")
    });
    unmapped.chain(gone).collect()
}

/// Names of crates on the map, lowest layer first.
pub fn code_map(page: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for line in page.lines() {
        let opening = line.trim_start_matches(|c: char| c.is_whitespace() || "#-*|`[".contains(c));
        let Some(rest) = opening.strip_prefix("crates/") else { continue };
        let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Names of the folders below `crates` that have a manifest.
fn crates(listing: &Listing) -> BTreeSet<String> {
    let name = |path: &str| Some(path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?.to_owned());
    listing.files().filter_map(|file| name(&file.path)).filter(|name| !name.contains('/')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_is_read_from_headings_lists_tables_and_plain_lines() {
        let page = "### `crates/a`\nprose on crates/x\n- crates/b-c: it\n| [`crates/d`](../crates/d) | it |\ncrates/a   again\n";
        assert_eq!(code_map(page), ["a", "b-c", "d"]);
    }

    #[test]
    fn crates_off_the_map_and_places_without_a_crate_are_found() {
        let page = "- `crates/a`\n- `crates/gone`\n";
        let listing = Listing::of(&[(PAGE, page), ("crates/a/Cargo.toml", ""), ("crates/new/Cargo.toml", "")]);
        let found: Vec<String> = check(&listing).iter().map(Finding::to_string).collect();
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("crates/new is not on the code map"));
        assert!(found[1].starts_with("docs/ARCHITECTURE.md:2: crates/gone does not exist"));
    }

    #[test]
    fn a_missing_page_is_found() {
        assert_eq!(check(&Listing::default()).len(), 1);
    }
}
