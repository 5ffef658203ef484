//! Laws of loaders: every seed occurs once per epoch, however ranks divide the batches.

use std::sync::atomic::{AtomicUsize, Ordering};

use girih_graph_format::{Csr, NodeId};
use girih_pipeline::{Stage, StageError};
use girih_sampling::{
    DrawKey, LoaderOptions, MiniBatch, NeighborOptions, NeighborSampler, SampleError, Sampler, SeedLoader,
};
use proptest::prelude::*;

fn graph(n: u32) -> Csr {
    let indices = (0..n).flat_map(|v| (0..n).filter(move |u| (u + v) % 3 == 0)).collect::<Vec<NodeId>>();
    let mut indptr = vec![0u64];
    for v in 0..n {
        indptr.push(indptr[v as usize] + (0..n).filter(|u| (u + v) % 3 == 0).count() as u64);
    }
    Csr::new(n as usize, n as usize, indptr, indices, None).unwrap()
}

fn sampler() -> NeighborSampler {
    NeighborSampler::new("3,2".parse().unwrap(), NeighborOptions::default()).unwrap()
}

proptest! {
    #[test]
    fn an_epoch_has_every_seed_once(n in 1..80u32, batch_size in 1..100usize, shuffle: bool, drop_last: bool, epoch: u32) {
        let graph = graph(n);
        let seeds: Vec<NodeId> = (0..n).filter(|v| v % 4 != 1).collect();
        let options = LoaderOptions { batch_size, shuffle, drop_last, seed: 9 };
        let Ok(loader) = SeedLoader::new(&graph, sampler(), seeds.clone(), options) else {
            prop_assert!(drop_last && seeds.len() < batch_size);
            return Ok(());
        };
        let batches: Vec<MiniBatch> = loader.epoch(epoch).map(Result::unwrap).collect();
        prop_assert_eq!(batches.len(), loader.plan(epoch).n_batches());
        prop_assert_eq!(loader.epoch(epoch).len(), batches.len());
        let (last, whole) = batches.split_last().unwrap();
        prop_assert!(whole.iter().all(|batch| batch.seeds().len() == batch_size));
        prop_assert!(!last.seeds().is_empty() && last.seeds().len() <= batch_size);
        let mut found: Vec<NodeId> = batches.iter().flat_map(|batch| batch.seeds().to_vec()).collect();
        if !shuffle {
            prop_assert_eq!(&found[..], &seeds[..found.len()]);
        }
        found.sort_unstable();
        if drop_last {
            prop_assert_eq!(found.len(), seeds.len() / batch_size * batch_size);
            found.dedup();
            prop_assert_eq!(found.len() % batch_size, 0);
        } else {
            prop_assert_eq!(found, seeds);
        }
    }

    #[test]
    fn going_on_after_a_stop_gives_the_same_batches(skipped in 0..12usize) {
        let graph = graph(60);
        let options = LoaderOptions { batch_size: 7, ..LoaderOptions::default() };
        let loader = SeedLoader::new(&graph, sampler(), (0..60).collect(), options).unwrap();
        let all: Vec<u64> = loader.epoch(3).map(|batch| batch.unwrap().digest()).collect();
        let rest: Vec<u64> = loader.epoch(3).skip(skipped).map(|batch| batch.unwrap().digest()).collect();
        prop_assert_eq!(&rest[..], &all[skipped.min(all.len())..]);
        let (mut epoch, mut batch, mut again) = (loader.epoch(3), MiniBatch::default(), Vec::new());
        while let Some(sampled) = epoch.next_into(&mut batch) {
            sampled.unwrap();
            again.push(batch.digest());
        }
        prop_assert_eq!(again, all);
    }
}

