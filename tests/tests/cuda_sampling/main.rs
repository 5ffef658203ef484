//! Compares mini-batches and random walks of a CUDA device with those of the CPU, bit by bit. Without a device the
//! tests report that and pass, unless `GIRIH_REQUIRE_GPU` is set: `cargo xtask gpu-test` sets it.

mod inputs;
mod owned;

use self::inputs::*;
use std::sync::Arc;

use girih_compute::testing::piece;
use girih_graph_format::{Csr, NodeId};
use girih_kernels::{DeviceSampler, DeviceTopology, DeviceWalks};
use girih_random::Key;
use girih_sampling::{
    Bias, Columns, DrawKey, Draws, Expand, FanOut, NeighborOptions, NeighborSampler, Neighbors, Node2Vec, RandomWalks,
    Sampler, WalkOptions,
};
use girih_tests::cuda;

#[test]
fn every_fan_out_draws_what_the_cpu_draws() {
    let Some(cuda) = cuda() else { return };
    let graph = graph(701, 1);
    let topology = on_device(&cuda, &graph);
    for fan_out in (1..=34).chain([48, 63, 64, 65, 96, 100, 200, 631]) {
        for replace in [false, true] {
            let options = NeighborOptions { replace, edge_ids: fan_out % 2 == 0, ..NeighborOptions::default() };
            let text = format!("{fan_out},{fan_out}");
            let mut pair = Pair::new(&cuda, (&graph, &topology), &text, options, 64);
            pair.check(&cuda, &[64, 64, 17], &format!("fan-out {text}, replace {replace}"));
        }
    }
}

#[test]
fn blocks_are_those_of_the_cpu_with_every_option() {
    let Some(cuda) = cuda() else { return };
    for (n, seed) in [(1, 1), (31, 2), (32, 3), (33, 4), (257, 5), (8192, 6), (20_000, 7)] {
        let graph = graph(n, seed);
        let topology = on_device(&cuda, &graph);
        for options in all_options() {
            for fan_out in piece(["15,10,5", "3,-1", "-1,2,20", "1", "-1,-1,-1", "5,4,3,2,1"]) {
                let size = (n / 3).clamp(1, 130);
                let mut pair = Pair::new(&cuda, (&graph, &topology), fan_out, options, size);
                pair.check(&cuda, &[size, size, size.div_ceil(3), 0], &format!("{n} nodes, {fan_out}, {options:?}"));
            }
        }
    }
}

#[test]
fn any_request_on_any_graph_has_the_cpus_batch() {
    let Some(cuda) = cuda() else { return };
    for case in piece(0..150) {
        let mut stream = Key::new(case, 80).stream(0, 0);
        let graph = random_graph(&mut stream);
        let topology = if stream.below(4) == 0 {
            placed(&cuda, &graph, one_of(&[0.0, 0.3, 1.0], &mut stream))
        } else {
            on_device(&cuda, &graph)
        };
        let options = one_of(&all_options(), &mut stream);
        let draws = one_of(&[Draws::PerNode, Draws::PerNode, Draws::PerLayer], &mut stream);
        let fan_out = random_fan_out(&mut stream);
        let host = NeighborSampler::new(fan_out.parse().unwrap(), NeighborOptions { draws, ..options }).unwrap();
        let host = if stream.below(3) == 0 { host.weighted(weights(&graph)) } else { host };
        let batch_size = 1 + stream.below(graph.n_rows().min(300) as u64) as usize;
        let mut pair = Pair::of(&cuda, (&graph, &topology), host, batch_size);
        if stream.below(2) == 0 {
            let few = seeds(graph.n_rows(), 1, &mut stream);
            pair.device.presample(&cuda, [(&few[..], DrawKey::new(case, 0, 0))]).expect("batches");
        }
        let mut batch = pair.device.batch(&cuda).expect("memory");
        for number in 0..5 {
            let n_seeds = stream.below(batch_size as u64 + 1) as usize;
            let seeds = seeds(graph.n_rows(), n_seeds, &mut stream);
            let key = DrawKey::new(stream.next_u64(), stream.next_u32(), stream.next_u32());
            pair.device.sample_into(&cuda, &seeds, key, &mut batch).expect("a batch");
            if stream.below(2) == 0 {
                // A batch that is overwritten before it is read leaves nothing behind.
                continue;
            }
            pair.device.complete(&cuda, &mut batch).expect("a batch");
            let what = format!("case {case}: {} nodes, {fan_out}, {draws:?}, {options:?}, {number}", graph.n_rows());
            assert_same(&pair.expected(&seeds, key), &batch.to_host(&cuda).expect("a batch"), &what);
        }
    }
}

