//! [`OneSided`]: GPUs of one process that copy rows from each other's memory.
//!
//! ```text
//! hosts    tell each other the addresses of an exchange, through their transport: once, also if it is captured
//! streams  set flags for each other and wait for them (schedule.rs), in the order of each rank's side stream
//! copies   are the reader's, by its copy engines; they use no SM
//! ```
//! Flags lie in host memory that all GPUs reach. Streams write them after all earlier work, and wait for them without
//! a kernel. Unlike events, they work in each launch of a graph.
//!
//! All exchanges of a rank go through its side stream, in the order of calls, which is the same on all ranks. So a
//! rank that others wait for always arrives, in whatever order a GPU runs its streams. Hosts meet before each launch
//! of a graph, as they do in an exchange that is not captured ([`Peers::meet`](super::Peers::meet)): no GPU waits for
//! a rank that has ended. The stream of the device resumes after an exchange only when all readers of this rank's
//! rows are done. Its host returns from an exchange only when all ranks have launched their copies; from then on the
//! rows may be overwritten or freed. The driver refuses to copy from freed memory, even if the free follows the copy
//! in stream order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::result::{free_host, malloc_host, memcpy_dtod_async};
use cudarc::driver::sys::{self, CUdeviceptr, CUstreamBatchMemOpParams, CUstreamBatchMemOpType};
use cudarc::driver::{CudaContext, CudaStream, DriverError};
use girih_comm::{Call, CommError, Parcel, Payload, Transport, all_gather, all_to_all};

use super::library::Elements;
use super::peers::is_busy;
use super::schedule::{Act, Flag, schedule};
use crate::pool;

/// Time that an ending rank waits for others to do their part of its requests.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest time for streams to end once they need not wait for others any more.
const LAST: Duration = Duration::from_secs(5);
/// Time between two polls of a stream.
const NAP: Duration = Duration::from_micros(20);
const UP: u32 = 1;
const DOWN: u32 = 0;

/// State that a rank shares with all others: its memory, and flags.
pub(super) struct OneSided {
    flags: Arc<Flags>,
    /// Number of this rank among all.
    rank: usize,
    /// The device's own stream, and the stream of exchanges.
    streams: [Arc<CudaStream>; 2],
    /// Whether an exchange has failed, after which others may wait, or not come, for ever.
    has_failed: AtomicBool,
}

impl OneSided {
    /// Lets the GPUs of all ranks read the memory of this one's; all ranks call this together. `streams` are the
    /// device's own and the one for exchanges.
    ///
    /// # Errors
    /// When ranks are not threads of one process, or a GPU cannot read another one's memory.
    pub(super) fn connect<T: Transport>(transport: &T, streams: [Arc<CudaStream>; 2]) -> Result<Self, CommError> {
        const OPERATION: &str = "sharing the memory of GPUs";
        let (rank, context) = (transport.rank(), Arc::clone(streams[0].context()));
        open_memory(transport, OPERATION, &context)?;
        // A rank that gets the flags knows that all ranks came here, and have shared their memory.
        let flags = Flags::common(transport, OPERATION, &context)?;
        Ok(Self { flags, rank, streams, has_failed: AtomicBool::new(false) })
    }

    /// Notes that an exchange has failed.
    pub(super) fn note_failure(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Whether an exchange has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Whether no work is pending on this rank's streams, nor ever will be after a failure.
    fn is_idle(&self) -> bool {
        !self.streams.iter().any(|stream| is_busy(stream))
    }

    /// Ends the waits of this rank's streams for others, while `also` runs; copies may then read invalid rows.
    pub(super) fn let_go_while(&self, also: impl FnOnce()) {
        std::thread::scope(|scope| {
            scope.spawn(|| self.let_go());
            also();
        });
    }

    /// Ends waits until none is left.
    fn let_go(&self) {
        let start = Instant::now();
        while !self.is_idle() && start.elapsed() < LAST {
            self.flags.set_all(self.rank);
            std::thread::sleep(NAP);
        }
    }
}

impl Drop for OneSided {
    fn drop(&mut self) {
        // Pending work may wait for others, who are on their way unless they fail.
        let start = Instant::now();
        while !self.is_idle() && start.elapsed() < PATIENCE {
            std::thread::sleep(NAP);
        }
        self.let_go();
        if !self.is_idle() {
            tracing::warn!("a GPU does not finish its copies");
            // Its stream may still write there.
            std::mem::forget(Arc::clone(&self.flags));
        }
    }
}

/// Reason why GPUs do not read each other's memory.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error(
        "each rank is a process of its own, and GPUs read each other's memory within one process only: give `--gpus N`, or \
         --transport nccl and caches with one share"
    )]
    Processes,
    #[error(
        "the GPU of rank {reader} cannot read the memory of the GPU of rank {owner}: use GPUs that can (`nvidia-smi topo -p2p r` \
         lists them), or give --transport nccl and caches with one share"
    )]
    NoLink { reader: usize, owner: usize },
    #[error(
        "the GPU of rank {rank} has no memory pool that other GPUs can read: give --transport nccl and caches with one share"
    )]
    NoPool { rank: usize },
}