/// Digests and numbers of prefetched batches.
fn prefetched(loader: &SeedLoader<'_, NeighborSampler>, epoch: u32, stage: &Stage) -> Vec<(usize, u64)> {
    std::thread::scope(|scope| {
        let batches = loader.epoch(epoch).prefetch(stage.clone()).start_in(scope).unwrap();
        batches.map(Result::unwrap).map(|batch| (batch.number(), batch.digest())).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    #[test]
    fn batches_sampled_ahead_are_those_sampled_when_asked_for(n_threads in 1..6usize, capacity in 1..9usize, batch_size in 1..20usize) {
        let graph = graph(90);
        let options = LoaderOptions { batch_size, ..LoaderOptions::default() };
        let loader = SeedLoader::new(&graph, sampler(), (0..90).collect(), options).unwrap();
        let stage = Stage::new("sample").workers(n_threads).capacity(capacity);
        // In the second epoch, batches reuse the memory of the first.
        for epoch in 0..2 {
            let expected: Vec<_> = loader.epoch(epoch).map(|batch| batch.unwrap().digest()).enumerate().collect();
            prop_assert_eq!(prefetched(&loader, epoch, &stage), &expected[..]);
            let ahead = loader.epoch(epoch).on_threads(n_threads).unwrap();
            let ahead: Vec<_> = ahead.map(Result::unwrap).map(|batch| (batch.number(), batch.digest())).collect();
            prop_assert_eq!(ahead, expected);
        }
    }
}

#[test]
fn batches_that_are_still_in_use_keep_their_memory() {
    let graph = graph(60);
    let options = LoaderOptions { batch_size: 5, ..LoaderOptions::default() };
    let loader = SeedLoader::new(&graph, sampler(), (0..60).collect(), options).unwrap();
    std::thread::scope(|scope| {
        let batches = loader.epoch(0).batches(3..9).prefetch("sample").start_in(scope).unwrap();
        let held: Vec<_> = batches.map(Result::unwrap).collect();
        assert_eq!(held.iter().map(|batch| batch.number()).collect::<Vec<_>>(), (3..9).collect::<Vec<_>>());
        for (batch, expected) in held.iter().zip(loader.epoch(0).batches(3..9)) {
            assert_eq!(**batch, expected.unwrap());
        }
    });
}

/// Counter of live instances.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(alive: &'a AtomicUsize) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Self(alive)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn who_stops_half_way_leaves_no_thread_behind() {
    let graph = graph(90);
    let options = LoaderOptions { batch_size: 1, ..LoaderOptions::default() };
    let loader = SeedLoader::new(&graph, sampler(), (0..90).collect(), options).unwrap();
    for n_read in [0, 1, 7, 89, 90] {
        let alive = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let stage = Stage::new("sample").workers(3).capacity(1);
            let count = || {
                let counted = Counted::new(&alive);
                // The state of a thread is dropped with the thread.
                move |batch| {
                    assert!(counted.0.load(Ordering::SeqCst) <= 3);
                    Ok(batch)
                }
            };
            let mut batches = loader.epoch(0).prefetch_with(stage, count).start_in(scope).unwrap();
            for expected in loader.epoch(0).take(n_read) {
                assert_eq!(*batches.next().unwrap().unwrap(), expected.unwrap());
            }
            // All three threads may be waiting for a free slot now; the drop stops them and waits for them.
            drop(batches);
            assert_eq!(alive.load(Ordering::SeqCst), 0);
        });
    }
}

/// Sampler that counts its live instances, as threads of an epoch hold them.
struct Shared(NeighborSampler, std::sync::Arc<AtomicUsize>);

