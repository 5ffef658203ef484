//! [`schedule`]: the order of flags, waits and copies of a rank when ranks copy rows from each other's memory.
//!
//! ```text
//! owner    …writes its rows…  ── Ready ──→            waits for Done, may overwrite its rows
//! reader                          waits for Ready, copies the rows  ── Done ──→
//! ```
//! One rank sets a flag, and the rank that waits for it clears it. The owner of rows sets [`Flag::Ready`] for a
//! reader again only after it has cleared that reader's [`Flag::Done`]. The reader set `Done` after it cleared the
//! last `Ready`; the other direction is alike. So a flag that is set is never set again, and the schedule can repeat
//! without end, as a CUDA graph does.

/// Meaning of a flag to the rank that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Flag {
    /// The rows may be read.
    Ready,
    /// The rows were read.
    Done,
}

/// Action of a rank in an exchange; numbers are those of ranks in their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Sets the flag that another rank waits for.
    Set(usize, Flag),
    /// Waits until another rank has set a flag, and clears it.
    Await(usize, Flag),
    /// Copies the rows that another rank has for this one.
    Copy(usize),
}

/// Actions of rank `me`. It has rows for the ranks in `gives`, and gets rows from those in `gets`. A rank copies from
/// one rank after the other; at a time, each copies from another one, so that no link serves two.
pub(super) fn schedule(me: usize, gives: &[bool], gets: &[bool]) -> Vec<Act> {
    let n = gives.len();
    let others = || (1..n).map(|step| (me + step) % n);
    let readers = || others().filter(|&other| gives[other]);
    let told = readers().map(|other| Act::Set(other, Flag::Ready));
    let copied = others()
        .filter(|&other| gets[other])
        .flat_map(|other| [Act::Await(other, Flag::Ready), Act::Copy(other), Act::Set(other, Flag::Done)]);
    let left = readers().map(|other| Act::Await(other, Flag::Done));
    told.chain(copied).chain(left).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// Ranks that carry out exchanges, one after the other, in an order drawn by `turns`; a waiting rank is skipped.
    struct World {
        /// Remaining actions of each rank, the next one last, with the number of the exchange.
        left: Vec<Vec<(usize, Act)>>,
        /// Flags that are set: waiting rank, setting rank, and meaning.
        up: HashSet<(usize, usize, Flag)>,
        /// Exchange whose rows are written, by rank.
        written: Vec<usize>,
        /// Reader, owner, exchange.
        copied: HashSet<(usize, usize, usize)>,
    }

    impl World {
        fn new(exchanges: &[Vec<Vec<bool>>], n: usize) -> Self {
            let of = |me: usize| {
                let mut acts: Vec<(usize, Act)> = Vec::new();
                for (number, pairs) in exchanges.iter().enumerate() {
                    let gets: Vec<bool> = (0..n).map(|from| pairs[from][me]).collect();
                    acts.extend(schedule(me, &pairs[me], &gets).into_iter().map(|act| (number, act)));
                }
                acts.reverse();
                acts
            };
            Self { left: (0..n).map(of).collect(), up: HashSet::new(), written: vec![0; n], copied: HashSet::new() }
        }

        /// Runs the next action of a rank, unless it has to wait.
        fn step(&mut self, me: usize) -> bool {
            let Some(&(exchange, act)) = self.left[me].last() else { return false };
            // A rank overwrites its rows as soon as it comes to the next exchange.
            self.written[me] = exchange;
            match act {
                Act::Set(other, flag) => assert!(self.up.insert((other, me, flag)), "a flag is set that is up"),
                Act::Await(other, flag) => {
                    if !self.up.remove(&(me, other, flag)) {
                        return false;
                    }
                }
                Act::Copy(other) => {
                    assert_eq!(self.written[other], exchange, "rows are read that are not there, or not any more");
                    self.copied.insert((me, other, exchange));
                }
            }
            self.left[me].pop();
            true
        }
    }

    fn worlds() -> impl Strategy<Value = (usize, Vec<Vec<Vec<bool>>>, Vec<usize>)> {
        (2_usize..6).prop_flat_map(|n| {
            let pairs = prop::collection::vec(prop::collection::vec(any::<bool>(), n), n);
            (Just(n), prop::collection::vec(pairs, 1..6), prop::collection::vec(0..n, 0..400))
        })
    }

    proptest! {
        /// For every order of actions: no rank waits for ever, rows are read while they are valid, and no flag stays
        /// set.
        #[test]
        fn exchanges_end_in_any_order((n, exchanges, turns) in worlds()) {
            let mut world = World::new(&exchanges, n);
            for turn in turns {
                world.step(turn);
            }
            while (0..n).filter(|&rank| world.step(rank)).count() > 0 {}
            prop_assert!(world.left.iter().all(Vec::is_empty), "ranks wait for each other: {:?}", world.left);
            prop_assert!(world.up.is_empty(), "{:?}", world.up);
            for (number, pairs) in exchanges.iter().enumerate() {
                for (from, to) in (0..n).flat_map(|from| (0..n).map(move |to| (from, to))).filter(|(a, b)| a != b) {
                    prop_assert_eq!(world.copied.contains(&(to, from, number)), pairs[from][to]);
                }
            }
        }
    }

    #[test]
    fn each_rank_reads_from_another_at_a_time() {
        let n = 4;
        let sources = |me: usize| -> Vec<usize> {
            let acts = schedule(me, &[true; 4], &[true; 4]);
            acts.iter().filter_map(|act| if let Act::Copy(other) = act { Some(*other) } else { None }).collect()
        };
        for step in 0..n - 1 {
            let now: HashSet<usize> = (0..n).map(|me| sources(me)[step]).collect();
            assert_eq!(now.len(), n);
        }
    }
}
