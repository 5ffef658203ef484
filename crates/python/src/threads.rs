//! Work without the GIL: on threads that survive a fork, with an eye on Ctrl-C.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::errors::{of_panic, value_error};

/// Time between two looks for signals while a caller waits.
pub const TICK: Duration = Duration::from_millis(50);

/// Number of threads that was asked for; 0: one a core.
static ASKED: AtomicUsize = AtomicUsize::new(0);

/// Threads of this process, and which process and number that is.
struct Threads {
    process: u32,
    asked: usize,
    pool: rayon::ThreadPool,
}

/// Pool of this process for whole operations.
///
/// A forked child has none of its parent's threads and makes its own. The pool of the parent is not touched there,
/// because its locks may be held for ever; no pool is freed, since work may still run on it.
fn pool() -> PyResult<&'static rayon::ThreadPool> {
    static POOL: AtomicPtr<Threads> = AtomicPtr::new(std::ptr::null_mut());
    let (process, asked) = (std::process::id(), ASKED.load(Ordering::Relaxed));
    loop {
        let found = POOL.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or was made by `Box::into_raw` below and is never freed.
        if let Some(threads) = unsafe { found.as_ref() }
            && (threads.process, threads.asked) == (process, asked)
        {
            return Ok(&threads.pool);
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(asked).thread_name(|i| format!("girih-{i}")).build();
        let pool = pool.map_err(|error| PyRuntimeError::new_err(format!("the system refuses a thread: {error}")))?;
        let made = Box::into_raw(Box::new(Threads { process, asked, pool }));
        if POOL.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: `made` comes from `Box::into_raw`, and was given to nobody.
            drop(unsafe { Box::from_raw(made) });
        }
    }
}

/// Number of threads of whole operations, such as orders, gathers and training.
#[pyfunction]
pub fn num_threads() -> PyResult<usize> {
    Ok(pool()?.current_num_threads())
}

/// Sets the number of threads of whole operations; 0: one a core.
#[pyfunction]
pub fn set_num_threads(n: usize) -> PyResult<()> {
    const MOST: usize = 4096;
    if n > MOST {
        return Err(value_error(format!("{n} threads; give at most {MOST}, or 0 for one a core")));
    }
    ASKED.store(n, Ordering::Relaxed);
    Ok(())
}

/// Runs short work on this thread without the GIL. A panic becomes a `RuntimeError`.
pub fn without_gil<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).map_err(|panic| of_panic(&*panic))
}

/// Runs short work on this package's threads without the GIL.
pub fn on_pool<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    let pool = pool()?;
    without_gil(py, || pool.install(work))
}

/// Runs long work on this package's threads. Ctrl-C returns at once; the work then ends unread.
pub fn interruptible<T: Send + 'static>(py: Python<'_>, work: impl FnOnce() -> T + Send + 'static) -> PyResult<T> {
    let task = Task::start(work)?;
    loop {
        match task.wait(py) {
            Some(result) => return result,
            None => py.check_signals()?,
        }
    }
}

/// As [`interruptible`], for work that ends soon after `stop` is set: the first Ctrl-C sets it and waits for the end,
/// the second returns at once.
pub fn stoppable<T: Send + 'static>(
    py: Python<'_>,
    stop: &AtomicBool,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let task = Task::start(work)?;
    let mut interrupt: Option<PyErr> = None;
    loop {
        if let Some(result) = task.wait(py) {
            return interrupt.map_or(result, Err);
        }
        if let Err(signal) = py.check_signals() {
            stop.store(true, Ordering::Relaxed);
            if interrupt.replace(signal).is_some() {
                return Err(interrupt.take().expect("it was just set"));
            }
        }
    }
}

/// Work on this package's threads that a caller waits for.
struct Task<T> {
    /// A receiver is no `Sync`, which `detach` asks for; only the waiting thread locks it.
    result: Mutex<mpsc::Receiver<std::thread::Result<T>>>,
}

impl<T: Send + 'static> Task<T> {
    fn start(work: impl FnOnce() -> T + Send + 'static) -> PyResult<Self> {
        let pool = pool()?;
        let (done, result) = mpsc::sync_channel(1);
        let run = move || drop(done.send(catch_unwind(AssertUnwindSafe(|| pool.install(work)))));
        let spawned = std::thread::Builder::new().name("girih".into()).spawn(run);
        spawned.map_err(|error| PyRuntimeError::new_err(format!("the system refuses a thread: {error}")))?;
        Ok(Self { result: Mutex::new(result) })
    }

    /// Result, if it comes within a tick.
    fn wait(&self, py: Python<'_>) -> Option<PyResult<T>> {
        let result = py.detach(|| self.result.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(TICK));
        match result {
            Ok(result) => Some(result.map_err(|panic| of_panic(&*panic))),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
            Err(mpsc::RecvTimeoutError::Disconnected) => Some(Err(PyRuntimeError::new_err("a thread of girih ended"))),
        }
    }
}
