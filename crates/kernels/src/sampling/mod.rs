//! Mini-batches on a device: the samplers of `girih-sampling`, with the same results to the bit.
//!
//! ```text
//! DeviceTopology ─┐
//! seeds, key ─────┴▶ DeviceSampler ──▶ DeviceBatch ──▶ to_host: MiniBatch
//!                     begin, then for each hop draw and settle, then finish
//! ```
//! A batch is a handful of launches without synchronising with the host. Its sizes stay on the device, where each
//! launch finds those of the one before. Memory is bounded by [`Capacities`]. A batch that exceeds them reports it,
//! and is sampled again in memory for the largest batch. `batch.rs` has the layout.
//!
//! - [`DeviceTopology`]: a graph in the memory of the device, or in host memory, read in place.
//! - [`DeviceSampler`]: neighbor sampling, hop by hop. Start here.
//! - [`DeviceBatch`]: its result on the device.
//! - [`CudaGraph`](source::CudaGraph): the graph from which batches for training are drawn; they come as rows of `Â`.
//! - [`BatchSampler`]: batches in memory of their own, sampled ahead, for other libraries and their layers.
//! - `PatchDraws`: collective draws of ranks that each have the rows of a patch, exchanged between their GPUs.
//! - [`DeviceWalks`]: random walks.

mod batch;
mod bias;
mod capacities;
mod control;
mod hashed;
mod launch;
mod patches;
mod places;
mod prefetch;
mod ranks;
mod repeat;
mod sampled;
mod sampler;
mod source;
mod topology;
mod walks;

pub use batch::DeviceBatch;
pub use capacities::Capacities;
pub use control::BatchSizes;
pub(crate) use patches::{OwnerMap, Pieces, failed};
pub use sampled::{BatchSampler, DeviceEdgeList, EdgeNames, IndexWidth, SampledBatch, Scaling};
pub use sampler::DeviceSampler;
pub use topology::DeviceTopology;
pub use walks::DeviceWalks;

/// Name of the operation in errors.
const OPERATION: &str = "sampling on the device";
