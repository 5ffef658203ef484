//! Operations of graph neural networks behind one trait.
//!
//! - [`Backend`]: buffers and the coarse, fused operations of a training step, in families. Start here.
//! - [`prelude`]: the traits of all families, for calls on a backend of known type.
//! - [`Cpu`]: all cores of the CPU, `f32` or bf16 storage, sums in `f32`.
//! - [`Reference`]: slow and simple loops in `f64`. Every other backend is compared with it, and gradients are
//!   checked on it.
//! - [`Symbolic`]: the cost model. It counts bytes, operations and seconds, and computes nothing.
//! - [`checks`]: checks of operands that several operations share; [`scratch`]: sizes of a CUDA device's memory.
//!
//! The trait suits devices: operands stay on the device, results go into buffers of the caller, and an operation
//! returns only data that the host needs. A CUDA backend implements it without changes to the callers.
//!
//! Other crates provide gradients (`girih-trainer` composes them from these operations), rows and graphs for
//! mini-batches (`girih-features`), data sets and partitions.

mod backend;
pub mod checks;
pub mod cpu;
mod dropout;
mod error;
pub mod reference;
pub mod scratch;
mod sequence;
mod symbolic;
#[cfg(feature = "testing")]
pub mod testing;

pub use backend::{
    Activation, ActivationGrad, AdamStep, AdamUpdate, Attention, AttentionGrads, AttentionOps, Backend, BasisOperands,
    ColumnMoments, DenseOps, Dtype, Epilogue, EpilogueGrad, Fits, Function, GlobalIds, HostMatrix, LossOps, Memory,
    NO_COLUMN, NormOps, OptimOps, RelationOps, RelationRows, SegmentOps, SgdUpdate, Shape, SparseOperand, SparseOps,
    StepInputs, Transpose, runs_of,
};
pub use cpu::Cpu;
pub use dropout::Dropout;
pub use error::ComputeError;
pub use reference::Reference;
pub use symbolic::{
    BlockKind, BlockSeconds, ByDtype, Cost, EntrySeconds, GpuRates, Rates, Symbolic, SymbolicClock, SymbolicIds,
    SymbolicMatrix, SymbolicSparse,
};

/// Traits of all families of operations, for code that calls them on a backend of known type.
pub mod prelude {
    pub use crate::{
        AttentionOps, Backend, DenseOps, LossOps, Memory, NormOps, OptimOps, RelationOps, SegmentOps, SparseOps,
    };
}

/// Program of the README, which is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
