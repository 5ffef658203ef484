//! [`Peers`]: the ranks that a device works with, for waits on the device and on an [`OwnedStream`].

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError};
use girih_comm::{CommError, GpuTransport, Parcel, Transport, all_gather, members};
use girih_compute::ComputeError;
use girih_features::ByTransport;

use super::library::Comm;
use super::lists::ListExchange;
use super::onesided::{OneSided, open_memory};
use crate::device::{is_busy, is_done};
use crate::worker_pool::Receiver;

/// Time that a wait spins before it sleeps between two polls: longer than most steps of small graphs. `POLL_INTERVAL` is the
/// time of such a sleep.
const SPIN: Duration = Duration::from_millis(2);
const POLL_INTERVAL: Duration = Duration::from_micros(50);
/// Spin iterations between two polls, about two microseconds. A poll takes the driver's lock, which launches of other
/// ranks' threads need.
const TURNS: u32 = 60;
/// Longest time for pending work when a rank ends.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval of checks for ranks that have failed.
const LOOK: Duration = Duration::from_millis(20);

/// Values that ranks of this process share, by ticket.
static HANDED_OUT: Mutex<BTreeMap<u64, Arc<dyn Any + Send + Sync>>> = Mutex::new(BTreeMap::new());
static NEXT_TICKET: AtomicU64 = AtomicU64::new(0);

