//! [`Queue`]: the bounded window between a stage and the next, ordered by place.
//!
//! A queue hands out places 0, 1, 2, … in turn. It holds those from `head`, the next to be taken, to `head + capacity`:
//!
//! ```text
//!   taken        the window, capacity 4         waits for room
//!   ... 6 │  7: ·     8: item   9: item  10: · │ 11: a worker holds it
//!           head, still being worked on
//! ```
//! Workers that finish out of turn put their item in its place; the item at `head` is the next to leave. Whoever holds
//! that one has a place in the window and never waits for room, and everyone else waits for it: there is no circle of
//! waits.

use std::collections::VecDeque;

use crate::sync::{Condvar, Mutex, lock, wait};

/// Where items come from.
pub trait Input<T>: Close {
    /// Waits for the next item and takes it, with its place: 0, 1, 2, …; `None` when there will be no more.
    fn take(&self) -> Option<(u64, T)>;
}

/// What can be told that nobody wants more of it.
pub trait Close: Send + Sync {
    /// Gives nothing more and takes nothing more, so that nobody waits for room.
    ///
    /// Who waits for an item is released when the last producer ends, which each does with its next item.
    fn close(&self);
}

/// The queue is closed: the item was dropped, and no other will be wanted.
#[derive(Debug, PartialEq, Eq)]
pub struct Closed;

/// The bounded window between a stage and the next.
pub struct Queue<T> {
    capacity: usize,
    state: Mutex<State<T>>,
    /// The head has come, or will not come any more.
    ready: Condvar,
    /// The head has moved, or the queue is closed.
    room: Condvar,
}

struct State<T> {
    /// The place of the first slot.
    head: u64,
    /// At most `capacity`; `None` where a later item has come first.
    slots: VecDeque<Option<T>>,
    /// Workers that may still put something.
    n_producers: usize,
    is_closed: bool,
}

impl<T> Queue<T> {
    pub fn new(capacity: usize, n_producers: usize) -> Self {
        let state = State { head: 0, slots: VecDeque::new(), n_producers, is_closed: false };
        Self { capacity, state: Mutex::new(state), ready: Condvar::new(), room: Condvar::new() }
    }

    /// Waits for room and puts `item` in its place, or, for `None`, behind all that are there.
    ///
    /// The places of a queue are either all given, each once and none left out for ever, or all left to the queue.
    pub fn put(&self, place: Option<u64>, item: T) -> Result<(), Closed> {
        let mut state = lock(&self.state);
        loop {
            if state.is_closed {
                return Err(Closed);
            }
            let slot = place.map_or(state.slots.len(), |place| (place - state.head) as usize);
            if slot < self.capacity {
                state.fill(slot, item);
                if slot == 0 {
                    self.ready.notify_all();
                }
                return Ok(());
            }
            state = wait(&self.room, state);
        }
    }

    /// One worker less that may put something.
    pub fn end_producer(&self) {
        let mut state = lock(&self.state);
        state.n_producers -= 1;
        if state.n_producers == 0 {
            self.ready.notify_all();
        }
    }
}

impl<T> State<T> {
    fn fill(&mut self, slot: usize, item: T) {
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        self.slots[slot] = Some(item);
    }

    /// The head, if it has come.
    fn pop(&mut self) -> Option<(u64, T)> {
        let item = self.slots.front_mut()?.take()?;
        self.slots.pop_front();
        self.head += 1;
        Some((self.head - 1, item))
    }
}

impl<T: Send> Input<T> for Queue<T> {
    fn take(&self) -> Option<(u64, T)> {
        let mut state = lock(&self.state);
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(taken) = state.pop() {
                self.room.notify_all();
                return Some(taken);
            }
            if state.n_producers == 0 {
                return None;
            }
            state = wait(&self.ready, state);
        }
    }
}

impl<T: Send> Close for Queue<T> {
    fn close(&self) {
        lock(&self.state).is_closed = true;
        self.room.notify_all();
    }
}
