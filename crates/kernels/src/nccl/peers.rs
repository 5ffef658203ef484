//! [`Peers`]: the ranks that a device works with, for those who wait for it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUresult, cuStreamQuery};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError};
use girih_comm::{CommError, Parcel, Transport, all_gather};

use super::library::Comm;
use super::onesided::{OneSided, open_memory};
use crate::worker_pool::Receiver;

/// How long a wait spins before it sleeps between two looks: longer than most steps of small graphs.
const SPIN: Duration = Duration::from_millis(2);
const NAP: Duration = Duration::from_micros(50);
/// How often it turns between two looks, about two microseconds: a look takes the driver's lock, for which threads of
/// other ranks wait that launch something.
const TURNS: u32 = 60;
/// How long work may take that is under way when a rank ends.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it looks for ranks that have failed.
const LOOK: Duration = Duration::from_millis(20);

/// What ranks of this process hand to each other, by tickets.
static HANDED_OUT: Mutex<BTreeMap<u64, Arc<dyn Any + Send + Sync>>> = Mutex::new(BTreeMap::new());
static NEXT_TICKET: AtomicU64 = AtomicU64::new(0);

/// Gathers a message from each rank.
type Gather = dyn Fn(&'static str, &[u8]) -> Result<Vec<Parcel>, CommError> + Send + Sync;
/// Lets cards read a context's memory.
type Open = dyn Fn(&'static str, &Arc<CudaContext>) -> Result<(), CommError> + Send + Sync;

/// The other ranks, as far as a device is concerned.
pub(crate) struct Peers {
    rank: usize,
    size: usize,
    is_one_process: bool,
    /// Whether some of them share the context of a card.
    shares_context: bool,
    deadline: Duration,
    failure: Box<dyn Fn() -> Option<CommError> + Send + Sync>,
    gather: Box<Gather>,
    open_memory: Box<Open>,
    comms: Mutex<Vec<Weak<Comm>>>,
    /// Where this rank's streams wait for others without a communicator.
    one_sided: Mutex<Weak<OneSided>>,
}

impl Peers {
    pub(super) fn new<T: Transport>(transport: &Arc<T>, deadline: Duration, shares_context: bool) -> Self {
        let [watched, asked, opener] = [(); 3].map(|()| Arc::clone(transport));
        Self {
            rank: transport.rank(),
            size: transport.size(),
            is_one_process: transport.is_one_process(),
            shares_context,
            deadline,
            failure: Box::new(move || watched.failure()),
            gather: Box::new(move |operation, mine| all_gather(&*asked, operation, mine)),
            open_memory: Box::new(move |operation, context| open_memory(&*opener, operation, context)),
            comms: Mutex::default(),
            one_sided: Mutex::default(),
        }
    }

    /// The number of this rank.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Whether all ranks are threads of this process.
    pub(crate) fn is_one_process(&self) -> bool {
        self.is_one_process
    }

    /// Whether some ranks share the context of a card, so that ranks have to meet before whatever waits for another one
    /// is put there.
    pub(super) fn shares_context(&self) -> bool {
        self.shares_context
    }

    /// Whether all ranks say yes; all of them ask.
    pub(crate) fn agree(&self, mine: bool) -> Result<bool, CommError> {
        let all = (self.gather)("agreement", &[u8::from(mine)])?;
        Ok(all.iter().all(|theirs| **theirs == [1]))
    }

    /// Gives every rank of this process something of each, in the order of ranks; all of them call it, with things of
    /// one type.
    pub(crate) fn hand_out<T: Send + Sync + 'static>(
        &self,
        operation: &'static str,
        mine: Arc<T>,
    ) -> Result<Vec<Arc<T>>, CommError> {
        let ticket = Ticket::of(mine);
        let tickets = (self.gather)(operation, &ticket.0.to_le_bytes())?;
        let found: Option<Vec<Arc<T>>> = tickets.iter().map(|ticket| Ticket::thing(ticket)).collect();
        // Things are taken back when everybody has looked.
        (self.gather)(operation, &[])?;
        found.ok_or_else(|| CommError::Library { operation, message: "ranks hand out different things".to_owned() })
    }

    /// Lets the cards of all ranks read what is allocated in a context; all of them call it.
    pub(crate) fn open_memory(&self, operation: &'static str, context: &Arc<CudaContext>) -> Result<(), CommError> {
        (self.open_memory)(operation, context)
    }

    /// Whether the cards of all ranks read what is allocated in a context, from now on if they can; all of them call
    /// it.
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

    /// Waits for all ranks before a graph is launched in which this card waits for others without a communicator, or
    /// for ranks that share its context. Such a wait must not be for a rank that has ended: what that one gives back,
    /// such as memory that others can read, it can only when their cards are done, and the driver then answers nobody.
    /// Nor for one that still asks the driver for something.
    pub(crate) fn meet(&self) -> Result<(), CommError> {
        let waits = self.one_sided.lock().unwrap_or_else(PoisonError::into_inner).strong_count() > 0;
        if waits || self.shares_context { self.agree(true).map(drop) } else { Ok(()) }
    }

    /// Lets a communicator be called off when a rank fails.
    pub(super) fn watch(&self, comm: &Arc<Comm>) {
        let mut comms = self.comms();
        comms.retain(|comm| comm.strong_count() > 0);
        comms.push(Arc::downgrade(comm));
    }

    /// Lets waits without a communicator be called off, likewise.
    pub(super) fn watch_waits(&self, one_sided: &Arc<OneSided>) {
        *self.one_sided.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(one_sided);
    }

    /// Calls everything off that is under way, if this rank or another one has failed.
    pub(super) fn end_after(&self, own_failure: bool) {
        if own_failure || (self.failure)().is_some() {
            self.call_off();
        }
    }

    /// Calls everything off that is under way, unless it ends by itself soon: a rank that has failed has told nobody
    /// yet, and others may wait for what it will not do.
    pub(super) fn end_soon(&self, streams: [&CudaStream; 2]) {
        let start = Instant::now();
        while streams.iter().any(|stream| is_busy(stream)) {
            if start.elapsed() > PATIENCE {
                return self.call_off();
            }
            std::thread::sleep(NAP);
        }
    }

    /// Calls everything off that is under way: communicators, and waits, behind which communicators may stand.
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

    /// Waits until a communicator has done what was asked of it last: to be there, or to put work on the stream.
    pub(super) fn settle(&self, operation: &'static str, comm: &Comm) -> Result<(), CommError> {
        self.until(operation, || comm.poll().map_err(|message| self.blame(operation, message)))
    }

    /// Waits until the device has done all that is on its stream.
    pub(crate) fn wait(&self, operation: &'static str, stream: &CudaStream) -> Result<(), CommError> {
        let failed = |error: DriverError| CommError::Library { operation, message: error.to_string() };
        self.until(operation, || is_done(stream).map_err(failed))
    }

    /// Waits until the device has come to an event.
    pub(crate) fn wait_for(&self, operation: &'static str, event: &CudaEvent) -> Result<(), CommError> {
        let failed = |error: DriverError| CommError::Library { operation, message: error.to_string() };
        event.context().bind_to_thread().map_err(failed)?;
        self.until(operation, || event.try_is_complete().map_err(failed))
    }

    /// What another thread of this rank tells; `None` where it has ended without a word.
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

    /// Looks again and again until something is done, a rank has failed, or the deadline is over.
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
                std::thread::sleep(NAP);
            } else {
                (0..TURNS).for_each(|_| std::hint::spin_loop());
            }
        }
        Ok(())
    }

    /// Calls everything off when a rank or a link has failed, or the others are late.
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

    /// The error of a call that failed: that of the rank behind it, if one has failed.
    pub(super) fn blame(&self, operation: &'static str, message: String) -> CommError {
        (self.failure)().unwrap_or(CommError::Library { operation, message })
    }
}

