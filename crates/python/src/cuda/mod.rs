//! Native half of `girih.cuda`: batches and features on a GPU, beside the work of PyTorch or another library.
//!
//! - [`guest`]: the device of a GPU and a stream of the other library; memory from a pool of its own.
//! - [`array`]: `DeviceArray`, memory that other libraries take over without a copy; [`dlpack`]: how.
//! - [`graph`]: `CudaGraph`; [`features`]: `CudaFeatures`.
//! - [`loader`]: `CudaLoader`, batches of epochs; [`requests`]: batches of seeds that come one by one; [`feeder`]: the
//!   thread that makes both ahead.
//! - [`batch`]: `CudaBatch` and `CudaBlock`; [`prepared`]: operands of layers that are made with them;
//!   [`release`]: a thread that frees their memory.
//!
//! Results lie in the order of one stream, that of the library, and are freed in that order. What is made ahead runs on
//! streams beside it. Calls leave the current context of their thread as it is: PyTorch finds its GPU by it.

pub mod array;
pub mod batch;
mod dlpack;
pub mod features;
mod feeder;
pub mod graph;
pub mod guest;
pub mod loader;
pub mod prepared;
pub mod release;
pub mod requests;
