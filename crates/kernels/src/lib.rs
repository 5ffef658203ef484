//! CUDA: devices found at run time, kernels compiled for the card at hand, and [`Cuda`], the backend made of them.
//!
//! Nothing here is linked against CUDA: the driver, the run-time compiler, cuBLAS and cuBLASLt are loaded when a device
//! is opened. On a machine without them [`Device::open`] fails with a message that says what is missing; [`Survey`]
//! looks at each piece.
//!
//! - [`Device`]: a card, its stream, its kernels.
//! - [`NcclRank`]: ranks on cards, one each, that work together.
//! - [`Timeline`]: what cards do when, to look at.
//! - [`DeviceSampler`]: mini-batches that are sampled on it; [`DeviceWalks`]: random walks.
//! - [`Cuda`]: the operations of [`Backend`](girih_compute::Backend) on it; `ops` has one module for each source in
//!   `kernels/`.
//!
//! Not here: what the operations mean (`girih-compute`, whose `Reference` every kernel is held against).

mod backend;
mod blas;
mod code_book;
mod compile;
mod device;
mod driver;
mod error;
mod far_list;
mod far_rows;
mod libraries;
mod lt;
mod matrix;
mod measurements;
mod nccl;
mod ops;
mod patch_rows;
mod pinned;
mod placed;
mod pool;
mod recording;
mod row_checks;
mod row_launch;
mod row_sources;
mod sampling;
mod shared;
mod split_rows;
mod staged_rows;
mod staging;
mod survey;
mod timeline;
mod timing;
mod worker_pool;

pub use backend::Cuda;

pub use device::Device;
pub use driver::{CudaVersion, Driver};
pub use error::KernelError;
pub use matrix::{CudaIds, CudaMatrix, CudaSparse};
pub use nccl::NcclRank;
pub use ops::{BlockKernel, Split, Tiling};
pub use recording::Recording;
pub use sampling::{BatchSizes, Capacities, DeviceBatch, DeviceSampler, DeviceTopology, DeviceWalks};
pub use survey::{Card, FoundLibrary, Survey};
pub use timeline::Timeline;