impl Sampler for Shared {
    fn sample_into(
        &self,
        graph: &Csr,
        seeds: &[NodeId],
        key: DrawKey,
        batch: &mut MiniBatch,
    ) -> Result<(), SampleError> {
        self.0.sample_into(graph, seeds, key, batch)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn an_epoch_on_threads_outlives_its_loader_and_ends_with_its_threads() {
    let expected = {
        let graph = graph(90);
        let options = LoaderOptions { batch_size: 1, ..LoaderOptions::default() };
        let loader = SeedLoader::new(&graph, sampler(), (0..90).collect(), options).unwrap();
        loader.epoch(2).batches(5..90).map(|batch| batch.unwrap().digest()).collect::<Vec<_>>()
    };
    for n_read in [0, 1, 40, 85, 100] {
        let dropped = std::sync::Arc::new(AtomicUsize::new(0));
        let mut ahead = {
            let graph = graph(90);
            let options = LoaderOptions { batch_size: 1, ..LoaderOptions::default() };
            let sampler = Shared(sampler(), std::sync::Arc::clone(&dropped));
            let loader = SeedLoader::new(&graph, sampler, (0..90).collect(), options).unwrap();
            loader.epoch(2).batches(5..90).on_threads(3).unwrap()
        };
        assert_eq!(ahead.size_hint(), (0, Some(85)));
        assert_eq!(dropped.load(Ordering::SeqCst), 0, "the threads still hold the sampler");
        let read: Vec<u64> = ahead.by_ref().take(n_read).map(|batch| batch.unwrap().digest()).collect();
        assert_eq!(read, expected[..n_read.min(85)]);
        drop(ahead);
        assert_eq!(dropped.load(Ordering::SeqCst), 1, "after {n_read} batches, all threads have ended");
    }
}

#[test]
fn an_epoch_on_threads_has_failures_in_their_place() {
    let graph = graph(90);
    for (at, panics) in [(0, false), (13, false), (13, true)] {
        let options = LoaderOptions { batch_size: 3, ..LoaderOptions::default() };
        let failing = Failing { sampler: sampler(), at: at + 2, panics };
        let loader = SeedLoader::new(&graph, failing, (0..90).collect(), options).unwrap();
        let mut batches = loader.epoch(0).batches(2..30).on_threads(3).unwrap();
        for number in 0..at as usize {
            assert_eq!(batches.next().unwrap().unwrap().number(), number + 2);
        }
        let error = batches.next().unwrap().unwrap_err().to_string();
        let expected = if panics { "out of order".to_owned() } else { format!("batch {}: no such seed", at + 2) };
        assert!(error.contains(&expected), "{error}");
        assert!(batches.next().is_none() && batches.size_hint() == (0, Some(0)));
    }
    let loader = SeedLoader::new(&graph, sampler(), vec![1], LoaderOptions::default()).unwrap();
    let error = loader.epoch(0).on_threads(0).err().unwrap().to_string();
    assert!(error.contains("no workers"), "{error}");
}

/// Sampler that fails, or panics, at one batch.
struct Failing {
    sampler: NeighborSampler,
    at: u32,
    panics: bool,
}

impl Sampler for Failing {
    fn sample_into(
        &self,
        graph: &Csr,
        seeds: &[NodeId],
        key: DrawKey,
        batch: &mut MiniBatch,
    ) -> Result<(), SampleError> {
        if key.batch != self.at {
            return self.sampler.sample_into(graph, seeds, key, batch);
        }
        assert!(!self.panics, "out of order");
        Err(SampleError::invalid("no such seed"))
    }
}

#[test]
fn a_failure_takes_the_place_of_its_batch() {
    let graph = graph(90);
    for (at, panics) in [(0, false), (13, false), (29, false), (13, true)] {
        let options = LoaderOptions { batch_size: 3, ..LoaderOptions::default() };
        let failing = Failing { sampler: sampler(), at, panics };
        let loader = SeedLoader::new(&graph, failing, (0..90).collect(), options).unwrap();
        std::thread::scope(|scope| {
            let stage = Stage::new("sample").workers(3).capacity(4);
            let mut batches = loader.epoch(0).prefetch(stage).start_in(scope).unwrap();
            for number in 0..at as usize {
                assert_eq!(batches.next().unwrap().unwrap().number(), number);
            }
            let error = batches.next().unwrap().unwrap_err();
            let is_right = match &error {
                StageError::Failed { item, source, .. } => {
                    !panics && *item == u64::from(at) && source.to_string() == "no such seed"
                }
                StageError::Panicked { item, message, .. } => {
                    panics && *item == Some(u64::from(at)) && message == "out of order"
                }
                _ => false,
            };
            assert!(is_right, "{error}");
            assert!(batches.next().is_none());
        });
    }
}

#[test]
fn epochs_and_seeds_shuffle_differently() {
    let graph = graph(50);
    let loader = |seed| {
        let options = LoaderOptions { seed, ..LoaderOptions::default() };
        SeedLoader::new(&graph, sampler(), (0..50).collect(), options).unwrap()
    };
    let orders = [loader(0).plan(0), loader(0).plan(1), loader(1).plan(0)].map(|plan| plan.seeds(0).to_vec());
    assert!(orders[0] != orders[1] && orders[0] != orders[2] && orders[1] != orders[2]);
    assert_eq!(orders[0], loader(0).plan(0).seeds(0));
}

#[test]
fn bad_settings_are_refused() {
    let graph = graph(10);
    let refused = |seeds: Vec<NodeId>, batch_size, drop_last| {
        let options = LoaderOptions { batch_size, drop_last, ..LoaderOptions::default() };
        SeedLoader::new(&graph, sampler(), seeds, options).err().unwrap().to_string()
    };
    assert!(refused(vec![1, 10], 4, false).contains("node 10"));
    assert!(refused(vec![1, 2, 1], 4, false).contains("twice"));
    assert!(refused(vec![1], 0, false).contains("the batch size is 0"));
    assert!(refused(vec![1, 2, 3], 4, true).contains("3 seeds make no whole batch of 4"));
    assert!(SeedLoader::new(&Csr::empty(2, 3).unwrap(), sampler(), vec![0], LoaderOptions::default()).is_err());
    // A batch size above the number of seeds gives one batch.
    let loader = SeedLoader::new(&graph, sampler(), vec![3, 1], LoaderOptions::default()).unwrap();
    assert_eq!(loader.epoch(0).len(), 1);
}
