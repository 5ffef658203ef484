//! [`WorkerPool`]: threads that each do their share of a batch.
//!
//! ```text
//! ask ──▶ a channel to each thread ──▶ work, piece by piece (Cursor) ──▶ its outcome, told to who asked
//! ```
//! Threads take batches in the order in which they were asked, and wait for no other thread: one may be at the next
//! batch while another is at this one. A batch is dropped when neither a thread nor who asked has it any more.
//! `model.rs` runs a few threads in every interleaving.

mod sync;

#[cfg(test)]
mod model;

use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;

pub(crate) use sync::Receiver;
use sync::{Arc, AtomicUsize, Builder, JoinHandle, Sender, channel};

/// Threads with work of their own for each batch `B`, whose outcome is an `O`.
pub(crate) struct WorkerPool<B, O> {
    /// A way to each thread.
    asked: Vec<Sender<Share<B, O>>>,
    threads: Vec<JoinHandle<()>>,
}

/// Batch, as threads hold it and who asked.
pub(crate) type Held<B> = Arc<B>;

/// Share of a thread in a batch. A thread that ends without telling is noticed, since nobody else can tell.
struct Share<B, O> {
    batch: Held<B>,
    tell: Sender<O>,
}

/// Error of a thread that has ended before its time, which only a panic does.
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

    /// Starts a thread that does `work` for each batch until nobody asks any more.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(&mut self, name: &str, mut work: impl FnMut(&B) -> O + Send + 'static) -> io::Result<()> {
        let (ask, asked) = channel::<Share<B, O>>();
        let thread = Builder::new().name(name.to_owned()).spawn(move || {
            for Share { batch, tell } in &asked {
                // Whoever gave up waiting is not told.
                let _ = tell.send(work(&batch));
            }
        })?;
        self.threads.push(thread);
        self.asked.push(ask);
        Ok(())
    }

    /// Asks each thread for its share of a batch; as many outcomes come as there are threads.
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
    /// Asks for nothing more, makes sure that no thread waits in vain, and waits until all have ended.
    pub(crate) fn end(&mut self, release: impl FnOnce()) {
        self.asked.clear();
        release();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Items of a batch that no thread has taken.
pub(crate) struct Cursor(AtomicUsize);

impl Cursor {
    /// Cursor before the first item.
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Takes the next so many of `n` items, or what is left of them; `None` when others have the rest.
    pub(crate) fn take(&self, at_once: usize, n: usize) -> Option<Range<usize>> {
        let first = self.0.fetch_add(at_once, Ordering::Relaxed);
        (first < n).then(|| first..n.min(first + at_once))
    }
}