/// Device number of a rank, from its message.
fn device_of(message: &[u8], rank: usize, operation: &'static str) -> Result<sys::CUdevice, CommError> {
    let numbers = Payload::new(message, rank, operation).exactly::<i32>(1)?;
    Ok(numbers[0])
}

/// Lets the GPUs of all ranks read the allocations of a context; all ranks call this together.
///
/// # Errors
/// When ranks are not threads of one process, or a GPU cannot read another one's memory.
pub(super) fn open_memory<T: Transport>(
    transport: &T,
    operation: &'static str,
    context: &Arc<CudaContext>,
) -> Result<(), CommError> {
    let refused = |why: Unreadable| CommError::Operand { operation, what: why.to_string() };
    let failed = |error: DriverError| CommError::Library { operation, message: error.to_string() };
    if !transport.is_one_process() {
        return Err(refused(Unreadable::Processes));
    }
    let (rank, mine) = (transport.rank(), context.cu_device());
    let told = all_gather(transport, operation, &mine.to_le_bytes())?;
    let devices = told.iter().enumerate().map(|(other, device)| device_of(device, other, operation));
    let devices = devices.collect::<Result<Vec<_>, _>>()?;
    for (other, &device) in devices.iter().enumerate().filter(|&(other, _)| other != rank) {
        if !can_read(mine, device).map_err(failed)? {
            return Err(refused(Unreadable::NoLink { reader: rank, owner: other }));
        }
    }
    if !pool::share(context, &devices).map_err(failed)? {
        return Err(refused(Unreadable::NoPool { rank }));
    }
    Ok(())
}

/// Whether a GPU can read another one's memory.
fn can_read(reader: sys::CUdevice, owner: sys::CUdevice) -> Result<bool, DriverError> {
    Ok(reader == owner || link_of(reader, owner)?.is_some())
}

/// Performance rank, by the driver, of the link by which a GPU reads another one's memory; `None` where it cannot.
pub(crate) fn link_of(reader: sys::CUdevice, owner: sys::CUdevice) -> Result<Option<i32>, DriverError> {
    let (mut can, mut rank) = (0, 0);
    // SAFETY: both are devices, and the function writes a number.
    unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, reader, owner) }.result()?;
    if can == 0 {
        return Ok(None);
    }
    let attribute = sys::CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
    // SAFETY: as above.
    unsafe { sys::cuDeviceGetP2PAttribute(&raw mut rank, attribute, reader, owner) }.result()?;
    Ok(Some(rank))
}

/// Group of ranks that copy rows from each other.
pub(super) struct OneSidedGroup {
    pub(super) all: Arc<OneSided>,
    /// Numbers of the group's ranks among all.
    members: Vec<usize>,
}

/// Rows that a rank has for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    address: u64,
    n_bytes: u64,
}

impl Piece {
    fn of(rows: Elements) -> Self {
        Self { address: rows.address, n_bytes: (rows.len * rows.dtype.n_bytes()) as u64 }
    }

    fn parcel(self) -> Parcel {
        Parcel::from([self.address.to_le_bytes(), self.n_bytes.to_le_bytes()].concat())
    }

    /// Parses a message; `None` if no rank of this program sends such.
    fn from_parcel(parcel: &[u8]) -> Option<Self> {
        let (words, []) = parcel.as_chunks() else { return None };
        let &[address, n_bytes] = words else { return None };
        Some(Self { address: u64::from_le_bytes(address), n_bytes: u64::from_le_bytes(n_bytes) })
    }
}

impl OneSidedGroup {
    /// Group of all ranks.
    pub(super) fn of_all(all: OneSided, n_ranks: usize) -> Self {
        Self { all: Arc::new(all), members: (0..n_ranks).collect() }
    }

    /// Group of some of these ranks.
    pub(super) fn among(&self, members: &[usize]) -> Self {
        Self { all: Arc::clone(&self.all), members: members.iter().map(|&member| self.members[member]).collect() }
    }

