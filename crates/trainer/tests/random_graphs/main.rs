//! Small random graphs through all features, compared with plain references.
//!
//! Ordinary runs try a few seeds of each subject. `GIRIH_SEEDS=10000` tries ten thousand, `GIRIH_SEEDS=4711..4712` a
//! single one; see CONTRIBUTING.md. Products over ranks have their tests in `src/distributed/random_graphs.rs`.

mod bounded;
mod campaign;
mod codecs;
mod formats;
mod graphs;
mod models;
mod orders;
mod samplers;
mod subgraphs;
mod walks;
