//! Properties of pipelines on real threads. `src/model.rs` checks interleavings.

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use girih_pipeline::{Items, Pipeline, Report, Stage, StageError, StartError};
use proptest::prelude::*;

/// Number of workers and capacity of a stage.
fn sizes() -> impl Strategy<Value = (usize, usize)> {
    (1..4usize, 1..4usize)
}

/// Number of workers and capacity of each stage.
fn shapes() -> impl Strategy<Value = Vec<(usize, usize)>> {
    prop::collection::vec(sizes(), 0..4)
}

fn stage(place: usize, (workers, capacity): (usize, usize)) -> Stage {
    Stage::new(&format!("stage {place}")).workers(workers).capacity(capacity)
}

/// Yields to other threads 0 to 7 times, depending on `seed`, so that items take different times.
fn dawdle(seed: u64) {
    for _ in 0..seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61 {
        thread::yield_now();
    }
}

/// Result of stage `place` for an item.
fn step(place: usize, value: u64) -> u64 {
    value.wrapping_mul(3).wrapping_add(place as u64)
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} takes for ever");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Kind of failure of a stage.
#[derive(Clone, Copy, Debug)]
enum Failure {
    Error,
    Panic,
}

fn failures() -> impl Strategy<Value = Failure> {
    prop_oneof![Just(Failure::Error), Just(Failure::Panic)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_pipeline_is_a_map(shape in shapes(), n in 0..60u64) {
        let expected: Vec<u64> = (0..n).map(|i| (0..shape.len()).fold(i, |value, place| step(place, value))).collect();
        let found = thread::scope(|scope| {
            let source = Pipeline::<u64, Infallible>::new(0..n);
            let pipeline = shape.iter().enumerate().fold(source, |pipeline, (place, &size)| {
                pipeline.stage(stage(place, size), move || move |value| {
                    dawdle(value + place as u64);
                    Ok(step(place, value))
                })
            });
            pipeline.start_in(scope).unwrap().map(Result::unwrap).collect::<Vec<_>>()
        });
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn in_any_order_nothing_is_lost_or_doubled(size in sizes(), behind in sizes(), n in 0..60u64) {
        let items = Pipeline::<u64, Infallible>::new(0..n)
            .stage(stage(0, size).in_any_order(), || |value| {
                dawdle(value);
                Ok(value)
            })
            .stage(stage(1, behind), || Ok)
            .start()
            .unwrap();
        let mut found: Vec<u64> = items.map(Result::unwrap).collect();
        found.sort_unstable();
        prop_assert_eq!(found, (0..n).collect::<Vec<_>>());
    }

    /// Independently of speed, the first failing item decides, and all items before it come out.
    #[test]
    fn the_first_failure_decides(
        shape in prop::collection::vec(sizes(), 1..4),
        failing in prop::collection::btree_map(0..40u64, (0..4usize, failures()), 1..5),
    ) {
        let failing = Arc::new(failing);
        let n_stages = shape.len();
        let pipeline = shape.iter().enumerate().fold(Pipeline::<u64, u64>::new(0..40), |pipeline, (place, &size)| {
            let failing = Arc::clone(&failing);
            pipeline.stage(stage(place, size), move || {
                let failing = Arc::clone(&failing);
                move |item| {
                    dawdle(item);
                    match failing.get(&item) {
                        Some((at, Failure::Error)) if at % n_stages == place => Err(item * 7),
                        Some((at, Failure::Panic)) if at % n_stages == place => panic!("no item {item}"),
                        _ => Ok(item),
                    }
                }
            })
        });
        let mut items = pipeline.start().unwrap();
        let (&first, &(at, how)) = failing.first_key_value().unwrap();
        for expected in 0..first {
            prop_assert_eq!(items.next().unwrap().unwrap(), expected);
        }
        let failure = items.next().unwrap().unwrap_err();
        let expected = match how {
            Failure::Error => format!("stage {}, item {first}: {}", at % n_stages, first * 7),
            Failure::Panic => format!(
                "stage {}, item {first}, panicked: no item {first}; this is a defect of the stage, not of its input",
                at % n_stages
            ),
        };
        prop_assert_eq!(failure.to_string(), expected);
        prop_assert!(items.next().is_none());
    }

    /// While the consumer takes nothing, the source gives exactly as many items as the pipeline can hold.
    #[test]
    fn waiting_items_are_bounded_and_a_stop_reaches_all(shape in shapes(), n_taken in 0..5u64) {
        let n_asked = AtomicU64::new(0);
        let alive = AtomicUsize::new(0);
        let room: usize = shape.iter().map(|(workers, capacity)| workers + capacity).sum();
        thread::scope(|scope| {
            let source = Pipeline::<u64, Infallible>::new((0u64..).inspect(|_| {
                n_asked.fetch_add(1, Ordering::Relaxed);
            }));
            let pipeline = shape.iter().enumerate().fold(source, |pipeline, (place, &size)| {
                let alive = &alive;
                pipeline.stage(stage(place, size), move || {
                    let state = Alive::new(alive);
                    move |value| {
                        let _ = &state;
                        Ok(value)
                    }
                })
            });
            let mut items = pipeline.start_in(scope).unwrap();
            for expected in 0..n_taken {
                assert_eq!(items.next().unwrap().unwrap(), expected);
            }
            let full = n_taken + room as u64;
            wait_until("filling every queue", || n_asked.load(Ordering::Relaxed) >= full);
            thread::sleep(Duration::from_millis(1));
            assert_eq!(n_asked.load(Ordering::Relaxed), full);
            drop(items);
            assert_eq!(alive.load(Ordering::Relaxed), 0, "a worker outlived the pipeline");
            assert_eq!(n_asked.load(Ordering::Relaxed), full, "a worker began another item after the stop");
        });
    }
}

/// Guard that counts itself in while it lives.
struct Alive<'a>(&'a AtomicUsize);

impl<'a> Alive<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The first item takes until a later one has come out.
#[test]
fn in_any_order_nobody_waits_for_a_slow_item() {
    let has_come = AtomicBool::new(false);
    let pass = || {
        |item: u64| {
            if item == 0 {
                wait_until("the later item", || has_come.load(Ordering::Relaxed));
            }
            Ok::<_, Infallible>(item)
        }
    };
    let found: Vec<u64> = thread::scope(|scope| {
        let stage = Stage::new("pass").workers(2).in_any_order();
        let items = Pipeline::new(0..2).stage(stage, pass).start_in(scope).unwrap();
        items.map(Result::unwrap).inspect(|_| has_come.store(true, Ordering::Relaxed)).collect()
    });
    assert_eq!(found, [1, 0]);
}

#[test]
fn each_worker_makes_its_state_once_on_its_own_thread() {
    let names = std::sync::Mutex::new(Vec::new());
    let n = thread::scope(|scope| {
        let make = || {
            names.lock().unwrap().push((thread::current().name().map(str::to_owned), thread::current().id()));
            // `Rc` is not `Send`: the state stays on its thread.
            let made_on = Rc::new(thread::current().id());
            move |item: u64| {
                assert_eq!(*made_on, thread::current().id());
                Ok::<_, Infallible>(item)
            }
        };
        let items = Pipeline::new(0..100).stage(Stage::new("state").workers(3), make).start_in(scope).unwrap();
        items.count()
    });
    assert_eq!(n, 100);
    let mut made = names.into_inner().unwrap();
    assert!(made.iter().all(|(name, _)| name.as_deref() == Some("state")));
    made.dedup_by_key(|(_, id)| *id);
    assert_eq!(made.len(), 3);
}

/// The consumer takes nothing. A failing worker still ends the other workers of its stage and the stages before it.
#[test]
fn a_failure_stops_its_stage_and_those_before_it_while_the_consumer_is_away() {
    for n_before in 0..3 {
        let (alive, n_made) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let make = |fails: bool| {
            let (alive, n_made) = (&alive, &n_made);
            move || {
                let state = Alive::new(alive);
                n_made.fetch_add(1, Ordering::Relaxed);
                move |item: u64| {
                    let _ = &state;
                    if fails && item == 0 { Err("no") } else { Ok(item) }
                }
            }
        };
        thread::scope(|scope| {
            let before = Stage::new("before").workers(2);
            let pipeline =
                (0..n_before).fold(Pipeline::new(0..), |pipeline, _| pipeline.stage(before.clone(), make(false)));
            // The large capacity makes sure that a full queue does not stop the other worker.
            let pipeline = pipeline.stage(Stage::new("fails").workers(2).capacity(100_000), make(true));
            let items = pipeline.start_in(scope).unwrap();
            let n_workers = 2 * n_before + 2;
            let have_ended = || n_made.load(Ordering::Relaxed) == n_workers && alive.load(Ordering::Relaxed) == 0;
            wait_until("stopping", have_ended);
            let found: Vec<_> = items.collect();
            assert!(matches!(found[..], [Err(StageError::Failed { item: 0, source: "no", .. })]), "{found:?}");
        });
    }
}

/// One of two workers fails with many items waiting before the stage. The other worker does not begin them.
#[test]
fn after_a_failure_nothing_that_waits_before_it_is_begun() {
    let n = 1000;
    let (n_waiting, n_begun) = (AtomicU64::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let before = || {
            |item: u64| {
                n_waiting.fetch_add(1, Ordering::Relaxed);
                Ok(item)
            }
        };
        let fails = || {
            |item: u64| {
                n_begun.fetch_add(1, Ordering::Relaxed);
                wait_until("filling the queue", || n_waiting.load(Ordering::Relaxed) == n);
                thread::sleep(Duration::from_millis(1));
                if item == 0 { Err("no") } else { Ok(item) }
            }
        };
        let pipeline = Pipeline::new(0..n).stage(Stage::new("before").capacity(n as usize), before);
        let stage = Stage::new("fails").workers(2).capacity(n as usize);
        let items = pipeline.stage(stage, fails).start_in(scope).unwrap();
        // In one second, a worker could begin all of them.
        thread::sleep(Duration::from_secs(1));
        assert_eq!(items.count(), 1);
    });
    let n_begun = n_begun.into_inner();
    assert!(n_begun < 500, "{n_begun} items were begun");
}

