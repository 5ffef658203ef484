//! [`WorkerPool`]: threads that each do their share of a batch.
//!
//! ```text
//! ask ──▶ a channel to each thread ──▶ work, piece by piece (Cursor) ──▶ its outcome, sent to the caller
//! ```
//! Threads take batches in the order of requests, and wait for no other thread: one may be at the next batch while
//! another is at this one. A batch is dropped when neither a thread nor the caller holds it any more. `model.rs` runs
//! a few threads in every interleaving.

mod sync;

#[cfg(test)]
mod model;

use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;

pub(crate) use sync::Receiver;
use sync::{Arc, AtomicUsize, Builder, JoinHandle, Sender, channel};

/// Threads that each work on every batch `B`, with an outcome `O`.
pub(crate) struct WorkerPool<B, O> {
    /// Channel to each thread.
    asked: Vec<Sender<Share<B, O>>>,
    threads: Vec<JoinHandle<()>>,
}

/// Batch, shared by the threads and the caller.
pub(crate) type Held<B> = Arc<B>;

/// Share of a thread in a batch. A thread that ends without an outcome is noticed, because nobody else holds its
/// sender.
struct Share<B, O> {
    batch: Held<B>,
    tell: Sender<O>,
}

/// Error of a thread that has ended early, which only a panic causes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone;

impl<B: Send + Sync + 'static, O: Send + 'static> WorkerPool<B, O> {
    /// Pool without threads.
    pub(crate) fn new() -> Self {
        Self { asked: Vec::new(), threads: Vec::new() }
    }

    /// Number of threads.
    pub(crate) fn len(&self) -> usize {
        self.asked.len()
    }

    /// Starts a thread that does `work` for each batch until the pool ends.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(&mut self, name: &str, mut work: impl FnMut(&B) -> O + Send + 'static) -> io::Result<()> {
        let (ask, asked) = channel::<Share<B, O>>();
        let thread = Builder::new().name(name.to_owned()).spawn(move || {
            for Share { batch, tell } in &asked {
                // The caller may have stopped waiting.
                let _ = tell.send(work(&batch));
            }
        })?;
        self.threads.push(thread);
        self.asked.push(ask);
        Ok(())
    }

    /// Gives each thread its share of a batch; the receiver gets one outcome per thread.
    ///
    /// # Errors
    /// When a thread has ended.
    pub(crate) fn ask(&self, batch: B) -> Result<(Held<B>, Receiver<O>), Gone> {
        let (batch, (tell, told)) = (Arc::new(batch), channel());
        let share = || Share { batch: Arc::clone(&batch), tell: tell.clone() };
        self.asked.iter().try_for_each(|ask| ask.send(share())).map_err(|_| Gone)?;
        Ok((batch, told))
    }
}

impl<B, O> WorkerPool<B, O> {
    /// Closes the channels, calls `release` to end the waits of threads, and joins all threads.
    pub(crate) fn end(&mut self, release: impl FnOnce()) {
        self.asked.clear();
        release();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Position in a batch before which threads have taken all items.
pub(crate) struct Cursor(AtomicUsize);

impl Cursor {
    /// Cursor before the first item.
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Takes the next `at_once` of `n` items, or the rest; `None` if all are taken.
    pub(crate) fn take(&self, at_once: usize, n: usize) -> Option<Range<usize>> {
        let first = self.0.fetch_add(at_once, Ordering::Relaxed);
        (first < n).then(|| first..n.min(first + at_once))
    }
}
