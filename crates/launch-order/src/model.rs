//! Small runs of coordinators in every interleaving of their threads (loom). Deadlines do not pass here, so loom
//! reports a worker that is never woken as a deadlock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread;

use crate::{Coordinator, Launch, Order, OrderError, Participant, Rules};

fn explore(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.max(Some(preemptions));
    model.check(test);
}

fn ranks(n_ranks: usize, n_workers: usize, order: Order) -> Vec<Coordinator> {
    let rules = Rules::new((0..n_workers).map(|worker| worker.to_string())).order(order);
    Coordinator::in_process(n_ranks, &rules).unwrap()
}

/// Launches `n` batches one after the other, and checks that no other worker of the rank launches meanwhile.
fn launch(mut participant: Participant, n: u64, is_launching: &AtomicUsize) -> Result<(), OrderError> {
    for batch in 0..n {
        let turn = participant.turn(batch)?;
        assert_eq!(is_launching.fetch_add(1, Ordering::Relaxed), 0, "two launch at once");
        is_launching.fetch_sub(1, Ordering::Relaxed);
        drop(turn);
    }
    participant.close()
}

/// Two ranks of two workers: three new threads and the current one.
fn both_ranks_launch_in_one_order(order: &Order, preemptions: usize) {
    let order = order.clone();
    explore(preemptions, move || {
        let ranks = ranks(2, 2, order.clone());
        let launching: Arc<[AtomicUsize; 2]> = Arc::default();
        let mut bodies = (0..4).map(|at| {
            let (participant, launching) = (ranks[at / 2].participant(at % 2), Arc::clone(&launching));
            move || launch(participant, 1, &launching[at / 2]).unwrap()
        });
        let own = bodies.next().unwrap();
        let threads: Vec<_> = bodies.map(thread::spawn).collect();
        own();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let logs = [0, 1].map(|rank| ranks[rank].finish().unwrap());
        assert!(logs[0].launches().eq(logs[1].launches()));
        assert_eq!(logs[0].entries.len(), 2);
    });
}

#[test]
fn two_ranks_follow_their_leader() {
    both_ranks_launch_in_one_order(&Order::Led { leader: 0 }, 2);
    both_ranks_launch_in_one_order(&Order::Led { leader: 1 }, 1);
}

#[test]
fn two_ranks_keep_a_fixed_order() {
    both_ranks_launch_in_one_order(&Order::Fixed { lag: 0 }, 2);
    both_ranks_launch_in_one_order(&Order::Fixed { lag: 1 }, 1);
}

#[test]
fn two_workers_of_one_rank_take_turns_for_several_batches() {
    explore(2, || {
        let ranks = ranks(1, 2, Order::Led { leader: 0 });
        let launching = Arc::new(AtomicUsize::new(0));
        let (first, second) = (ranks[0].participant(0), ranks[0].participant(1));
        let thread = {
            let launching = Arc::clone(&launching);
            thread::spawn(move || launch(first, 3, &launching).unwrap())
        };
        launch(second, 3, &launching).unwrap();
        thread.join().unwrap();
        for worker in 0..2 {
            let log = ranks[0].log();
            let own = log.launches().filter(|launch| launch.worker == worker);
            assert!(own.eq((0..3).map(|batch| Launch { worker, batch })));
        }
    });
}

/// A rank waits for a permit that its leader never gives, because the leader is stopped.
#[test]
fn a_stop_reaches_a_worker_that_waits_on_another_rank() {
    explore(3, || {
        let mut ranks = ranks(2, 1, Order::Led { leader: 0 });
        let mut participant = ranks[1].participant(0);
        let waits = thread::spawn(move || participant.turn(0).map(drop).unwrap_err());
        ranks.swap_remove(0).stop("for a reason");
        let expected = OrderError::Stopped { rank: 0, why: "for a reason".to_owned() };
        assert_eq!(waits.join().unwrap(), expected);
    });
}

/// The next worker of the order closes instead of launching, while another worker waits behind it.
#[test]
fn a_worker_that_signs_off_makes_way() {
    explore(3, || {
        let ranks = ranks(1, 2, Order::Fixed { lag: 0 });
        let (first, second) = (ranks[0].participant(0), ranks[0].participant(1));
        let waits = thread::spawn(move || launch(second, 1, &AtomicUsize::new(0)).unwrap());
        first.close().unwrap();
        waits.join().unwrap();
        ranks[0].finish().unwrap();
    });
}

/// Both ranks fail in any interleaving: one because it launches more often, one because it gets the message.
#[test]
fn ranks_that_launch_differently_often_all_fail() {
    explore(2, || {
        let ranks = ranks(2, 1, Order::Led { leader: 0 });
        let participants = [0, 1].map(|rank| ranks[rank].participant(0));
        let [leader, follower] = participants;
        let thread = thread::spawn(move || launch(leader, 1, &AtomicUsize::new(0)));
        let own = launch(follower, 2, &AtomicUsize::new(0));
        let _ = thread.join().unwrap();
        assert!(own.is_err());
        assert_eq!(ranks[0].finish().unwrap_err(), ranks[1].finish().unwrap_err());
    });
}
