//! Purposes: what a family of draws is for, the second half of a [`Key`](crate::Key).
//!
//! Two decisions with different purposes never share draws. Each number is part of every result that a seed gives, so
//! a number never changes and is never used again; a crate that needs several families below one purpose takes
//! [`Key::child`](crate::Key::child) of it. The table is in `docs/formats.md`.

/// Which activations are dropped.
pub const DROPOUT: u32 = 1;
/// First values of parameters.
pub const INITIALISATION: u32 = 2;
/// Which nodes train, validate and test.
pub const SPLIT: u32 = 3;
/// Edges, features and labels of generated data.
pub const GENERATOR: u32 = 4;
/// The order of training nodes in an epoch.
pub const SHUFFLE: u32 = 5;
/// Users with items that they met and items that they did not: the batches of a recommender.
pub const TRIPLES: u32 = 6;
/// Random orders of nodes.
pub const ORDER: u32 = 7;
/// Neighbours and subgraphs of mini-batches.
pub const SAMPLING: u32 = 8;
/// Which links train, validate and test, and the pairs of nodes that they are held against.
pub const LINKS: u32 = 9;
/// The rows that a codec of features learns from, and what it draws while it learns.
pub const COMPRESSION: u32 = 10;
/// Random walks that features are made from.
pub const FEATURES: u32 = 11;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_table_is_this_one() {
        let page = include_str!("../../../docs/formats.md");
        let purposes = [
            ("DROPOUT", DROPOUT),
            ("INITIALISATION", INITIALISATION),
            ("SPLIT", SPLIT),
            ("GENERATOR", GENERATOR),
            ("SHUFFLE", SHUFFLE),
            ("TRIPLES", TRIPLES),
            ("ORDER", ORDER),
            ("SAMPLING", SAMPLING),
            ("LINKS", LINKS),
            ("COMPRESSION", COMPRESSION),
            ("FEATURES", FEATURES),
        ];
        for (name, number) in purposes {
            let row = format!("| `{name}` | {number} |");
            assert!(page.contains(&row), "docs/formats.md lacks the row {row}");
        }
    }
}
