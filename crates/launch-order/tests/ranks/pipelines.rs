//! Launch orders on real threads: pipelines of ranks on simulated GPUs that deadlock like real ones.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use girih_launch_order::{Coordinator, Launch, Order, OrderError, OrderLog, Participant, Rules};
use girih_pipeline::{Pipeline, StageError};

const WORKERS: [&str; 3] = ["sampler", "loader", "trainer"];
/// Number of SMs of a GPU, and the number that a collective of each worker takes.
const SLOTS: usize = 4;
const TAKES: [usize; 3] = [3, 2, 4];
/// Deadlines that should and should not pass.
const SHORT: Duration = Duration::from_millis(800);
const LONG: Duration = Duration::from_secs(60);

/// GPUs of all ranks. A launched collective takes its SMs once enough are free and no earlier launch on its GPU
/// waits. It keeps them until it has started on all GPUs.
struct Gpus(Mutex<Vec<Gpu>>);

#[derive(Default)]
struct Gpu {
    waiting: VecDeque<Launch>,
    running: Vec<Launch>,
    done: BTreeSet<(usize, u64)>,
}

impl Gpu {
    /// Starts collectives in the order of launches while they fit.
    fn start(&mut self) -> bool {
        let mut has_started = false;
        while let Some(&first) = self.waiting.front() {
            let taken: usize = self.running.iter().map(|launch| TAKES[launch.worker]).sum();
            if taken + TAKES[first.worker] > SLOTS {
                break;
            }
            self.waiting.pop_front();
            self.running.push(first);
            has_started = true;
        }
        has_started
    }
}

impl Gpus {
    fn new(n: usize) -> Self {
        Self(Mutex::new((0..n).map(|_| Gpu::default()).collect()))
    }

    /// Launches a collective and returns at once, as on a stream.
    fn launch(&self, rank: usize, launch: Launch) {
        let mut gpus = self.0.lock().unwrap();
        gpus[rank].waiting.push_back(launch);
        while gpus.iter_mut().filter_map(|gpu| gpu.start().then_some(())).count() > 0 {
            let everywhere = |launch: &Launch| gpus.iter().all(|gpu| gpu.running.contains(launch));
            let done: Vec<Launch> = gpus[0].running.iter().copied().filter(everywhere).collect();
            for gpu in &mut *gpus {
                gpu.running.retain(|launch| !done.contains(launch));
                gpu.done.extend(done.iter().map(|launch| (launch.worker, launch.batch)));
            }
        }
    }

    fn is_done(&self, rank: usize, launch: Launch) -> bool {
        self.0.lock().unwrap()[rank].done.contains(&(launch.worker, launch.batch))
    }
}

