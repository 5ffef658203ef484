//! NCCL's functions, loaded from the file that [`libraries::NCCL`] finds. cudarc would look for file names that
//! NVIDIA does not use.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstream;
use girih_compute::Dtype;
use libloading::Library as Loaded;

use crate::libraries;

/// Unique id of a communicator, created by its first rank.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct UniqueId([u8; UNIQUE_ID_BYTES]);

const UNIQUE_ID_BYTES: usize = 128;

impl UniqueId {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

/// `ncclComm_t`.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct RawComm(*mut c_void);

// SAFETY: NCCL takes a communicator from any thread, one at a time, which the mutex of a `Comm` ensures.
unsafe impl std::marker::Send for RawComm {}

impl RawComm {
    const NULL: Self = Self(ptr::null_mut());

    fn is_null(self) -> bool {
        self.0.is_null()
    }
}

/// `ncclResult_t`.
type Status = c_int;

const SUCCESS: Status = 0;
const IN_PROGRESS: Status = 7;
/// `ncclUint8`.
const BYTE: c_int = 1;
/// `ncclSum`.
const SUM: c_int = 0;

/// Configuration of communicators: `ncclConfig_v21700`, which all later versions accept.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
}

impl Config {
    const MAGIC: u32 = 0xcafe_beef;
    /// Version 2.18.3, the first with `ncclCommSplit`.
    const VERSION: u32 = 21_803;
    /// Marker of fields that NCCL chooses itself.
    const UNDEFINED: c_int = c_int::MIN;

    /// Configuration in which calls return at once and callers poll their progress, so that every wait can end.
    const fn non_blocking() -> Self {
        Self {
            size: size_of::<Self>(),
            magic: Self::MAGIC,
            version: Self::VERSION,
            blocking: 0,
            cga_cluster_size: Self::UNDEFINED,
            min_ctas: Self::UNDEFINED,
            max_ctas: Self::UNDEFINED,
            net_name: ptr::null(),
            split_share: Self::UNDEFINED,
        }
    }
}

type GetUniqueId = unsafe extern "C" fn(*mut UniqueId) -> Status;
type CommInit = unsafe extern "C" fn(*mut RawComm, c_int, UniqueId, c_int, *mut Config) -> Status;
type CommSplit = unsafe extern "C" fn(RawComm, c_int, c_int, *mut RawComm, *mut Config) -> Status;
type OfComm = unsafe extern "C" fn(RawComm) -> Status;
type AsyncError = unsafe extern "C" fn(RawComm, *mut Status) -> Status;
type ErrorString = unsafe extern "C" fn(Status) -> *const c_char;
type LastError = unsafe extern "C" fn(RawComm) -> *const c_char;
type Group = unsafe extern "C" fn() -> Status;
type AllReduce = unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, RawComm, CUstream) -> Status;
type Reduce = unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, c_int, RawComm, CUstream) -> Status;
type Broadcast = unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, RawComm, CUstream) -> Status;
type Send = unsafe extern "C" fn(*const c_void, usize, c_int, c_int, RawComm, CUstream) -> Status;
type Receive = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, RawComm, CUstream) -> Status;

/// Function pointers of NCCL.
struct Functions {
    get_unique_id: GetUniqueId,
    comm_init: CommInit,
    comm_split: CommSplit,
    comm_destroy: OfComm,
    comm_abort: OfComm,
    async_error: AsyncError,
    error_string: ErrorString,
    last_error: LastError,
    group_start: Group,
    group_end: Group,
    all_reduce: AllReduce,
    reduce: Reduce,
    broadcast: Broadcast,
    send: Send,
    receive: Receive,
}

