//! Laws of random walks: every step is an edge, and steps have the requested frequencies.

use std::collections::BTreeMap;

use girih_graph_format::{Csr, NodeId};
use girih_sampling::testing::{assert_fair, chi_square, graph_of, graphs_and_seeds, hubs, star};
use girih_sampling::{Bias, DrawKey, Node2Vec, RandomWalks, WalkOptions, Walks};
use proptest::prelude::*;

fn walks(options: WalkOptions, graph: &Csr, starts: &[NodeId], key: DrawKey) -> Walks {
    RandomWalks::new(options).unwrap().walk(graph, starts, key).unwrap()
}

proptest! {
    #[test]
    fn walks_follow_edges((graph, starts) in graphs_and_seeds(), length in 0..12u32, seed: u64, second_order: bool) {
        let node2vec = second_order.then_some(Node2Vec { p: 4.0, q: 0.25 });
        let options = WalkOptions { node2vec, ..WalkOptions::new(length) };
        let walks = walks(options, &graph, &starts, DrawKey::new(seed, 1, 2));
        prop_assert_eq!(walks.len(), starts.len());
        for (i, &start) in starts.iter().enumerate() {
            let walk = walks.walk(i);
            prop_assert_eq!(walk[0], start);
            prop_assert!(walk.windows(2).all(|step| graph.row(step[0] as usize).contains(&step[1])));
            let last = *walk.last().unwrap();
            prop_assert!(walk.len() == length as usize + 1 || walk.len() <= length as usize && graph.degree(last as usize) == 0);
        }
    }

    #[test]
    fn a_walk_that_is_ended_is_the_beginning_of_one_that_is_not(
        (graph, starts) in graphs_and_seeds(),
        is_end in prop::collection::vec(prop::bool::weighted(0.2), 60),
        stop in prop_oneof![Just(0.0), Just(0.1f32)],
        second_order: bool,
    ) {
        let node2vec = second_order.then_some(Node2Vec { p: 4.0, q: 0.25 });
        let options = WalkOptions { node2vec, stop, restart: 0.2, ..WalkOptions::new(9) };
        let (key, is_end) = (DrawKey::new(3, 4, 5), |v: NodeId| is_end[v as usize]);
        let whole = walks(options, &graph, &starts, key);
        let ended = RandomWalks::new(options).unwrap().walk_until(&graph, &starts, key, is_end).unwrap();
        prop_assert_eq!(ended.len(), starts.len());
        for i in 0..starts.len() {
            let first_end = whole.walk(i).iter().position(|&v| is_end(v));
            let expected = first_end.map_or(whole.walk(i), |at| &whole.walk(i)[..=at]);
            prop_assert_eq!(ended.walk(i), expected);
        }
    }

    #[test]
    fn a_walk_depends_on_its_number_alone((graph, starts) in graphs_and_seeds(), len in 0..60usize) {
        let options = WalkOptions { stop: 0.1, restart: 0.2, ..WalkOptions::new(9) };
        let whole = walks(options, &graph, &starts, DrawKey::new(3, 4, 5));
        let part = walks(options, &graph, &starts[..len.min(starts.len())], DrawKey::new(3, 4, 5));
        prop_assert!((0..part.len()).all(|i| part.walk(i) == whole.walk(i)));
    }
}

#[test]
fn walks_do_not_depend_on_threads() {
    let graph = hubs(2000);
    let starts: Vec<NodeId> = (0..3000).map(|i| i * 13 % 2000).collect();
    let options = WalkOptions { restart: 0.1, node2vec: Some(Node2Vec { p: 0.5, q: 2.0 }), ..WalkOptions::new(20) };
    let expected = walks(options, &graph, &starts, DrawKey::new(1, 0, 0));
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert_eq!(pool.install(|| walks(options, &graph, &starts, DrawKey::new(1, 0, 0))), expected);
    }
    for key in [DrawKey::new(2, 0, 0), DrawKey::new(1, 1, 0), DrawKey::new(1, 0, 1)] {
        assert_ne!(walks(options, &graph, &starts, key), expected);
    }
}

#[test]
fn lengths_are_geometric_with_a_chance_to_stop() {
    const N: usize = 40_000;
    let ring = graph_of(5, (0..5).map(|v| (v, (v + 1) % 5)));
    let walks = walks(WalkOptions { stop: 0.25, ..WalkOptions::new(8) }, &ring, &[0; N], DrawKey::new(6, 0, 0));
    let mut counts = [0.0; 9];
    (0..N).for_each(|i| counts[walks.walk(i).len() - 1] += 1.0);
    let expected =
        |steps: usize| N as f64 * if steps == 8 { 0.75f64.powi(8) } else { 0.25 * 0.75f64.powi(steps as i32) };
    assert_fair(chi_square(&counts, |steps| (expected(steps), expected(steps))), 8.0);
}

#[test]
fn walks_are_as_long_as_it_takes_to_come_to_an_end() {
    const N: usize = 40_000;
    // One of the four neighbors of every node is an end, so each step reaches it with a chance of 1/4.
    let complete = graph_of(5, (0..5).flat_map(|v| (0..5).filter(move |&u| u != v).map(move |u| (v, u))));
    let walks = RandomWalks::new(WalkOptions::new(8)).unwrap();
    let walks = walks.walk_until(&complete, &[0; N], DrawKey::new(6, 0, 0), |v| v == 4).unwrap();
    let mut counts = [0.0; 8];
    (0..N).for_each(|i| counts[walks.walk(i).len() - 2] += 1.0);
    let expected =
        |before: usize| N as f64 * if before == 7 { 0.75f64.powi(7) } else { 0.25 * 0.75f64.powi(before as i32) };
    assert_fair(chi_square(&counts, |before| (expected(before), expected(before))), 7.0);
}

