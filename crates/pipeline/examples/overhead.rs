//! Overhead of a stage per item when the stage does no work. Compares pipelines of identity stages with threads that
//! the standard library's bounded channels connect.
//!
//! ```text
//! cargo run --release -p girih-pipeline --example overhead
//! ```

use std::convert::Infallible;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use girih_pipeline::{Pipeline, Stage};

const N_ITEMS: u64 = 50_000;
const N_RUNS: usize = 7;

fn main() {
    println!("ns an item and stage, median of {N_RUNS} runs of {N_ITEMS} items");
    println!("stages  workers  capacity  pipeline  channels");
    for n_stages in [1, 2, 3] {
        for (workers, capacity) in [(1, 2), (1, 64), (2, 4)] {
            let stage = Stage::new("stage").workers(workers).capacity(capacity);
            let pipeline = median(|| through_pipeline(n_stages, &stage)) / n_stages as u32;
            let channels = match workers {
                1 => (median(|| through_channels(n_stages, capacity)) / n_stages as u32).as_nanos().to_string(),
                // Channels alone do not keep the order of several workers.
                _ => "-".to_owned(),
            };
            println!("{n_stages:>6}  {workers:>7}  {capacity:>8}  {:>8}  {channels:>8}", pipeline.as_nanos());
        }
    }
}

/// Median time per item.
fn median(run: impl Fn() -> u64) -> Duration {
    let mut times: Vec<Duration> = (0..N_RUNS)
        .map(|_| {
            let start = Instant::now();
            assert_eq!(run(), N_ITEMS * (N_ITEMS - 1) / 2);
            start.elapsed() / N_ITEMS as u32
        })
        .collect();
    times.sort_unstable();
    times[N_RUNS / 2]
}

/// Runs the items through identity stages and returns their sum.
fn through_pipeline(n_stages: usize, stage: &Stage) -> u64 {
    let source = Pipeline::<u64, Infallible>::new(0..N_ITEMS);
    let pipeline = (0..n_stages).fold(source, |pipeline, _| pipeline.stage(stage.clone(), || Ok));
    pipeline.start().expect("threads can be started").map(|item| item.expect("no stage fails")).sum()
}

/// As [`through_pipeline`], but with a thread and a channel for each stage.
fn through_channels(n_stages: usize, capacity: usize) -> u64 {
    let mut items: Box<dyn Iterator<Item = u64> + Send> = Box::new(0..N_ITEMS);
    for _ in 0..n_stages {
        let (sender, receiver) = sync_channel(capacity);
        std::thread::spawn(move || items.try_for_each(|item| sender.send(item)));
        items = Box::new(receiver.into_iter());
    }
    items.sum()
}