#[test]
fn a_graph_without_nodes_or_edges_has_its_batches() {
    let Some(cuda) = cuda() else { return };
    for n in [0, 40] {
        let graph = Csr::empty(n, n).expect("a graph");
        let topology = on_device(&cuda, &graph);
        for options in all_options() {
            for fan_out in ["3,2", "-1,40"] {
                Pair::new(&cuda, (&graph, &topology), fan_out, options, 40).check(&cuda, &[n, n.min(1), 0], fan_out);
            }
        }
        let bias = Bias::of(&graph).expect("weights");
        let host = NeighborSampler::new("3,-1".parse().unwrap(), NeighborOptions::default()).unwrap().weighted(bias);
        Pair::of(&cuda, (&graph, &topology), host, 40).check(&cuda, &[n], "weights");
    }
}

#[test]
fn weighted_draws_are_those_of_the_cpu() {
    let Some(cuda) = cuda() else { return };
    for n in [90, 1500] {
        let graph = graph(n, 8);
        let topology = on_device(&cuda, &graph);
        let bias = weights(&graph);
        for options in all_options() {
            for fan_out in piece(["4,3,2", "20,-1", "-1,70"]) {
                let host = NeighborSampler::new(fan_out.parse().unwrap(), options).unwrap().weighted(bias.clone());
                let mut pair = Pair::of(&cuda, (&graph, &topology), host, 50);
                pair.check(&cuda, &[50, 50, 7], &format!("weights, {fan_out}, {options:?}"));
            }
        }
    }
}

#[test]
fn shares_of_a_hop_are_those_of_the_cpu() {
    let Some(cuda) = cuda() else { return };
    let graph = graph(1500, 9);
    let topology = on_device(&cuda, &graph);
    let bias = weights(&graph);
    for options in all_options() {
        let options = NeighborOptions { draws: Draws::PerLayer, ..options };
        for fan_out in piece(["100,300,700", "2000,-1", "1,1,4000"]) {
            for is_weighted in [false, true] {
                let host = NeighborSampler::new(fan_out.parse().unwrap(), options).unwrap();
                let host = if is_weighted { host.weighted(bias.clone()) } else { host };
                let mut pair = Pair::of(&cuda, (&graph, &topology), host, 300);
                pair.check(&cuda, &[300, 40, 3, 0], &format!("shares, {fan_out}, {is_weighted}, {options:?}"));
            }
        }
    }
}

#[test]
fn positions_that_a_word_does_not_decide_are_those_of_the_cpu() {
    let Some(cuda) = cuda() else { return };
    // For a bound this large, some hundred of a million draws need additional bits.
    const N: usize = 900_001;
    let graph = graph_of(N, |v| if v == 5 { (0..N as NodeId).collect() } else { vec![] });
    let topology = on_device(&cuda, &graph);
    let options = NeighborOptions { replace: true, ..NeighborOptions::default() };
    let pair = Pair::new(&cuda, (&graph, &topology), "2000000", options, 1);
    let mut device = pair.device;
    let key = DrawKey::new(3, 4, 5);
    let found = device.sample(&cuda, &[5], key).expect("a batch").to_host(&cuda).expect("a batch");
    let expected = pair.host.sample(&graph, &[5], key).expect("a batch");
    assert_same(&expected, &found, "two million draws");
}