#[test]
fn restarts_lead_to_the_start() {
    const N: usize = 40_000;
    let ring = graph_of(50, (0..50).map(|v| (v, (v + 1) % 50)));
    let walks = walks(WalkOptions { restart: 0.25, ..WalkOptions::new(6) }, &ring, &[7; N], DrawKey::new(8, 0, 0));
    // The position of a walk after six steps is its number of steps since the last restart.
    let mut counts = [0.0; 7];
    for i in 0..N {
        assert_eq!(walks.walk(i).len(), 7);
        counts[walks.walk(i)[6] as usize - 7] += 1.0;
    }
    let expected =
        |since: usize| N as f64 * if since == 6 { 0.75f64.powi(6) } else { 0.25 * 0.75f64.powi(since as i32) };
    assert_fair(chi_square(&counts, |since| (expected(since), expected(since))), 6.0);
}

/// Number of walks of two steps that reach each node after `1 → 0`.
fn second_steps(walks: &RandomWalks, graph: &Csr, n: usize) -> BTreeMap<NodeId, f64> {
    let walks = walks.walk(graph, &vec![1; n], DrawKey::new(5, 0, 0)).unwrap();
    let mut counts = BTreeMap::new();
    for walk in (0..n).map(|i| walks.walk(i)).filter(|walk| walk[1] == 0) {
        *counts.entry(walk[2]).or_insert(0.0) += 1.0;
    }
    counts
}

#[test]
fn second_order_steps_have_the_chances_of_node2vec() {
    // Node 0 has the neighbors 1 to 6, of which 2 and 3 are neighbors of 1, as is 0.
    let edges = (1..7).flat_map(|v| [(0, v), (v, 0)]).chain([(1, 2), (1, 3), (2, 1)]);
    let graph = graph_of(7, edges);
    let weights: Vec<f32> = (0..graph.nnz()).map(|e| if e < 6 { (e + 1) as f32 } else { 1.0 }).collect();
    for (p, q) in [(4.0, 0.25), (0.25, 4.0), (1.0, 1.0), (256.0, 0.5)] {
        for is_weighted in [false, true] {
            let options = WalkOptions { node2vec: Some(Node2Vec { p, q }), ..WalkOptions::new(2) };
            let mut walks = RandomWalks::new(options).unwrap();
            if is_weighted {
                walks = walks.weighted(Bias::new(&graph, &weights).unwrap());
            }
            let counts = second_steps(&walks, &graph, 60_000);
            let total: f64 = counts.values().sum();
            let share = |v: NodeId| {
                let alpha = if v == 1 {
                    1.0 / p
                } else if v < 4 {
                    1.0
                } else {
                    1.0 / q
                };
                f64::from(alpha * if is_weighted { v as f32 } else { 1.0 })
            };
            let sum: f64 = (1..7).map(share).sum();
            let found: Vec<f64> = (1..7).map(|v| counts.get(&v).copied().unwrap_or(0.0)).collect();
            let expected = |i: usize| total * share(i as NodeId + 1) / sum;
            assert_fair(chi_square(&found, |i| (expected(i), expected(i))), 5.0);
        }
    }
}

#[test]
fn weights_are_the_chances_of_a_step() {
    const N: usize = 30_000;
    let weights = [2.0f32, 0.0, 1.0, 5.0];
    let graph = star(4);
    let walks = RandomWalks::new(WalkOptions::new(1)).unwrap().weighted(Bias::new(&graph, &weights).unwrap());
    let walks = walks.walk(&graph, &[0; N], DrawKey::default()).unwrap();
    let mut counts = [0.0; 4];
    (0..N).for_each(|i| counts[walks.walk(i)[1] as usize - 1] += 1.0);
    assert_eq!(counts[1], 0.0);
    let expected = |i: usize| N as f64 * [2.0, 1.0, 5.0][i] / 8.0;
    assert_fair(chi_square(&[counts[0], counts[2], counts[3]], |i| (expected(i), expected(i))), 2.0);
    // A row whose edges all have weight zero counts as an empty row.
    let nowhere = RandomWalks::new(WalkOptions::new(3)).unwrap().weighted(Bias::new(&graph, &[0.0; 4]).unwrap());
    assert_eq!(nowhere.walk(&graph, &[0], DrawKey::default()).unwrap().nodes, [0]);
}

#[test]
fn bad_input_is_refused() {
    let refused = |options| RandomWalks::new(options).unwrap_err().to_string();
    assert!(refused(WalkOptions { stop: 1.5, ..WalkOptions::new(3) }).contains("stop with a chance of 1.5"));
    assert!(refused(WalkOptions { restart: f32::NAN, ..WalkOptions::new(3) }).contains("restart with a chance of NaN"));
    for (p, q, told) in [(0.0, 1.0, "p = 0"), (1.0, -1.0, "q = -1"), (f32::NAN, 1.0, "p = NaN"), (1.0, 1e9, "q = 1")] {
        assert!(refused(WalkOptions { node2vec: Some(Node2Vec { p, q }), ..WalkOptions::new(3) }).contains(told));
    }
    let walks = RandomWalks::new(WalkOptions::new(3)).unwrap();
    let graph = star(4);
    let error = walks.walk(&graph, &[0, 9], DrawKey::default()).unwrap_err().to_string();
    assert!(error.contains("walk 1 starts at node 9"), "{error}");
    assert!(walks.walk(&Csr::empty(2, 3).unwrap(), &[0], DrawKey::default()).is_err());
    assert!(walks.walk(&graph, &[], DrawKey::default()).unwrap().is_empty());
    let error = walks.weighted(Bias::of(&star(3)).unwrap()).walk(&graph, &[0], DrawKey::default()).unwrap_err();
    assert!(error.to_string().contains("weights for 3 edges"));
}
