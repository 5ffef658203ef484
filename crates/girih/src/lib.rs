//! The libraries of girih under one name. Each module is a crate of its own, which may be used alone.
//!
//! | module | feature | content |
//! |---|---|---|
//! | [`graph`] | always | sparse matrices, edge lists, permutations, dense rows, and their files |
//! | `reorder` | `reorder` | orders of nodes that bring neighbors together |
//! | `sampling`, `pipeline` | `sampling` | mini-batches, random walks, and threads that prefetch them |
//! | `compress` | `compress` | features as codes, decoded where they are read |
//! | `datasets`, `compute`, `features`, `partition`, `trainer` | `train` | data sets, operations, placement, ranks, models and training |
//! | `kernels` | `cuda` | the operations on CUDA devices |
#![cfg_attr(all(feature = "train", feature = "reorder"), doc = include_str!("../README.md"))]
#![forbid(unsafe_code)]

#[cfg(feature = "compress")]
pub use girih_compress as compress;
#[cfg(feature = "train")]
pub use girih_compute as compute;
#[cfg(feature = "train")]
pub use girih_datasets as datasets;
#[cfg(feature = "train")]
pub use girih_features as features;
pub use girih_graph_format as graph;
#[cfg(feature = "cuda")]
pub use girih_kernels as kernels;
#[cfg(feature = "train")]
pub use girih_partition as partition;
#[cfg(feature = "sampling")]
pub use girih_pipeline as pipeline;
#[cfg(feature = "reorder")]
pub use girih_reorder as reorder;
#[cfg(feature = "sampling")]
pub use girih_sampling as sampling;
#[cfg(feature = "train")]
pub use girih_trainer as trainer;
