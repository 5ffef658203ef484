//! Laws of backends: operations of the CPU beside the reference, and operands that no backend gets.

mod cpu;
mod gemm;
mod matrices;
mod refusals;
mod spmm;
