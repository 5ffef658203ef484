//! Cost of a launch permit for every kind of launch order. Ranks are threads, and their workers launch nothing.
//!
//! ```text
//! cargo run --release -p girih-launch-order --example turns
//! ```
//! The time of a run goes from the start of all workers until all have closed. It is divided by the launches of one
//! rank. This is the cost of the launch order as long as the other workers have work meanwhile.

use std::thread;
use std::time::{Duration, Instant};

use girih_launch_order::{Coordinator, Order, Rules};

const N_BATCHES: u64 = 5000;
const N_RUNS: usize = 7;

fn main() {
    println!("µs a turn, median of {N_RUNS} runs of {N_BATCHES} batches");
    println!("ranks  workers      led    fixed  fixed, lag 1     free");
    for n_ranks in [1, 2, 4] {
        for n_workers in [1, 3] {
            let time = |order: Order| median(|| turn(n_ranks, n_workers, &order)).as_nanos() as f64 / 1e3;
            let [led, fixed, lagged, free] =
                [Order::Led { leader: 0 }, Order::Fixed { lag: 0 }, Order::Fixed { lag: 1 }, Order::Free].map(time);
            println!("{n_ranks:>5}  {n_workers:>7}  {led:>7.2}  {fixed:>7.2}  {lagged:>12.2}  {free:>7.2}");
        }
    }
}

fn median(run: impl Fn() -> Duration) -> Duration {
    let mut times: Vec<Duration> = (0..N_RUNS).map(|_| run()).collect();
    times.sort_unstable();
    times[N_RUNS / 2]
}

/// Mean time per launch of a rank.
fn turn(n_ranks: usize, n_workers: usize, order: &Order) -> Duration {
    let rules = Rules::new((0..n_workers).map(|worker| worker.to_string())).order(order.clone());
    let ranks = Coordinator::in_process(n_ranks, &rules).expect("there are workers");
    let start = Instant::now();
    thread::scope(|scope| {
        for mut part in ranks.iter().flat_map(|rank| (0..n_workers).map(|worker| rank.participant(worker))) {
            scope.spawn(move || (0..N_BATCHES).for_each(|batch| drop(part.turn(batch).expect("no rank fails"))));
        }
    });
    let time = start.elapsed();
    ranks.iter().for_each(|rank| drop(rank.finish().expect("no rank fails")));
    time / (N_BATCHES * n_workers as u64) as u32
}
