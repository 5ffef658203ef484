//! [`Queue`]: bounded queue between a stage and the next, ordered by position.
//!
//! Items have positions 0, 1, 2, … in the queue, and leave in this order. The queue has slots for the positions from
//! `head`, the next to leave, up to but not including `head + capacity`:
//!
//! ```text
//!   taken        the window, capacity 4         waits for room
//!   ... 6 │  7: ·     8: item   9: item  10: · │ 11: a worker holds it
//!           head, still being worked on
//! ```
//! Workers that finish out of order put their item into its slot. The item at `head` leaves next. Its worker has a
//! slot in the window and never waits for space. All other workers wait for it, so waits form no cycle.

use std::collections::VecDeque;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex, lock, wait, wait_for};

/// Source of the items of a stage.
pub trait Input<T>: Close {
    /// Waits for the next item and takes it, with its position 0, 1, 2, …; `None` after the last one.
    fn take(&self) -> Option<(u64, T)>;

    /// As [`take`](Self::take), but for about `limit` at most: pending if no item has arrived by then. A source that
    /// makes its items on the caller's thread takes as long as an item takes.
    fn take_within(&self, limit: Duration) -> Poll<Option<(u64, T)>> {
        let _ = limit;
        Poll::Ready(self.take())
    }
}

/// Producer that a consumer can close.
pub trait Close: Send + Sync {
    /// Ends the producer: it gives and takes no more items, and threads that wait for space continue.
    ///
    /// Threads that wait for an item are released when the last worker of the stage before ends, at its next item.
    fn close(&self);
}

/// Error of a closed queue: the item was dropped, and no further item is wanted.
#[derive(Debug, PartialEq, Eq)]
pub struct Closed;

/// Bounded queue between a stage and the next.
pub struct Queue<T> {
    capacity: usize,
    state: Mutex<State<T>>,
    /// Condition: the item at `head` has arrived, or never will.
    ready: Condvar,
    /// Condition: `head` has advanced, or the queue is closed.
    room: Condvar,
}

struct State<T> {
    /// Position of the first slot.
    head: u64,
    /// At most `capacity` slots; `None` for items that have not arrived while later ones have.
    slots: VecDeque<Option<T>>,
    /// Number of workers that may still put items.
    n_producers: usize,
    is_closed: bool,
}

impl<T> Queue<T> {
    pub fn new(capacity: usize, n_producers: usize) -> Self {
        let state = State { head: 0, slots: VecDeque::new(), n_producers, is_closed: false };
        Self { capacity, state: Mutex::new(state), ready: Condvar::new(), room: Condvar::new() }
    }

    /// Waits for space and puts `item` into the slot of its position; for `None`, behind all items in the queue.
    ///
    /// Either all callers of a queue give positions, each exactly once and without gaps, or none does.
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

    /// Records that a worker has ended and puts no more items.
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

    /// Removes the item at `head`, if it has arrived.
    fn pop(&mut self) -> Option<(u64, T)> {
        let item = self.slots.front_mut()?.take()?;
        self.slots.pop_front();
        self.head += 1;
        Some((self.head - 1, item))
    }
}

impl<T: Send> Queue<T> {
    /// Takes the next item; pending if none has arrived by `deadline`.
    fn take_until(&self, deadline: Option<Instant>) -> Poll<Option<(u64, T)>> {
        let mut state = lock(&self.state);
        loop {
            if state.is_closed {
                return Poll::Ready(None);
            }
            if let Some(taken) = state.pop() {
                self.room.notify_all();
                return Poll::Ready(Some(taken));
            }
            if state.n_producers == 0 {
                return Poll::Ready(None);
            }
            state = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => wait(&self.ready, state),
                Some(Duration::ZERO) => return Poll::Pending,
                Some(left) => wait_for(&self.ready, state, left),
            };
        }
    }
}

impl<T: Send> Input<T> for Queue<T> {
    fn take(&self) -> Option<(u64, T)> {
        match self.take_until(None) {
            Poll::Ready(taken) => taken,
            Poll::Pending => unreachable!("there is no deadline"),
        }
    }

    fn take_within(&self, limit: Duration) -> Poll<Option<(u64, T)>> {
        self.take_until(Instant::now().checked_add(limit))
    }
}

impl<T: Send> Close for Queue<T> {
    fn close(&self) {
        lock(&self.state).is_closed = true;
        self.room.notify_all();
    }
}
