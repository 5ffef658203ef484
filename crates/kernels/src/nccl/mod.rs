//! [`NcclRank`]: ranks on GPUs that move matrices by NVIDIA's library. Each has a GPU of its own, unless sharing is
//! requested.
//!
//! ```text
//! Transport (girih-comm)   presence and failures of ranks, and agreements: bytes, between hosts
//! Comm (library.rs)        matrices, from GPU to GPU, in the order of the device's stream
//! OneSided (onesided.rs)   rows, copied from the memory of other GPUs of this process
//! collective.rs            operations of `Collective`, by NCCL or by copies
//! Lists (lists.rs)         lists of any length, from GPU to GPU, for collective sampling and reads
//! gpus.rs                 assignment of ranks to GPUs
//! Peers (peers.rs)         waits for the device that check whether the other ranks are still there
//! ```
//! Operations return when they are on the stream. Waiting ranks notice a rank that fails, or misses the deadline.
//! They abort pending work, and end with an error that names the rank.

mod collective;
mod gpus;
mod library;
mod lists;
mod onesided;
mod peers;
mod schedule;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cudarc::driver::{CudaStream, DevicePtr};
use girih_comm::{Collective, CommError, Communicator, Counters, GpuTransport, Transport, all_gather};

use self::gpus::check_gpus;
use self::library::{Calls, Comm, Elements, Nccl, UniqueId};
pub(crate) use self::lists::{ListExchange, ReceivedList};
use self::onesided::{OneSided, OneSidedGroup};
pub(crate) use self::peers::{OwnedStream, Peers};
use crate::CudaMatrix;
use crate::cuda::Cuda;

/// Rank on a GPU, among ranks on other GPUs.
pub struct NcclRank<T> {
    /// Copies of rows without NCCL; `None` if NCCL moves them. First, because its drop ends waits that communicators
    /// may be queued behind.
    one_sided: Option<OneSidedGroup>,
    transport: Arc<T>,
    /// Communicator; `None` for a single rank.
    comm: Option<Arc<Comm>>,
    /// The device's own stream.
    stream: Arc<CudaStream>,
    /// Stream of calls that were begun and overlap the device's own stream. Its kernels have priority. NCCL's kernels
    /// make progress only once all of them run, and would otherwise wait for the end of a product that fills the GPU.
    side: Arc<CudaStream>,
    /// Whether calls are being begun.
    is_beginning: AtomicBool,
    peers: Arc<Peers>,
    counters: Arc<Counters>,
}

impl<T: Transport> NcclRank<T> {
    /// Turns ranks on CPUs, all of which call this, into ranks on GPUs, each with a backend on its own GPU. No wait
    /// is longer than `deadline`. NCCL computes all reductions; `rows` selects the transport of rows.
    ///
    /// # Errors
    /// When NCCL is missing or too old, two ranks share a GPU that NCCL does not let them share, ranks have different
    /// versions of NCCL, or a rank fails or is late; when GPUs shall read each other's memory, and are of several
    /// processes, or cannot.
    pub fn connect(
        cuda: &Cuda,
        world: Communicator<T>,
        deadline: Duration,
        rows: GpuTransport,
    ) -> Result<Box<dyn Collective<Cuda>>, CommError> {
        const OPERATION: &str = "connecting the GPUs";
        let failed = |message: String| CommError::Library { operation: OPERATION, message };
        let (transport, stream) = (Arc::new(world.into_transport()), Arc::clone(&cuda.device.stream));
        let nccl = Nccl::load().map_err(failed)?;
        let shares_context = check_gpus(cuda, &*transport)?;
        let peers = Arc::new(Peers::new(&transport, deadline, shares_context));
        cuda.join(Arc::clone(&peers));
        let side = cuda.device.urgent_stream().map_err(|error| failed(error.to_string()))?;
        let (is_beginning, counters) = (AtomicBool::new(false), Arc::default());
        let (place, size) = (transport.rank(), transport.size());
        let mut rank = Self { one_sided: None, transport, comm: None, stream, side, is_beginning, peers, counters };
        if size > 1 {
            if rows == GpuTransport::Peer {
                let streams = [&rank.stream, &rank.side].map(Arc::clone);
                let group = OneSidedGroup::of_all(OneSided::connect(&*rank.transport, streams)?, size);
                rank.peers.watch_waits(&group.all);
                rank.one_sided = Some(group);
            }
            let id = if place == 0 { nccl.unique_id().map_err(failed)?.bytes().to_vec() } else { Vec::new() };
            let ids = all_gather(&*rank.transport, OPERATION, &id)?;
            let id = UniqueId::from_bytes(&ids[0]).ok_or_else(|| failed("the first rank sent no id".to_owned()))?;
            rank.stream.context().bind_to_thread().map_err(|error| failed(error.to_string()))?;
            let comm = Comm::begin(nccl, &rank.stream, id, (place, size)).map_err(failed)?;
            let comm = rank.peers.settled(OPERATION, comm)?;
            rank.peers.set_whole(&comm);
            rank.comm = Some(comm);
        }
        Ok(Box::new(rank))
    }

    /// Puts calls on the stream; does nothing for a single rank.
    fn call(&self, operation: &'static str, calls: impl FnOnce(&Calls) -> Result<(), String>) -> Result<(), CommError> {
        let Some(comm) = &self.comm else { return Ok(()) };
        if self.peers.shares_context {
            all_gather(&*self.transport, operation, &[])?;
        }
        let bound = self.stream.context().bind_to_thread().map_err(|error| error.to_string());
        bound
            .and_then(|()| comm.group(self.current(), calls))
            .map_err(|message| self.peers.blame(operation, message))?;
        self.peers.settle(operation, comm)
    }

    /// Stream of calls: the side stream while calls are being begun.
    fn current(&self) -> &CudaStream {
        if self.is_beginning.load(Ordering::Relaxed) { &self.side } else { &self.stream }
    }

    /// Number of this rank, and number of ranks.
    fn rank_and_size(&self) -> (usize, usize) {
        (self.transport.rank(), self.transport.size())
    }

    /// Some rows of a matrix, padding included.
    fn rows(&self, matrix: &CudaMatrix, rows: &std::ops::Range<usize>) -> Elements {
        let pitch = matrix.pitch();
        let start = (rows.start * pitch * matrix.dtype.n_bytes()) as u64;
        let address = matrix.data.device_ptr(&self.stream).0 + start;
        Elements { address, len: rows.len() * pitch, dtype: matrix.dtype }
    }

    /// Copies rows to their place on this rank.
    fn copy(&self, operation: &'static str, from: Elements, to: Elements) -> Result<(), CommError> {
        if from.len == 0 {
            return Ok(());
        }
        // Copies from other GPUs need not wait for this one: it is done when the device's stream waits for them.
        let stream = if self.one_sided.is_some() { &*self.stream } else { self.current() };
        let bound = stream.context().bind_to_thread();
        let n_bytes = from.len * from.dtype.n_bytes();
        // SAFETY: both are rows of matrices that were checked to have as many elements, on this stream's device.
        let copied = bound.and_then(|()| unsafe {
            cudarc::driver::result::memcpy_dtod_async(to.address, from.address, n_bytes, stream.cu_stream())
        });
        copied.map_err(|error| CommError::Library { operation, message: error.to_string() })
    }
}

impl<T> Drop for NcclRank<T> {
    fn drop(&mut self) {
        // Otherwise communicators, which end next, might be queued behind waits for a rank that has failed or is
        // late.
        self.peers.end_after(self.one_sided.as_ref().is_some_and(|group| group.all.has_failed()));
        self.peers.end_soon([&self.stream, &self.side]);
    }
}