#[test]
fn graphs_of_many_nodes_are_scanned_in_larger_tiles() {
    let Some(cuda) = cuda() else { return };
    // So many nodes that threads scan eight words each if few nodes are new. Those of node 7 are all in one tile, too
    // many to be staged.
    const N: usize = 9_000_011;
    let mut stream = Key::new(10, 79).stream(0, 0);
    let graph = graph_of(N, |v| match v {
        7 => (200_000..230_000).collect(),
        _ if v < 3000 || (200_000..200_100).contains(&v) => (0..30).map(|_| stream.below(N as u64) as NodeId).collect(),
        _ => vec![],
    });
    let topology = on_device(&cuda, &graph);
    for (fan_out, inputs) in [("30000,3", Columns::Global), ("4,2,1", Columns::Local), ("30000", Columns::Local)] {
        let options = NeighborOptions { inputs, ..NeighborOptions::default() };
        let mut pair = Pair::new(&cuda, (&graph, &topology), fan_out, options, 1000);
        let mut batch = pair.device.batch(&cuda).expect("memory");
        for (number, n_seeds) in [1000, 3, 1000].into_iter().enumerate() {
            let (seeds, key) = ((0..n_seeds).rev().collect::<Vec<NodeId>>(), DrawKey::new(1, 2, number as u32));
            pair.device.sample_into(&cuda, &seeds, key, &mut batch).expect("a batch");
            let found = batch.to_host(&cuda).expect("a batch");
            assert_same(&pair.expected(&seeds, key), &found, &format!("many nodes, {fan_out}"));
        }
        let mut pair = Pair::new(&cuda, (&graph, &topology), fan_out, options, 1);
        let found = pair.device.sample(&cuda, &[7], DrawKey::new(1, 2, 3)).expect("a batch");
        let found = found.to_host(&cuda).expect("a batch");
        assert_same(&pair.expected(&[7], DrawKey::new(1, 2, 3)), &found, &format!("one hub, {fan_out}"));
    }
}

#[test]
fn large_batches_are_those_of_the_cpu() {
    let Some(cuda) = cuda() else { return };
    let spec = "synth:products@0.02,features=0";
    let graph = girih_datasets::load(spec, &girih_datasets::LoadOptions::default()).expect("a data set").graph;
    let topology = on_device(&cuda, &graph);
    for inputs in [Columns::Local, Columns::Global] {
        let options = NeighborOptions { inputs, ..NeighborOptions::default() };
        let mut pair = Pair::new(&cuda, (&graph, &topology), "15,10,5", options, 1024);
        let mut stream = Key::new(11, 79).stream(0, 0);
        let batches: Vec<Vec<NodeId>> = (0..6).map(|_| seeds(graph.n_rows(), 1024, &mut stream)).collect();
        let keyed = batches.iter().zip(100..).map(|(seeds, batch)| (&seeds[..], DrawKey::new(1, 0, batch)));
        pair.device.presample(&cuda, keyed).expect("batches");
        assert_ne!(pair.device.capacities(), pair.device.largest());
        let mut batch = pair.device.batch(&cuda).expect("memory");
        for (number, seeds) in batches.iter().enumerate() {
            let key = DrawKey::new(1, 1, number as u32);
            pair.device.sample_into(&cuda, seeds, key, &mut batch).expect("a batch");
            pair.device.complete(&cuda, &mut batch).expect("a batch");
            let found = batch.to_host(&cuda).expect("a batch");
            assert_same(&pair.expected(seeds, key), &found, &format!("{spec}, {inputs:?}, batch {number}"));
        }
    }
}

