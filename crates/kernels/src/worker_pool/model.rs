//! Model check of a worker pool: a few threads in every interleaving (loom, with a bounded number of preemptions).
//!
//! Loom itself fails on a deadlock, and on memory that is written while another thread may read it. The bounds take
//! seconds; `LOOM_MAX_PREEMPTIONS=4 cargo test -p girih-kernels --lib worker_pool` takes minutes.

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};

use super::{Cursor, WorkerPool};

/// Runs `test` in every interleaving with at most `preemptions` preemptions, or `LOOM_MAX_PREEMPTIONS` if that is
/// more.
fn explore(preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.max(Some(preemptions));
    model.check(test);
}

/// Memory of batches, like that of ids: dropping a batch returns it, and the next batch writes it.
type Spare = Arc<Mutex<Vec<Box<Memory>>>>;

struct Memory(UnsafeCell<usize>);

// SAFETY: loom reports every read of the cell that is concurrent with a write.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

struct Batch {
    /// Memory; `None` only while it is released.
    memory: Option<Box<Memory>>,
    spare: Spare,
    cursor: Cursor,
}

impl Batch {
    /// Batch of `n` items; reuses spare memory if there is some.
    fn of(n: usize, spare: &Spare) -> Self {
        let used = spare.lock().unwrap().pop();
        let memory = used.unwrap_or_else(|| Box::new(Memory(UnsafeCell::new(0))));
        // SAFETY: nobody else has it; loom would report it.
        memory.0.with_mut(|number| unsafe { *number = n });
        Self { memory: Some(memory), spare: Arc::clone(spare), cursor: Cursor::new() }
    }

    fn n_items(&self) -> usize {
        let memory = self.memory.as_ref().expect("it is given back at the end");
        // SAFETY: it is only read while a batch has it; loom would report a write.
        memory.0.with(|number| unsafe { *number })
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.spare.lock().unwrap().extend(self.memory.take());
    }
}

/// Items that a thread took of a batch.
fn take_all(batch: &Batch) -> Vec<usize> {
    std::iter::from_fn(|| batch.cursor.take(1, batch.n_items())).flatten().collect()
}

fn pool(n_threads: usize) -> WorkerPool<Batch, Vec<usize>> {
    let mut pool = WorkerPool::new();
    for _ in 0..n_threads {
        pool.start("rows", take_all).unwrap();
    }
    pool
}

#[test]
fn each_item_of_each_batch_is_taken_once() {
    explore(2, || {
        let (mut pool, spare) = (pool(2), Spare::default());
        for n in [2, 1] {
            let (_batch, told) = pool.ask(Batch::of(n, &spare)).unwrap();
            let mut taken: Vec<usize> = (0..pool.len()).flat_map(|_| told.recv().unwrap()).collect();
            taken.sort_unstable();
            assert_eq!(taken, (0..n).collect::<Vec<_>>());
        }
        pool.end(|| ());
        let spare = spare.lock().unwrap();
        assert!((1..=2).contains(&spare.len()), "memory of all batches comes back");
    });
}

#[test]
fn batches_that_nobody_waits_for_end_all_the_same() {
    explore(2, || {
        let (mut pool, spare) = (pool(2), Spare::default());
        drop(pool.ask(Batch::of(2, &spare)).unwrap());
        let (_, last) = pool.ask(Batch::of(1, &spare)).unwrap();
        pool.end(|| ());
        let mut taken: Vec<usize> = last.into_iter().flatten().collect();
        taken.sort_unstable();
        assert_eq!(taken, [0]);
        assert!(!spare.lock().unwrap().is_empty());
    });
}

#[test]
fn threads_that_wait_for_something_else_are_released_at_the_end() {
    explore(2, || {
        let (open, gate) = super::sync::channel::<()>();
        let mut pool = WorkerPool::new();
        // Like a thread that waits for a copy, which completes or is aborted.
        pool.start("rows", move |_: &Batch| gate.recv().is_err()).unwrap();
        let (_, told) = pool.ask(Batch::of(1, &Spare::default())).unwrap();
        pool.end(|| drop(open));
        assert_eq!(told.recv(), Ok(true));
    });
}
