//! [`NcclRank`]: ranks on GPUs that move matrices by NVIDIA's library. Each has a GPU of its own, unless sharing is
//! requested.
//!
//! ```text
//! Transport (girih-comm)   presence and failures of ranks, and agreements: bytes, between hosts
//! Comm (library.rs)        matrices, from GPU to GPU, in the order of the device's stream
//! OneSided (onesided.rs)   rows, copied from the memory of other GPUs of this process
//! Lists (lists.rs)         lists of any length, from GPU to GPU, for collective sampling and reads
//! cards.rs                 assignment of ranks to GPUs
//! Peers (peers.rs)         waits for the device that check whether the other ranks are still there
//! ```
//! Operations return when they are on the stream. Waiting ranks notice a rank that fails, or misses the deadline.
//! They abort pending work, and end with an error that names the rank.

mod cards;
mod library;
mod lists;
mod onesided;
mod peers;
mod schedule;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cudarc::driver::{CudaEvent, CudaStream, DevicePtr, DriverError};
use girih_comm::operands::{check_pieces, check_shape, of_others};
use girih_comm::{
    Call, CardTransport, Collective, CommError, Communicator, Counters, Parcel, PatchGraphs, PatchReaders, Pending,
    Traffic, Transport, all_gather, all_to_all, members,
};
use girih_compute::{ComputeError, Dtype, PatchOperand, PatchRowsOperand, Shape};