/// The result of an iterator after its end is unspecified.
#[test]
fn a_source_that_has_ended_is_not_asked_again() {
    let mut n_asked = 0;
    let source = std::iter::from_fn(move || {
        n_asked += 1;
        (n_asked != 4 && n_asked < 100).then_some(n_asked)
    });
    let items = Pipeline::<i32, Infallible>::new(source).stage(Stage::new("pass").workers(3), || Ok).start().unwrap();
    assert_eq!(items.map(Result::unwrap).collect::<Vec<_>>(), [1, 2, 3]);
}

/// The last stage works on an item until the first stage has stopped, which has space and endless input.
#[test]
fn a_stop_reaches_the_first_stage_while_the_last_is_at_work() {
    let (alive, is_at_work) = (AtomicUsize::new(0), AtomicBool::new(false));
    let has_stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        let first = || {
            let state = Alive::new(&alive);
            move |item: u64| {
                let _ = &state;
                thread::sleep(Duration::from_millis(1));
                Ok::<_, Infallible>(item)
            }
        };
        let last = || {
            |item| {
                if item == 1 {
                    is_at_work.store(true, Ordering::Relaxed);
                    wait_until("stopping the first stage", || alive.load(Ordering::Relaxed) == 0);
                    has_stopped.store(true, Ordering::Relaxed);
                }
                Ok(item)
            }
        };
        let pipeline = Pipeline::new(0..).stage(Stage::new("first").capacity(1_000_000), first).stage("last", last);
        let mut items = pipeline.start_in(scope).unwrap();
        items.next().unwrap().unwrap();
        wait_until("beginning the second item", || is_at_work.load(Ordering::Relaxed));
        drop(items);
    });
    assert!(has_stopped.into_inner());
}

