//! Timing by the device's clock: [`Cuda::elapsed`], and its memory bandwidth, [`Cuda::copy_gb_s`].

use cudarc::driver::CudaEvent;
use cudarc::driver::sys::CUevent_flags;
use girih_compute::ComputeError;

use crate::buffer::Buffer;
use crate::cuda::Cuda;

/// Bytes of the copy that measures bandwidth; no cache holds them.
const COPY_BYTES: usize = 1 << 30;
/// Number of timed copies. The fastest counts, because the result is an upper bound.
const COPIES: usize = 7;

impl Cuda {
    /// Waits until all work asked of the device is done.
    ///
    /// # Errors
    /// When the device fails, also in earlier work.
    pub fn synchronize(&self) -> Result<(), ComputeError> {
        self.wait("synchronize")
    }

    /// Seconds, by the device's clock, that the device spends on the work asked by `work`. Earlier work is waited for
    /// and not counted. Time of the host between two requests counts where it leaves the device idle.
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

    /// Measures the device's memory bandwidth in GB/s (10⁹ bytes) with a copy of 1 GiB; read and written bytes both
    /// count.
    ///
    /// # Errors
    /// When 2 GiB of its memory are not free, or the device fails.
    pub fn copy_gb_s(&self) -> Result<f64, ComputeError> {
        const OPERATION: &str = "copy_gb_s";
        let mut from: Buffer<u8> = self.scratch(OPERATION, COPY_BYTES)?;
        let mut to: Buffer<u8> = self.scratch(OPERATION, COPY_BYTES)?;
        self.device.stream.memset_zeros(&mut from).map_err(Self::failed(OPERATION))?;
        let mut copy =
            || self.elapsed(|| self.device.stream.memcpy_dtod(&from, &mut to).map_err(Self::failed(OPERATION)));
        let mut best = copy()?;
        for _ in 1..COPIES {
            best = best.min(copy()?);
        }
        Ok(2.0 * COPY_BYTES as f64 / best / 1e9)
    }

    /// Event behind all work asked of the device so far.
    fn event(&self) -> Result<CudaEvent, ComputeError> {
        self.device.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).map_err(Self::failed("elapsed"))
    }
}
