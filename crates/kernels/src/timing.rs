//! What work takes by the device's own clock: [`Cuda::elapsed`], and the ceiling of its memory, [`Cuda::copy_gb_s`].

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent, CudaSlice};
use girih_compute::ComputeError;

use crate::backend::Cuda;

/// Bytes that are copied to measure the memory: no cache holds them.
const COPY_BYTES: usize = 1 << 30;
/// Copies that are timed; the best counts, since a ceiling is what the device can do.
const COPIES: usize = 7;

impl Cuda {
    /// Waits until all that was asked of the device is done.
    ///
    /// # Errors
    /// When the device fails, also at work that was asked for before.
    pub fn synchronize(&self) -> Result<(), ComputeError> {
        self.device.wait("synchronize")
    }

    /// Seconds by the device's clock that it works on what `work` asks of it. What was asked before is waited for and
    /// not counted; what the host does between two requests is, where it keeps the device waiting.
    ///
    /// # Errors
    /// When `work` fails, or the device does.
    pub fn elapsed<E: From<ComputeError>>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
        self.synchronize()?;
        let start = self.event()?;
        work()?;
        let end = self.event()?;
        let milliseconds = start.elapsed_ms(&end).map_err(Self::failed("elapsed"))?;
        Ok(f64::from(milliseconds) / 1e3)
    }

    /// Measures the device's memory: bytes a second, in 10⁹, of copying a large block from one place to another, read
    /// and written bytes counted both.
    ///
    /// # Errors
    /// When 2 GiB of its memory are not free, or the device fails.
    pub fn copy_gb_s(&self) -> Result<f64, ComputeError> {
        const OPERATION: &str = "copy_gb_s";
        let mut from: CudaSlice<u8> = self.scratch(OPERATION, COPY_BYTES)?;
        let mut to: CudaSlice<u8> = self.scratch(OPERATION, COPY_BYTES)?;
        self.device.stream.memset_zeros(&mut from).map_err(Self::failed(OPERATION))?;
        let mut copy =
            || self.elapsed(|| self.device.stream.memcpy_dtod(&from, &mut to).map_err(Self::failed(OPERATION)));
        let mut best = copy()?;
        for _ in 1..COPIES {
            best = best.min(copy()?);
        }
        Ok(2.0 * COPY_BYTES as f64 / best / 1e9)
    }

    /// A moment between what was asked of the device and what will be.
    fn event(&self) -> Result<CudaEvent, ComputeError> {
        self.device.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).map_err(Self::failed("elapsed"))
    }
}
