//! Purposes of draws: the second half of a [`Key`](crate::Key).
//!
//! Draws with different purposes never overlap. Each number affects every result of a seed, so a number never changes
//! and is never reused. A crate that needs several families for one purpose derives them by
//! [`Key::child`](crate::Key::child). The table is in `docs/draws.md`.

/// Dropout masks of activations.
pub const DROPOUT: u32 = 1;
/// Initial values of parameters.
pub const INITIALISATION: u32 = 2;
/// Split of nodes into training, validation and test nodes.
pub const SPLIT: u32 = 3;
/// Edges, features and labels of generated data.
pub const GENERATOR: u32 = 4;
/// Order of training nodes in an epoch.
pub const SHUFFLE: u32 = 5;
/// Batches of a recommender: triples of a user, an item of the user, and an item that the user has not met.
pub const TRIPLES: u32 = 6;
/// Random orders of nodes.
pub const ORDER: u32 = 7;
/// Neighbors and subgraphs of mini-batches.
pub const SAMPLING: u32 = 8;
/// Split of links into training, validation and test links, and the negative pairs of nodes.
pub const LINKS: u32 = 9;
/// Training rows of a feature codec, and the draws of its training.
pub const COMPRESSION: u32 = 10;
/// Random walks from which features are made.
pub const FEATURES: u32 = 11;
/// Batches of triples of a knowledge graph: their order, and entities that are wrong.
pub const KNOWLEDGE: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_table_is_this_one() {
        let place = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/draws.md");
        let Ok(page) = std::fs::read_to_string(place) else {
            println!("skipped: the table is in the repository, and this is a package");
            return;
        };
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
            ("KNOWLEDGE", KNOWLEDGE),
        ];
        for (name, number) in purposes {
            let row = format!("| `{name}` | {number} |");
            assert!(page.contains(&row), "docs/draws.md lacks the row {row}");
        }
    }
}
