//! Counts against batches that are read one by one.

use girih_features::{Hotness, PRESAMPLED_EPOCH, Visits};
use girih_graph_format::Csr;
use girih_sampling::{Columns, Expand, LoaderOptions, NeighborOptions, NeighborSampler, SeedLoader};

use crate::skewed;

fn loader(graph: &Csr, options: NeighborOptions) -> SeedLoader<'_, NeighborSampler> {
    let sampler = NeighborSampler::new("4,3,2".parse().unwrap(), options).unwrap();
    let seeds = (0..graph.n_rows() as u32).step_by(2).collect();
    SeedLoader::new(graph, sampler, seeds, LoaderOptions { batch_size: 50, ..LoaderOptions::default() }).unwrap()
}

#[test]
fn counts_are_those_of_the_batches_on_any_number_of_threads() {
    let graph = skewed(1000);
    for expand in [Expand::PerLayer, Expand::Once] {
        let loader = loader(&graph, NeighborOptions { expand, ..NeighborOptions::default() });
        let counted = Visits::of(&loader, PRESAMPLED_EPOCH, 4, 1).unwrap();
        assert_eq!(counted, Visits::of(&loader, PRESAMPLED_EPOCH, 4, 3).unwrap());
        let mut features = vec![0; graph.n_rows()];
        let mut rows = vec![0; graph.n_rows()];
        for batch in loader.epoch(PRESAMPLED_EPOCH).take(4) {
            let batch = batch.unwrap();
            batch.inputs().iter().for_each(|&v| features[v as usize] += 1);
            // If nodes are expanded once, the reads are the destinations of the first block; else those of every
            // block.
            let read = if expand == Expand::Once { &batch.blocks[..1] } else { &batch.blocks[..] };
            read.iter().flat_map(|block| block.destinations()).for_each(|&v| rows[v as usize] += 1);
        }
        assert_eq!((&counted.features, &counted.rows), (&features, &rows));
        let per_batch = counted.per_batch();
        assert_eq!(per_batch.features, f64::from(features.iter().sum::<u32>()) / 4.0);
        assert!(per_batch.draws > per_batch.rows, "several neighbors of a row");
    }
}

#[test]
fn presampled_batches_differ_from_trained_ones() {
    let graph = skewed(1000);
    let loader = loader(&graph, NeighborOptions::default());
    let of = |epoch| Visits::of(&loader, epoch, usize::MAX, 2).unwrap();
    let (presampled, trained) = (of(PRESAMPLED_EPOCH), of(0));
    assert_eq!((presampled.n_batches, trained.n_batches), (10, 10));
    assert_ne!(presampled.features, trained.features);
}

#[test]
fn presampling_knows_rows_and_features_apart() {
    let graph = skewed(1000);
    let loader = loader(&graph, NeighborOptions::default());
    let visits = Visits::of(&loader, PRESAMPLED_EPOCH, 2, 1).unwrap();
    let frequencies = Hotness::Presampled.frequencies(&graph, &[0], &visits);
    let counts = |counts: &[u32]| counts.iter().map(|&count| f64::from(count)).collect::<Vec<_>>();
    assert_eq!(frequencies.features.frequency(), counts(&visits.features));
    assert_eq!(frequencies.rows().frequency(), counts(&visits.rows));
    let by_degree = Hotness::InDegree.frequencies(&graph, &[0], &visits);
    assert_eq!(by_degree.rows(), &by_degree.features);
    assert_eq!(by_degree.features.frequency().iter().sum::<f64>(), graph.nnz() as f64);
}

#[test]
fn batches_that_list_no_inputs_are_refused() {
    let graph = skewed(100);
    let loader = loader(&graph, NeighborOptions { inputs: Columns::Global, ..NeighborOptions::default() });
    assert!(Visits::of(&loader, 0, 1, 1).unwrap_err().to_string().contains("global columns"));
}
