//! Small random graphs through all features, compared with plain references.
//!
//! Ordinary runs try a few seeds of each subject. `GIRIH_SEEDS=10000` tries ten thousand, `GIRIH_SEEDS=4711..4712` a
//! single one; see CONTRIBUTING.md.

mod bounded;
mod campaign;
mod codecs;
mod formats;
mod graphs;
mod models;
mod orders;
mod products;
mod samplers;
mod subgraphs;
mod walks;
