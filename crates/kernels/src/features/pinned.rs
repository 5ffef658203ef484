//! [`Pinned`]: host memory that devices read in place (UVA).

use std::ffi::c_void;
use std::ops::Range;

use cudarc::driver::sys::{
    CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE, CUresult, cuMemHostGetDevicePointer_v2,
    cuMemHostRegister_v2, cuMemHostUnregister,
};
use girih_compute::ComputeError;
use memmap2::MmapMut;
use rayon::prelude::*;

use crate::Cuda;
use crate::error::explain;
use crate::nccl::OwnedStream;

/// Smallest page size of the system in bytes; one written byte per page makes the system provide all pages.
const PAGE_BYTES: usize = 4096;
/// Bytes that a host thread touches at a time: a huge page.
const TOUCHED_BYTES: usize = 2 << 20;

/// Bytes that all devices of the process read in place.
///
/// The memory consists of pages of the system, huge ones if it has some. All threads touch them, and then they are
/// pinned. This takes a second for 24 GB; the driver's own allocation takes eleven.
pub(crate) struct Pinned {
    bytes: MmapMut,
    /// Host address of the first byte.
    first: Writable,
    /// Device address of the first byte.
    address: u64,
    uses: OwnedStream,
}

/// Host address behind which several threads write, each its own bytes.
struct Writable(*mut u8);

// SAFETY: an address; every writer promises that nobody else writes its bytes.
unsafe impl Send for Writable {}
// SAFETY: as above.
unsafe impl Sync for Writable {}

impl Pinned {
    /// Pins `n_bytes` zero bytes. `what` is the purpose of the memory, for errors.
    ///
    /// # Errors
    /// When the system pins no such memory.
    pub(crate) fn new(cuda: &Cuda, n_bytes: usize, what: &'static str) -> Result<Self, ComputeError> {
        let refused = |why: String| not_pinned(what, n_bytes, &why, "if all fits on the GPU, leave the cache out");
        let uses = cuda.ending(&cuda.device.stream);
        uses.stream().context().bind_to_thread().map_err(Cuda::failed(what))?;
        let mut bytes = MmapMut::map_anon(n_bytes.max(1)).map_err(|error| refused(error.to_string()))?;
        // Without huge pages, the system uses small ones.
        #[cfg(target_os = "linux")]
        let _ = bytes.advise(memmap2::Advice::HugePage);
        bytes
            .par_chunks_mut(TOUCHED_BYTES)
            .for_each(|piece| piece.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 0));
        let first_byte = bytes.as_mut_ptr();
        let first = first_byte.cast::<c_void>();
        let flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
        let checked = |result: CUresult| result.result().map_err(|error| refused(explain(error.0)));
        // SAFETY: as many bytes are mapped there, and stay so until they are released below.
        checked(unsafe { cuMemHostRegister_v2(first, bytes.len(), flags) })?;
        let mut pinned = Self { bytes, first: Writable(first_byte), address: 0, uses };
        // SAFETY: the memory was registered for devices; the pointer is to a live number.
        checked(unsafe { cuMemHostGetDevicePointer_v2(&raw mut pinned.address, first, 0) })?;
        Ok(pinned)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Bytes of a range, to be written while others write other ranges.
    ///
    /// # Safety
    /// Nobody else reads or writes these while they are borrowed.
    #[expect(clippy::mut_from_ref, reason = "ranks share the memory, each with bytes of its own")]
    pub(crate) unsafe fn own_bytes(&self, range: Range<usize>) -> &mut [u8] {
        assert!(range.end <= self.bytes.len(), "bytes of this memory");
        // SAFETY: they are mapped as long as this lives; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts_mut(self.first.0.add(range.start), range.len()) }
    }

    /// Device address of the first byte.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Pinned {
    /// Waits until the device of this memory no longer reads it; users on other devices have to wait themselves.
    fn drop(&mut self) {
        self.uses.wait();
        let _ = self.uses.stream().context().bind_to_thread();
        // SAFETY: it was registered, and this is its end.
        let _ = unsafe { cuMemHostUnregister(self.bytes.as_mut_ptr().cast::<c_void>()) };
    }
}

/// Error of `n_bytes` of host memory that the system does not pin. `otherwise` is a remedy for lack of memory.
pub(crate) fn not_pinned(operation: &'static str, n_bytes: usize, why: &str, otherwise: &str) -> ComputeError {
    let remedy = format!("free memory, raise `ulimit -l`, or {otherwise}");
    ComputeError::device(operation, format!("cannot pin {n_bytes} bytes of host memory ({why}); {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_pinned_is_told_of_with_a_remedy() {
        assert_eq!(
            not_pinned("rows by id", 4096, "no memory", "leave the cache out").to_string(),
            "rows by id failed on the device: cannot pin 4096 bytes of host memory (no memory); free memory, raise `ulimit \
             -l`, or leave the cache out"
        );
    }
}
