//! A few ranks in every interleaving of their threads (loom, with a bounded number of preemptions).
//!
//! Loom itself fails on a deadlock. Deadlines do not pass here, so a rank that is never woken is a deadlock. The
//! bounds here take a second; `LOOM_MAX_PREEMPTIONS=5 cargo test -p girih-comm --lib model` takes a minute.

use std::time::Duration;

use loom::thread;

use super::{Mailbox, World};
use crate::transport::{Call, Parcel, Transport};
use crate::{CommError, all_gather};

/// Runs `work` on all ranks, in every interleaving with at most `preemptions` preemptions. `LOOM_MAX_PREEMPTIONS`
/// raises this bound, but does not lower it. After each run no parcel is left, unless a rank failed.
fn explore(n_ranks: usize, preemptions: usize, work: impl Fn(Mailbox) + Copy + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.max(Some(preemptions));
    model.check(move || {
        let world = World::new(Duration::from_secs(9999));
        let start = |rank| {
            let mailbox = Mailbox::new(&world, rank, n_ranks);
            thread::spawn(move || work(mailbox))
        };
        let others: Vec<_> = (1..n_ranks).map(start).collect();
        work(Mailbox::new(&world, 0, n_ranks));
        others.into_iter().for_each(|other| other.join().expect("no rank panics"));
        let state = world.lock();
        assert!(state.failed.is_some() || state.exchanges.is_empty());
    });
}

/// Sends every rank a message of sender, receiver and round, and returns the messages received.
fn talk(mailbox: &Mailbox, round: u8) -> Result<Vec<Vec<u8>>, CommError> {
    let rank = mailbox.rank() as u8;
    let parcels = (0..mailbox.size() as u8).map(|to| Parcel::from([rank, to, round])).collect();
    let received = mailbox.exchange(Call { operation: "talk", detail: [0, 0] }, parcels)?;
    Ok(received.iter().map(|parcel| parcel.to_vec()).collect())
}

/// Messages that [`talk`] returns without a failure.
fn heard(mailbox: &Mailbox, round: u8) -> Vec<Vec<u8>> {
    (0..mailbox.size() as u8).map(|from| vec![from, mailbox.rank() as u8, round]).collect()
}

#[test]
fn each_rank_gets_what_each_sent_to_it_in_each_round() {
    for (n_ranks, n_rounds, preemptions) in [(2, 3, 5), (3, 2, 3)] {
        explore(n_ranks, preemptions, move |mailbox| {
            for round in 0..n_rounds {
                assert_eq!(talk(&mailbox, round), Ok(heard(&mailbox, round)));
            }
        });
    }
}

#[test]
fn groups_that_part_do_not_hear_each_other() {
    explore(3, 3, |mailbox| {
        let members: &[usize] = if mailbox.rank() == 1 { &[1] } else { &[2, 0] };
        let group = mailbox.among(members);
        assert_eq!(talk(&group, 7), Ok(heard(&group, 7)));
        assert_eq!(talk(&mailbox, 8), Ok(heard(&mailbox, 8)));
    });
}

#[test]
fn a_rank_that_fails_ends_the_calls_of_all_others() {
    for n_ranks in [2, 3] {
        explore(n_ranks, 3, |mailbox| {
            // The last rank may fail before the others have read its message. They then get its failure.
            let last = mailbox.size() - 1;
            let failed = Err(CommError::RankFailed { rank: last, message: "no more".to_owned() });
            let first = talk(&mailbox, 0);
            if mailbox.rank() == last {
                assert_eq!(first, Ok(heard(&mailbox, 0)));
                mailbox.world.fail(last, "no more".to_owned());
            } else {
                assert!(first == Ok(heard(&mailbox, 0)) || first == failed, "{first:?}");
                assert_eq!(talk(&mailbox, 1), failed);
                assert_eq!(mailbox.failure(), failed.err());
            }
        });
    }
}

#[test]
fn ranks_that_call_something_else_are_told_so() {
    explore(2, 5, |mailbox| {
        let operation = ["gather", "scatter"][mailbox.rank()];
        let other = 1 - mailbox.rank();
        let outcome = all_gather(&mailbox, operation, &[1]);
        assert!(matches!(outcome, Err(CommError::Mismatch { rank, .. }) if rank == other), "{outcome:?}");
        assert_eq!(talk(&mailbox, 1), Ok(heard(&mailbox, 1)));
    });
}