    /// Copies the rows that each other rank has in `sent` for this one to their places in `received`. Both have an
    /// element for each rank of the group; that of this rank is ignored. If `is_begun`, the device's own stream waits
    /// for the exchange later.
    ///
    /// # Safety
    /// Elements lie on the device of the rank. Nobody else writes `sent` or touches `received` from the work that was
    /// put on the device's own stream before this call until that stream waits for the side stream; they live until
    /// then.
    ///
    /// # Errors
    /// When a rank fails, is late, or has other pieces in mind.
    pub(super) unsafe fn exchange<T: Transport>(
        &self,
        (transport, call): (&T, Call),
        sent: &[Elements],
        received: &[Elements],
        is_begun: bool,
    ) -> Result<(), CommError> {
        let (operation, me) = (call.operation, transport.rank());
        let failed = |error: DriverError| CommError::Library { operation, message: error.to_string() };
        let parcels = sent.iter().map(|&rows| Piece::of(rows).parcel()).collect();
        let found = transport.exchange(call, parcels)?;
        let theirs = self.checked(operation, me, &found, received)?;
        let [own, side] = self.all.streams.each_ref();
        if !is_begun {
            side.join(own).map_err(failed)?;
        }
        let some = |rows: &[Elements]| rows.iter().map(|rows| rows.len > 0).collect::<Vec<_>>();
        let acts = schedule(me, &some(sent), &some(received));
        // SAFETY: the pieces of others are as long as their places here. Each lies in memory that this GPU may read
        // since `connect`, and is left alone until this rank says that it has read it; the caller vouches for the
        // rest.
        unsafe { self.carry_out(&acts, &theirs, received) }.map_err(failed)?;
        // After this call a rank may free its rows, and the driver refuses copies that are launched later.
        transport.exchange(call, vec![Parcel::from([]); received.len()])?;
        if is_begun { Ok(()) } else { own.join(side).map_err(failed) }
    }

    /// Rows that other ranks have for this one; fails if their sizes are not the expected ones.
    fn checked(
        &self,
        operation: &'static str,
        me: usize,
        found: &[Parcel],
        received: &[Elements],
    ) -> Result<Vec<Piece>, CommError> {
        let check = |(other, (parcel, &place)): (usize, (&Parcel, &Elements))| {
            let (piece, wanted) = (Piece::from_parcel(parcel), Piece::of(place).n_bytes);
            match piece {
                Some(piece) if other == me || piece.n_bytes == wanted => Ok(piece),
                _ => Err(CommError::Mismatch {
                    here: self.members[me],
                    expected: format!("{operation} of {wanted} bytes"),
                    rank: self.members[other],
                    found: format!("{operation} of {} bytes", piece.map_or(0, |piece| piece.n_bytes)),
                }),
            }
        };
        found.iter().zip(received).enumerate().map(check).collect()
    }

    /// Puts actions on the side stream.
    ///
    /// # Safety
    /// Pieces may be read by this GPU between the flags of their owners, and are as long as their places, which
    /// nobody else touches.
    unsafe fn carry_out(&self, acts: &[Act], pieces: &[Piece], places: &[Elements]) -> Result<(), DriverError> {
        let side = &self.all.streams[1];
        side.context().bind_to_thread()?;
        let mut flags = FlagWork { group: self, work: Vec::new() };
        for &act in acts {
            match act {
                Act::Set(other, flag) => flags.set(other, flag),
                Act::Await(other, flag) => flags.take_down(other, flag),
                Act::Copy(other) => {
                    flags.put_on(side)?;
                    let (from, to) = (pieces[other], places[other]);
                    // SAFETY: the caller vouches.
                    unsafe { memcpy_dtod_async(to.address, from.address, from.n_bytes as usize, side.cu_stream()) }?;
                }
            }
        }
        flags.put_on(side)
    }
}

/// Consecutive flag operations of a stream.
struct FlagWork<'g> {
    group: &'g OneSidedGroup,
    work: Vec<CUstreamBatchMemOpParams>,
}

