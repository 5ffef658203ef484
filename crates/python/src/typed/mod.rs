//! Graphs whose nodes and edges have types, and their mini-batches.

mod batch;
mod graph;
mod sampler;

pub use batch::{TypedBatch, TypedBlock};
pub use graph::TypedGraph;
pub use sampler::{TypedSampler, TypedSource};
