//! Operations of the backend, one module for each source in `cuda/`. Each launches kernels on operands
//! that fit. `costs` chooses between kernels of sparse products. Each family of operations is implemented in one module,
//! which calls the others: `memory`, `dense_ops`, `spmm`, `relations`, `attention`, `segments`, `normalize`, `loss` and `optim`.

mod attention;
mod costs;
mod dense;
mod dense_ops;
mod edges;
mod gemm;
mod loss;
mod mask;
mod memory;
mod normalize;
mod operand;
mod optim;
mod passes;
mod ranking;
mod relations;
mod segments;
mod sparse;
mod spmm;
mod tiles;
mod tiles_mma;
mod tiles_paper;
mod transpose;

pub(crate) use self::passes::Strided;
