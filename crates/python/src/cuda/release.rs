//! [`Release`]: memory of GPUs that a thread of its own frees, while the caller launches the next step.
//!
//! A batch has dozens of pieces of memory, and the driver takes microseconds for each. They are freed in the order of their
//! stream, whichever thread asks for it.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use girih_kernels::Cuda;

use super::guest::OnGpu;

/// Request to the thread.
enum Request {
    Free(Box<dyn Send>),
    /// To answer when all that was asked before is done.
    Answer(Sender<()>),
}

/// Way to the thread of a process.
struct Thread {
    process: u32,
    requests: Sender<Request>,
}

static THREAD: Mutex<Option<Thread>> = Mutex::new(None);

/// Sends a request to the thread of this process, which is started at the first one. Returns it if there is no thread.
fn ask(request: Request) -> Result<(), Request> {
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if thread.as_ref().is_none_or(|thread| thread.process != process) {
        let (requests, received) = channel();
        let work = move || {
            for request in received {
                match request {
                    Request::Free(memory) => drop(memory),
                    // Nobody waits any more where it fails.
                    Request::Answer(asker) => drop(asker.send(())),
                }
            }
        };
        let started = std::thread::Builder::new().name("girih-release".to_owned()).spawn(work);
        *thread = started.is_ok().then_some(Thread { process, requests });
    }
    match thread.as_ref() {
        Some(thread) => thread.requests.send(request).map_err(|unsent| unsent.0),
        None => Err(request),
    }
}

/// Waits until everything is freed that was dropped before.
pub fn wait() {
    let (asker, answer) = channel();
    if ask(Request::Answer(asker)).is_ok() {
        // An error says that the thread has ended, and freed everything.
        let _ = answer.recv();
    }
}

/// Memory that may have several holders.
pub trait Held: Send + 'static {
    /// Whether nobody else holds it.
    fn is_last(&self) -> bool;
}

impl<T: Send + Sync + 'static> Held for Arc<T> {
    fn is_last(&self) -> bool {
        Self::strong_count(self) == 1
    }
}

impl<T: Held> Held for Option<T> {
    fn is_last(&self) -> bool {
        self.as_ref().is_some_and(Held::is_last)
    }
}

/// Holder of memory of a GPU, which is freed soon after the last of its holders is dropped.
pub struct Release<T: Held>(ManuallyDrop<OnGpu<T>>);

impl<T: Held> Release<T> {
    pub fn new(held: T, cuda: &Arc<Cuda>) -> Self {
        Self(ManuallyDrop::new(OnGpu::new(held, cuda)))
    }
}

impl<T: Held> Deref for Release<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Held> Drop for Release<T> {
    fn drop(&mut self) {
        // SAFETY: it is taken once, and not used again.
        let held = unsafe { ManuallyDrop::take(&mut self.0) };
        if held.is_last() {
            // Without a thread it is freed here.
            drop(ask(Request::Free(Box::new(held))));
        }
    }
}
