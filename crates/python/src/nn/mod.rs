//! Native half of `girih.nn`: graphs as operands of layers, and the operations on them.
//!
//! - [`adjacency`]: `Adjacency`, a graph, block or list of edges under a number that operators know it by.
//! - [`operand`]: the matrices that layers multiply by, made of an adjacency when they are first asked for.
//! - [`operators`]: products and attention on the CPU backend, from tensors into tensors; `cuda`: those on GPUs.
//!
//! `python/girih/nn` registers the operators with PyTorch and composes layers of them.

pub mod adjacency;
#[cfg(feature = "cuda")]
pub mod cuda;
mod operand;
pub mod operators;

pub use self::operand::Operands;
