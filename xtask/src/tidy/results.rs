//! Compares the page of results with the records of the benchmarks.

use super::finding::Finding;
use crate::listing::Listing;
use crate::results;

/// Checks the page, unless there is neither a page nor a record.
pub fn check(listing: &Listing) -> Vec<Finding> {
    if !listing.exists(results::PAGE) && !listing.exists("benches/record") {
        return Vec::new();
    }
    let remedy = format!("`{}` writes it", results::COMMAND);
    results::check(listing).err().map(|what| Finding::new(results::PAGE, 1, what, remedy)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_asked_for_where_there_are_records() {
        assert!(check(&Listing::of(&[("a.rs", "")])).is_empty());
        let found = check(&Listing::of(&[("benches/record/README.md", "")]));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string().matches("cargo xtask results").count(), 1, "{}", found[0]);
    }
}
