//! Launch orders of ranks that communicate over a transport.

use std::thread;
use std::time::Duration;

use girih_comm::{Secret, Transport, tcp, threads};
use girih_launch_order::{Launch, LaunchOrderError, Order, OrderError, Rules, coordinator};

const SOON: Duration = Duration::from_secs(20);

fn rules() -> Rules {
    Rules::new(["sampler", "loader", "trainer"]).deadline(SOON)
}

/// Runs the workers of a rank with `counts` batches each, and returns the launches.
fn launch(transport: &impl Transport, rules: &Rules, counts: [u64; 3]) -> Result<Vec<Launch>, LaunchOrderError> {
    let coordinator = coordinator(transport, rules)?;
    thread::scope(|scope| {
        for (worker, n) in counts.into_iter().enumerate() {
            let mut part = coordinator.participant(worker);
            // The coordinator keeps a failure until `finish`.
            scope.spawn(move || (0..n).try_for_each(|batch| part.turn(batch).map(drop)));
        }
    });
    Ok(coordinator.finish()?.launches().collect())
}

fn on_threads(n: usize, counts: impl Fn(usize) -> [u64; 3] + Sync, rules: &Rules) -> Result<Vec<Vec<Launch>>, String> {
    threads::run(n, SOON, |rank| {
        let transport = rank.transport();
        launch(transport, rules, counts(transport.rank()))
    })
    .map_err(|failure| failure.message)
}

fn on_sockets(n: usize, counts: impl Fn(usize) -> [u64; 3] + Sync, rules: &Rules) -> Result<Vec<Vec<Launch>>, String> {
    let place = tcp::local_rendezvous().unwrap();
    let start = |rank: usize| {
        let (rendezvous, job) = (place.clone(), "launch order".to_owned());
        let secret = Secret::default();
        let options = tcp::Options { rank, size: n, rendezvous, job, secret, start_deadline: SOON, deadline: SOON };
        let work = |own: tcp::TcpRank| launch(own.transport(), rules, counts(rank));
        tcp::run(&options, work).unwrap().map_err(|failure| failure.message)
    };
    thread::scope(|scope| {
        let handles: Vec<_> = (0..n).map(|rank| scope.spawn(move || start(rank))).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    })
}

#[test]
fn ranks_launch_in_one_order() {
    for order in [Order::Led { leader: 0 }, Order::Led { leader: 1 }, Order::Fixed { lag: 1 }] {
        let rules = rules().order(order);
        for orders in [on_threads(3, |_| [40; 3], &rules), on_sockets(3, |_| [40; 3], &rules)] {
            let orders = orders.unwrap();
            assert!(orders.iter().all(|order| *order == orders[0] && order.len() == 120));
        }
    }
}

#[test]
fn several_epochs_follow_each_other() {
    let orders = threads::run(2, SOON, |rank| {
        (0..5).map(|n| launch(rank.transport(), &rules(), [n; 3])).collect::<Result<Vec<_>, _>>()
    });
    let orders = orders.unwrap();
    assert_eq!(orders[0], orders[1]);
    assert!(orders[0].iter().enumerate().all(|(n, order)| order.len() == 3 * n));
}

#[test]
fn another_number_of_batches_is_an_error_on_all_ranks() {
    let counts = |rank| [5, 5 + u64::from(rank == 1), 5];
    for outcome in [on_threads(3, counts, &rules()), on_sockets(3, counts, &rules())] {
        let error = outcome.unwrap_err();
        assert!(error.contains("loader launches 6 times or more on rank 1, but signed off after 5"), "{error}");
    }
}

#[test]
fn a_rank_that_hangs_is_named() {
    let rules = rules().deadline(Duration::from_millis(200));
    let errors = threads::run(2, SOON, |rank| {
        let coordinator = coordinator(rank.transport(), &rules)?;
        let error = match coordinator.rank() {
            0 => coordinator.participant(0).turn(7).map(drop).and_then(|()| coordinator.finish().map(drop)),
            _ => coordinator.finish().map(drop),
        };
        Ok::<_, LaunchOrderError>(error.unwrap_err())
    });
    for error in errors.unwrap() {
        let OrderError::Late { awaited, missing_on, .. } = &error else { panic!("{error}") };
        assert_eq!((awaited.as_str(), &missing_on[..]), ("sampler", &[1][..]), "{error}");
    }
}

#[test]
fn a_rank_that_fails_releases_who_waits_for_a_turn() {
    let failure = threads::run(2, SOON, |rank| {
        if rank.transport().rank() == 0 {
            let coordinator = coordinator(rank.transport(), &rules()).unwrap();
            // A failing rank must stop before its workers close. Otherwise they would seem to have fewer batches.
            coordinator.stop("out of memory");
            return Err("out of memory".to_owned());
        }
        launch(rank.transport(), &rules(), [5; 3]).map(drop).map_err(|error| error.to_string())
    });
    let message = failure.unwrap_err().message;
    assert!(message.ends_with("out of memory"), "{message}");
}

/// Rank 0 has launched everything and does not call `finish`. It waits at most for the deadline, and the other rank
/// learns that it has ended.
#[test]
fn a_rank_that_has_ended_does_not_wait_for_ever() {
    let rules = Rules::new(["sampler"]).deadline(Duration::from_millis(200));
    let errors = threads::run(2, SOON, |rank| {
        let coordinator = coordinator(rank.transport(), &rules)?;
        let mut sampler = coordinator.participant(0);
        if coordinator.rank() == 0 {
            return Ok::<_, LaunchOrderError>(None);
        }
        thread::sleep(Duration::from_millis(1000));
        Ok(sampler.turn(0).map(drop).err())
    });
    let errors = errors.unwrap();
    let error = errors[1].as_ref().unwrap().to_string();
    assert!(error.contains("rank 0 has ended its epoch"), "{error}");
}

#[test]
fn ranks_with_different_rules_are_told_so() {
    let failure = threads::run(2, SOON, |rank| {
        let order = Order::Led { leader: rank.transport().rank() };
        launch(rank.transport(), &rules().order(order), [5; 3]).map(drop)
    });
    let message = failure.unwrap_err().message;
    assert!(message.contains("calls launch order by Rules"), "{message}");
}
