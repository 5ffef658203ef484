//! Native half of `girih.nn`: graphs as operands of layers, and the operations on them.
//!
//! - [`adjacency`]: `Adjacency`, a graph, block or list of edges under a number that operators know it by.
//! - [`kind`], [`operand`]: the matrices that layers multiply by, made of an adjacency when they are first asked for.
//! - [`operators`]: products and attention on the CPU backend, from tensors into tensors; `cuda`: those on GPUs,
//!   with operands that `uploaded` keeps, and that `block` makes of sampled blocks there.
//!
//! `python/girih/nn` registers the operators with PyTorch and composes layers of them.

pub mod adjacency;
#[cfg(feature = "cuda")]
mod block;
#[cfg(feature = "cuda")]
pub mod cuda;
mod kind;
mod operand;
pub mod operators;
#[cfg(feature = "cuda")]
mod uploaded;

pub use self::operand::Operands;