use self::cards::check_cards;
use self::library::{Calls, Comm, Elements, Nccl, UniqueId};
pub(crate) use self::lists::{Lists, Swapped};
pub(crate) use self::onesided::link_of;
use self::onesided::{OneSided, OneSidedGroup};
pub(crate) use self::peers::Peers;
use crate::CudaMatrix;
use crate::backend::Cuda;
use crate::patch_rows::{OwnRows, PatchRows};
use crate::sampling::{CudaGraph, DeviceTopology};

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
        rows: CardTransport,
    ) -> Result<Box<dyn Collective<Cuda>>, CommError> {
        const OPERATION: &str = "connecting the GPUs";
        let failed = |message: String| CommError::Library { operation: OPERATION, message };
        let (transport, stream) = (Arc::new(world.into_transport()), Arc::clone(&cuda.device.stream));
        let nccl = Nccl::load().map_err(failed)?;
        let shares_context = check_cards(cuda, &*transport)?;
        let peers = Arc::new(Peers::new(&transport, deadline, shares_context));
        cuda.device.join(Arc::clone(&peers));
        let side = cuda.device.urgent_stream().map_err(|error| failed(error.to_string()))?;
        let (is_beginning, counters) = (AtomicBool::new(false), Arc::default());
        let (place, size) = (transport.rank(), transport.size());
        let mut rank = Self { one_sided: None, transport, comm: None, stream, side, is_beginning, peers, counters };
        if size > 1 {
            if rows == CardTransport::Peer {
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
            rank.comm = Some(rank.settled(OPERATION, comm)?);
        }
        Ok(Box::new(rank))
    }

    /// Exchange of lists with a communicator of its own; all ranks create it together.
    fn lists(&self, operation: &'static str) -> Result<Lists, CommError> {
        let rank = self.transport.rank();
        let transport = Arc::new(self.transport.among(&members(&*self.transport, 0, rank)?));
        let split = |comm| self.split_off(operation, comm, (Some(0), rank));
        let comm = self.comm.as_ref().map(split).transpose()?.flatten();
        Ok(Lists::new(transport, comm, Arc::clone(&self.peers)))
    }

    /// Communicator of the ranks with the same colour, ordered by key; `None` for a rank without a colour. All ranks
    /// of `comm` create it together.
    fn split_off(
        &self,
        operation: &'static str,
        comm: &Arc<Comm>,
        (colour, key): (Option<usize>, usize),
    ) -> Result<Option<Arc<Comm>>, CommError> {
        let splitting = comm.begin_split(colour, key).map_err(|message| self.peers.blame(operation, message))?;
        self.peers.settle(operation, comm)?;
        splitting.finish(comm).map(|child| self.settled(operation, child)).transpose()
    }

    /// Transports among `by` through which all ranks can reach each other's patches; all of them call this.
    fn possible(&self, operation: &'static str, by: &[CardTransport]) -> Result<Vec<CardTransport>, CommError> {
        let mut possible = Vec::with_capacity(by.len());
        for &by in by {
            if by == CardTransport::Nccl || self.peers.lets_read(operation, self.stream.context())? {
                possible.push(by);
            }
        }
        Ok(possible)
    }

    /// Waits until a communicator is ready, and registers it to be aborted on failures.
    fn settled(&self, operation: &'static str, comm: Comm) -> Result<Arc<Comm>, CommError> {
        let comm = Arc::new(comm);
        self.peers.watch(&comm);
        self.peers.settle(operation, &comm)?;
        Ok(comm)
    }

    /// Puts calls on the stream; does nothing for a single rank.
    fn call(&self, operation: &'static str, calls: impl FnOnce(&Calls) -> Result<(), String>) -> Result<(), CommError> {
        let Some(comm) = &self.comm else { return Ok(()) };
        if self.peers.shares_context() {
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

/// Bytes of some rows for traffic counters, without padding.
fn bytes(matrix: &CudaMatrix, rows: usize) -> u64 {
    (rows * matrix.shape.cols * matrix.dtype.n_bytes()) as u64
}

impl<T: Transport> Collective<Cuda> for NcclRank<T> {
    fn rank(&self) -> usize {
        self.transport.rank()
    }

    fn size(&self) -> usize {
        self.transport.size()
    }

    fn broadcast(&self, root: usize, matrix: &mut CudaMatrix) -> Result<(), CommError> {
        let ((rank, size), n_bytes) = (self.rank_and_size(), bytes(matrix, matrix.shape.rows));
        let x = self.rows(matrix, &(0..matrix.shape.rows));
        match &self.one_sided {
            Some(_) => self.spread(root, matrix)?,
            // SAFETY: only this call uses the matrix; enqueued work reads and writes it in the order of its stream.
            None => self.call(BROADCAST, |calls| unsafe { calls.broadcast(root, x, x) })?,
        }
        self.counters.add(Traffic::of_broadcast(n_bytes, size, rank == root));
        Ok(())
    }

    fn all_reduce(&self, matrix: &mut CudaMatrix) -> Result<(), CommError> {
        self.all_reduce_each(&mut [matrix])
    }

    fn all_reduce_each(&self, matrices: &mut [&mut CudaMatrix]) -> Result<(), CommError> {
        let all: Vec<Elements> = matrices.iter().map(|matrix| self.rows(matrix, &(0..matrix.shape.rows))).collect();
        self.call("all-reduce", |calls| {
            // SAFETY: as in `broadcast`.
            all.iter().try_for_each(|x| unsafe { calls.all_reduce(*x) })
        })?;
        let (rank, size) = self.rank_and_size();
        for matrix in matrices {
            self.counters.add(Traffic::of_all_reduce(matrix.shape.len(), matrix.dtype.n_bytes(), rank, size));
        }
        Ok(())
    }

    fn overlaps(&self) -> bool {
        self.comm.is_some()
    }

    fn begin(&self, calls: &mut dyn FnMut() -> Result<(), CommError>) -> Result<Pending, CommError> {
        if self.comm.is_none() {
            calls()?;
            return Ok(Pending::done());
        }
        let failed = |error: DriverError| CommError::Library { operation: "begin", message: error.to_string() };
        self.side.join(&self.stream).map_err(failed)?;
        self.is_beginning.store(true, Ordering::Relaxed);
        let called = calls();
        self.is_beginning.store(false, Ordering::Relaxed);
        called?;
        Ok(Pending::until(self.side.record_event(None).map_err(failed)?))
    }

    fn finish(&self, pending: Pending) -> Result<(), CommError> {
        let failed = |error: DriverError| CommError::Library { operation: "finish", message: error.to_string() };
        pending.mark::<CudaEvent>().map_or(Ok(()), |done| self.stream.wait(&done).map_err(failed))
    }

    fn reduce_scatter(&self, rows: &[usize], input: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), CommError> {
        const NAME: &str = "reduce-scatter";
        let (rank, size) = self.rank_and_size();
        let pieces = check_pieces(NAME, rows, size, input.shape)?;
        check_shape(NAME, out.shape, Shape::new(rows[rank], input.shape.cols))?;
        check_dtypes(NAME, input.dtype, out.dtype)?;
        let sum = self.rows(out, &(0..rows[rank]));
        if self.comm.is_none() {
            return self.copy(NAME, self.rows(input, &pieces[0]), sum);
        }
        self.call(NAME, |calls| {
            let mut some = pieces.iter().enumerate().filter(|(_, piece)| !piece.is_empty());
            // SAFETY: as in `broadcast`; the input is only read.
            some.try_for_each(|(root, piece)| unsafe { calls.reduce(root, self.rows(input, piece), sum) })
        })?;
        let (own, all) = (bytes(input, rows[rank]), bytes(input, input.shape.rows));
        self.counters.add(Traffic::of_reduce_scatter(own, all, size));
        Ok(())
    }

    fn all_gather(&self, rows: &[usize], input: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), CommError> {
        const NAME: &str = "all-gather";
        let (rank, size) = self.rank_and_size();
        let pieces = check_pieces(NAME, rows, size, out.shape)?;
        check_shape(NAME, input.shape, Shape::new(rows[rank], out.shape.cols))?;
        check_dtypes(NAME, input.dtype, out.dtype)?;
        let own = self.rows(input, &(0..rows[rank]));
        if self.comm.is_none() {
            return self.copy(NAME, own, self.rows(out, &pieces[0]));
        }
        self.copy(NAME, own, self.rows(out, &pieces[rank]))?;
        self.share(NAME, rows, (own, &pieces), out)
    }

    fn gather_others(&self, rows: &[usize], input: &CudaMatrix, out: &mut CudaMatrix) -> Result<(), CommError> {
        const NAME: &str = "gather from others";
        let (rank, size) = self.rank_and_size();
        let pieces = check_pieces(NAME, &of_others(rows, rank), size, out.shape)?;
        check_shape(NAME, input.shape, Shape::new(rows[rank], out.shape.cols))?;
        check_dtypes(NAME, input.dtype, out.dtype)?;
        self.share(NAME, rows, (self.rows(input, &(0..rows[rank])), &pieces), out)
    }

    fn all_to_all(
        &self,
        send_rows: &[usize],
        input: &CudaMatrix,
        receive_rows: &[usize],
        out: &mut CudaMatrix,
    ) -> Result<(), CommError> {
        const NAME: &str = "all-to-all";
        let (rank, size) = self.rank_and_size();
        let sent = check_pieces(NAME, send_rows, size, input.shape)?;
        let received = check_pieces(NAME, receive_rows, size, out.shape)?;
        check_shape(NAME, Shape::new(1, input.shape.cols), Shape::new(1, out.shape.cols))?;
        check_shape(NAME, Shape::new(send_rows[rank], 1), Shape::new(receive_rows[rank], 1))?;
        check_dtypes(NAME, input.dtype, out.dtype)?;
        self.copy(NAME, self.rows(input, &sent[rank]), self.rows(out, &received[rank]))?;
        let sent: Vec<Elements> = sent.iter().map(|piece| self.rows(input, piece)).collect();
        let received: Vec<Elements> = received.iter().map(|piece| self.rows(out, piece)).collect();
        self.exchange(NAME, &sent, &received)?;
        let others = |rows: &[usize]| rows.iter().sum::<usize>() - rows[rank];
        self.counters
            .add(Traffic { sent: bytes(input, others(send_rows)), received: bytes(out, others(receive_rows)) });
        Ok(())
    }

    fn all_gather_bytes(&self, message: &[u8]) -> Result<Vec<Vec<u8>>, CommError> {
        let received = all_gather(&*self.transport, "all-gather of messages", message)?;
        Ok(received.iter().map(|parcel| parcel.to_vec()).collect())
    }

    fn all_to_all_bytes(&self, messages: Vec<Parcel>) -> Result<Vec<Parcel>, CommError> {
        all_to_all(&*self.transport, "all-to-all of messages", messages)
    }

    fn patch_graphs(
        &self,
        cuda: &Cuda,
        patch: &PatchOperand<'_>,
        by: &[CardTransport],
    ) -> Result<PatchGraphs<Cuda>, CommError> {
        const NAME: &str = "patches on cards";
        let own = Arc::new(DeviceTopology::of_patch(cuda, patch, self.rank()).map_err(failed_in(NAME))?);
        let graph = |by: CardTransport| -> Result<_, CommError> {
            let graph = match by {
                CardTransport::Nccl => CudaGraph::asking_others(cuda, patch, &own, self.lists(NAME)?),
                CardTransport::Peer => CudaGraph::reading_others(cuda, patch, &own, &self.peers),
            };
            Ok((by, Box::new(graph.map_err(failed_in(NAME))?) as _))
        };
        self.possible(NAME, by)?.into_iter().map(graph).collect()
    }

    fn patch_rows(
        &self,
        cuda: &Cuda,
        own: PatchRowsOperand<'_, Cuda>,
        bounds: &[u32],
        by: &[CardTransport],
    ) -> Result<PatchReaders<Cuda>, CommError> {
        const NAME: &str = "rows of patches on cards";
        let own = OwnRows::new(cuda, own, (bounds, self.rank())).map_err(failed_in(NAME))?;
        let Some(own) = own.map(Arc::new) else { return Ok(Vec::new()) };
        let rows = |by: CardTransport| -> Result<_, CommError> {
            let rows = match by {
                CardTransport::Nccl => PatchRows::asking_others(cuda, &own, bounds, self.lists(NAME)?),
                CardTransport::Peer => PatchRows::reading_others(cuda, &own, bounds, &self.peers),
            };
            Ok((by, Box::new(rows.map_err(failed_in(NAME))?) as _))
        };
        self.possible(NAME, by)?.into_iter().map(rows).collect()
    }

    fn split(&self, colour: usize, key: usize) -> Result<Box<dyn Collective<Cuda>>, CommError> {
        const NAME: &str = "split";
        let (rank, size) = self.rank_and_size();
        let members = members(&*self.transport, colour, key)?;
        let place = members.iter().position(|&member| member == rank).expect("a rank is in its group");
        let transport = Arc::new(self.transport.among(&members));
        let is_whole = members.len() == size;
        let comm = match &self.comm {
            // Nobody leaves: all have the same members, and know it.
            Some(comm) if is_whole && members.is_sorted() => Some(Arc::clone(comm)),
            Some(comm) => self.split_off(NAME, comm, ((members.len() > 1).then_some(colour), place))?,
            None => None,
        };
        let one_sided = self.one_sided.as_ref().map(|group| group.among(&members));
        let (stream, side) = (Arc::clone(&self.stream), Arc::clone(&self.side));
        let (is_beginning, peers, counters) =
            (AtomicBool::new(false), Arc::clone(&self.peers), Arc::clone(&self.counters));
        Ok(Box::new(Self { one_sided, transport, comm, stream, side, is_beginning, peers, counters }))
    }

    fn barrier(&self) -> Result<(), CommError> {
        all_gather(&*self.transport, "barrier", &[]).map(drop)
    }

    fn failure(&self) -> Option<CommError> {
        self.transport.failure()
    }

    fn traffic(&self) -> Traffic {
        self.counters.traffic()
    }
}

impl<T: Transport> NcclRank<T> {
    /// Exchanges rows with each other rank. Both lists have an element for each rank; that of this rank is ignored.
    fn exchange(&self, operation: &'static str, sent: &[Elements], received: &[Elements]) -> Result<(), CommError> {
        let (rank, size) = self.rank_and_size();
        let Some(group) = &self.one_sided else {
            return self.call(operation, |calls| {
                let mut others = (0..size).filter(|&other| other != rank);
                others.try_for_each(|other| self.swap(calls, other, sent[other], received[other]))
            });
        };
        let call = Call { operation, detail: [sent[rank].dtype.n_bytes(), 0] };
        let is_begun = self.is_beginning.load(Ordering::Relaxed);
        // SAFETY: as in `Collective::broadcast`; for calls that were begun, `Collective::begin` promises the same.
        let exchanged = unsafe { group.exchange((&*self.transport, call), sent, received, is_begun) };
        exchanged.inspect_err(|_| group.all.note_failure())
    }

    /// All-gather: sends own rows to each other rank, and receives `rows` of each to its range of `out`. All pairs
    /// exchange, so that every link carries rows both ways from the start; broadcasts go along rings, one after the
    /// other.
    fn share(
        &self,
        operation: &'static str,
        rows: &[usize],
        (own, pieces): (Elements, &[std::ops::Range<usize>]),
        out: &mut CudaMatrix,
    ) -> Result<(), CommError> {
        let (rank, size) = self.rank_and_size();
        let received: Vec<Elements> = pieces.iter().map(|piece| self.rows(out, piece)).collect();
        self.exchange(operation, &vec![own; size], &received)?;
        let (own, all) = (bytes(out, rows[rank]), bytes(out, rows.iter().sum()));
        self.counters.add(Traffic::of_all_gather(own, all, size));
        Ok(())
    }

    /// Broadcast by copies. The root's rows are cut into as many slices as there are other ranks. Each copies one
    /// slice from the root, and the others from its peers, so that no link carries more than a few.
    fn spread(&self, root: usize, matrix: &CudaMatrix) -> Result<(), CommError> {
        let (rank, size) = self.rank_and_size();
        let nothing = Elements { len: 0, ..self.rows(matrix, &(0..0)) };
        let slice = |of: usize| match of == root {
            true => nothing,
            false => self.rows(matrix, &slice_of(matrix.shape.rows, (root, size), of)),
        };
        let is_root = rank == root;
        let sent: Vec<Elements> = (0..size).map(|to| if is_root { slice(to) } else { nothing }).collect();
        let received: Vec<Elements> = (0..size).map(|from| if from == root { slice(rank) } else { nothing }).collect();
        self.exchange(BROADCAST, &sent, &received)?;
        if size == 2 {
            return Ok(());
        }
        let sent: Vec<Elements> = (0..size).map(|to| if to == root { nothing } else { slice(rank) }).collect();
        let received: Vec<Elements> = (0..size).map(|from| if is_root { nothing } else { slice(from) }).collect();
        self.exchange(BROADCAST, &sent, &received)
    }

    /// Sends rows to another rank, and receives rows from it.
    fn swap(&self, calls: &Calls, other: usize, sent: Elements, received: Elements) -> Result<(), String> {
        // SAFETY: as in `Collective::broadcast`; the other rank does the same.
        unsafe {
            if sent.len > 0 {
                calls.send(other, sent)?;
            }
            if received.len > 0 {
                calls.receive(other, received)?;
            }
        }
        Ok(())
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

const BROADCAST: &str = "broadcast";

/// Rows of a broadcast that rank `of`, which is not the root, copies from the root: nearly equal slices, by rank.
fn slice_of(n_rows: usize, (root, size): (usize, usize), of: usize) -> std::ops::Range<usize> {
    let (place, n) = (if of > root { of - 1 } else { of }, size - 1);
    n_rows * place / n..n_rows * (place + 1) / n
}

/// Converts an error of a device to one of a collective.
fn failed_in(operation: &'static str) -> impl Fn(ComputeError) -> CommError {
    move |error| CommError::Library { operation, message: error.to_string() }
}

fn check_dtypes(operation: &'static str, input: Dtype, out: Dtype) -> Result<(), CommError> {
    if input == out {
        return Ok(());
    }
    Err(CommError::Operand { operation, what: format!("the input is {input:?}, out is {out:?}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_a_broadcast_make_up_the_rows() {
        for (n_rows, size) in [(10, 4), (1, 4), (0, 3), (7, 2), (33, 5)] {
            for root in 0..size {
                let others = (0..size).filter(|&of| of != root);
                let rows: Vec<usize> = others.flat_map(|of| slice_of(n_rows, (root, size), of)).collect();
                assert_eq!(rows, (0..n_rows).collect::<Vec<_>>(), "{n_rows} rows from {root} to {size}");
            }
        }
    }
}
