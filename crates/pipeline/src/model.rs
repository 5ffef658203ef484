//! Small pipelines in every interleaving of their threads (loom, with a bounded number of preemptions).
//!
//! The bounds here take seconds. After a change to the queue, run
//! `LOOM_MAX_PREEMPTIONS=3 cargo test -p girih-pipeline --lib`: it takes minutes and explores a million interleavings.
//!
//! Loom itself fails on a deadlock. The tests assert the rest: the output, and that the pipeline drops every item of
//! the source exactly once.

use std::convert::Infallible;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::items::Handle;
use crate::worker::Ended;
use crate::{Items, Pipeline, Stage, StageError, StartError};

/// Runs `test` once for every interleaving with at most `preemptions` preemptions. `LOOM_MAX_PREEMPTIONS` raises this
/// bound, but does not lower it.
fn explore(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.max(Some(preemptions));
    model.check(test);
}

/// Counts the items that were created and dropped.
#[derive(Default)]
struct Ledger {
    n_made: AtomicUsize,
    n_dropped: AtomicUsize,
}

impl Ledger {
    fn items(self: &Arc<Self>, n: u64) -> impl Iterator<Item = Item> + Send + use<> {
        let ledger = Arc::clone(self);
        (0..n).map(move |id| {
            ledger.n_made.fetch_add(1, Ordering::Relaxed);
            Item { id, ledger: Arc::clone(&ledger) }
        })
    }

    fn assert_all_dropped_once(&self) {
        assert_eq!(self.n_made.load(Ordering::Relaxed), self.n_dropped.load(Ordering::Relaxed));
    }
}

/// Item with an id. It is neither `Copy` nor `Clone`, so it exists in one place.
struct Item {
    id: u64,
    ledger: Arc<Ledger>,
}

impl Drop for Item {
    fn drop(&mut self) {
        self.ledger.n_dropped.fetch_add(1, Ordering::Relaxed);
    }
}

type Model = Pipeline<'static, Item, u64>;

/// Pipeline of stages of capacity 1. `shape[i]` is the number of workers of stage `i`, and `work(i, item)` its work.
fn pipeline(
    ledger: &Arc<Ledger>,
    n: u64,
    shape: &[usize],
    work: impl Fn(usize, Item) -> Result<Item, u64> + Send + Sync + Copy + 'static,
) -> Model {
    shape.iter().enumerate().fold(Model::new(ledger.items(n)), |model, (place, &workers)| {
        let stage = Stage::new(&place.to_string()).workers(workers).capacity(1);
        model.stage(stage, move || move |item| work(place, item))
    })
}

fn ids(items: &mut Items<'static, Item, u64>) -> Vec<Result<u64, StageError<u64>>> {
    items.map(|item| item.map(|item| item.id)).collect()
}

fn panic_quietly(message: &'static str) -> ! {
    // The panic hook would print for every interleaving; this does not run it.
    resume_unwind(Box::new(message))
}

fn every_item_comes_out_once_and_in_order(shape: &'static [usize], n: u64, preemptions: usize) {
    explore(preemptions, move || {
        let ledger = Arc::new(Ledger::default());
        let mut items = pipeline(&ledger, n, shape, |_, item| Ok(item)).start().unwrap();
        let found: Vec<u64> = ids(&mut items).into_iter().map(Result::unwrap).collect();
        assert_eq!(found, (0..n).collect::<Vec<_>>());
        drop(items);
        ledger.assert_all_dropped_once();
        assert_eq!(ledger.n_made.load(Ordering::Relaxed), n as usize);
    });
}

#[test]
fn one_stage_delivers_every_item_once_and_in_order() {
    every_item_comes_out_once_and_in_order(&[1], 3, 100);
}

#[test]
fn two_workers_deliver_every_item_once_and_in_order() {
    every_item_comes_out_once_and_in_order(&[2], 3, 2);
}

#[test]
fn two_stages_deliver_every_item_once_and_in_order() {
    every_item_comes_out_once_and_in_order(&[1, 1], 3, 2);
}

#[test]
fn two_workers_and_a_stage_deliver_every_item_once_and_in_order() {
    every_item_comes_out_once_and_in_order(&[2, 1], 2, 1);
}

#[test]
fn any_order_delivers_every_item_once() {
    explore(2, || {
        let ledger = Arc::new(Ledger::default());
        let stage = Stage::new("any").workers(2).capacity(1).in_any_order();
        let items = Pipeline::<_, Infallible>::new(ledger.items(3)).stage(stage, || Ok).start().unwrap();
        let mut found: Vec<u64> = items.map(|item| item.unwrap().id).collect();
        found.sort_unstable();
        assert_eq!(found, [0, 1, 2]);
        ledger.assert_all_dropped_once();
    });
}

/// The source has more items than the pipeline holds. So some interleavings have every queue full.
fn a_consumer_may_leave_after_any_item(shape: &'static [usize], preemptions: usize) {
    for n_taken in 0..3 {
        explore(preemptions, move || {
            let ledger = Arc::new(Ledger::default());
            let mut items = pipeline(&ledger, 6, shape, |_, item| Ok(item)).start().unwrap();
            let found: Vec<u64> = items.by_ref().take(n_taken).map(|item| item.unwrap().id).collect();
            assert_eq!(found, (0..n_taken as u64).collect::<Vec<_>>());
            drop(items);
            ledger.assert_all_dropped_once();
        });
    }
}

