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

mod flags;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::result::memcpy_dtod_async;
use cudarc::driver::sys;
use cudarc::driver::{CudaContext, CudaStream, DriverError};
use girih_comm::{Call, CommError, Parcel, Payload, Transport, all_gather};

use self::flags::{FlagWork, Flags};
use super::library::Elements;
use super::schedule::{Act, schedule};
use crate::device::{is_busy, link_of};
use crate::pool;

/// Time that an ending rank waits for others to do their part of its requests.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest time for streams to end once they need not wait for others any more.
const LAST: Duration = Duration::from_secs(5);
/// Time between two polls of a stream.
const POLL_INTERVAL: Duration = Duration::from_micros(20);

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
            let beside = std::thread::Builder::new().spawn_scoped(scope, || self.let_go());
            also();
            if let Err(error) = beside {
                tracing::warn!("cannot start a thread: {error}; raise ulimit -u or -v");
                self.let_go();
            }
        });
    }

    /// Ends waits until none is left.
    fn let_go(&self) {
        let start = Instant::now();
        while !self.is_idle() && start.elapsed() < LAST {
            self.flags.set_all(self.rank);
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for OneSided {
    fn drop(&mut self) {
        // Pending work may wait for others, who are on their way unless they fail.
        let start = Instant::now();
        while !self.is_idle() && start.elapsed() < PATIENCE {
            std::thread::sleep(POLL_INTERVAL);
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
    /// Piece of all of some rows.
    fn of(rows: Elements) -> Self {
        Self { address: rows.address, n_bytes: (rows.len * rows.dtype.n_bytes()) as u64 }
    }

    /// Message with the piece.
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
        let mut flags = FlagWork::new(&self.all.flags, self.all.rank, &self.members);
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

#[cfg(test)]
mod tests {
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
}
