//! Seeds: how many are tried, and what a failure says.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Variable with the seeds to try: a number, `10000`, or a range, `4711..4712`.
const SEEDS: &str = "GIRIH_SEEDS";

/// Seeds to try; `usual` are as many as the ordinary run affords.
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

/// Runs `check` for every seed. A failure names the seed and how to repeat it alone.
pub fn for_each_seed(subject: &str, usual: u64, mut check: impl FnMut(u64)) {
    for seed in seeds(usual) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(seed))) {
            eprintln!("{subject}: seed {seed} failed; repeat it with {SEEDS}={seed}..{}", seed + 1);
            resume_unwind(panic);
        }
    }
}
