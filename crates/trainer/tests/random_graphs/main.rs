//! Random small graphs through everything, held against the obvious reference.
//!
//! The ordinary run tries a few seeds of each subject. `GIRIH_SEEDS=10000` tries ten thousand, `GIRIH_SEEDS=4711..4712`
//! one alone; CONTRIBUTING.md says how. Products over ranks are beside what they test, in
//! `src/distributed/random_graphs.rs`.

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