impl FlagWork<'_> {
    fn set(&mut self, other: usize, flag: Flag) {
        let (me, all) = (self.group.all.rank, &self.group.all);
        self.work.push(write(all.flags.address(self.group.members[other], me, flag), UP));
    }

    /// Waits for a flag, and clears it, so that it can be set again.
    fn take_down(&mut self, other: usize, flag: Flag) {
        let (me, all) = (self.group.all.rank, &self.group.all);
        let address = all.flags.address(me, self.group.members[other], flag);
        self.work.extend([wait(address, UP), write(address, DOWN)]);
    }

    /// Puts the collected operations, in this order, on a stream whose context is bound.
    fn put_on(&mut self, stream: &CudaStream) -> Result<(), DriverError> {
        /// Most operations of a call that the driver accepts.
        const MOST: usize = 256;
        for some in self.work.chunks_mut(MOST) {
            // SAFETY: the stream is alive; the flags are words that live until the streams of all ranks are idle
            // (`Drop` of `OneSided`). The parameters are copied.
            let put =
                unsafe { sys::cuStreamBatchMemOp_v2(stream.cu_stream(), some.len() as u32, some.as_mut_ptr(), 0) };
            put.result()?;
        }
        self.work.clear();
        Ok(())
    }
}

/// Stream operation that writes a word, after all earlier reads and writes of the stream.
fn write(address: CUdeviceptr, value: u32) -> CUstreamBatchMemOpParams {
    let mut params = CUstreamBatchMemOpParams { pad: [0; 6] };
    params.writeValue = sys::CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st {
        operation: CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_32,
        address,
        __bindgen_anon_1: sys::CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st__bindgen_ty_1 { value },
        flags: sys::CUstreamWriteValue_flags_enum::CU_STREAM_WRITE_VALUE_DEFAULT as u32,
        alias: 0,
    };
    params
}

/// Stream operation that waits until a word has a value.
fn wait(address: CUdeviceptr, value: u32) -> CUstreamBatchMemOpParams {
    let mut params = CUstreamBatchMemOpParams { pad: [0; 6] };
    params.waitValue = sys::CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st {
        operation: CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WAIT_VALUE_32,
        address,
        __bindgen_anon_1: sys::CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st__bindgen_ty_1 { value },
        flags: sys::CUstreamWaitValue_flags_enum::CU_STREAM_WAIT_VALUE_EQ as u32,
        alias: 0,
    };
    params
}

/// Flags from all ranks to all ranks, in host memory that GPUs reach.
struct Flags {
    words: *mut AtomicU32,
    n_ranks: usize,
    context: Arc<CudaContext>,
}

// SAFETY: the words are atomic, and freed by their last owner.
unsafe impl Send for Flags {}
// SAFETY: as above.
unsafe impl Sync for Flags {}

impl Flags {
    /// Flags per pair of ranks.
    const EACH: usize = 2;

    /// Flags that the first rank allocates for all. All ranks call this together and are threads of one process.
    fn common<T: Transport>(
        transport: &T,
        operation: &'static str,
        context: &Arc<CudaContext>,
    ) -> Result<Arc<Self>, CommError> {
        let (rank, n_ranks) = (transport.rank(), transport.size());
        let mine = match rank {
            0 => {
                let made = Self::new(context, n_ranks);
                Some(Arc::new(made.map_err(|error| CommError::Library { operation, message: error.to_string() })?))
            }
            _ => None,
        };
        // If a rank fails now and does not take its pointer, the flags leak: a page.
        let for_rank = |to: usize| match &mine {
            Some(flags) if to != rank => (Arc::into_raw(Arc::clone(flags)) as usize).to_le_bytes().as_slice().into(),
            _ => Parcel::from([]),
        };
        let found = all_to_all(transport, operation, (0..n_ranks).map(for_rank).collect())?;
        if let Some(flags) = mine {
            return Ok(flags);
        }
        let address = Payload::new(&found[0], 0, operation).exactly::<u64>(1)?[0] as usize;
        // SAFETY: ranks are threads of one process, and the first made this pointer of an `Arc<Self>` for this rank,
        // which fetches it once.
        Ok(unsafe { Arc::from_raw(address as *const Self) })
    }

    /// Allocates flags, all cleared.
    fn new(context: &Arc<CudaContext>, n_ranks: usize) -> Result<Self, DriverError> {
        context.bind_to_thread()?;
        let n_bytes = Self::EACH * n_ranks * n_ranks * size_of::<AtomicU32>();
        // SAFETY: the memory is freed by `Drop`, and set before anybody reads it.
        let words = unsafe { malloc_host(n_bytes, sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP) }?;
        // SAFETY: as many bytes were allocated.
        unsafe { words.cast::<u8>().write_bytes(0, n_bytes) };
        Ok(Self { words: words.cast(), n_ranks, context: Arc::clone(context) })
    }

