//! The operations of graph neural networks behind one trait.
//!
//! - [`Backend`]: buffers and the coarse, fused operations that a training step is made of. Start here.
//! - [`Cpu`]: all cores, `f32` or bf16 storage, sums in `f32`.
//! - [`Reference`]: slow and obvious loops in `f64`: what every other backend is compared with, and what gradients are
//!   checked on.
//! - [`Symbolic`]: computes nothing and counts bytes, operations and seconds: the cost model.
//! - [`checks`]: which operands an operation takes, for those who write a backend.
//!
//! The trait is written for devices: operands stay where they are, results go into buffers the caller owns, nothing
//! is returned but what the host needs. A CUDA implementation fits below it without change above.
//!
//! Not here: gradients (`girih-trainer` composes them from these operations), data sets, partitions.

mod backend;
pub mod checks;
pub mod cpu;
mod dropout;
mod error;
mod far_rows;
mod neighbors;
pub mod reference;
mod sequence;
mod symbolic;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use backend::{
    Activation, AdamStep, AdamUpdate, Attention, AttentionGrads, Backend, ColumnMoments, Dtype, EntryNames, Epilogue,
    HostMatrix, NO_COLUMN, SgdUpdate, Shape, Slope, SparseOperand, StepInputs, Transpose, WayBack,
};
pub use cpu::Cpu;
pub use dropout::Dropout;
pub use error::ComputeError;
pub use far_rows::{
    FarRows, FetchRows, FetchedRows, HostRows, PatchRowsOperand, RowReader, RowStore, RowSums, SplitRows, StoredAs,
};
pub use neighbors::{
    NeighborBatch, NeighborBlock, NeighborGraph, NeighborOperand, NeighborSource, PatchOperand, SelfLoops,
};
pub use reference::Reference;
pub use symbolic::{
    BlockKind, BlockSeconds, ByDtype, CardRates, Cost, EntrySeconds, Rates, Symbolic, SymbolicClock, SymbolicMatrix,
    SymbolicSparse,
};
