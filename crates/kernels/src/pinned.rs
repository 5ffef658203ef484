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
        let bytes = pinned.map_err(|error| {
            let why = explain(error.0);
            let remedy = "free memory, raise `ulimit -l`, or leave the cache out where the device has room for all";
            ComputeError::device(what, format!("the host pins no {n_bytes} bytes ({why}); {remedy}"))
        })?;
        let mut pinned = Self { bytes, stream: Arc::clone(&cuda.device.stream) };
        pinned.bytes_mut().fill(0);
        Ok(pinned)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.as_slice().expect(UNRECORDED)
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.as_mut_slice().expect(UNRECORDED)
    }

    /// Where devices, and the host, find the first byte.
    pub(crate) fn address(&self) -> u64 {
        self.bytes().as_ptr() as u64
    }
}

/// Why bytes can be had at any time.
const UNRECORDED: &str = "the library records no event of memory that a device reads in place";

impl Drop for Pinned {
    /// Pinned memory is not freed while the device that it was taken for reads it; others see to that themselves.
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
    }
}
