//! The operations, a module for each source in `kernels/`: checked operands in, launches out.

mod attention;
mod edges;
mod host;
mod memory;
mod normalize;
mod optim;
mod passes;
mod rows;
mod sparse;
mod spmm;