/// Error of ranks that are not there in time.
fn late(operation: &'static str, deadline: Duration) -> CommError {
    let seconds = deadline.as_secs_f64();
    CommError::Library {
        operation,
        message: format!(
            "the GPUs did not finish within {seconds:.0} s: a rank hangs or is slow; see its log, or allow more time"
        ),
    }
}

/// Whether a stream has done all that was put on it.
fn is_done(stream: &CudaStream) -> Result<bool, DriverError> {
    stream.context().bind_to_thread()?;
    // SAFETY: the stream is alive, and its context is bound.
    match unsafe { cuStreamQuery(stream.cu_stream()) } {
        CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        answer => answer.result().map(|()| true),
    }
}

/// Whether something goes on on a stream: nothing does after a failure of the device, or ever will again.
pub(super) fn is_busy(stream: &CudaStream) -> bool {
    matches!(is_done(stream), Ok(false))
}

/// Stands for something that is handed out, which is taken back with it.
struct Ticket(u64);

impl Ticket {
    fn of(thing: Arc<dyn Any + Send + Sync>) -> Self {
        let ticket = NEXT_TICKET.fetch_add(1, Ordering::Relaxed);
        Self::all().insert(ticket, thing);
        Self(ticket)
    }

    /// What another rank's ticket stands for.
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
        // Not while others wait for the list.
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
