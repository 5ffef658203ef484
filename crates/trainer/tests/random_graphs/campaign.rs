//! Seeds of random tests, and reports of failures.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Environment variable with the seeds to try: a number such as `10000`, or a range such as `4711..4712`.
const SEEDS: &str = "GIRIH_SEEDS";

/// Range of seeds to try. `usual` is the number of seeds of ordinary runs.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var(SEEDS) else { return 0..usual };
    let number = |text: &str| -> u64 {
        text.trim().parse().unwrap_or_else(|_| panic!("{SEEDS}={text:?}; give a number or a range such as 4711..4712"))
    };
    match text.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => 0..number(&text),
    }
}

/// Runs `check` for every seed. A failure prints the seed and how to repeat it.
pub fn for_each_seed(subject: &str, usual: u64, mut check: impl FnMut(u64)) {
    for seed in seeds(usual) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(seed))) {
            eprintln!("{subject}: seed {seed} failed; repeat it with {SEEDS}={seed}..{}", seed + 1);
            resume_unwind(panic);
        }
    }
}