impl Functions {
    /// Loads the functions of the library, which stays loaded.
    fn find() -> Result<Self, String> {
        libraries::NCCL.load().map_err(|error| error.to_string())?;
        // SAFETY: its initialisers need nothing of the process.
        let library = unsafe { Loaded::new(libraries::NCCL.file()) }.map_err(|error| error.to_string())?;
        let library: &'static Loaded = Box::leak(Box::new(library));
        /// Looks up a function by its name.
        fn get<F: Copy>(library: &Loaded, name: &'static str) -> Result<F, String> {
            // SAFETY: each has the type that NCCL's header gives it since 2.18.
            let found = unsafe { library.get::<F>(name.as_bytes()) };
            found
                .map(|function| *function)
                .map_err(|_| format!("this NCCL has no {name}: it is older than 2.18.3; update it"))
        }
        Ok(Self {
            get_unique_id: get(library, "ncclGetUniqueId")?,
            comm_init: get(library, "ncclCommInitRankConfig")?,
            comm_split: get(library, "ncclCommSplit")?,
            comm_destroy: get(library, "ncclCommDestroy")?,
            comm_abort: get(library, "ncclCommAbort")?,
            async_error: get(library, "ncclCommGetAsyncError")?,
            error_string: get(library, "ncclGetErrorString")?,
            last_error: get(library, "ncclGetLastError")?,
            group_start: get(library, "ncclGroupStart")?,
            group_end: get(library, "ncclGroupEnd")?,
            all_reduce: get(library, "ncclAllReduce")?,
            reduce: get(library, "ncclReduce")?,
            broadcast: get(library, "ncclBroadcast")?,
            send: get(library, "ncclSend")?,
            receive: get(library, "ncclRecv")?,
        })
    }
}