#[test]
fn batches_that_exceed_their_memory_are_sampled_again() {
    let Some(cuda) = cuda() else { return };
    let graph = graph(3000, 12);
    let topology = on_device(&cuda, &graph);
    let mut stream = Key::new(12, 79).stream(0, 0);
    let bias = weights(&graph);
    for options in all_options() {
        for (fan_out, draws) in [
            ("15,10,5", Draws::PerNode),
            ("40,3", Draws::PerNode),
            ("-1,2", Draws::PerNode),
            ("900,900", Draws::PerLayer),
        ] {
            for is_weighted in piece([false, true]) {
                let host =
                    NeighborSampler::new(fan_out.parse().unwrap(), NeighborOptions { draws, ..options }).unwrap();
                let host = if is_weighted { host.weighted(bias.clone()) } else { host };
                let mut pair = Pair::of(&cuda, (&graph, &topology), host, 100);
                // The measured capacities are far too small for the batches that follow.
                let few = seeds(3000, 2, &mut stream);
                pair.device.presample(&cuda, [(&few[..], DrawKey::new(0, 0, 0))]).expect("batches");
                let mut batch = pair.device.batch(&cuda).expect("memory");
                for number in 0..4 {
                    let what = format!("{fan_out}, {is_weighted}, {options:?}, batch {number}");
                    let (seeds, key) = (seeds(3000, [100, 2, 100, 50][number], &mut stream), DrawKey::new(1, 1, 1));
                    pair.device.sample_into(&cuda, &seeds, key, &mut batch).expect("a batch");
                    let too_small = batch.sizes(&cuda).expect("sizes").is_overflow();
                    assert_eq!(batch.to_host(&cuda).is_err(), too_small, "{what}");
                    if number == 0 && draws == Draws::PerNode {
                        assert!(too_small, "{what}");
                    }
                    // The node sets are empty again, whether or not the batch is read.
                    if number != 2 {
                        pair.device.complete(&cuda, &mut batch).expect("a batch");
                        assert_same(&pair.expected(&seeds, key), &batch.to_host(&cuda).expect("a batch"), &what);
                        batch = pair.device.batch(&cuda).expect("memory");
                    }
                }
            }
        }
    }
}

#[test]
fn a_graph_in_memory_of_the_host_is_read_in_place() {
    let Some(cuda) = cuda() else { return };
    let graph = graph(5000, 13);
    let topology = placed(&cuda, &graph, 0.0);
    assert!(topology.is_on_host() && !placed(&cuda, &graph, 0.5).is_on_host());
    for options in all_options() {
        for fan_out in piece(["15,10,5", "7,3,25", "-1,40"]) {
            let mut pair = Pair::new(&cuda, (&graph, &topology), fan_out, options, 100);
            pair.check(&cuda, &[100, 100, 9], &format!("on the host, {fan_out}, {options:?}"));
        }
    }
}

#[test]
fn requests_that_make_no_batch_are_refused_and_leave_nothing_behind() {
    let Some(cuda) = cuda() else { return };
    let graph = graph(500, 14);
    let topology = on_device(&cuda, &graph);
    let mut pair = Pair::new(&cuda, (&graph, &topology), "4,4", NeighborOptions::default(), 10);
    let key = DrawKey::new(1, 2, 3);
    let too_many: Vec<NodeId> = (0..11).collect();
    for (seeds, told) in [
        (&[1, 500][..], "seed 1 is node 500"),
        (&[3, 9, 4, 9][..], "node 9 is a seed twice, at 1 and 3"),
        (&too_many[..], "11 seeds"),
    ] {
        let error = pair.device.sample(&cuda, seeds, key).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
        pair.check(&cuda, &[10, 3], told);
    }
    let once = NeighborOptions { expand: Expand::Once, ..NeighborOptions::default() };
    let other = Pair::new(&cuda, (&graph, &topology), "4,4", once, 10);
    let mut batch = other.device.batch(&cuda).expect("memory");
    assert!(pair.device.sample_into(&cuda, &[1], key, &mut batch).is_err());
    let fan_out = FanOut::new([Neighbors::Count(3)]).unwrap();
    let labor = NeighborOptions { draws: Draws::Labor, ..NeighborOptions::default() };
    let labor = NeighborSampler::new(fan_out.clone(), labor).unwrap();
    assert!(DeviceSampler::new(&cuda, Arc::clone(&topology), &graph, &labor, 10).is_err());
    let wrong = Bias::of(&self::graph(400, 15)).unwrap();
    let wrong = NeighborSampler::new(fan_out, NeighborOptions::default()).unwrap().weighted(wrong);
    assert!(DeviceSampler::new(&cuda, Arc::clone(&topology), &graph, &wrong, 10).is_err());
    assert!(DeviceTopology::on_device(&cuda, &Csr::empty(3, 4).unwrap()).is_err());
}

