//! The operations, a module for each source in `kernels/`: checked operands in, launches out.

mod attention;
mod edges;
mod gemm;
mod loss;
mod memory;
mod normalize;
mod operand;
mod optim;
mod passes;
mod ranking;
mod rows;
mod segments;
mod sparse;
mod spmm;
mod tiles;

pub(crate) use optim::StepRates;
pub(crate) use tiles::Tiles;
pub use tiles::Tiling;