    /// Address of the flag that `setter` sets for `waiter`. Host memory has one address for the host and all GPUs.
    fn address(&self, waiter: usize, setter: usize, flag: Flag) -> CUdeviceptr {
        let at = Self::place(self.n_ranks, waiter, setter, flag);
        (self.words as usize + at * size_of::<AtomicU32>()) as CUdeviceptr
    }

    /// Index of a flag; the flags that a rank waits for are contiguous.
    fn place(n_ranks: usize, waiter: usize, setter: usize, flag: Flag) -> usize {
        Self::EACH * (waiter * n_ranks + setter) + usize::from(flag == Flag::Done)
    }

    /// Sets all flags that a rank waits for.
    fn set_all(&self, waiter: usize) {
        let first = Self::place(self.n_ranks, waiter, 0, Flag::Ready);
        for at in first..first + Self::EACH * self.n_ranks {
            // SAFETY: the word was allocated, and lives.
            unsafe { &*self.words.add(at) }.store(UP, Ordering::Release);
        }
    }
}

impl Drop for Flags {
    fn drop(&mut self) {
        // After a failure of the device neither call can succeed, and a page is lost.
        let _ = self.context.bind_to_thread();
        // SAFETY: the memory is that of `new`, and the streams of all ranks are idle, or have kept the flags.
        let _ = unsafe { free_host(self.words.cast()) };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use girih_compute::Dtype;

    use super::*;

    #[test]
    fn memory_that_is_not_read_is_refused_with_a_remedy() {
        let expected = [
            (
                Unreadable::Processes,
                "each rank is a process of its own, and GPUs read each other's memory within one process only: give `--gpus N`, \
                 or --transport nccl and caches with one share",
            ),
            (
                Unreadable::NoLink { reader: 1, owner: 3 },
                "the GPU of rank 1 cannot read the memory of the GPU of rank 3: use GPUs that can (`nvidia-smi topo -p2p r` lists \
                 them), or give --transport nccl and caches with one share",
            ),
            (
                Unreadable::NoPool { rank: 2 },
                "the GPU of rank 2 has no memory pool that other GPUs can read: give --transport nccl and caches with one share",
            ),
        ];
        for (why, message) in expected {
            assert_eq!(why.to_string(), message);
        }
    }

    #[test]
    fn a_message_that_is_no_device_names_its_rank() {
        assert_eq!(device_of(&7_i32.to_le_bytes(), 1, "a test"), Ok(7));
        for message in [&[][..], &[1, 2, 3], &[0; 5]] {
            let refused = device_of(message, 1, "a test").unwrap_err().to_string();
            assert!(refused.starts_with("rank 1 sent a malformed message (a test): "), "{refused}");
        }
    }

    #[test]
    fn pieces_arrive_as_they_were_sent() {
        let rows = Elements { address: 0x7f00_1234_5678, len: 12, dtype: Dtype::Bf16 };
        let piece = Piece::of(rows);
        assert_eq!(piece.n_bytes, 24);
        assert_eq!(Piece::from_parcel(&piece.parcel()), Some(piece));
        assert_eq!(Piece::from_parcel(&[1, 2, 3]), None);
    }

    #[test]
    fn every_flag_has_a_word_of_its_own() {
        let n = 5;
        let mut places = HashSet::new();
        for (waiter, setter) in (0..n).flat_map(|waiter| (0..n).map(move |setter| (waiter, setter))) {
            let first = Flags::place(n, waiter, 0, Flag::Ready);
            for flag in [Flag::Ready, Flag::Done] {
                let place = Flags::place(n, waiter, setter, flag);
                assert!(places.insert(place));
                assert!((first..first + Flags::EACH * n).contains(&place), "a rank's own flags lie together");
            }
        }
        assert_eq!(places.len(), Flags::EACH * n * n);
        assert!(places.iter().all(|&place| place < Flags::EACH * n * n));
    }

    #[test]
    fn waits_and_writes_are_what_the_driver_expects() {
        // SAFETY: both were just written as the variant that is read.
        let (waits, writes) = unsafe { (wait(4096, UP).waitValue, write(8192, DOWN).writeValue) };
        assert_eq!(waits.operation, CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WAIT_VALUE_32);
        assert_eq!(writes.operation, CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_32);
        assert_eq!((waits.address, waits.flags, waits.alias), (4096, 1, 0));
        assert_eq!((writes.address, writes.flags, writes.alias), (8192, 0, 0));
        // SAFETY: as above.
        assert_eq!(unsafe { (waits.__bindgen_anon_1.value, writes.__bindgen_anon_1.value) }, (UP, DOWN));
    }
}
