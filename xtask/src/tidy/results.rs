//! Compares the pages of results with the records of the benchmarks.

use super::finding::Finding;
use crate::bench::page;
use crate::listing::Listing;
use crate::results;

/// Checks the pages, unless there is neither a page nor a record.
pub fn check(listing: &Listing) -> Vec<Finding> {
    if !listing.exists(results::PAGE) && !listing.exists("benches/record") {
        return Vec::new();
    }
    let found = |page, command, checked: Result<(), String>| {
        checked.err().map(|what| Finding::new(page, 1, what, format!("`{command}` writes it")))
    };
    let of_results = found(results::PAGE, results::COMMAND, results::check(listing));
    of_results.into_iter().chain(found(page::PAGE, page::COMMAND, page::check(listing))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_asked_for_where_there_are_records() {
        assert!(check(&Listing::of(&[("a.rs", "")])).is_empty());
        let found = check(&Listing::of(&[("benches/record/README.md", "")]));
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].to_string().matches("cargo xtask results").count(), 1, "{}", found[0]);
        assert_eq!(found[1].to_string().matches("cargo xtask bench page").count(), 1, "{}", found[1]);
    }
}
