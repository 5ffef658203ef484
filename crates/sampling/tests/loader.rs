//! Laws of loaders: every seed once an epoch, whoever takes which batch.

use girih_graph_format::{Csr, NodeId};
use girih_sampling::{Loader, LoaderOptions, MiniBatch, NeighborOptions, NeighborSampler};
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
        let Ok(loader) = Loader::new(&graph, sampler(), seeds.clone(), options) else {
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
        let loader = Loader::new(&graph, sampler(), (0..60).collect(), options).unwrap();
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

#[test]
fn epochs_and_seeds_shuffle_differently() {
    let graph = graph(50);
    let loader = |seed| {
        let options = LoaderOptions { seed, ..LoaderOptions::default() };
        Loader::new(&graph, sampler(), (0..50).collect(), options).unwrap()
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
        Loader::new(&graph, sampler(), seeds, options).err().unwrap().to_string()
    };
    assert!(refused(vec![1, 10], 4, false).contains("node 10"));
    assert!(refused(vec![1, 2, 1], 4, false).contains("twice"));
    assert!(refused(vec![1], 0, false).contains("0 seeds"));
    assert!(refused(vec![1, 2, 3], 4, true).contains("3 seeds make no whole batch of 4"));
    assert!(Loader::new(&Csr::empty(2, 3).unwrap(), sampler(), vec![0], LoaderOptions::default()).is_err());
    // More seeds to a batch than there are: one batch.
    let loader = Loader::new(&graph, sampler(), vec![3, 1], LoaderOptions::default()).unwrap();
    assert_eq!(loader.epoch(0).len(), 1);
}
