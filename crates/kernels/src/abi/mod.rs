//! The interface between Rust and CUDA: constants that both sides read, and arguments of kernels, field by field.
//!
//! The compiler of kernels gets each constant as a macro with the prefix `ABI_`. Structs stand in one module for each
//! family of kernels. Addresses are those of device memory, zero for absent arrays.

mod constants;
mod dense;
mod features;
pub(crate) mod sampling;
mod sparse;

use girih_compute::scratch;
use girih_graph_format::BlockLayout;

pub(crate) use constants::*;
pub(crate) use dense::*;
pub(crate) use features::*;
pub(crate) use sparse::*;

/// Bit that marks addresses of host memory in lists of addresses of rows.
pub(crate) const ON_HOST: u64 = 1 << ON_HOST_BIT;

// Kernels get literals. Blocks in memory and in files have one layout, and plans of memory its sizes.
const _: () = assert!(WINDOW == BlockLayout::Fragments.rows() && PANEL == BlockLayout::Fragments.cols());
const _: () = assert!(SEGMENT == scratch::SEGMENT as u64 && WIDE == scratch::WIDE);
const _: () = assert!(PAPER_TILE == BlockLayout::Tiles.rows() && PAPER_TILE == BlockLayout::Tiles.cols());