/// Loaded NCCL.
#[derive(Clone, Copy)]
pub(super) struct Nccl(&'static Functions);

impl Nccl {
    /// Loads the library, once.
    ///
    /// # Errors
    /// When it is nowhere, or too old.
    pub(super) fn load() -> Result<Self, String> {
        static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
        FUNCTIONS.get_or_init(Functions::find).as_ref().map(Self).map_err(Clone::clone)
    }

    /// Creates an id for a communicator.
    pub(super) fn unique_id(self) -> Result<UniqueId, String> {
        let mut id = UniqueId([0; UNIQUE_ID_BYTES]);
        // SAFETY: the function writes the id.
        let status = unsafe { (self.0.get_unique_id)(&raw mut id) };
        self.succeeded(status, RawComm::NULL).map(|()| id)
    }

    fn succeeded(self, status: Status, comm: RawComm) -> Result<(), String> {
        if status == SUCCESS { Ok(()) } else { Err(self.explain(status, comm)) }
    }

    /// Message for a status, with the last error that NCCL noted.
    fn explain(self, status: Status, comm: RawComm) -> String {
        // SAFETY: both functions return strings that live as long as the library, or null.
        let texts = unsafe { [(self.0.error_string)(status), (self.0.last_error)(comm)] };
        let [what, last] = texts.map(|text| match text.is_null() {
            true => String::new(),
            // SAFETY: as above.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        });
        if last.is_empty() { format!("NCCL: {what}") } else { format!("NCCL: {what} ({last})") }
    }
}

/// Elements of a matrix on the device: address, number and type.
#[derive(Clone, Copy)]
pub(super) struct Elements {
    pub(super) address: u64,
    pub(super) len: usize,
    pub(super) dtype: Dtype,
}

impl Elements {
    /// `ncclDataType_t`.
    fn kind(self) -> c_int {
        match self.dtype {
            Dtype::F32 => 7,
            Dtype::Bf16 => 9,
        }
    }

    fn read(self) -> *const c_void {
        self.address as *const c_void
    }

    fn written(self) -> *mut c_void {
        self.address as *mut c_void
    }
}

/// Longest time for an aborted communicator to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval of polls for that end.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Communicator. Its calls put work on a stream and return at once.
pub(super) struct Comm {
    nccl: Nccl,
    /// Handle; null once the communicator is aborted.
    raw: Mutex<RawComm>,
    aborter: Aborter,
    stream: Arc<CudaStream>,
}

/// Thread that aborts a communicator once it is told. It starts before the communicator: a rank whose system gives no
/// threads then has an error, and no work that nothing ends.
struct Aborter {
    tell: Sender<RawComm>,
    thread: JoinHandle<()>,
}

impl Aborter {
    fn start(nccl: Nccl) -> Result<Self, String> {
        let ((tell, told), abort) = (channel::<RawComm>(), nccl.0.comm_abort);
        let work = move || {
            let Ok(raw) = told.recv() else { return };
            // SAFETY: the communicator is alive, and nobody else has it any more.
            let status = unsafe { abort(raw) };
            tracing::debug!("called off a communicator: {status}");
        };
        let thread = thread::Builder::new().name("girih nccl".to_owned()).spawn(work);
        let thread = thread.map_err(|error| {
            format!("cannot start the thread that ends exchanges after a failure: {error}; raise ulimit -u or -v")
        })?;
        Ok(Self { tell, thread })
    }
}

/// Place of the handle of a communicator that is being split off.
pub(super) struct Splitting {
    place: *mut RawComm,
    aborter: Aborter,
}

impl Splitting {
    /// Communicator, once the split is done on `parent`; `None` for a rank that is in none.
    pub(super) fn finish(self, parent: &Comm) -> Option<Comm> {
        // SAFETY: the place was made by `begin_split`, and NCCL has written it.
        let raw = *unsafe { Box::from_raw(self.place) };
        (!raw.is_null()).then(|| Comm::new(parent.nccl, raw, self.aborter, &parent.stream))
    }
}

impl Comm {
    fn new(nccl: Nccl, raw: RawComm, aborter: Aborter, stream: &Arc<CudaStream>) -> Self {
        Self { nccl, raw: Mutex::new(raw), aborter, stream: Arc::clone(stream) }
    }

    /// Starts to create the communicator of `n_ranks` ranks with the same id.
    pub(super) fn begin(
        nccl: Nccl,
        stream: &Arc<CudaStream>,
        id: UniqueId,
        (rank, n_ranks): (usize, usize),
    ) -> Result<Self, String> {
        let (aborter, mut raw, mut config) = (Aborter::start(nccl)?, RawComm::NULL, Config::non_blocking());
        // SAFETY: the function writes a communicator, which `Drop` ends; the device of the stream is bound by the
        // caller.
        let status = unsafe { (nccl.0.comm_init)(&raw mut raw, n_ranks as c_int, id, rank as c_int, &raw mut config) };
        if status != SUCCESS && status != IN_PROGRESS {
            return Err(nccl.explain(status, RawComm::NULL));
        }
        Ok(Self::new(nccl, raw, aborter, stream))
    }

    /// Starts to create the communicator of the ranks with the same colour, ordered by key; without a colour the rank
    /// is in none. It is ready when this communicator is done.
    pub(super) fn begin_split(&self, colour: Option<usize>, key: usize) -> Result<Splitting, String> {
        /// `NCCL_SPLIT_NOCOLOR`.
        const NONE: c_int = -1;
        let aborter = Aborter::start(self.nccl)?;
        let (place, mut config) = (Box::into_raw(Box::new(RawComm::NULL)), Config::non_blocking());
        let colour = colour.map_or(NONE, |colour| colour as c_int);
        let raw = self.lock();
        // SAFETY: the communicator is alive under its lock. The place lives until `Splitting::finish`, or for ever.
        let status = unsafe { (self.nccl.0.comm_split)(*raw, colour, key as c_int, place, &raw mut config) };
        match status {
            SUCCESS | IN_PROGRESS => Ok(Splitting { place, aborter }),
            status => Err(self.nccl.explain(status, *raw)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, RawComm> {
        self.raw.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the last call, or the work that it put on the stream, is done.
    pub(super) fn poll(&self) -> Result<bool, String> {
        let raw = self.lock();
        if raw.is_null() {
            return Err("the exchange was called off".to_owned());
        }
        match self.nccl.status(*raw) {
            SUCCESS => Ok(true),
            IN_PROGRESS => Ok(false),
            status => Err(self.nccl.explain(status, *raw)),
        }
    }

    /// Aborts pending work; all later calls fail. A thread does this. NCCL ends work on the GPU at once, but frees a
    /// communicator only when no graph contains its calls any more, and the caller may hold these graphs.
    pub(super) fn abort(&self) {
        let raw = std::mem::replace(&mut *self.lock(), RawComm::NULL);
        if raw.is_null() {
            return;
        }
        // The thread waits for this, and is alive.
        let _ = self.aborter.tell.send(raw);
    }

    /// Waits until an aborted communicator has ended, for a limited time if graphs still contain its calls.
    fn wait_for_end(&self) {
        let start = Instant::now();
        while !self.aborter.thread.is_finished() {
            if start.elapsed() > PATIENCE {
                return tracing::warn!("NCCL does not let go of a communicator that was called off");
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Group of calls that are launched together on a stream.
    pub(super) fn group(
        &self,
        stream: &CudaStream,
        calls: impl FnOnce(&Calls) -> Result<(), String>,
    ) -> Result<(), String> {
        let raw = self.lock();
        if raw.is_null() {
            return Err("an earlier exchange was called off".to_owned());
        }
        // SAFETY: a group that is begun is ended.
        self.nccl.succeeded(unsafe { (self.nccl.0.group_start)() }, *raw)?;
        let called = calls(&Calls { nccl: self.nccl, raw: *raw, stream: stream.cu_stream() });
        // SAFETY: as above.
        let ended = unsafe { (self.nccl.0.group_end)() };
        called?;
        match ended {
            SUCCESS | IN_PROGRESS => Ok(()),
            status => Err(self.nccl.explain(status, *raw)),
        }
    }
}

impl Nccl {
    fn status(self, comm: RawComm) -> Status {
        let mut status = SUCCESS;
        // SAFETY: the communicator is alive, and the function writes a status.
        match unsafe { (self.0.async_error)(comm, &raw mut status) } {
            SUCCESS => status,
            failed => failed,
        }
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        let raw = *self.lock();
        // A communicator that is being created, or whose ranks panic, must not be waited for.
        let is_well = !raw.is_null() && !thread::panicking() && self.nccl.status(raw) == SUCCESS;
        if !is_well {
            self.abort();
            return self.wait_for_end();
        }
        // After a failure of the device neither call can succeed, and nothing is lost.
        let _ = self.stream.context().bind_to_thread();
        // SAFETY: the communicator is alive, and nobody has it any more.
        let status = unsafe { (self.nccl.0.comm_destroy)(raw) };
        tracing::debug!("ended a communicator: {status}");
    }
}

/// Calls of a group.
pub(super) struct Calls {
    nccl: Nccl,
    raw: RawComm,
    stream: CUstream,
}

/// # Safety
/// For all calls: elements lie on the device of the communicator, and only work on the same stream reads or writes
/// them. They live until the stream has done the work that was put there before they are freed. All ranks call the
/// same, with as many elements.
impl Calls {
    fn called(&self, status: Status) -> Result<(), String> {
        match status {
            SUCCESS | IN_PROGRESS => Ok(()),
            status => Err(self.nccl.explain(status, self.raw)),
        }
    }

    /// All-reduce in place: replaces elements by their sum over all ranks.
    pub(super) unsafe fn all_reduce(&self, x: Elements) -> Result<(), String> {
        let function = self.nccl.0.all_reduce;
        // SAFETY: the caller vouches.
        self.called(unsafe { function(x.read(), x.written(), x.len, x.kind(), SUM, self.raw, self.stream) })
    }

    /// Reduce: the sum of `x` over all ranks, to `out` of rank `root`.
    pub(super) unsafe fn reduce(&self, root: usize, x: Elements, out: Elements) -> Result<(), String> {
        let function = self.nccl.0.reduce;
        // SAFETY: the caller vouches.
        let status =
            unsafe { function(x.read(), out.written(), x.len, x.kind(), SUM, root as c_int, self.raw, self.stream) };
        self.called(status)
    }

    /// Broadcast: `x` of rank `root`, to `out` of all.
    pub(super) unsafe fn broadcast(&self, root: usize, x: Elements, out: Elements) -> Result<(), String> {
        let function = self.nccl.0.broadcast;
        // SAFETY: the caller vouches.
        let status =
            unsafe { function(x.read(), out.written(), out.len, x.kind(), root as c_int, self.raw, self.stream) };
        self.called(status)
    }

    /// Sends `x` to rank `to`, which receives as many elements from this one in the same group.
    pub(super) unsafe fn send(&self, to: usize, x: Elements) -> Result<(), String> {
        let function = self.nccl.0.send;
        // SAFETY: the caller vouches.
        self.called(unsafe { function(x.read(), x.len, x.kind(), to as c_int, self.raw, self.stream) })
    }

    /// Receives `out` from rank `from`, which sends as many elements to this one in the same group.
    pub(super) unsafe fn receive(&self, from: usize, out: Elements) -> Result<(), String> {
        let function = self.nccl.0.receive;
        // SAFETY: the caller vouches.
        self.called(unsafe { function(out.written(), out.len, out.kind(), from as c_int, self.raw, self.stream) })
    }

    /// Sends bytes at an address to rank `to`, which receives as many from this one in the same group.
    pub(super) unsafe fn send_bytes(&self, to: usize, (address, len): (u64, usize)) -> Result<(), String> {
        let function = self.nccl.0.send;
        // SAFETY: the caller vouches.
        self.called(unsafe { function(address as *const c_void, len, BYTE, to as c_int, self.raw, self.stream) })
    }

    /// Receives bytes at an address from rank `from`, which sends as many to this one in the same group.
    pub(super) unsafe fn receive_bytes(&self, from: usize, (address, len): (u64, usize)) -> Result<(), String> {
        let function = self.nccl.0.receive;
        // SAFETY: the caller vouches.
        self.called(unsafe { function(address as *mut c_void, len, BYTE, from as c_int, self.raw, self.stream) })
    }
}
