//! [`InPlace`]: rows that a launch reads where they lie. They are on this GPU, on GPUs whose memory it reads, or in
//! pinned host memory; only the number of threads differs.

use std::sync::Arc;

use cudarc::driver::{CudaEvent, CudaStream};
use girih_compute::ComputeError;

use super::cache::DeviceCache;
use super::request::{Request, StoredRows};
use super::row_checks::OPERATION;
use super::row_launch::RowLaunch;
use crate::Cuda;
use crate::abi::{BLOCK, LARGE_BLOCK, RowSource};

/// Blocks, and threads of each, for rows on GPUs.
pub(super) const ON_GPUS: (u32, u32) = (132, BLOCK);
/// Blocks, and threads of each, for rows in memory of the device itself, and for exchanges of ranks.
pub(super) const IN_DEVICE: (u32, u32) = (132 * 8, BLOCK);
/// Blocks, and threads of each, that saturate the bus with undecoded rows, and no more. Blocks of a step's products
/// that need a whole SM wait for the reading ones. Commands of the step also come over the bus, and wait behind the
/// reads under way. A warp that decodes has one code in flight, so decoding needs more blocks.
const BLOCKS_OF_BUS: (u32, u32) = (5, LARGE_BLOCK);

/// Rows that kernels read, and the memory `M` that holds them; see the module.
pub(super) struct InPlace<M> {
    pub(super) source: RowSource,
    pub(super) memory: M,
    /// Blocks and threads of a launch that copies, and of one that decodes.
    threads: [(u32, u32); 2],
}

impl<M> InPlace<M> {
    /// Rows in memory of the device, or of GPUs of other ranks that all have a share of them.
    pub(super) fn resident(source: RowSource, memory: M) -> Self {
        Self { source, memory, threads: [IN_DEVICE; 2] }
    }

    /// Rows in pinned memory of the host (UVA).
    pub(super) fn uva(source: RowSource, memory: M) -> Self {
        Self { source, memory, threads: [BLOCKS_OF_BUS, ON_GPUS] }
    }

    /// Blocks and threads of a launch.
    fn threads(&self, write: &RowLaunch) -> (u32, u32) {
        self.threads[usize::from(write.decodes())]
    }
}

impl InPlace<Arc<DeviceCache>> {
    /// Rows of `row_bytes` bytes that a placement has put on GPUs. A gather of others leaves their results alone.
    pub(super) fn cached(memory: Arc<DeviceCache>, row_bytes: usize) -> Self {
        let source = RowSource::listed(memory.list(), row_bytes as u64).only_on_gpus();
        Self { source, memory, threads: [ON_GPUS; 2] }
    }
}

impl<M: Send + Sync> StoredRows for InPlace<M> {
    /// Event behind the launch; `None` if nothing was wanted.
    type Pending = Option<CudaEvent>;

    unsafe fn gather_async(&self, _: &Cuda, request: &Request<'_>) -> Result<Self::Pending, ComputeError> {
        let &Request { wanted, to, write, stream, .. } = request;
        if wanted.len() == 0 {
            return Ok(None);
        }
        // SAFETY: the caller vouches for ids and result; rows lie where the source says.
        unsafe { write.put(stream, self.threads(write), self.source, wanted.index(), (to, wanted.len() as u64)) }
            .and_then(|()| stream.record_event(None))
            .map(Some)
            .map_err(Cuda::failed(OPERATION))
    }

    fn wait(
        &self,
        stream: &Arc<CudaStream>,
        _: Option<&Request<'_>>,
        pending: Self::Pending,
    ) -> Result<(), ComputeError> {
        pending.map_or(Ok(()), |launched| stream.wait(&launched).map_err(Cuda::failed(OPERATION)))
    }
}
