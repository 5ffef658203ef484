//! Ranks stop together, take turns, and have what the first one has come to.

use std::time::Duration;

use girih_comm::{Collective, threads};
use girih_compute::Cpu;
use girih_trainer::testing::{Agreement, Asked, Chunks, Nodes, SeedLists, check_alike, next_apart, run_on_first};
use girih_trainer::{Control, TrainError};
use proptest::prelude::*;

/// Runs three ranks through `n_batches` batches; rank `told.0` is told to stop at batch `told.1`. Returns the
/// number of batches of each.
fn batches_done(n_batches: usize, told: (usize, usize)) -> Vec<usize> {
    let one = |world: Box<dyn Collective<Cpu>>| -> Result<usize, TrainError> {
        let mut agreement = Agreement::default();
        let mut control = |asked, mine| agreement.control(&*world, asked, mine);
        assert_eq!(control(Asked::Other(Some(7)), Control::Continue)?, Control::Continue);
        for batch in 0..n_batches {
            let mine = if told == (world.rank(), batch) { Control::Stop } else { Control::Continue };
            if control(Asked::Batch, mine)? == Control::Stop {
                return Ok(batch + 1);
            }
        }
        // At the end of an epoch they ask in any case.
        let goes_on = control(Asked::Other(None), Control::Continue)? == Control::Continue;
        Ok(n_batches + usize::from(goes_on))
    };
    threads::run(3, Duration::from_secs(30), |world| one(Box::new(world))).unwrap()
}

#[test]
fn ranks_stop_at_the_same_batch_whoever_is_told_to() {
    for told in [(0, 0), (1, 0), (2, 1), (1, 5), (0, 19)] {
        let done = batches_done(20, told);
        assert!(done.iter().all(|&n| n == done[0] && n > told.1 && n <= 20), "{told:?}: {done:?}");
    }
    // A stop in the first batches takes effect soon.
    assert!(batches_done(20, (1, 1))[0] <= 3);
    assert_eq!(batches_done(20, (3, 0)), [21; 3], "nobody is told to");
}

#[test]
fn questions_come_further_apart_as_long_as_batches_are_short() {
    assert_eq!(next_apart(1, Duration::from_nanos(1)), 2);
    assert_eq!(next_apart(1000, Duration::from_millis(505)), 99);
    assert_eq!(next_apart(1, Duration::from_secs(9)), 1);
}

#[test]
fn a_rank_with_another_checkpoint_is_named() {
    // Next step of ranks that start from checkpoints with these hashes. The second is told to stop.
    let start = |hashes: [Option<u32>; 3]| {
        let one = |world: Box<dyn Collective<Cpu>>| {
            let mine = if world.rank() == 1 { Control::Stop } else { Control::Continue };
            Agreement::default().control(&*world, Asked::Other(hashes[world.rank()]), mine)
        };
        threads::run(3, Duration::from_secs(30), |world| one(Box::new(world))).map_err(|failure| failure.message)
    };
    let message = start([Some(7), Some(7), None]).unwrap_err();
    assert!(message.contains("rank 2"), "{message}");
    assert_eq!(start([Some(7); 3]), Ok(vec![Control::Stop; 3]));
}

#[test]
fn devices_of_ranks_are_of_one_kind() {
    assert!(check_alike(&["cuda: NVIDIA H200"; 3]).is_ok());
    assert!(check_alike(&[] as &[&str]).is_ok());
    let message = check_alike(&["cuda: NVIDIA H200", "cuda: NVIDIA H200", "cpu"]).unwrap_err().to_string();
    for part in ["rank 2", "on cpu", "on cuda: NVIDIA H200", "CUDA_VISIBLE_DEVICES"] {
        assert!(message.contains(part), "no {part}: {message}");
    }
}

/// Results of three ranks, of which the first works for `seconds`, with a deadline of 1.5 s.
fn on_three(seconds: f64, work: fn() -> Result<Vec<u8>, TrainError>) -> Result<Vec<Vec<u8>>, String> {
    let done = threads::run(3, Duration::from_millis(1500), |world| {
        let world: Box<dyn Collective<Cpu>> = Box::new(world);
        run_on_first(&*world, || {
            std::thread::sleep(Duration::from_secs_f64(seconds));
            work()
        })
    });
    done.map_err(|failure| failure.message)
}

#[test]
fn all_have_what_the_first_came_to_however_long_it_took() {
    for seconds in [0.0, 3.2] {
        assert_eq!(on_three(seconds, || Ok(vec![7, 8])), Ok(vec![vec![7, 8]; 3]));
    }
    assert_eq!(on_three(0.0, || Ok(Vec::new())), Ok(vec![Vec::new(); 3]));
}

#[test]
fn its_error_ends_all() {
    let message = on_three(1.2, || Err(TrainError::invalid("no scores today"))).unwrap_err();
    assert!(message.contains("no scores today"), "{message}");
}

proptest! {
    /// Each node belongs to one rank in one round, in order. The first rank has nodes in every round.
    #[test]
    fn ranks_take_turns(n in 0_usize..200_000, size in 1_usize..20) {
        let chunks: Vec<Chunks<'_>> = (0..size).map(|rank| Chunks::new(Nodes::All(n), (rank, size))).collect();
        let mut next = 0;
        for round in 0..chunks[0].n_rounds() {
            prop_assert!(round < chunks[0].n_batches());
            for (rank, mine) in chunks.iter().enumerate() {
                let range = mine.range(round, rank);
                prop_assert_eq!(range.start, next);
                prop_assert_eq!(range.is_empty(), round >= mine.n_batches());
                next = range.end;
            }
        }
        prop_assert_eq!(next, n);
    }
}
