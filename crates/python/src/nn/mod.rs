//! Native half of `girih.nn`: graphs as operands of layers, and the operations on them.
//!
//! - [`adjacency`]: `Adjacency`, a graph, block or list of edges under a number that operators know it by.
//! - [`kind`], [`operand`]: the matrices that layers multiply by, made of an adjacency when they are first asked for.
//! - [`operators`]: products and attention on the CPU backend, from tensors into tensors; `cuda`: those on GPUs,
//!   with operands that `uploaded` keeps, and that `block` makes of sampled blocks there.
//! - [`network`]: the layers of a model in one call each way, on any backend. [`layers`] has their passes, [`tensors`] how a
//!   backend computes in memory of tensors, [`registry`] the numbers of what stays between the calls, [`spare`] memory of
//!   the CPU that calls use again.
//!
//! `python/girih/nn` registers the operators with PyTorch and composes layers of them.

pub mod adjacency;
#[cfg(feature = "cuda")]
mod block;
#[cfg(feature = "cuda")]
pub mod cuda;
mod kind;
mod layers;
pub mod network;
mod operand;
pub mod operators;
mod registry;
mod spare;
mod tensors;
#[cfg(feature = "cuda")]
mod uploaded;

#[cfg(feature = "cuda")]
pub use self::kind::Kind;
pub use self::operand::Operands;
