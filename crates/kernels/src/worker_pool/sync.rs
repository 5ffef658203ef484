//! Channels, threads and atomics of the standard library or, in unit tests, of loom. Loom runs a test once for every
//! interleaving of its threads. Loom has no channel that disconnects, so tests build one from its mutex and condition
//! variable.

#[cfg(not(test))]
pub(crate) use std::{
    sync::Arc,
    sync::atomic::AtomicUsize,
    sync::mpsc::{Receiver, Sender, channel},
    thread::{Builder, JoinHandle},
};

#[cfg(test)]
pub(crate) use loom::{
    sync::Arc,
    sync::atomic::AtomicUsize,
    thread::{Builder, JoinHandle},
};
#[cfg(test)]
pub(crate) use modelled::{Receiver, Sender, channel};

/// Channels that behave like those of the standard library.
#[cfg(test)]
mod modelled {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError};
    use std::time::Duration;

    use loom::sync::{Condvar, Mutex};

    struct Channel<T> {
        state: Mutex<State<T>>,
        changed: Condvar,
    }

    struct State<T> {
        items: VecDeque<T>,
        n_senders: usize,
        is_received: bool,
    }

    impl<T> Channel<T> {
        fn change<R>(&self, change: impl FnOnce(&mut State<T>) -> R) -> R {
            let changed = change(&mut self.state.lock().expect("no thread panics"));
            self.changed.notify_all();
            changed
        }
    }

    pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let state = State { items: VecDeque::new(), n_senders: 1, is_received: true };
        let channel = Arc::new(Channel { state: Mutex::new(state), changed: Condvar::new() });
        (Sender(Arc::clone(&channel)), Receiver(channel))
    }

    pub(crate) struct Sender<T>(Arc<Channel<T>>);

    impl<T> Sender<T> {
        pub(crate) fn send(&self, item: T) -> Result<(), SendError<T>> {
            self.0.change(|state: &mut State<T>| match state.is_received {
                true => {
                    state.items.push_back(item);
                    Ok(())
                }
                false => Err(SendError(item)),
            })
        }
    }

    impl<T> Clone for Sender<T> {
        fn clone(&self) -> Self {
            self.0.change(|state: &mut State<T>| state.n_senders += 1);
            Self(Arc::clone(&self.0))
        }
    }

    impl<T> Drop for Sender<T> {
        fn drop(&mut self) {
            self.0.change(|state: &mut State<T>| state.n_senders -= 1);
        }
    }

    pub(crate) struct Receiver<T>(Arc<Channel<T>>);

    impl<T> Receiver<T> {
        pub(crate) fn recv(&self) -> Result<T, RecvError> {
            let mut state = self.0.state.lock().expect("no thread panics");
            loop {
                match state.items.pop_front() {
                    Some(item) => return Ok(item),
                    None if state.n_senders == 0 => return Err(RecvError),
                    None => state = self.0.changed.wait(state).expect("no thread panics"),
                }
            }
        }

        /// As [`recv`](Self::recv): in model checks no time passes.
        pub(crate) fn recv_timeout(&self, _: Duration) -> Result<T, RecvTimeoutError> {
            self.recv().map_err(|RecvError| RecvTimeoutError::Disconnected)
        }
    }

    impl<T> Drop for Receiver<T> {
        fn drop(&mut self) {
            let left = self.0.change(|state: &mut State<T>| {
                state.is_received = false;
                std::mem::take(&mut state.items)
            });
            // Without the lock: an item may have a sender of its own.
            drop(left);
        }
    }

    impl<T> Iterator for &Receiver<T> {
        type Item = T;

        fn next(&mut self) -> Option<T> {
            self.recv().ok()
        }
    }
}