#[test]
fn a_consumer_may_leave_two_workers_after_any_item() {
    a_consumer_may_leave_after_any_item(&[2], 2);
}

#[test]
fn a_consumer_may_leave_two_stages_after_any_item() {
    a_consumer_may_leave_after_any_item(&[1, 1], 2);
}

/// For every stage and item: the items before it come out, then the failure, then the end.
fn a_failure_comes_out_in_its_place(
    fail: fn(u64) -> Result<Item, u64>,
    is_expected: fn(&StageError<u64>, &str, u64) -> bool,
) {
    for shape in [&[2usize] as &[usize], &[1, 1]] {
        for (place, id) in (0..shape.len()).flat_map(|place| (0..2).map(move |id| (place, id))) {
            explore(2, move || {
                let ledger = Arc::new(Ledger::default());
                let work = move |stage, item: Item| if (stage, item.id) == (place, id) { fail(id) } else { Ok(item) };
                let mut items = pipeline(&ledger, 5, shape, work).start().unwrap();
                let mut found = ids(&mut items);
                let failure = found.pop().unwrap().unwrap_err();
                assert!(is_expected(&failure, &place.to_string(), id), "{failure:?}");
                let before: Vec<u64> = found.into_iter().map(Result::unwrap).collect();
                assert_eq!(before, (0..id).collect::<Vec<_>>());
                assert!(items.next().is_none());
                drop(items);
                ledger.assert_all_dropped_once();
            });
        }
    }
}

#[test]
fn an_error_comes_out_in_its_place() {
    a_failure_comes_out_in_its_place(Err, |failure, name, id| {
        matches!(failure, StageError::Failed { stage, item, source }
            if stage == name && (*item, *source) == (id, id))
    });
}

#[test]
fn a_panic_comes_out_in_its_place() {
    a_failure_comes_out_in_its_place(
        |_| panic_quietly("it broke"),
        |failure, name, id| {
            matches!(failure, StageError::Panicked { stage, item, message }
                if stage == name && *item == Some(id) && message == "it broke")
        },
    );
}

#[test]
fn the_first_of_two_failures_decides_which_comes_out() {
    explore(2, || {
        let ledger = Arc::new(Ledger::default());
        let work = |stage, item: Item| match (stage, item.id) {
            (0, 2) => Err(20),
            (1, 1) => Err(11),
            _ => Ok(item),
        };
        let mut items = pipeline(&ledger, 6, &[1, 1], work).start().unwrap();
        let found = ids(&mut items);
        assert!(matches!(found[..], [Ok(0), Err(StageError::Failed { item: 1, source: 11, .. })]), "{found:?}");
        drop(items);
        ledger.assert_all_dropped_once();
    });
}

#[test]
fn a_source_that_panics_is_named_after_its_items() {
    explore(1, || {
        let ledger = Arc::new(Ledger::default());
        let source = ledger.items(4).map(|item| if item.id == 1 { panic_quietly("torn") } else { item });
        let mut items = Model::new(source).stage(Stage::new("0").workers(2).capacity(1), || Ok).start().unwrap();
        let found = ids(&mut items);
        let [Ok(0), Err(StageError::Panicked { stage, item: Some(1), message })] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((stage.as_str(), message.as_str()), ("source", "torn"));
        drop(items);
        ledger.assert_all_dropped_once();
    });
}

/// One of two workers cannot create its state. Finished items come out in order, followed by the panic.
#[test]
fn a_worker_that_cannot_begin_ends_the_pipeline_with_an_error() {
    explore(2, || {
        let ledger = Arc::new(Ledger::default());
        let n_begun = AtomicUsize::new(0);
        let make = move || {
            if n_begun.fetch_add(1, Ordering::Relaxed) == 1 {
                panic_quietly("no device");
            }
            Ok
        };
        let mut items =
            Model::new(ledger.items(4)).stage(Stage::new("0").workers(2).capacity(1), make).start().unwrap();
        let mut found = ids(&mut items);
        let failure = found.pop().unwrap().unwrap_err();
        assert!(matches!(&failure, StageError::Panicked { item: None, message, .. } if message == "no device"));
        let before: Vec<u64> = found.into_iter().map(Result::unwrap).collect();
        assert_eq!(before, (0..before.len() as u64).collect::<Vec<_>>());
        drop(items);
        ledger.assert_all_dropped_once();
    });
}

/// The system refuses one thread of two stages with two workers each. The running threads are stopped, and none waits
/// for it.
#[test]
fn a_refused_thread_stops_those_that_run() {
    for n_granted in 0..4 {
        explore(2, move || {
            let ledger = Arc::new(Ledger::default());
            let n_asked = AtomicUsize::new(0);
            let spawn = |name: String, body: Box<dyn FnOnce() -> Ended + Send>| -> std::io::Result<Handle<'static>> {
                if n_asked.fetch_add(1, Ordering::Relaxed) == n_granted {
                    return Err(std::io::Error::other("too many threads"));
                }
                let handle = loom::thread::Builder::new().name(name).spawn(body)?;
                Ok(Box::new(move || handle.join()))
            };
            let error = pipeline(&ledger, 3, &[2, 2], |_, item| Ok(item)).launch(spawn).err().unwrap();
            let expected = (n_granted / 2).to_string();
            assert!(matches!(&error, StartError::Thread { stage, .. } if *stage == expected), "{error}");
            ledger.assert_all_dropped_once();
        });
    }
}
