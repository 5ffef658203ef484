//! [`Pinned`]: memory of the host that devices read in place.

use std::sync::Arc;

use cudarc::driver::sys::{CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE};
use cudarc::driver::{CudaStream, PinnedHostSlice};
use girih_compute::ComputeError;

use crate::Cuda;
use crate::driver::explain;

/// Bytes that all devices of the process read in place, by the host's own addresses.
pub(crate) struct Pinned {
    bytes: PinnedHostSlice<u8>,
    /// Where they are: the library waits for the device whenever it is asked.
    first: *const u8,
    stream: Arc<CudaStream>,
}

impl Pinned {
    /// So many bytes, all zero. `what` they are for is said where the system refuses them.
    ///
    /// # Errors
    /// When the system pins no such memory.
    pub(crate) fn new(cuda: &Cuda, n_bytes: usize, what: &'static str) -> Result<Self, ComputeError> {
        let context = cuda.device.stream.context();
        let flags = CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: whatever the memory holds is bytes.
        let pinned = unsafe { context.alloc_pinned_with_flags::<u8>(n_bytes.max(1), flags) };
        let mut bytes = pinned.map_err(|error| {
            let why = explain(error.0);
            let remedy = "free memory, raise `ulimit -l`, or leave the cache out where the device has room for all";
            ComputeError::device(what, format!("the host pins no {n_bytes} bytes ({why}); {remedy}"))
        })?;
        let memory = bytes.as_mut_slice().map_err(Cuda::failed(what))?;
        memory.fill(0);
        Ok(Self { first: memory.as_ptr(), bytes, stream: Arc::clone(&cuda.device.stream) })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: as many bytes are allocated there, for as long as this lives, and all were written; devices only read them.
        unsafe { std::slice::from_raw_parts(self.first, self.bytes.len()) }
    }

    pub(crate) fn bytes_mut(&mut self) -> Result<&mut [u8], ComputeError> {
        self.bytes.as_mut_slice().map_err(Cuda::failed("memory that devices read"))
    }

    /// Where devices, and the host, find the first byte.
    pub(crate) fn address(&self) -> u64 {
        self.first as u64
    }
}

// SAFETY: the bytes belong to this, and whoever has it by reference only reads them.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Drop for Pinned {
    /// Pinned memory is not freed while the device that it was taken for reads it; others see to that themselves.
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
    }
}