#[test]
fn a_worker_that_cannot_begin_stops_the_others() {
    let n_begun = AtomicUsize::new(0);
    let make = move || {
        assert!(n_begun.fetch_add(1, Ordering::Relaxed) != 1, "no device");
        |item: u64| {
            thread::sleep(Duration::from_micros(100));
            Ok::<_, Infallible>(item)
        }
    };
    let items = Pipeline::new(0..20_000).stage(Stage::new("copy").workers(2), make).start().unwrap();
    let found: Vec<_> = items.collect();
    let (last, before) = found.split_last().unwrap();
    assert!(
        matches!(last, Err(StageError::Panicked { item: None, message, .. }) if message == "no device"),
        "{last:?}"
    );
    assert!(before.iter().zip(0..).all(|(item, at)| matches!(item, Ok(found) if *found == at)));
    assert!(before.len() < 10_000, "the other worker went on for {} items", before.len());
}

#[test]
fn a_panic_in_a_destructor_of_state_is_an_error_after_all_items() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("cannot be flushed");
        }
    }
    let make = || {
        let bomb = Bomb;
        move |item: u64| {
            let _ = &bomb;
            Ok::<_, Infallible>(item)
        }
    };
    let mut items = Pipeline::new(0..5).stage("flush", make).start().unwrap();
    assert_eq!(items.by_ref().take(5).map(Result::unwrap).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    let failure = items.next().unwrap().unwrap_err();
    assert!(matches!(&failure, StageError::Panicked { stage, item: None, .. } if stage == "flush"));
    assert!(failure.to_string().starts_with("flush panicked: cannot be flushed;"), "{failure}");
    assert!(items.next().is_none());
}

