//! The operations, a module for each source in `kernels/`: checked operands in, launches out.

mod attention;
mod edges;
mod passes;
mod sparse;
mod spmm;