/// Sleeps up to 200 µs, depending only on seed, rank, worker and batch.
fn delay(seed: u64, rank: usize, launch: Launch) {
    let mut x = seed << 48 ^ (rank as u64) << 40 ^ (launch.worker as u64) << 32 ^ launch.batch;
    for _ in 0..3 {
        x = (x ^ x >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    }
    thread::sleep(Duration::from_micros(x >> 40) * 200 / (1 << 24));
}

/// Batch of a worker: some work, a launch, and the wait for its result.
fn step(gpus: &Gpus, rank: usize, seed: u64, part: &mut Participant, launch: Launch) -> Result<(), OrderError> {
    delay(seed, rank, launch);
    let turn = part.turn(launch.batch)?;
    assert_eq!(turn.launch(), launch);
    gpus.launch(rank, launch);
    drop(turn);
    part.wait(launch.batch, || Ok(gpus.is_done(rank, launch)))
}

/// Trains one rank: sampler and loader are stages, the trainer is the consumer.
fn train(coordinator: &Coordinator, gpus: &Gpus, seed: u64, n: u64) -> Result<OrderLog, OrderError> {
    let rank = coordinator.rank();
    let stage = |worker: usize| {
        move || {
            let mut part = coordinator.participant(worker);
            move |batch| step(gpus, rank, seed, &mut part, Launch { worker, batch }).map(|()| batch)
        }
    };
    thread::scope(|scope| {
        let mut part = coordinator.participant(2);
        let pipeline = Pipeline::new(0..n).stage(WORKERS[0], stage(0)).stage(WORKERS[1], stage(1));
        let mut items = pipeline.start_in(scope).unwrap();
        for item in &mut items {
            let batch = item.map_err(|error| match error {
                StageError::Failed { source, .. } => source,
                other => panic!("{other}"),
            })?;
            step(gpus, rank, seed, &mut part, Launch { worker: 2, batch })?;
        }
        part.close()?;
        coordinator.finish()
    })
}

/// Runs all ranks, and returns the result of each.
fn run(n_ranks: usize, rules: &Rules, seed: u64, n: u64) -> Vec<Result<OrderLog, OrderError>> {
    let gpus = Gpus::new(n_ranks);
    let coordinators = Coordinator::in_process(n_ranks, rules).unwrap();
    thread::scope(|scope| {
        let start = |coordinator| {
            let gpus = &gpus;
            scope.spawn(move || train(coordinator, gpus, seed, n))
        };
        let ranks: Vec<_> = coordinators.iter().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn rules(order: Order) -> Rules {
    Rules::new(WORKERS).order(order).deadline(LONG)
}

#[test]
fn with_an_order_nothing_deadlocks() {
    for seed in 0..8 {
        let led = run(3, &rules(Order::Led { leader: 0 }), seed, 40);
        let log = led.into_iter().next().unwrap().unwrap();
        for order in
            [Order::Led { leader: 2 }, Order::Fixed { lag: 0 }, Order::Fixed { lag: 1 }, Order::Replay(log.clone())]
        {
            let is_replay = matches!(order, Order::Replay(_));
            let logs = run(3, &rules(order), seed + 100, 40).into_iter().map(Result::unwrap);
            let orders: Vec<Vec<Launch>> = logs.map(|log| log.launches().collect()).collect();
            assert!(orders.iter().all(|order| *order == orders[0] && order.len() == 3 * 40));
            assert!(!is_replay || log.launches().eq(orders[0].iter().copied()));
        }
    }
}

/// With this many batches, the orders of the two ranks differ somewhere. The deadline ends both, and the error shows
/// the two launches.
#[test]
fn without_an_order_gpus_deadlock_and_the_deadline_says_so() {
    for seed in 0..3 {
        let rules = rules(Order::Free).deadline(SHORT);
        let start = Instant::now();
        let outcomes = run(2, &rules, seed, 10_000);
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        for outcome in outcomes {
            let error = outcome.unwrap_err();
            let OrderError::Late { worker, what, missing_on, .. } = &error else { panic!("{error}") };
            assert!(WORKERS.contains(&worker.as_str()) && missing_on.is_empty(), "{error}");
            assert!(what.contains("ranks launched in different orders: rank "), "{error}");
        }
    }
}

/// Launches three batches of a worker, with a pause after the first.
fn launch_three(mut part: Participant, pause: Duration) -> Result<(), OrderError> {
    for batch in 0..3 {
        drop(part.turn(batch)?);
        if batch == 0 {
            thread::sleep(pause);
        }
    }
    part.close()
}

/// Every rank's error names the worker and the rank that hang, whichever rank notices first.
#[test]
fn a_worker_that_hangs_is_named_with_its_rank() {
    let cases = [(Order::Led { leader: 0 }, 1), (Order::Led { leader: 0 }, 0), (Order::Fixed { lag: 0 }, 1)];
    for (order, hangs_on) in cases {
        let rules = Rules::new(["sampler", "trainer"]).order(order).deadline(SHORT);
        let ranks = Coordinator::in_process(2, &rules).unwrap();
        let errors: Vec<OrderError> = thread::scope(|scope| {
            let start = |(at, coordinator): (usize, &'_ Coordinator)| {
                let [sampler, trainer] = [0, 1].map(|worker| coordinator.participant(worker));
                let (pause, coordinator) =
                    (if at == hangs_on { 3 * SHORT } else { Duration::ZERO }, coordinator.clone());
                scope.spawn(move || launch_three(trainer, pause));
                scope.spawn(move || {
                    launch_three(sampler, Duration::ZERO).and_then(|()| coordinator.finish()).unwrap_err()
                })
            };
            let samplers: Vec<_> = ranks.iter().enumerate().map(start).collect();
            samplers.into_iter().map(|sampler| sampler.join().unwrap()).collect()
        });
        for error in errors {
            let OrderError::Late { awaited, missing_on, .. } = &error else { panic!("{error}") };
            assert_eq!((awaited.as_str(), &missing_on[..]), ("trainer", &[hangs_on][..]), "{error}");
        }
    }
}

#[test]
fn ranks_may_end_at_different_times() {
    let ranks = Coordinator::in_process(2, &rules(Order::Led { leader: 0 })).unwrap();
    thread::scope(|scope| {
        for (at, coordinator) in ranks.iter().enumerate() {
            for worker in 0..3 {
                let part = coordinator.participant(worker);
                scope.spawn(move || launch_three(part, Duration::from_millis(50 * at as u64)).unwrap());
            }
        }
        let logs = [0, 1].map(|rank| ranks[rank].finish().unwrap());
        assert!(logs[0].launches().eq(logs[1].launches()));
    });
}

/// One rank has one batch more. Both ranks name the worker, whichever rank it is.
#[test]
fn another_number_of_batches_is_an_error_on_all_ranks() {
    for order in [Order::Led { leader: 0 }, Order::Fixed { lag: 0 }, Order::Free] {
        for more in 0..2 {
            let ranks = Coordinator::in_process(2, &rules(order.clone())).unwrap();
            thread::scope(|scope| {
                for (at, coordinator) in ranks.iter().enumerate() {
                    let mut part = coordinator.participant(0);
                    let n = 3 + u64::from(at == more);
                    scope.spawn(move || (0..n).try_for_each(|batch| part.turn(batch).map(drop)));
                    (1..3).for_each(|worker| drop(coordinator.participant(worker)));
                }
            });
            let errors = [0, 1].map(|rank| ranks[rank].finish().unwrap_err().to_string());
            assert!(errors.iter().all(|error| error.contains("sampler")), "{errors:?}");
        }
    }
}

#[test]
fn a_log_is_written_read_and_replayed() {
    let log = run(2, &rules(Order::Led { leader: 0 }), 1, 10).swap_remove(1).unwrap();
    let text = serde_json::to_string(&log).unwrap();
    assert!(
        text.starts_with(r#"{"rank":1,"workers":["sampler","loader","trainer"],"entries":[{"worker":0,"batch":0,"#),
        "{text}"
    );
    let read: OrderLog = serde_json::from_str(&text).unwrap();
    assert_eq!(read, log);
    assert!(log.entries.iter().all(|entry| entry.registered_s <= entry.turn_s && entry.turn_s <= entry.launched_s));
    // One batch less than in the log: the worker closes before its last logged launch.
    let errors: Vec<String> =
        run(2, &rules(Order::Replay(read)), 2, 9).into_iter().map(|rank| rank.unwrap_err().to_string()).collect();
    assert!(errors.iter().all(|error| error.contains("but the log launches its batch 9")), "{errors:?}");
}

#[test]
fn rules_that_cannot_hold_are_refused() {
    let refused = |rules: Rules| Coordinator::in_process(2, &rules).err().unwrap().to_string();
    assert!(refused(Rules::new::<&str>([])).contains("there are no workers"));
    assert!(refused(rules(Order::Led { leader: 2 })).contains("rank 2 is to lead, but there are 2 ranks"));
    let log = OrderLog { rank: 0, workers: vec!["walker".to_owned()], entries: Vec::new() };
    assert!(
        refused(rules(Order::Replay(log))).contains("the log is of workers walker, not of sampler, loader, trainer")
    );
}

/// A stage of one rank fails while its other stages and the other rank wait. All end, and the other rank's error has
/// the place.
#[test]
fn a_failing_stage_ends_all_ranks_and_its_own_error_comes_out() {
    let ranks = Coordinator::in_process(2, &rules(Order::Led { leader: 0 })).unwrap();
    let start = Instant::now();
    let train = &|coordinator: &Coordinator| {
        let stage = |worker: usize| {
            let coordinator = coordinator.clone();
            move || {
                let (coordinator, mut part) = (coordinator.clone(), coordinator.participant(worker));
                move |batch: u64| match (coordinator.rank(), worker, batch) {
                    (1, 0, 3) => {
                        coordinator.stop("the disk is full");
                        Err("the disk is full".to_owned())
                    }
                    _ => part.turn(batch).map(|_| batch).map_err(|error| error.to_string()),
                }
            }
        };
        drop(coordinator.participant(2));
        // The source has no end. The leader does not wait for other ranks, and would otherwise be done before it
        // learns of the failure.
        let pipeline = Pipeline::new(0..u64::MAX).stage("sampler", stage(0)).stage("loader", stage(1));
        let mut items = pipeline.start().unwrap();
        items.find_map(Result::err).unwrap().to_string()
    };
    let errors: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> = ranks.iter().map(|coordinator| scope.spawn(move || train(coordinator))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(start.elapsed() < LONG / 4);
    assert!(errors[0].contains("rank 1 stopped: the disk is full"), "{errors:?}");
    assert_eq!(coordinator_failure(&ranks[0]), coordinator_failure(&ranks[1]));
}

fn coordinator_failure(coordinator: &Coordinator) -> String {
    coordinator.failure().unwrap().to_string()
}

/// A consumer leaves while a stage waits for a permit that does not come.
#[test]
fn leaving_a_pipeline_releases_who_waits_for_a_turn() {
    let ranks = Arc::new(Coordinator::in_process(2, &rules(Order::Led { leader: 0 })).unwrap());
    let shared = Arc::clone(&ranks);
    let make = move || {
        let mut part = shared[1].participant(0);
        move |batch: u64| part.turn(batch).map(drop)
    };
    let items = Pipeline::new(0..9).stage("sampler", make).start().unwrap();
    thread::sleep(Duration::from_millis(20));
    let start = Instant::now();
    ranks[1].stop("its pipeline is left");
    drop(items);
    assert!(start.elapsed() < LONG / 4);
    let error = ranks[0].participant(0).turn(0).map(drop).unwrap_err();
    assert_eq!(error, OrderError::Stopped { rank: 1, why: "its pipeline is left".to_owned() });
}

#[test]
fn a_worker_that_panics_with_its_turn_ends_all_ranks() {
    let ranks = Coordinator::in_process(2, &rules(Order::Led { leader: 0 })).unwrap();
    thread::scope(|scope| {
        let mut part = ranks[0].participant(1);
        let panics = scope.spawn(move || {
            let _turn = part.turn(4).unwrap();
            panic!("no memory");
        });
        assert!(panics.join().is_err());
    });
    let error = ranks[1].participant(0).turn(0).map(drop).unwrap_err().to_string();
    assert_eq!(error, "rank 0 stopped: loader panicked while it launched batch 4");
}
