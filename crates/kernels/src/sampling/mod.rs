//! Mini-batches on a device: the samplers of `girih-sampling`, with the same result to the bit.
//!
//! ```text
//! DeviceTopology ─┐
//! seeds, key ─────┴▶ DeviceSampler ──▶ DeviceBatch ──▶ to_host: MiniBatch
//!                     begin, then for each hop draw and settle, then finish
//! ```
//! A batch is a handful of launches without a word to the host: its sizes stay on the device, where each launch finds
//! those of the one before. Memory is bounded by [`Capacities`]; a batch that exceeds them says so, and is sampled
//! again where all batches fit. `docs/gpu.md` has the layout.
//!
//! - [`DeviceTopology`]: a graph in the memory of the device, or in that of the host, read in place.
//! - [`DeviceSampler`]: neighbours of seeds, hop by hop. Start here.
//! - [`DeviceBatch`]: what it leaves on the device.
//! - [`CudaGraph`]: the graph that batches for training are drawn from; they come as rows of `Â`.
//! - `PatchDraws`: draws by ranks that each have the rows of a patch, exchanged between their cards.
//! - [`DeviceWalks`]: random walks.

mod arguments;
mod batch;
mod bias;
mod capacities;
mod control;
mod hashed;
mod launch;
mod patches;
mod places;
mod ranks;
mod repeat;
mod sampler;
mod source;
mod topology;
mod walks;

pub use batch::DeviceBatch;
pub use capacities::Capacities;
pub use control::BatchSizes;
pub(crate) use launch::blocks;
pub(crate) use patches::{Owners, Pieces, failed};
pub use sampler::DeviceSampler;
pub(crate) use source::CudaGraph;
pub use topology::DeviceTopology;
pub use walks::DeviceWalks;

/// What errors call it.
const OPERATION: &str = "sampling on the device";
