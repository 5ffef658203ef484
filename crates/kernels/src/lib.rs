//! CUDA backend: devices found at run time, kernels compiled for the GPU at hand, and [`Cuda`], the backend.
//!
//! Nothing here is linked against CUDA. The driver, the run-time compiler, cuBLAS and cuBLASLt are loaded when a
//! device is opened. On a machine without them [`Device::open`] fails with a message that names the missing part;
//! [`Survey`] checks each part.
//!
//! - [`Device`]: a GPU, its stream and its kernels.
//! - [`MemoryPool`]: memory of a device that works beside another library, such as PyTorch; see [`Device::guest`].
//! - [`NcclRank`]: ranks on GPUs that work together, one GPU each.
//! - [`Timeline`]: a record of GPU activity over time, for a viewer.
//! - [`DeviceSampler`]: mini-batches sampled on the GPU; [`DeviceWalks`]: random walks.
//! - [`Cuda`]: the operations of [`Backend`](girih_compute::Backend) on the GPU; `ops` has one module for each source
//!   in `cuda/`, and `abi` the constants and arguments that both sides share.
//!
//! `girih-compute` defines the meaning of the operations; tests compare every kernel with its `Reference`.

mod abi;
mod blas;
mod buffer;
mod compile;
mod cuda;
mod device;
mod driver;
mod error;
mod features;
mod lent;
mod libraries;
mod lt;
mod matrix;
mod measurements;
mod nccl;
mod ops;
mod pool;
mod recorder;
mod recording;
mod sampling;
mod staging;
mod survey;
mod tiling;
mod timeline;
mod timing;
mod worker_pool;

pub use cuda::Cuda;
pub use device::{Device, keeping_context};
pub use driver::{CudaVersion, Driver};
pub use error::KernelError;
pub use lent::{ForeignRows, LentMatrix};
pub use matrix::{CudaIds, CudaMatrix, CudaSparse, Split};
pub use nccl::NcclRank;
pub use pool::MemoryPool;
pub use recording::Recording;
pub use sampling::{
    BatchSampler, BatchSizes, Capacities, DeviceBatch, DeviceEdgeList, DeviceSampler, DeviceTopology, DeviceWalks,
    EdgeNames, IndexWidth, SampledBatch, Scaling,
};
pub use survey::{FoundLibrary, Gpu, Survey};
pub use tiling::{BlockKernel, Tiling};
pub use timeline::Timeline;