/// All-gather of a message from each rank.
type Gather = dyn Fn(&'static str, &[u8]) -> Result<Vec<Parcel>, CommError> + Send + Sync;
/// Lets GPUs read a context's memory.
type Open = dyn Fn(&'static str, &Arc<CudaContext>) -> Result<(), CommError> + Send + Sync;

/// Creates an exchange of lists, with a communicator that a function creates.
type Lists = dyn Fn(&Arc<Peers>, &dyn Fn() -> Result<Option<Arc<Comm>>, CommError>) -> Result<ListExchange, CommError>
    + Send
    + Sync;

/// Other ranks that a device works with.
pub(crate) struct Peers {
    /// Number of this rank.
    pub(crate) rank: usize,
    /// Number of ranks.
    pub(crate) size: usize,
    /// Whether all ranks are threads of this process.
    pub(crate) is_one_process: bool,
    /// Whether some ranks share the context of a GPU. Ranks then have to meet before they launch work that waits for
    /// another rank.
    pub(super) shares_context: bool,
    deadline: Duration,
    failure: Box<dyn Fn() -> Option<CommError> + Send + Sync>,
    gather: Box<Gather>,
    open_memory: Box<Open>,
    lists: Box<Lists>,
    /// Communicator of all ranks; none for a single one.
    whole: OnceLock<Weak<Comm>>,
    comms: Mutex<Vec<Weak<Comm>>>,
    /// Waits of this rank's streams for others without a communicator.
    one_sided: Mutex<Weak<OneSided>>,
}

impl Peers {
    pub(super) fn new<T: Transport>(transport: &Arc<T>, deadline: Duration, shares_context: bool) -> Self {
        let [watched, asked, opener, lister] = [(); 4].map(|()| Arc::clone(transport));
        let rank = transport.rank();
        Self {
            rank,
            size: transport.size(),
            is_one_process: transport.is_one_process(),
            shares_context,
            deadline,
            failure: Box::new(move || watched.failure()),
            gather: Box::new(move |operation, mine| all_gather(&*asked, operation, mine)),
            open_memory: Box::new(move |operation, context| open_memory(&*opener, operation, context)),
            lists: Box::new(move |peers, comm| {
                let transport = Arc::new(lister.among(&members(&*lister, 0, rank)?));
                Ok(ListExchange::new(transport, comm()?, Arc::clone(peers)))
            }),
            whole: OnceLock::new(),
            comms: Mutex::default(),
            one_sided: Mutex::default(),
        }
    }

    /// Whether all ranks agree; all of them call this.
    pub(crate) fn agree(&self, mine: bool) -> Result<bool, CommError> {
        let all = (self.gather)("agreement", &[u8::from(mine)])?;
        Ok(all.iter().all(|theirs| **theirs == [1]))
    }

    /// Shares a value with every rank of this process, and returns those of all ranks, by rank. All of them call
    /// this, with values of one type.
    pub(crate) fn hand_out<T: Send + Sync + 'static>(
        &self,
        operation: &'static str,
        mine: Arc<T>,
    ) -> Result<Vec<Arc<T>>, CommError> {
        let ticket = Ticket::of(mine);
        let tickets = (self.gather)(operation, &ticket.0.to_le_bytes())?;
        let found: Option<Vec<Arc<T>>> = tickets.iter().map(|ticket| Ticket::thing(ticket)).collect();
        // Values are removed once every rank has looked.
        (self.gather)(operation, &[])?;
        found.ok_or_else(|| CommError::Library { operation, message: "ranks hand out different things".to_owned() })
    }

    /// Lets the GPUs of all ranks read the allocations of a context; all of them call this.
    pub(crate) fn open_memory(&self, operation: &'static str, context: &Arc<CudaContext>) -> Result<(), CommError> {
        (self.open_memory)(operation, context)
    }

    /// Whether the GPUs of all ranks can read the allocations of a context; enables it if possible. All of them call
    /// this.
    pub(crate) fn lets_read(&self, operation: &'static str, context: &Arc<CudaContext>) -> Result<bool, CommError> {
        if self.size == 1 || !self.is_one_process {
            return Ok(self.size == 1);
        }
        let opened = self.open_memory(operation, context);
        if let Err(error) = &opened {
            tracing::debug!("patches are not read in place: {error}");
        }
        self.agree(opened.is_ok())
    }

    /// Waits for all ranks before the launch of a graph in which this GPU waits for others without a communicator, or
    /// for ranks that share its context. Such a wait must not be for a rank that has ended. That rank can release
    /// memory which others can read only when their GPUs are done, and the driver then blocks every caller. Nor may
    /// it be for a rank whose request to the driver is still pending.
    pub(crate) fn meet(&self) -> Result<(), CommError> {
        let waits = self.one_sided.lock().unwrap_or_else(PoisonError::into_inner).strong_count() > 0;
        if waits || self.shares_context { self.agree(true).map(drop) } else { Ok(()) }
    }

    /// One value for each transport of `by` by which all ranks can reach each other's patches. `make` gets an exchange
    /// of lists for requests to others; without it, GPUs read each other's memory. All ranks call this together.
    pub(crate) fn by_transport<T>(
        self: &Arc<Self>,
        operation: &'static str,
        context: &Arc<CudaContext>,
        by: &[GpuTransport],
        make: impl Fn(Option<ListExchange>) -> Result<T, ComputeError>,
    ) -> Result<ByTransport<T>, CommError> {
        let mut possible = Vec::with_capacity(by.len());
        for &by in by {
            if by == GpuTransport::Nccl || self.lets_read(operation, context)? {
                possible.push(by);
            }
        }
        let made = |by: GpuTransport| {
            let lists = if by == GpuTransport::Nccl { Some(self.lists(operation)?) } else { None };
            let failed = |error: ComputeError| CommError::Library { operation, message: error.to_string() };
            make(lists).map(|made| (by, made)).map_err(failed)
        };
        possible.into_iter().map(made).collect()
    }

    /// Exchange of lists with a communicator of its own; all ranks create it together.
    fn lists(self: &Arc<Self>, operation: &'static str) -> Result<ListExchange, CommError> {
        let split = || {
            let Some(whole) = self.whole.get() else { return Ok(None) };
            let gone = || CommError::Library { operation, message: "the ranks have ended".to_owned() };
            self.split_off(operation, &whole.upgrade().ok_or_else(gone)?, (Some(0), self.rank))
        };
        (self.lists)(self, &split)
    }

    /// Communicator of the ranks with the same colour, ordered by key; `None` for a rank without a colour. All ranks
    /// of `comm` create it together.
    pub(super) fn split_off(
        &self,
        operation: &'static str,
        comm: &Arc<Comm>,
        (colour, key): (Option<usize>, usize),
    ) -> Result<Option<Arc<Comm>>, CommError> {
        let splitting = comm.begin_split(colour, key).map_err(|message| self.blame(operation, message))?;
        self.settle(operation, comm)?;
        splitting.finish(comm).map(|child| self.settled(operation, child)).transpose()
    }

    /// Waits until a communicator is ready, and registers it to be aborted on failures.
    pub(super) fn settled(&self, operation: &'static str, comm: Comm) -> Result<Arc<Comm>, CommError> {
        let comm = Arc::new(comm);
        self.watch(&comm);
        self.settle(operation, &comm)?;
        Ok(comm)
    }

    /// Sets the communicator of all ranks.
    pub(super) fn set_whole(&self, comm: &Arc<Comm>) {
        assert!(self.whole.set(Arc::downgrade(comm)).is_ok(), "ranks connect once");
    }

    /// Registers a communicator that is aborted when a rank fails.
    pub(super) fn watch(&self, comm: &Arc<Comm>) {
        let mut comms = self.comms();
        comms.retain(|comm| comm.strong_count() > 0);
        comms.push(Arc::downgrade(comm));
    }

    /// Registers waits without a communicator that are aborted when a rank fails.
    pub(super) fn watch_waits(&self, one_sided: &Arc<OneSided>) {
        *self.one_sided.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(one_sided);
    }

    /// Aborts all pending work if this rank or another one has failed.
    pub(super) fn end_after(&self, own_failure: bool) {
        if own_failure || (self.failure)().is_some() {
            self.call_off();
        }
    }

    /// Aborts all pending work unless it ends soon. A rank that has failed may not have told anyone yet, and others
    /// may wait for it.
    pub(super) fn end_soon(&self, streams: [&CudaStream; 2]) {
        let start = Instant::now();
        while streams.iter().any(|stream| is_busy(stream)) {
            if start.elapsed() > PATIENCE {
                return self.call_off();
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Aborts all pending work: communicators, and waits that communicators may be queued behind.
    fn call_off(&self) {
        let comms = self.alive();
        let abort = || comms.iter().for_each(|comm| comm.abort());
        let one_sided = self.one_sided.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        match one_sided {
            Some(one_sided) => one_sided.let_go_while(abort),
            None => abort(),
        }
    }

    fn alive(&self) -> Vec<Arc<Comm>> {
        self.comms().iter().filter_map(Weak::upgrade).collect()
    }

    fn comms(&self) -> MutexGuard<'_, Vec<Weak<Comm>>> {
        self.comms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a communicator has done its last request: its creation, or putting work on the stream.
    pub(super) fn settle(&self, operation: &'static str, comm: &Comm) -> Result<(), CommError> {
        self.until(operation, || comm.poll().map_err(|message| self.blame(operation, message)))
    }

    /// Waits until the device has done all work on a stream.
    pub(crate) fn wait(&self, operation: &'static str, stream: &CudaStream) -> Result<(), CommError> {
        let failed = |error: DriverError| CommError::Library { operation, message: error.to_string() };
        self.until(operation, || is_done(stream).map_err(failed))
    }

    /// Waits until the device has reached an event.
    pub(crate) fn wait_for(&self, operation: &'static str, event: &CudaEvent) -> Result<(), CommError> {
        let failed = |error: DriverError| CommError::Library { operation, message: error.to_string() };
        event.context().bind_to_thread().map_err(failed)?;
        self.until(operation, || event.try_is_complete().map_err(failed))
    }

    /// Receives a message of another thread of this rank; `None` if the thread has ended without one.
    pub(crate) fn receive<T>(&self, operation: &'static str, told: &Receiver<T>) -> Result<Option<T>, CommError> {
        let start = Instant::now();
        loop {
            match told.recv_timeout(LOOK) {
                Ok(word) => return Ok(Some(word)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => self.look(operation, start.elapsed())?,
            }
        }
    }

    /// Polls until `is_done`, a rank has failed, or the deadline is over.
    fn until(
        &self,
        operation: &'static str,
        mut is_done: impl FnMut() -> Result<bool, CommError>,
    ) -> Result<(), CommError> {
        let start = Instant::now();
        let mut looked = start;
        while !is_done()? {
            let now = Instant::now();
            if now - looked > LOOK {
                looked = now;
                self.look(operation, now - start)?;
            }
            if now - start > SPIN {
                std::thread::sleep(POLL_INTERVAL);
            } else {
                (0..TURNS).for_each(|_| std::hint::spin_loop());
            }
        }
        Ok(())
    }

    /// Aborts all pending work when a rank or a link has failed, or the others are late.
    fn look(&self, operation: &'static str, waited: Duration) -> Result<(), CommError> {
        let broken = || self.alive().iter().find_map(|comm| comm.poll().err());
        let late = || (waited > self.deadline).then(|| late(operation, self.deadline));
        let failure = (self.failure)()
            .or_else(|| broken().map(|message| CommError::Library { operation, message }))
            .or_else(late);
        let Some(failure) = failure else { return Ok(()) };
        self.call_off();
        Err(failure)
    }

    /// Error of a call that failed: that of the failed rank behind it, if there is one.
    pub(super) fn blame(&self, operation: &'static str, message: String) -> CommError {
        (self.failure)().unwrap_or(CommError::Library { operation, message })
    }
}

/// Stream that uses memory which will be released.
pub(crate) struct OwnedStream {
    stream: Arc<CudaStream>,
    peers: Option<Arc<Peers>>,
}

impl OwnedStream {
    /// Guard of a stream of a device that works with `peers`.
    pub(crate) fn new(stream: Arc<CudaStream>, peers: Option<Arc<Peers>>) -> Self {
        Self { stream, peers }
    }

    /// The stream.
    pub(crate) fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Ranks that the device works with.
    pub(crate) fn peers(&self) -> Option<&Peers> {
        self.peers.as_deref()
    }

    /// Waits until the stream is done. A wait for a rank that has failed is aborted.
    pub(crate) fn wait(&self) {
        // After a failure of the device nothing helps, and nothing is lost.
        let ended = self.peers.as_ref().map(|peers| peers.wait("ending", &self.stream));
        if !matches!(ended, Some(Ok(()))) {
            let _ = self.stream.synchronize();
        }
    }
}

/// Error of ranks that missed the deadline.
fn late(operation: &'static str, deadline: Duration) -> CommError {
    let seconds = deadline.as_secs_f64();
    CommError::Library {
        operation,
        message: format!(
            "the GPUs did not finish within {seconds:.0} s: a rank hangs or is slow; see its log, or allow more time"
        ),
    }
}

/// Handle of a shared value; dropping it removes the value.
struct Ticket(u64);

impl Ticket {
    fn of(thing: Arc<dyn Any + Send + Sync>) -> Self {
        let ticket = NEXT_TICKET.fetch_add(1, Ordering::Relaxed);
        Self::all().insert(ticket, thing);
        Self(ticket)
    }

    /// Value of another rank's ticket.
    fn thing<T: Send + Sync + 'static>(message: &[u8]) -> Option<Arc<T>> {
        let ticket = u64::from_le_bytes(message.try_into().ok()?);
        let thing = Self::all().get(&ticket).cloned()?;
        thing.downcast().ok()
    }

    fn all() -> MutexGuard<'static, BTreeMap<u64, Arc<dyn Any + Send + Sync>>> {
        HANDED_OUT.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let thing = Self::all().remove(&self.0);
        // Dropped without the lock, for which others may wait.
        drop(thing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_are_late_are_told_of_with_their_deadline() {
        assert_eq!(
            late("a sum", Duration::from_secs(30)).to_string(),
            "a sum: the GPUs did not finish within 30 s: a rank hangs or is slow; see its log, or allow more time"
        );
    }
}
