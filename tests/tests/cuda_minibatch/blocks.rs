//! Rows and gradients of blocks that a device samples.

use girih_compute::testing::piece;
use girih_features::SamplingDevice;
use girih_graph_format::{Coo, Duplicates, NodeId, Norm};
use girih_sampling::{Columns, DrawKey, Expand, NeighborOptions, NeighborSampler, Sampler};
use girih_tests::batches::{check_batch, graph};
use girih_tests::cuda;
use girih_trainer::{Adjacency, Neighborhoods};

fn sampler(fan_out: &str, inputs: Columns, expand: Expand) -> NeighborSampler {
    let options = NeighborOptions { edge_ids: true, inputs, expand, ..NeighborOptions::default() };
    NeighborSampler::new(fan_out.parse().unwrap(), options).unwrap()
}

#[test]
fn rows_of_the_device_are_those_of_the_host() {
    let Some(cuda) = cuda() else { return };
    for (weighted, self_loops, norm) in [
        (false, false, Norm::Row),
        (false, true, Norm::Symmetric),
        (false, false, Norm::None),
        (true, true, Norm::Symmetric),
        (true, false, Norm::Row),
    ] {
        let graph = graph(600, weighted);
        let neighborhoods = Neighborhoods::new(&graph, Adjacency::new(self_loops, norm)).unwrap();
        let on_device = cuda.neighbor_graph(&neighborhoods.operand()).unwrap().unwrap();
        for (fan_out, inputs, expand) in [
            ("5,3", Columns::Local, Expand::PerLayer),
            ("4,3,2", Columns::Global, Expand::PerLayer),
            ("-1,2", Columns::Local, Expand::PerLayer),
            ("6,3,2", Columns::Local, Expand::Once),
            ("40,2", Columns::Global, Expand::Once),
        ] {
            let sampler = sampler(fan_out, inputs, expand);
            let mut source = on_device.source(&cuda, &sampler, 64).unwrap().unwrap();
            for (batch, n_seeds) in piece([(0, 64), (1, 7), (2, 1), (3, 33)]) {
                let seeds: Vec<NodeId> = (0..n_seeds).map(|i| (i * 37 + batch * 5) % 600).collect();
                let key = DrawKey::new(9, 2, batch);
                source.request(&seeds, key).unwrap();
                let found = source.take().unwrap();
                let expected = sampler.sample(neighborhoods.graph(), &seeds, key).unwrap();
                check_batch(&cuda, &found, &expected.blocks, &neighborhoods);
                let n_inputs = if inputs == Columns::Global { 600 } else { expected.inputs().len() };
                assert_eq!((found.n_inputs, found.inputs.is_none()), (n_inputs, inputs == Columns::Global));
            }
        }
    }
}

/// Sources with long transposed rows. One occurs in nearly every row: its list is longer than those that the host
/// splits into segments. The others are about as long as the lists that single threads and thread blocks sort.
#[test]
fn columns_may_be_long() {
    let Some(cuda) = cuda() else { return };
    let n = 3000u32;
    let sizes = [2800, 127, 128, 129, 255, 256, 257, 700];
    let named = |v: u32| {
        let hubs = sizes.iter().enumerate().filter(move |&(_, &size)| v < size).map(|(hub, _)| hub as u32);
        hubs.chain([n - 1 - v % 100]).map(move |to| (v, to))
    };
    let (rows, cols) = (0..n).flat_map(named).unzip();
    let graph = Coo::new(n as usize, n as usize, rows, cols, None).unwrap().to_csr(Duplicates::Merge).unwrap();
    let neighborhoods = Neighborhoods::new(&graph, Adjacency::new(false, Norm::Row)).unwrap();
    let sampler = sampler("-1", Columns::Local, Expand::PerLayer);
    let on_device = cuda.neighbor_graph(&neighborhoods.operand()).unwrap().unwrap();
    let mut source = on_device.source(&cuda, &sampler, 2800).unwrap().unwrap();
    let (seeds, key): (Vec<NodeId>, _) = ((0..2800).collect(), DrawKey::new(1, 0, 0));
    source.request(&seeds, key).unwrap();
    let found = source.take().unwrap();
    let expected = sampler.sample(&graph, &seeds, key).unwrap();
    check_batch(&cuda, &found, &expected.blocks, &neighborhoods);
}

#[test]
fn what_was_not_asked_for_is_not_given() {
    let Some(cuda) = cuda() else { return };
    let graph = graph(60, false);
    let neighborhoods = Neighborhoods::new(&graph, Adjacency::new(false, Norm::Row)).unwrap();
    let sampler = sampler("2", Columns::Local, Expand::PerLayer);
    let on_device = cuda.neighbor_graph(&neighborhoods.operand()).unwrap().unwrap();
    let mut source = on_device.source(&cuda, &sampler, 4).unwrap().unwrap();
    assert!(source.take().is_err());
    let key = DrawKey::new(1, 0, 0);
    assert!(source.request(&[1, 60], key).is_err_and(|error| error.to_string().contains("60")));
    assert!(source.take().is_err());
    source.request(&[5, 5], key).unwrap();
    assert!(source.take().is_err_and(|error| error.to_string().contains("seed twice")));
    source.request(&[5, 6], key).unwrap();
    assert_eq!(source.take().unwrap().blocks[0].n_destinations, 2);
    let with_replacement = NeighborOptions { replace: true, ..NeighborOptions::default() };
    let sampler = NeighborSampler::new("2".parse().unwrap(), with_replacement).unwrap();
    assert!(on_device.source(&cuda, &sampler, 4).unwrap().is_none());
}
