//! [`Cuda`]: a CUDA device as a backend; its operations stand in `ops`.

use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::CUfunction_attribute;
use cudarc::driver::{CudaEvent, CudaFunction, CudaStream, DriverError};
use girih_comm::CommError;
use girih_compute::{ComputeError, Dtype};

use crate::compile::{Defines, Source};
use crate::device::{Device, keeping_context};
use crate::error::{KernelError, Kind, explain};
use crate::nccl::{OwnedStream, Peers};
use crate::recorder::Recorder;
use crate::tiling::{BlockKernel, Tiling};

/// A CUDA device as a backend.
pub struct Cuda {
    pub(crate) device: Device,
    pub(crate) tiling: Tiling,
    pub(crate) block_kernel: BlockKernel,
    /// Element type of stored activations and of the operands of dense products.
    pub(crate) precision: Dtype,
    pub(crate) recorder: Recorder,
    /// Other ranks that the device works with; empty if it works alone.
    peers: OnceLock<Arc<Peers>>,
}

impl Cuda {
    /// Creates the backend on a device.
    #[must_use]
    pub fn new(device: Device) -> Self {
        let block_kernel = BlockKernel::of(device.capability());
        let (tiling, recorder) = (Tiling::default(), Recorder::default());
        Self { device, tiling, block_kernel, precision: Dtype::F32, recorder, peers: OnceLock::new() }
    }

    /// Creates a second backend on the same GPU for concurrent work, with a stream of its own. Steps are captured as
    /// graphs if they are here.
    pub(crate) fn beside(&self, operation: &'static str) -> Result<Self, ComputeError> {
        let device = self.device.beside().map_err(Self::failed(operation))?;
        let recorder = Recorder::new(self.recorder.is_enabled());
        Ok(Self { recorder, peers: self.peers.clone(), ..Self::new(device) })
    }

    /// Sets the type in which activations and their gradients are stored. In bf16, a dense product with one bf16
    /// operand rounds the other one to bf16, too, so that tensor cores take both. Sums are `f32` throughout.
    #[must_use]
    pub fn storing(self, precision: Dtype) -> Self {
        Self { precision, ..self }
    }

    /// Sets the choice of adjacency blocks that tensor cores multiply.
    #[must_use]
    pub fn tiling(self, tiling: Tiling) -> Self {
        Self { tiling, ..self }
    }

    /// Sets the kernel that multiplies blocks, instead of the fastest that the GPU has.
    ///
    /// # Errors
    /// When the GPU lacks its instructions.
    pub fn multiplying_blocks_by(self, block_kernel: BlockKernel) -> Result<Self, KernelError> {
        let capability = self.device.capability();
        if !block_kernel.runs_on(capability) {
            let instead = BlockKernel::of(capability);
            let (block_kernel, instead) = (block_kernel.to_string(), instead.to_string());
            return Err(Kind::BlockKernel { block_kernel, gpu: self.device.name(), capability, instead }.into());
        }
        Ok(Self { block_kernel, ..self })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Runs `work` with the context of this GPU current in the thread, as frees of memory need it. Then the context of
    /// before is current again: other libraries find their GPU by it.
    pub fn with_context<T>(&self, work: impl FnOnce() -> T) -> T {
        keeping_context(|| {
            // A context that cannot be made current fails the calls of `work`.
            let _ = self.device.stream.context().bind_to_thread();
            work()
        })
    }

    /// Sets the ranks that the device works with from now on.
    pub(crate) fn join(&self, peers: Arc<Peers>) {
        assert!(self.peers.set(peers).is_ok(), "a device joins ranks once");
    }

    /// Ranks that the device works with.
    pub(crate) fn peers(&self) -> Option<&Arc<Peers>> {
        self.peers.get()
    }

    /// Waits until all work asked of the device is done.
    ///
    /// # Errors
    /// When the device fails, or a rank that it works with.
    pub(crate) fn wait(&self, operation: &'static str) -> Result<(), ComputeError> {
        let stream = &self.device.stream;
        self.until(operation, || stream.synchronize(), |peers| peers.wait(operation, stream))
    }

    /// Waits until the device has reached an event.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub(crate) fn wait_for(&self, operation: &'static str, event: &CudaEvent) -> Result<(), ComputeError> {
        self.until(operation, || event.synchronize(), |peers| peers.wait_for(operation, event))
    }

    /// Waits by `alone`, or by `among` if the device works with other ranks.
    fn until(
        &self,
        operation: &'static str,
        alone: impl FnOnce() -> Result<(), DriverError>,
        among: impl FnOnce(&Peers) -> Result<(), CommError>,
    ) -> Result<(), ComputeError> {
        match self.peers() {
            None => alone().map_err(Self::failed(operation)),
            Some(peers) => among(peers).map_err(|error| ComputeError::device(operation, error.to_string())),
        }
    }

    /// Guard that waits for a stream before the memory it uses is released.
    pub(crate) fn ending(&self, stream: &Arc<CudaStream>) -> OwnedStream {
        OwnedStream::new(Arc::clone(stream), self.peers.get().cloned())
    }

    /// Kernel compiled for element types, each under the macro name that its source uses.
    pub(crate) fn kernel(
        &self,
        operation: &'static str,
        source: Source,
        name: &str,
        types: &[(&'static str, Dtype)],
    ) -> Result<CudaFunction, ComputeError> {
        let defines = types.iter().map(|(name, dtype)| (*name, element(*dtype).to_owned())).collect();
        self.variant(operation, source, name, &defines)
    }

    /// Kernel compiled with the given macros.
    pub(crate) fn variant(
        &self,
        operation: &'static str,
        source: Source,
        name: &str,
        defines: &Defines,
    ) -> Result<CudaFunction, ComputeError> {
        let kernel = self.device.kernel(source, name, defines);
        kernel.map_err(|error| ComputeError::device(operation, error.to_string()))
    }

    /// Raises a kernel's limit of dynamic shared memory to `bytes`, above the default.
    pub(crate) fn allow_shared(operation: &'static str, kernel: &CudaFunction, bytes: u32) -> Result<(), ComputeError> {
        let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        kernel.set_attribute(most, bytes as i32).map_err(Self::failed(operation))
    }

    /// Converts an error of the driver to that of an operation.
    pub(crate) fn failed(operation: &'static str) -> impl Fn(DriverError) -> ComputeError {
        move |error| ComputeError::device(operation, explain(error.0))
    }
}

/// Spelling of an element type in the sources.
pub(crate) fn element(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "float",
        Dtype::Bf16 => "bf16",
    }
}