#[test]
fn stages_without_workers_or_room_are_refused() {
    let start = |stage| Pipeline::<u64, Infallible>::new(0..9).stage("fine", || Ok).stage(stage, || Ok).start();
    let error = start(Stage::new("idle").workers(0)).err().unwrap();
    assert!(matches!(&error, StartError::NoWorkers { stage } if stage == "idle"), "{error}");
    let error = start(Stage::new("tight").capacity(0)).err().unwrap();
    assert!(matches!(&error, StartError::NoCapacity { stage } if stage == "tight"), "{error}");
}

/// Runs 20 items through two stages and a consumer. The arguments are their milliseconds per item.
fn report_of(quick: u64, slow: u64, consumer: u64) -> Report {
    let stage = |millis| {
        move || {
            move |item: u64| {
                thread::sleep(Duration::from_millis(millis));
                Ok::<_, Infallible>(item)
            }
        }
    };
    let mut items: Items<'_, _, _> =
        Pipeline::new(0..20).stage("\"first\"", stage(quick)).stage("second", stage(slow)).traced().start().unwrap();
    for item in &mut items {
        item.unwrap();
        thread::sleep(Duration::from_millis(consumer));
    }
    items.finish()
}

#[test]
fn a_report_names_the_bottleneck_and_accounts_for_all_time() {
    let report = report_of(0, 5, 0);
    assert_eq!(report.bottleneck().name, "second");
    assert_eq!(report_of(0, 0, 5).bottleneck().name, "consumer");
    let [source, first, second, consumer] = &report.stages[..] else { panic!("{report}") };
    assert_eq!([source, first, second, consumer].map(|stage| stage.n_items), [20; 4]);
    assert!(second.work_s >= 0.1 && second.work_s <= report.wall_s, "{report}");
    assert!(first.wait_output_s > first.work_s && consumer.wait_input_s > consumer.work_s, "{report}");
    assert!((consumer.wait_input_s + consumer.work_s - report.wall_s).abs() < 1e-6, "{report}");
    for stage in &report.stages {
        assert!(stage.wait_input_s + stage.work_s + stage.wait_output_s <= report.wall_s + 1e-6, "{report}");
        assert!((stage.busy - stage.work_s / report.wall_s).abs() < 1e-9);
    }
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!((&json["stages"][2]["name"], &json["stages"][2]["n_items"]), (&"second".into(), &20.into()));
    let text = report.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 6);
    assert!(lines[..5].iter().all(|line| line.len() == lines[0].len()), "{text}");
    assert!(lines[5].starts_with("bottleneck: second, busy "), "{text}");
}

#[test]
fn a_pipeline_without_stages_or_items_has_a_report() {
    let mut items = Pipeline::<u64, Infallible>::new([]).start().unwrap();
    assert!(items.next().is_none());
    let report = items.finish();
    assert_eq!(report.stages.iter().map(|stage| stage.n_items).collect::<Vec<_>>(), [0, 0]);
    assert!(report.trace.is_none());
    assert!(report.stages.iter().all(|stage| stage.busy.is_finite()), "{report}");
}

/// Every thread has a name, its events follow each other without gaps, and each stage worked on each item once.
#[test]
fn a_trace_is_complete() {
    let report = report_of(1, 0, 0);
    let mut json = Vec::new();
    report.trace.as_ref().unwrap().write_json(&mut json).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert_eq!((&events[0]["name"], &events[0]["args"]["name"]), (&"process_name".into(), &"pipeline".into()));
    for (row, name) in ["source", "\"first\"", "second", "consumer"].into_iter().enumerate() {
        let mut of_thread = events.iter().filter(|event| event["tid"] == row && event["name"] != "process_name");
        let header = of_thread.next().unwrap();
        assert_eq!((header["ph"].as_str(), header["args"]["name"].as_str()), (Some("M"), Some(name)));
        let (mut until, mut items) = (0.0, Vec::new());
        for event in of_thread {
            let (from, duration) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
            assert!((from - until).abs() < 1e-2, "a gap before {event}");
            until = from + duration;
            if event["cat"] == "work" && !event["args"]["item"].is_null() {
                assert_eq!(event["name"].as_str(), Some(name));
                items.push(event["args"]["item"].as_u64().unwrap());
            }
        }
        assert_eq!(items, (0..20).collect::<Vec<_>>(), "{name}");
    }
}
