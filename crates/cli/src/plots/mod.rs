//! Pictures of graphs.

pub mod spy;
