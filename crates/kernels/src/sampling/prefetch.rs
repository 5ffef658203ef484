//! [`Prefetch`]: batches that are sampled ahead of their use, on a stream of its own.
//!
//! ```text
//! request   seeds ──▶ sampler ──▶ DeviceBatch ──copy of its words──▶ pinned memory
//! take      wait for the words ──▶ sizes; the caller copies what it needs before the next request
//! ```
//! The host waits only for the control words, which hold the sizes. Later work of the host overlaps the sampling,
//! which begins when all earlier work is done. Ranks that hold patches and ask each other sample a batch together
//! when they take it. The host then waits for each hop, while the device does the work asked of it since the request.

use cudarc::driver::{CudaEvent, PinnedHostSlice};
use girih_compute::ComputeError;
use girih_graph_format::NodeId;
use girih_sampling::DrawKey;

use super::{BatchSizes, DeviceBatch, DeviceSampler, OPERATION};
use crate::Cuda;

/// Sampler, and the batch that it writes.
pub(super) struct Prefetch {
    /// Device with the stream of the sampling.
    side: Cuda,
    sampler: DeviceSampler,
    pub(super) batch: DeviceBatch,
    words: PinnedHostSlice<u64>,
    /// Event behind the copy of words.
    copied: CudaEvent,
    /// Whether all ranks sample a batch together, when it is taken.
    is_collective: bool,
    asked: Option<Request>,
}

/// Requested batch.
enum Request {
    /// Sampling is launched.
    Begun,
    /// Sampling is left to the taking.
    Later(Vec<NodeId>, DrawKey),
}

impl Prefetch {
    /// Prefetch for a device, by a sampler on another stream of it.
    pub(super) fn new(
        cuda: &Cuda,
        side: Cuda,
        sampler: DeviceSampler,
        is_collective: bool,
    ) -> Result<Self, ComputeError> {
        let batch = sampler.batch(&side)?;
        let context = cuda.device.stream.context();
        let pinned = || {
            // SAFETY: all of it is written before it is read.
            let words = unsafe { context.alloc_pinned_with_flags(batch.words.len(), 0) }?;
            Ok((words, context.new_event(None)?))
        };
        let (words, copied) = pinned().map_err(Cuda::failed(OPERATION))?;
        Ok(Self { side, sampler, batch, words, copied, is_collective, asked: None })
    }

    /// Requests a batch, after all earlier work of `cuda`. What the batch before left in memory is overwritten.
    pub(super) fn request(&mut self, cuda: &Cuda, seeds: &[NodeId], key: DrawKey) -> Result<(), ComputeError> {
        self.asked = None;
        let (stream, n_words) = (&self.side.device.stream, self.batch.words.len());
        let failed = Cuda::failed(OPERATION);
        stream.join(&cuda.device.stream).map_err(&failed)?;
        if self.is_collective {
            self.asked = Some(Request::Later(seeds.to_vec(), key));
            return Ok(());
        }
        self.sampler.sample_into(&self.side, seeds, key, &mut self.batch)?;
        // Nobody reads the words while they are copied: `take` waits, and so does the next copy behind this one.
        let words = self.batch.page.slice(..n_words);
        stream.memcpy_dtoh(&words, &mut self.words).map_err(&failed)?;
        self.copied.record(stream).map_err(&failed)?;
        self.asked = Some(Request::Begun);
        Ok(())
    }

    /// Waits for the sizes of the requested batch. Later work of `cuda` comes after the sampling.
    pub(super) fn take(&mut self, cuda: &Cuda) -> Result<BatchSizes, ComputeError> {
        let sizes = match self.asked.take() {
            None => return Err(ComputeError::argument(OPERATION, "no batch was asked for")),
            Some(Request::Begun) => self.sizes(cuda)?,
            Some(Request::Later(seeds, key)) => {
                self.sampler.sample_into(&self.side, &seeds, key, &mut self.batch)?;
                self.batch.sizes(&self.side)?
            }
        };
        self.batch.check(&sizes)?;
        cuda.device.stream.join(&self.side.device.stream).map_err(Cuda::failed(OPERATION))?;
        Ok(sizes)
    }

    /// Sizes of the batch that was begun; one that exceeds its memory is sampled again.
    fn sizes(&mut self, cuda: &Cuda) -> Result<BatchSizes, ComputeError> {
        cuda.wait_for(OPERATION, &self.copied)?;
        let words = self.words.as_slice().map_err(Cuda::failed(OPERATION))?;
        let sizes = self.batch.words.sizes(words, self.batch.n_local_hops());
        if sizes.is_overflow() { self.sampler.complete(&self.side, &mut self.batch) } else { Ok(sizes) }
    }

    /// Waits until neither stream uses the memory.
    pub(super) fn finish(&self, cuda: &Cuda) {
        let _ = cuda.wait(OPERATION);
        let _ = self.side.wait(OPERATION);
    }
}