#[test]
fn memory_serves_samplers_in_turns_and_without_graphs() {
    let graphs = [graph(500, 18), graph(500, 19)];
    for records in [false, true] {
        let Some(cuda) = cuda() else { return };
        let cuda = cuda.recording(records);
        let topologies = graphs.each_ref().map(|graph| on_device(&cuda, graph));
        let mut pairs: Vec<Pair> = graphs
            .iter()
            .zip(&topologies)
            .map(|parts| Pair::new(&cuda, parts, "5,4", NeighborOptions::default(), 20))
            .collect();
        let mut batch = pairs[0].device.batch(&cuda).expect("memory");
        let mut stream = Key::new(18, 79).stream(0, 0);
        for (number, which) in [0, 0, 0, 1, 0, 1, 1, 1, 0, 0].into_iter().enumerate() {
            let (seeds, key) = (seeds(500, 20, &mut stream), DrawKey::new(1, 2, number as u32));
            let pair = &mut pairs[which];
            pair.device.sample_into(&cuda, &seeds, key, &mut batch).expect("a batch");
            let found = batch.to_host(&cuda).expect("a batch");
            assert_same(&pair.expected(&seeds, key), &found, &format!("sampler {which}, batch {number}"));
        }
    }
}

#[test]
fn walks_are_those_of_the_cpu() {
    let Some(cuda) = cuda() else { return };
    let graph = graph(1200, 16);
    let topology = on_device(&cuda, &graph);
    let bias = weights(&graph);
    let mut stream = Key::new(17, 79).stream(0, 0);
    let starts: Vec<NodeId> = (0..1000).map(|_| stream.below(1200) as NodeId).collect();
    let ends = seeds(1200, 30, &mut stream);
    let plain = WalkOptions::new(20);
    let node2vec = |p, q| Some(Node2Vec { p, q });
    let all = [
        plain,
        WalkOptions::new(0),
        WalkOptions { stop: 0.1, ..plain },
        WalkOptions { restart: 0.3, stop: 0.05, ..plain },
        WalkOptions { node2vec: node2vec(0.25, 4.0), ..plain },
        WalkOptions { node2vec: node2vec(8.0, 0.5), restart: 0.2, ..plain },
        WalkOptions { stop: 1.0, ..plain },
    ];
    for options in all {
        for is_weighted in [false, true] {
            let host = RandomWalks::new(options).expect("walks");
            let host = if is_weighted { host.weighted(bias.clone()) } else { host };
            let device = DeviceWalks::new(&cuda, Arc::clone(&topology), &graph, &host).expect("memory");
            let key = DrawKey::new(6, 7, 8);
            for ends in [&[][..], &ends] {
                let expected = host.walk_until(&graph, &starts, key, |node| ends.contains(&node)).expect("walks");
                let found = device.walk_until(&cuda, &starts, key, ends).expect("walks");
                assert!(expected == found, "{options:?}, {is_weighted}, {} ends", ends.len());
            }
            assert!(device.walk(&cuda, &[], key).expect("no walks").is_empty());
            assert!(device.walk(&cuda, &[1200], key).is_err());
        }
    }
}
